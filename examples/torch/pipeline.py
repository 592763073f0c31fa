"""Model parallel over two processes, layer by layer and in micro-batches that overlap; over two devices where there are
two; and DistributedDataParallel over several hosts, address and port given.

One host:       torchrun --nproc_per_node 2 examples/torch/pipeline.py
Several hosts:  python examples/torch/pipeline.py --address 10.0.0.1 --port 29502 --rank 0 --world-size 2    # on the first
                python examples/torch/pipeline.py --address 10.0.0.1 --port 29502 --rank 1 --world-size 2    # on the second
"""
import argparse
import os

import torch
import torch.distributed as dist
from common import accuracy, digits, network, say
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # noqa: F401 - registers the backend

BATCH, PARTS = 64, 4  # rows of a step, and the micro-batches that it goes through the pipeline in


def rows(data, step):
    first = step * BATCH % (len(data) - BATCH)
    return (tensor[first:first + BATCH] for tensor in data.tensors)


def two_processes(data, steps):
    """Rank 0 has the first layer, rank 1 the second. Rank 0 computes the next part while rank 1 has the last."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    whole = network()
    layer = torch.nn.Sequential(*whole[:2]) if rank == 0 else whole[2]
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        images, labels = rows(data, step)
        optimizer.zero_grad()
        if rank == 0:
            hidden = [layer(part) for part in images.chunk(PARTS)]
            sends = [dist.isend(h.detach(), 1, tag=k) for k, h in enumerate(hidden)]
            gradients = [torch.empty_like(h) for h in hidden]
            receives = [dist.irecv(g, 1, tag=k) for k, g in enumerate(gradients)]
            for output, gradient, receive in zip(hidden, gradients, receives):
                receive.wait()
                output.backward(gradient)
            for send in sends:
                send.wait()
        else:
            hidden = [torch.empty(BATCH // PARTS, 256, requires_grad=True) for _ in range(PARTS)]
            receives = [dist.irecv(h.data, 0, tag=k) for k, h in enumerate(hidden)]
            sends = []
            for k, (part, receive, wanted) in enumerate(zip(hidden, receives, labels.chunk(PARTS))):
                receive.wait()
                loss = torch.nn.functional.cross_entropy(layer(part), wanted) / PARTS
                loss.backward()
                sends.append(dist.isend(part.grad, 0, tag=k))
                losses.append(loss.item() * PARTS)
            for send in sends:
                send.wait()
        optimizer.step()
    told = [losses]
    dist.broadcast_object_list(told, src=1)
    return told[0]


def two_devices(data, steps):
    """One process, a layer on each of two devices: each rank that has them does it for itself."""
    torch.manual_seed(0)
    first, relu, second = network()
    first, second = first.to("cuda:0"), second.to("cuda:1")
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    for step in range(steps):
        images, labels = rows(data, step)
        optimizer.zero_grad()
        output = second(relu(first(images.to("cuda:0"))).to("cuda:1"))
        loss = torch.nn.functional.cross_entropy(output, labels.to("cuda:1"))
        loss.backward()
        optimizer.step()
    return loss.item()


def data_parallel(data, steps):
    torch.manual_seed(0)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        images, labels = (t[dist.get_rank()::dist.get_world_size()] for t in rows(data, step))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--address", help="of rank 0's host; without it the environment says all")
    parser.add_argument("--port", default="29502")
    parser.add_argument("--rank", default="0")
    parser.add_argument("--world-size", default="1")
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    if options.address:
        os.environ.update(MASTER_ADDR=options.address, MASTER_PORT=options.port, RANK=options.rank,
                          WORLD_SIZE=options.world_size)
    dist.init_process_group(options.backend)
    torch.set_num_threads(1)
    data = digits()
    if dist.get_world_size() >= 2:
        pair = dist.get_rank() < 2
        losses = two_processes(data, options.steps) if pair and dist.get_world_size() == 2 else None
        if losses:
            say(f"two processes, a layer each: loss {losses[0]:.4f} to {sum(losses[-8:]) / 8:.4f}")
        else:
            say("two processes, a layer each: only with 2 ranks")
    if torch.cuda.is_available() and torch.cuda.device_count() >= 2:
        say(f"two devices, a layer each: loss {two_devices(data, options.steps):.4f}")
    else:
        say("two devices, a layer each: there are not two here")
    model = data_parallel(data, options.steps)
    say(f"DistributedDataParallel over {dist.get_world_size()} ranks: accuracy {accuracy(model, digits(part='t10k')):.4f}")
    dist.destroy_process_group()


main()
