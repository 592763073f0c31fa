#!/usr/bin/env python3
"""The backend on tensors of real GPUs, which ranks share where there are more of them: every collective, the order among
streams, memory that is let go, point to point, errors, and what PyTorch builds on a backend. Where there is no GPU it ends
with 77, a skip. Usage: cuda_test.py [unittest's arguments], or cuda_test.py --speed, which prints how long all_reduce takes.

CUDA cannot be used in a fork of a process that has used it. So whoever forks the ranks never does, nor is anything imported
or computed there that might; PyTorch is told to ask for GPUs without CUDA."""
import contextlib
import functools
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
import unittest

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import ranks  # noqa: E402 - after what it reads
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import tutti  # noqa: E402

ranks.LONGEST_S = 40
SLEEP_CYCLES = 200_000_000  # of the GPU's clock: 100 ms at 2 GHz
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64,
         torch.float8_e4m3fn, torch.float8_e5m2]
Op = dist.ReduceOp


def on_device(body):
    def with_device(rank, size):
        torch.cuda.set_device(rank % torch.cuda.device_count())
        return body(rank, size, torch.device("cuda", torch.cuda.current_device()))
    return with_device


def run(size, body, backend="tutti"):
    """body(rank, size, device) in each rank; their results."""
    return ranks.run(size, on_device(body), backend, timeout_s=15)


@functools.cache
def made(rank, count):
    """What a rank gives: small whole numbers, whose sums over four ranks are exact in every type."""
    return torch.randint(3, (count,), generator=torch.Generator().manual_seed(100 + rank), dtype=torch.uint8)


def full(device, value, *shape):
    return torch.full(shape, float(value), device=device)


def given(rank, count, device, dtype=torch.float32):
    return made(rank, count).to(device).float().to(dtype)


def of_all(size, count):
    return torch.stack([made(rank, count) for rank in range(size)]).double()


def same(got, wanted, what):
    got, wanted = got.detach().cpu().double(), torch.as_tensor(wanted).cpu().double()
    assert torch.allclose(got, wanted), f"{what}: {got} in place of {wanted}"


def assert_usable(device):
    """Errors of a group are none of CUDA's."""
    same(full(device, 1, 1000).sum(), 1000, "a sum that the GPU made")
    torch.cuda.synchronize()


def reductions(rank, size, device):
    for count in (1, 1000, 70000, 1_000_000):
        wanted = of_all(size, count)
        for dtype in TYPES:
            tensor = given(rank, count, device, dtype)
            dist.all_reduce(tensor)
            same(tensor, wanted.sum(0), f"all_reduce of {count} {dtype}")
        for op, result in ((Op.AVG, wanted.mean(0)), (Op.MAX, wanted.amax(0)), (Op.MIN, wanted.amin(0)),
                           (dist._make_nccl_premul_sum(0.5), wanted.sum(0) / 2)):
            tensor = given(rank, count, device)
            dist.all_reduce(tensor, op)
            same(tensor, result, f"{op} of {count}")
        dist.reduce(tensor.copy_(given(rank, count, device)), size - 1)
        if rank == size - 1:
            same(tensor, wanted.sum(0), f"reduce of {count}")
        output = full(device, 0, count)
        dist.reduce_scatter_tensor(output, given(rank, count * size, device))
        same(output, of_all(size, count * size).sum(0).chunk(size)[rank], f"reduce_scatter_tensor of {count}")
    many = [given(rank, count, device) for count in (5, 70001)]
    dist.group.WORLD.allreduce_coalesced(many).wait()
    with dist._coalescing_manager():
        for tensor in many:
            dist.all_reduce(tensor)
    for tensor in many:
        same(tensor, of_all(size, tensor.numel()).sum(0) * size, "all_reduce of several tensors at once, twice")


