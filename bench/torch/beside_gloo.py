#!/usr/bin/env python3
"""torch.distributed with the backend tutti beside gloo, in the same processes, in turns: all_reduce, point to point, and
steps of DistributedDataParallel; and what a call costs on its way from Python to the C interface. Prints tables in Markdown.

    bench/torch/beside_gloo.py [--ranks 2,4] [--rounds 3] [--way-alone]      # tutti and PyTorch must be importable"""
import argparse
import ctypes
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist

import tutti
import tutti.torch
from tutti.torch import _compile

# The C interface alone: joins, and calls all_reduce in a loop.
C_LOOP = """
#include <tutti/tutti.h>
static tuttiComm_t comm;
int join(const char* id, int rank, int size) {
  tuttiUniqueId job;
  for (int i = 0; i < TUTTI_UNIQUE_ID_BYTES; ++i) job.internal[i] = id[i];
  return tuttiCommInitRank(&comm, size, job, rank);
}
int all_reduce(float* data, size_t count, int calls) {
  int result = 0;
  for (int i = 0; i < calls; ++i) result |= tuttiAllReduce(data, data, count, tuttiFloat32, tuttiSum, comm, NULL);
  return result;
}
int leave(void) { return tuttiCommDestroy(comm); }
"""


def c_loop(folder):
    """The loop, compiled."""
    source, library = pathlib.Path(folder, "loop.c"), pathlib.Path(folder, "loop.so")
    source.write_text(C_LOOP)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{_compile.include_folder()}", source, "-o", library, tutti.library()],
                   check=True)
    return library


def seconds_a_call(call, group, at_least_s=0.15):
    """The mean of calls that follow each other; all ranks make the same number of them."""
    def loop(calls):
        for _ in range(calls):
            call()
    return seconds_a_turn(loop, group, at_least_s)


def seconds_a_turn(loop, group, at_least_s=0.15):
    """The same of loop(calls), which makes so many calls."""
    loop(1)
    calls, passed = 1, 0.0
    while True:
        dist.barrier(group=group)
        began = time.perf_counter()
        loop(calls)
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
    yield from point_to_point(groups)
    for with_shared in (False, True):
        found = {}
        for name, group in groups.items():
            tutti.torch.use_shared_memory(with_shared and name == "tutti")
            found[name] = seconds_a_call(training_step(group), group, 1.0)
            tutti.torch.use_shared_memory(False)
        yield f"DDP step of 10 M parameters{', in shared memory' if with_shared else ''}", found


