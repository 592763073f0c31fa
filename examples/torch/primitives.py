"""The primitives of torch.distributed one by one, then a checkpoint that rank 0 saves and that all ranks evaluate.

By the environment:  torchrun --nproc_per_node 4 examples/torch/primitives.py
Older launcher:      python -m torch.distributed.launch --use_env --nproc_per_node 4 examples/torch/primitives.py
By an address:       python examples/torch/primitives.py --init tcp://10.0.0.1:29501 --rank 0 --world-size 2
                     python examples/torch/primitives.py --init tcp://10.0.0.1:29501 --rank 1 --world-size 2
Several hosts:       torchrun --nnodes 2 --node_rank 0 --nproc_per_node 2 --master_addr 10.0.0.1 --master_port 29500 \
                         examples/torch/primitives.py    # on the first; on the second with --node_rank 1
"""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from common import accuracy, digits, network, say

import tutti.torch  # noqa: F401 - registers the backend


def show(name, value):
    """What every rank has, printed by rank 0."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    say(f"{name:15}", *values)


def primitives(rank, size):
    one = torch.full((1,), float(rank + 1))
    dist.all_reduce(one)
    show("all_reduce", one.item())
    word = torch.full((1,), 42.0 if rank == 0 else 0.0)
    dist.broadcast(word, src=0)
    show("broadcast", word.item())
    passed = torch.full((1,), float(rank))
    if rank == 0:
        dist.send(passed, dst=1 % size) if size > 1 else None
    elif rank == 1:
        dist.recv(passed, src=0)
    show("send, recv", passed.item())
    gathered = [torch.zeros(1) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((1,), float(rank * rank)), gathered, dst=0)
    show("gather", [t.item() for t in gathered or []])
    taken = torch.zeros(1)
    dist.scatter(taken, [torch.full((1,), 10.0 * r) for r in range(size)] if rank == 0 else None, src=0)
    show("scatter", taken.item())
    everything = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(everything, torch.full((1,), float(rank)))
    show("all_gather", [t.item() for t in everything])
    dist.reduce_scatter(taken, [torch.full((1,), float(r)) for r in range(size)])
    show("reduce_scatter", taken.item())
    dist.barrier()
    say("barrier         passed by all")


def checkpoint(rank, folder):
    """Rank 0 saves, reads what it has saved, and hands it to all (other hosts may not see its disk); each evaluates its share."""
    torch.manual_seed(rank)
    model = network()
    if rank == 0:
        path = os.path.join(folder, "tutti-primitives.pt")
        torch.save(model.state_dict(), path)
        model.load_state_dict(torch.load(path, weights_only=True))
        os.remove(path)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    say(f"accuracy of the untrained network that was saved: {accuracy(model, digits(part='t10k')):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--init", default="env://", help="env:// or tcp://ADDRESS:PORT")
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--world-size", type=int, default=-1)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="for rank 0's checkpoint")
    options = parser.parse_args()
    dist.init_process_group(options.backend, init_method=options.init, rank=options.rank, world_size=options.world_size)
    torch.set_num_threads(1)
    primitives(dist.get_rank(), dist.get_world_size())
    checkpoint(dist.get_rank(), options.folder)
    dist.destroy_process_group()


main()