def lists_and_gaps(rank, size, device):
    column = full(device, rank, 4, 2)[:, 1]
    dist.broadcast(column, 1)
    same(column, [1.0] * 4, "broadcast of a column")
    columns = full(device, 1 + rank, 300, 2)
    dist.all_reduce(columns[:, 0])
    same(columns, torch.tensor([size * (size + 1) / 2, 1.0 + rank]).expand(300, 2), "all_reduce of a column")
    blocks = [full(device, 0, 1000 * r + 1) for r in range(size)]
    dist.all_gather(blocks, full(device, rank, 1000 * rank + 1))
    for r in range(size):
        same(blocks[r], [float(r)] * (1000 * r + 1), "all_gather of uneven blocks")
    one, whole = full(device, 0, 1), full(device, 0, size)
    dist.reduce_scatter(one, [full(device, r, 1) for r in range(size)])
    same(one, [float(size * rank)], "reduce_scatter")
    dist.gather(one.fill_(rank), list(whole.chunk(size)) if rank == 0 else None, 0)
    if rank == 0:
        same(whole, torch.arange(size), "gather")
    dist.scatter(one, [full(device, 7 + r, 1) for r in range(size)] if rank == 1 else None, 1)
    same(one, [7.0 + rank], "scatter")
    shares = [r + 1 for r in range(size)]  # every rank gives rank r so many
    output, numbers = full(device, 0, size * (rank + 1)), torch.arange(sum(shares)).float()
    dist.all_to_all_single(output, (numbers + 100 * rank).to(device), [rank + 1] * size, shares)
    same(output, torch.cat([numbers.split(shares)[rank] + 100 * r for r in range(size)]), "all_to_all_single, uneven")
    host = torch.tensor([float(rank)])
    dist.all_reduce(host)  # the same group, on the host
    same(host, [size * (size - 1) / 2], "all_reduce on the host")
    dist.barrier()


def moves(rank, size, device):
    for count in (1, 1000, 300_000):
        whole, mine = full(device, 0, count * size), given(rank, count, device)
        dist.all_gather_into_tensor(whole, mine)
        same(whole, of_all(size, count).flatten(), f"all_gather_into_tensor of {count}")
        dist.all_gather(list(whole.chunk(size)), mine + 1)
        same(whole, of_all(size, count).flatten() + 1, f"all_gather of {count} into views of one tensor")
        dist.all_to_all_single(whole, given(rank, count * size, device))
        wanted = torch.cat([made(r, count * size).chunk(size)[rank] for r in range(size)])
        same(whole, wanted, f"all_to_all_single of {count}")
        dist.broadcast(mine, size - 1)
        same(mine, made(size - 1, count), f"broadcast of {count}")


class Collectives(unittest.TestCase):
    def test_every_collective_also_with_gaps_and_lists(self):
        def body(rank, size, device):
            # With three ranks on a stream beside the default one.
            with torch.cuda.stream(torch.cuda.Stream()) if size == 3 else contextlib.nullcontext():
                for part in (reductions, moves, lists_and_gaps):
                    part(rank, size, device)
        for size in (2, 3, 4):
            run(size, body)

    def test_a_group_that_has_gloo_for_the_host(self):
        def body(rank, size, device):
            for place in ("cpu", device):
                tensor = full(place, 1 + rank, 1000)
                dist.all_reduce(tensor)
                same(tensor, [size * (size + 1) / 2] * 1000, f"all_reduce on {place}")
            dist.barrier()
        run(2, body, "cpu:gloo,cuda:tutti")


