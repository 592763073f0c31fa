"""Data parallel and model parallel of a 10-100-10 network. With 4 ranks, ranks 0 and 1 hold one copy of the network, 2 and
3 another: the first of a pair has the first layer, the second the second. Gradients are averaged between the copies.

One host:       torchrun --nproc_per_node 4 examples/torch/two_kinds.py       (any even number of ranks)
Several hosts:  torchrun --nnodes 2 --node_rank 0 --nproc_per_node 2 --master_addr 10.0.0.1 --master_port 29500 \
                    examples/torch/two_kinds.py          # on the first; on the second with --node_rank 1
"""
import argparse

import torch
import torch.distributed as dist
from common import plot, say
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # noqa: F401 - registers the backend


def data_parallel(steps):
    """All ranks hold the whole network."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(10, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for inputs, wanted in batches(steps, dist.get_rank(), dist.get_world_size()):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach(), None))
    return losses


def model_parallel(steps):
    """Pairs of ranks hold a layer each; activations go one way, their gradients back."""
    rank, size = dist.get_rank(), dist.get_world_size()
    copies = [dist.new_group(list(range(layer, size, 2))) for layer in range(2)]
    torch.manual_seed(0)
    whole = torch.nn.Sequential(torch.nn.Linear(10, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    layer = torch.nn.Sequential(*whole[:2]) if rank % 2 == 0 else whole[2]
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    losses = []
    for inputs, wanted in batches(steps, rank // 2, size // 2):
        optimizer.zero_grad()
        if rank % 2 == 0:
            hidden = layer(inputs)
            dist.send(hidden.detach(), rank + 1)
            gradient = torch.empty_like(hidden)
            dist.recv(gradient, rank + 1)
            hidden.backward(gradient)
            loss = torch.zeros(1)
        else:
            hidden = torch.empty(len(inputs), 100, requires_grad=True)
            dist.recv(hidden.data, rank - 1)
            loss = torch.nn.functional.mse_loss(layer(hidden), wanted)
            loss.backward()
            dist.send(hidden.grad, rank - 1)
        for parameter in layer.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=copies[rank % 2])
        optimizer.step()
        loss = torch.tensor([mean(loss.detach(), copies[rank % 2])])
        dist.broadcast(loss, size - 1)  # one that has the last layer tells all
        losses.append(loss.item())
    return losses


def mean(loss, group):
    loss = loss.reshape(1).clone()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=group)
    return loss.item()


def batches(steps, share, shares):
    """A fixed linear map to be learnt; 32 rows a step, of which this share gets its part."""
    generator = torch.Generator().manual_seed(3)
    target = torch.randn(10, 10, generator=generator) / 3
    for _ in range(steps):
        inputs = torch.randn(32, 10, generator=generator)
        yield inputs.chunk(shares)[share], (inputs @ target).chunk(shares)[share]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--plot", help="SVG file for both losses")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    torch.set_num_threads(1)
    if dist.get_world_size() % 2 != 0:
        raise SystemExit(f"two_kinds needs an even number of ranks, not {dist.get_world_size()}")
    one, other = data_parallel(options.steps), model_parallel(options.steps)
    say(f"data parallel:  loss {one[0]:.4f} to {one[-1]:.4f}")
    say(f"model parallel: loss {other[0]:.4f} to {other[-1]:.4f}")
    say(f"largest difference between the two: {max(abs(a - b) for a, b in zip(one, other)):.2e}")
    if options.plot:
        plot(options.plot, "training of 10-100-10", {"loss, data parallel": one, "loss, model parallel": other})
    dist.destroy_process_group()


main()
