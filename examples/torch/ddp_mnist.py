"""DistributedDataParallel trains a 784-256-10 network on digits (DistributedSampler, batch 64, SGD 0.01, 5 epochs).

One host:       torchrun --nproc_per_node 4 examples/torch/ddp_mnist.py
Several hosts:  torchrun --nnodes 2 --node_rank 0 --nproc_per_node 2 --master_addr 10.0.0.1 --master_port 29500 \
                    examples/torch/ddp_mnist.py          # on the first; on the second with --node_rank 1
Survives:       torchrun --max-restarts 3 ... --checkpoint digits.pt     # goes on where the last epoch ended
"""
import argparse
import os

import torch
import torch.distributed as dist
from common import DIGITS, Progress, accuracy, digits, network, plot, say
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import tutti.torch


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--data", default=DIGITS)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--checkpoint", help="file of rank 0 to go on from, and to write after each epoch")
    parser.add_argument("--plot", help="SVG file for loss and throughput")
    parser.add_argument("--shared-memory", action="store_true", help="tensors that the ranks of a host reduce in place")
    parser.add_argument("--die", type=int, default=-1, help="rank 1 dies in this epoch of the first attempt: a rehearsal")
    return parser.parse_args()


def saved(path):
    """What rank 0 has saved before, for all: other hosts may not see its disk."""
    state = [None]
    if path and dist.get_rank() == 0 and os.path.exists(path):
        state = [torch.load(path, weights_only=True)]
    dist.broadcast_object_list(state, src=0)
    return state[0]


def main():
    options = arguments()
    if options.shared_memory:
        tutti.torch.use_shared_memory()
    dist.init_process_group(options.backend)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    data, test = digits(options.data), digits(options.data, "t10k")
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=options.batch, sampler=sampler)
    first, state = 0, saved(options.checkpoint)
    if state is not None:
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"]
        say(f"goes on after epoch {first}")
    losses, rates = [], []
    for epoch in range(first, options.epochs):
        sampler.set_epoch(epoch)
        progress = Progress(f"epoch {epoch + 1}", len(loader))
        for step, (images, labels) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # gradients are averaged while it runs
            optimizer.step()
            losses.append(loss.item())
            progress.step(step, losses[-1])
        if epoch == options.die and dist.get_rank() == 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            os.kill(os.getpid(), 9)
        rates.append(progress.end(len(data), loss=losses[-1], accuracy=accuracy(model, test)))
        if options.checkpoint and dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1},
                       options.checkpoint + ".new")
            os.replace(options.checkpoint + ".new", options.checkpoint)
        dist.barrier()
    if options.plot:
        plot(options.plot, "training of 784-256-10", {"loss": losses, "samples a second": rates or [0]})
    dist.destroy_process_group()


main()