class Streams(unittest.TestCase):
    def test_calls_come_between_what_is_before_and_after_on_the_callers_stream(self):
        def body(rank, size, device):
            over, total = [], size * (size + 1) / 2
            with torch.cuda.stream(torch.cuda.Stream()):
                late, tensor, copied = full(device, 1 + rank, 70000), full(device, 0, 70000), full(device, 0, 70000)
                for cycles in (1, SLEEP_CYCLES):  # the first turn loads kernels, which may wait for the GPU
                    tensor.zero_()
                    dist.barrier()
                    torch.cuda._sleep(cycles)
                    slept = torch.cuda.current_stream().record_event()
                    tensor.copy_(late)  # behind the sleep
                    work = dist.all_reduce(tensor, async_op=True)
                    over = [work.is_completed()]
                    assert work.wait()
                    copied.copy_(tensor)
                    over.append(slept.query())
                    dist.all_reduce(tensor)
                    same(copied, full("cpu", total, 70000), "what follows on the stream")
                    assert work.is_completed()
                    same(tensor, full("cpu", size * total, 70000), "the call after it")
            return over
        for over in run(2, body):
            self.assertEqual(over, [False, True])  # the call returns at once, and wait() when it is over

    def test_memory_that_the_caller_lets_go_is_kept_until_the_gpu_is_through(self):
        def body(rank, size, device):
            count, works = 20000, []
            with torch.cuda.stream(torch.cuda.Stream()):
                outputs = [full(device, 0, size * count) for _ in range(10)]
                dist.all_gather_into_tensor(outputs[0], full(device, 0, count))
                dist.all_reduce(full(device, 0, count))
                torch.cuda._sleep(SLEEP_CYCLES)
                for i, output in enumerate(outputs):
                    gathered, summed = full(device, 10 * i + rank, count), full(device, 1 + rank, count)
                    works += [dist.all_gather_into_tensor(output, gathered, async_op=True),
                              dist.all_reduce(summed, async_op=True)]
                    del gathered, summed
                    [full(device, -1, count) for _ in range(4)]  # takes memory that was let go
                results = [work.result()[0] for work in works[1::2]]
                for work in works:
                    work.wait()
                del works, work
                for i, output in enumerate(outputs):
                    same(output, (torch.arange(size) + 10 * i).repeat_interleave(count), f"all_gather_into_tensor {i}")
                for result in results:
                    same(result, full("cpu", size * (size + 1) / 2, count), "all_reduce")
        run(2, body)

    def test_futures_come_after_the_call(self):
        def body(rank, size, device):
            tensor = full(device, 0, 3000)
            dist.all_reduce(tensor)
            torch.cuda._sleep(SLEEP_CYCLES)
            tensor.fill_(1.0 + rank)
            future = dist.all_reduce(tensor, async_op=True).get_future()
            doubled = future.then(lambda f: f.value()[0] + f.value()[0])
            same(doubled.wait(), [size * (size + 1.0)] * 3000, "what the hook made")
        run(2, body)

    def test_a_call_in_the_capture_of_a_graph_is_refused_and_the_group_goes_on(self):
        def body(_, size, device):
            tensor, told, ended = full(device, 1, 1000), "nothing was raised", "well"
            dist.all_reduce(tensor)
            before = torch.cuda.current_stream()
            try:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    tensor.add_(1.0)
                    try:
                        dist.all_reduce(tensor)
                    except RuntimeError as error:
                        told = f"{type(error).__name__}: {error}"
            except RuntimeError as error:
                ended = str(error).splitlines()[0]
            torch.cuda.set_stream(before)  # which an end that raises leaves to the caller
            assert told.startswith("NotImplementedError") and "captured into a graph" in told, told
            for _ in range(3):
                dist.all_reduce(tensor)
            same(tensor, [float(size ** 4)] * 1000, "the calls after it")
            assert_usable(device)
            assert ended == "well", ended
        run(2, body)


class Bindings(unittest.TestCase):
    def test_arrays_of_the_gpu_are_taken_from_whoever_made_them(self):
        def body(rank, size, device):
            id_, total = [tutti.unique_id() if rank == 0 else None], size * (size + 1) / 2
            dist.broadcast_object_list(id_)
            with tutti.Communicator.join(size, id_[0], rank) as comm:
                tensor = full(device, rank + 1, 5000)
                comm.all_reduce(tensor)
                same(tensor, full("cpu", total, 5000), "a tensor, no stream")
                with torch.cuda.stream(torch.cuda.Stream()) as _:
                    torch.cuda._sleep(SLEEP_CYCLES)
                    tensor.fill_(rank + 1)
                    comm.all_reduce(tensor, stream=torch.cuda.current_stream().cuda_stream)
                    same(tensor, full("cpu", total, 5000), "a tensor, on a stream")
                with contextlib.suppress(ImportError):
                    import cupy
                    array = cupy.full(300, rank + 1, cupy.float32)
                    comm.all_reduce(array)
                    assert (cupy.asnumpy(array) == total).all(), array
        run(2, body)


