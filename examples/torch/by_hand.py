"""Data parallel by hand: weights from rank 0 by broadcast, gradients averaged by all_reduce, no DDP.

One host:       torchrun --nproc_per_node 4 examples/torch/by_hand.py
Several hosts:  torchrun --nnodes 2 --node_rank 0 --nproc_per_node 2 --master_addr 10.0.0.1 --master_port 29500 \
                    examples/torch/by_hand.py            # on the first; on the second with --node_rank 1
"""
import argparse

import torch
import torch.distributed as dist
from common import DIGITS, Progress, accuracy, digits, network, say
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import tutti.torch  # noqa: F401 - registers the backend


def share_weights(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)


def average_gradients(model):
    works = [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True) for p in model.parameters()]
    for work in works:
        work.wait()


def four_numbers():
    """Ranks hold 8, 12, 16 and 20; their mean is 14.0. (Other numbers of ranks: 8 + 4 × rank.)"""
    value = torch.tensor([8.0 + 4 * dist.get_rank()])
    dist.all_reduce(value)
    value /= dist.get_world_size()
    say(f"the mean over {dist.get_world_size()} ranks is {value.item()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--data", default=DIGITS)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    torch.set_num_threads(1)
    four_numbers()
    torch.manual_seed(dist.get_rank())  # ranks begin with different weights, until they are shared
    model = network()
    share_weights(model)
    data, test = digits(options.data), digits(options.data, "t10k")
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        progress = Progress(f"epoch {epoch + 1}", len(loader))
        for step, (images, labels) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            average_gradients(model)
            optimizer.step()
            progress.step(step, loss.item())
        progress.end(len(data), loss=loss.item(), accuracy=accuracy(model, test))
    weights = [torch.zeros_like(model[0].weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model[0].weight.detach())
    say("weights are equal on all ranks:", all(torch.equal(w, weights[0]) for w in weights))
    dist.destroy_process_group()


main()
