#!/usr/bin/env python3
"""torch.distributed with the backend tutti beside gloo, in the same processes, in turns: all_reduce, point to point, and
steps of DistributedDataParallel. Prints tables in Markdown.

    bench/torch/beside_gloo.py [--ranks 2,4] [--rounds 3]      # tutti and PyTorch must be importable"""
import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import tutti.torch


def seconds_a_call(call, group, at_least_s=0.15):
    """The mean of calls that follow each other; all ranks make the same number of them."""
    call()
    calls, passed = 1, 0.0
    while True:
        dist.barrier(group=group)
        began = time.perf_counter()
        for _ in range(calls):
            call()
        passed = torch.tensor([time.perf_counter() - began])
        dist.all_reduce(passed, dist.ReduceOp.MAX)
        if passed.item() >= at_least_s or calls >= 1 << 16:
            return passed.item() / calls
        calls *= 4 if passed.item() < at_least_s / 8 else 2


def cases(groups):
    """(name, {backend: seconds of one call})"""
    ordinary = {size: torch.ones(size // 4) for size in (64, 4 << 10, 1 << 20, 64 << 20)}
    with tutti.torch.shared_memory():
        shared = torch.ones(16 << 20)
    for size, tensor in ordinary.items():
        name = f"all_reduce of {size if size < 1024 else f'{size >> 10} Ki' if size < 1 << 20 else f'{size >> 20} Mi'}B"
        yield name, {k: seconds_a_call(lambda g=g, t=tensor: dist.all_reduce(t, group=g), g) for k, g in groups.items()}
    yield "all_reduce of 64 MiB, Tutti's in shared memory", {
        k: seconds_a_call(lambda g=g, t=shared if k == "tutti" else ordinary[64 << 20]: dist.all_reduce(t, group=g), g)
        for k, g in groups.items()}
    small, rank = torch.ones(16), dist.get_rank()

    def ping(group):
        if rank == 0:
            dist.send(small, 1, group=group)
            dist.recv(small, 1, group=group)
        elif rank == 1:
            dist.recv(small, 0, group=group)
            dist.send(small, 0, group=group)
    yield "send and recv there and back, 64 B", {k: seconds_a_call(lambda g=g: ping(g), g) for k, g in groups.items()}
    for with_shared in (False, True):
        found = {}
        for name, group in groups.items():
            tutti.torch.use_shared_memory(with_shared and name == "tutti")
            found[name] = seconds_a_call(training_step(group), group, 1.0)
            tutti.torch.use_shared_memory(False)
        yield f"DDP step of 10 M parameters{', in shared memory' if with_shared else ''}", found


def training_step(group):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(1582, 1582) for _ in range(4)])
    parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(parallel.parameters(), 0.01)
    inputs = torch.randn(8, 1582)

    def step():
        optimizer.zero_grad(set_to_none=False)
        parallel(inputs).square().mean().backward()
        optimizer.step()
    return step


def be_rank(rank, size, rounds, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    groups = {"gloo": dist.group.WORLD, "tutti": dist.new_group(backend="tutti")}
    found = {}
    for _ in range(rounds):
        for name, seconds in cases(groups):
            found.setdefault(name, []).append(seconds)
    if rank == 0:
        for name, runs in found.items():
            gloo, ours = (statistics.median(run[k] for run in runs) * 1e6 for k in ("gloo", "tutti"))
            print(f"| {name} | {size} | {ours:.4g} | {gloo:.4g} | {gloo / ours:.2f} |", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    tutti.torch._module()  # compiled before any time is taken
    print("| call | ranks | Tutti (µs) | Gloo (µs) | Gloo / Tutti |\n|---|---|---|---|---|", flush=True)
    for size in map(int, options.ranks.split(",")):
        store = tempfile.mktemp(prefix="tutti-bench-")
        children = []
        for rank in range(size):
            if (child := os.fork()) == 0:
                be_rank(rank, size, options.rounds, store)
                os._exit(0)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            raise SystemExit("a rank failed")


main()