class PointToPoint(unittest.TestCase):
    def body(self, rank, size, device):
        first = full(device, 0, 3)
        if rank == 0:
            column = full(device, 0, 4, 2)[:, 1]
            dist.recv(column, 1, tag=5)  # overtakes what was sent before it
            dist.recv(first, 1)
            same(first, [1.0, 2.0, 3.0], "what was put aside")
            same(column, [9.0] * 4, "recv of a column")
            seen = {dist.recv(first) for _ in range(size - 1)}
            assert seen == set(range(1, size)), seen
            same(first, [4.0] * 3, "from any source")
        else:
            if rank == 1:
                tagged, numbers = full(device, 0, 4), torch.tensor([1.0, 2.0, 3.0], device=device)
                torch.cuda._sleep(SLEEP_CYCLES)
                first.copy_(numbers)  # behind the sleep
                tagged.fill_(9.0)
                works = [dist.isend(first, 0), dist.isend(tagged, 0, tag=5)]
                early = works[0].is_completed()
                for work in works:
                    work.wait()
                assert not early
            dist.send(full(device, 4, 3), 0)
        after, before = (rank + 1) % size, (rank - 1) % size
        for count in (1, 500_000):
            incoming, outgoing = full(device, 0, count), full(device, rank, count)
            both = [dist.P2POp(dist.isend, outgoing, after), dist.P2POp(dist.irecv, incoming, before)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            same(incoming, full("cpu", before, count), f"batch_isend_irecv of {count}")
            for work in (dist.irecv(incoming, before, tag=9), dist.isend(outgoing + 10, after, tag=9)):
                work.wait()
            same(incoming, full("cpu", before + 10, count), f"irecv of {count}")
        dist.barrier()

    def test_messages_with_tags_and_from_any_source(self):
        run(2, self.body)
        run(3, self.body)


class Errors(unittest.TestCase):
    def test_counts_that_differ_are_told_by_the_next_call(self):
        def body(rank, _, device):
            tensor = full(device, 0, 3 + rank)
            try:
                for _ in range(200):
                    dist.all_reduce(tensor)
                    time.sleep(0.02)
            except dist.DistBackendError as error:
                assert "count 3" in str(error) and "count 4" in str(error), error
                return assert_usable(device)
            raise AssertionError("nothing was raised")
        run(2, body)

    def test_a_killed_rank_is_named_by_the_others_within_seconds_and_cuda_goes_on(self):
        def body(rank, _, device):
            tensor = full(device, 1, 1 << 20)
            dist.all_reduce(tensor, Op.MAX)
            torch.cuda.synchronize()
            open(f"{folder}/{rank}", "wb").close()
            try:
                while True:
                    dist.all_reduce(tensor, Op.MAX)
                    torch.cuda.synchronize()
            except dist.DistBackendError as error:
                told = time.monotonic()
                assert_usable(device)
                return told, str(error)
        folder = tempfile.mkdtemp(prefix="tutti-torch-killed-")
        processes, pipes = ranks.start(3, on_device(body), timeout_s=15)
        began = time.monotonic()
        while len(os.listdir(folder)) < 3 and time.monotonic() - began < 30:
            time.sleep(0.05)
        os.kill(processes[2], signal.SIGKILL)
        killed = time.monotonic()
        for told, sentence in ranks.finish(processes, pipes, may_die={2})[:2]:
            self.assertIn("rank 2", sentence)
            self.assertLess(told - killed, 5.0)


def network(device):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                               torch.nn.Linear(64, 5)).to(device)