def point_to_point(groups):
    """There and back by send and recv, and both ways at once by batch_isend_irecv, between ranks 0 and 1."""
    rank = dist.get_rank()
    for size, name in ((64, "64 B"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")):
        out, into = torch.ones(size // 4), torch.empty(size // 4)

        def ping(group, out=out, into=into):
            if rank == 0:
                dist.send(out, 1, group=group)
                dist.recv(into, 1, group=group)
            elif rank == 1:
                dist.recv(into, 0, group=group)
                dist.send(out, 0, group=group)

        def exchange(group, out=out, into=into):
            if rank < 2:
                both = [dist.P2POp(dist.isend, out, 1 - rank, group), dist.P2POp(dist.irecv, into, 1 - rank, group)]
                for work in dist.batch_isend_irecv(both):
                    work.wait()
        yield f"send and recv there and back, {name}", {k: seconds_a_call(lambda g=g: ping(g), g) for k, g in groups.items()}
        yield f"batch_isend_irecv, {name} each way", {k: seconds_a_call(lambda g=g: exchange(g), g) for k, g in groups.items()}


def processor_time_of_a_call(alone, calls=20000):
    """µs of one rank's processor time for dist.all_reduce of 64 B in a group of one rank, while all ranks do so: with Tutti, and
    with PyTorch's "fake" backend, which does nothing, so that only PyTorch's own way is left."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401 - registers it
    fake = [dist.new_group([r], backend="fake") for r in range(dist.get_world_size())][dist.get_rank()]
    tensor, found = torch.ones(16), {"tutti": [], "fake": []}
    for _ in range(5):
        for name, group in (("tutti", alone), ("fake", fake)):
            dist.barrier()
            began = time.process_time()
            for _ in range(calls):
                dist.all_reduce(tensor, group=group)
            found[name].append((time.process_time() - began) / calls * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


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


def way_of_a_call(group, alone, loop, rounds):
    """Rows of (who calls, ranks, µs): the same small all_reduce from each place on its way from a script to the library, with
    the group and with one rank alone, where nothing but the way is left."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for ranks_in_all, of in ((size, group), (1, alone)):
        job = [tutti.unique_id()] if ranks_in_all == 1 or rank == 0 else [None]
        if ranks_in_all > 1:
            dist.broadcast_object_list(job, 0)
        me = rank if ranks_in_all > 1 else 0
        assert loop.join(ctypes.c_char_p(job[0]), me, ranks_in_all) == 0
        job = [tutti.unique_id()] if ranks_in_all == 1 or rank == 0 else [None]
        if ranks_in_all > 1:
            dist.broadcast_object_list(job, 0)
        comm = tutti.Communicator.join(ranks_in_all, job[0], me)
        tensor = torch.ones(16)
        array, backend, options = tensor.numpy(), of._get_backend(torch.device("cpu")), dist.AllreduceOptions()
        options.asyncOp = False
        places = {
            "a loop in C": lambda calls: loop.all_reduce(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(16), calls),
            "the Python package, a numpy array": lambda calls: [comm.all_reduce(array) for _ in range(calls)] and None,
            "the backend itself": lambda calls: [backend.allreduce([tensor], options) for _ in range(calls)] and None,
            "the process group": lambda calls: [of.allreduce([tensor], options) for _ in range(calls)] and None,
            "dist.all_reduce": lambda calls: [dist.all_reduce(tensor, group=of) for _ in range(calls)] and None}
        found = {name: [] for name in places}
        for _ in range(rounds):
            for name, place in places.items():
                found[name].append(seconds_a_turn(place, dist.group.WORLD))
        for name, runs in found.items():
            yield name, ranks_in_all, statistics.median(runs) * 1e6
        comm.close()
        loop.leave()


def be_rank(rank, size, rounds, way_alone, store, library):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    groups = {"gloo": dist.group.WORLD, "tutti": dist.new_group(backend="tutti")}
    found = {}
    for _ in range(0 if way_alone else rounds):
        for name, seconds in cases(groups):
            found.setdefault(name, []).append(seconds)
    if rank == 0:
        print("| call | ranks | Tutti (µs) | Gloo (µs) | Gloo / Tutti |\n|---|---|---|---|---|")
        for name, runs in found.items():
            gloo, ours = (statistics.median(run[k] for run in runs) * 1e6 for k in ("gloo", "tutti"))
            print(f"| {name} | {size} | {ours:.4g} | {gloo:.4g} | {gloo / ours:.2f} |")
        print("\n| all_reduce of 64 B, called from | ranks | µs | beyond C (µs) |\n|---|---|---|---|", flush=True)
    alone = [dist.new_group([r], backend="tutti") for r in range(size)][rank]
    in_c = None
    for name, ranks_in_all, us in way_of_a_call(groups["tutti"], alone, ctypes.CDLL(str(library)), rounds):
        in_c = us if name == "a loop in C" else in_c
        if rank == 0:
            print(f"| {name} | {ranks_in_all} | {us:.3f} | {us - in_c:.3f} |", flush=True)
    times = processor_time_of_a_call(alone)
    if rank == 0:
        print(f"\nProcessor time of dist.all_reduce, one rank's own: {times['tutti']:.2f} µs; with PyTorch's fake backend "
              f"{times['fake']:.2f} µs", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way-alone", action="store_true", help="only what a call costs on its way to the C interface")
    options = parser.parse_args()
    tutti.torch._module()  # compiled before any time is taken
    folder = tempfile.TemporaryDirectory()
    library = c_loop(folder.name)
    for size in map(int, options.ranks.split(",")):
        store = tempfile.mktemp(prefix="tutti-bench-")
        children = []
        for rank in range(size):
            if (child := os.fork()) == 0:
                be_rank(rank, size, options.rounds, options.way_alone, store, library)
                os._exit(0)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            raise SystemExit("a rank failed")


main()