def train(model, device, rank=0, size=1):
    """Three steps on the rank's share of each batch."""
    generator, optimizer = torch.Generator().manual_seed(2), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        batch = torch.randn(32, 25, generator=generator).chunk(size)[rank].to(device)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch[:, :20]), batch[:, 20:]).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def assert_equal_on_all_ranks(weights, size):
    mine = torch.cat([w.flatten() for w in weights])
    everybodys = mine.new_zeros(size * mine.numel())
    dist.all_gather_into_tensor(everybodys, mine)
    assert all(torch.equal(other, mine) for other in everybodys.chunk(size)), "the ranks' weights differ"


class Training(unittest.TestCase):
    def test_ddp_gives_the_weights_that_one_process_gets(self):
        def body(rank, size, device):
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
            from torch.nn.parallel import DistributedDataParallel
            alone, view, static = train(network(device), device), {"gradient_as_bucket_view": True}, {"static_graph": True}
            for settings, hook, tolerance in (({}, None, 1e-6), (view, None, 1e-6), (static, None, 1e-6),
                                              (view | static, None, 1e-6), ({}, default_hooks.bf16_compress_hook, 1e-2)):
                model = DistributedDataParallel(network(device), device_ids=[device.index], bucket_cap_mb=0.01, **settings)
                if hook:
                    model.register_comm_hook(dist.group.WORLD, hook)
                weights = train(model, device, rank, size)
                torch.testing.assert_close(weights, alone, rtol=10 * tolerance, atol=tolerance,
                                           msg=lambda text, at=(settings, hook): f"{at}: {text}")
                assert_equal_on_all_ranks(weights, size)
        run(2, body)

    def test_fsdp2_gives_the_weights_that_one_process_gets(self):
        def body(rank, size, device):
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
            model, mesh = network(device), init_device_mesh(device.type, (size,))
            for part in [layer for layer in model if list(layer.parameters())] + [model]:
                fully_shard(part, mesh=mesh)
            weights = [w.full_tensor() for w in train(model, device, rank, size)]
            torch.testing.assert_close(weights, train(network(device), device), rtol=1e-5, atol=1e-6)
        run(2, body)


SIZES = {4 << 10: 50, 1 << 20: 50, 64 << 20: 7, 256 << 20: 5}  # bytes, and how often


def timed(_, __, device):
    """Microseconds of an all_reduce of each size, from an idle GPU to an idle one; or what was raised."""
    answers = []
    for size_bytes, times in SIZES.items():
        tensor, took = full(device, 0, size_bytes // 4), []
        for _ in range(times + 2):
            torch.cuda.synchronize()
            dist.barrier()
            began = time.perf_counter()
            try:
                dist.all_reduce(tensor)
            except RuntimeError as error:
                return answers + [str(error).splitlines()[0]] * (len(SIZES) - len(answers))
            torch.cuda.synchronize()
            took.append((time.perf_counter() - began) * 1e6)
        answers.append(round(statistics.median(took[2:])))
    return answers


def print_speed():
    ranks.LONGEST_S = 120
    print("| backend | ranks |", *(f"{size_bytes} bytes, us |" for size_bytes in SIZES))
    for size in (2, 4):
        for backend in ("tutti", "gloo"):
            try:
                of_ranks = ranks.run(size, on_device(timed), backend, timeout_s=60)
            except ranks.RankFailed as error:
                of_ranks = [[str(error).strip().splitlines()[-1]]]
            slowest = (max(cells, key=lambda cell: (isinstance(cell, str), cell)) for cells in zip(*of_ranks))
            print(f"| {backend} | {size} |", *(f"{cell} |" for cell in slowest), flush=True)


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        if pool.apply(torch.cuda.device_count) == 0:
            print(f"skip: PyTorch {torch.__version__} finds no CUDA device")
            sys.exit(77)
    if "--speed" in sys.argv:
        print_speed()
    else:
        unittest.main(verbosity=2, warnings="ignore")
