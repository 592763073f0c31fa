#!/usr/bin/env python3
"""What PyTorch builds on a backend, over Tutti, against what one process computes alone: DistributedDataParallel,
ZeroRedundancyOptimizer, FSDP, DTensor and tensor parallel, distributed checkpoints, workers of a DataLoader, forks, spawned
ranks. Usage: works_with_test.py [unittest's arguments]"""
import ctypes
import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import ranks
import torch
import torch._dynamo  # which DistributedDataParallel would import in each rank
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import tutti.torch

try:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
except ImportError:
    fully_shard = None


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))


def batches(count, size):
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(size, 20, generator=generator), torch.randint(5, (size,), generator=generator))
            for _ in range(count)]


def share_of(rank, size, data):
    return [(inputs.chunk(size)[rank], labels.chunk(size)[rank]) for inputs, labels in data]


def loss_of(model, inputs, labels):
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def train(model, optimizer, data):
    for inputs, labels in data:
        optimizer.zero_grad()
        loss_of(model, inputs, labels).backward()
        optimizer.step()


@functools.cache
def weights_of_one_process(kind=torch.optim.SGD, **settings):
    model = network()
    train(model, kind(model.parameters(), **settings), batches(5, 24))
    return [p.detach().clone() for p in model.parameters()]


def assert_close(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=1e-4, atol=1e-5)


class DataParallel(unittest.TestCase):
    def test_ddp_gives_the_weights_that_one_process_gets(self):
        def body(rank, size):
            model = DistributedDataParallel(network(), bucket_cap_mb=0.002)
            train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), share_of(rank, size, batches(5, 24)))
            assert_close(model.parameters(), weights_of_one_process(lr=0.1, momentum=0.9))
        for size in (2, 4):
            ranks.run(size, body)

    def test_gradients_of_no_sync_and_of_each_communication_hook_are_those_of_all_batches(self):
        def body(rank, size):
            data = batches(2, 8 * size)
            alone = network()
            for batch in data:
                loss_of(alone, *batch).backward()
            hooks = [(default_hooks.allreduce_hook, lambda: dist.group.WORLD, 1e-5),
                     (default_hooks.fp16_compress_hook, lambda: dist.group.WORLD, 2e-3),
                     (default_hooks.bf16_compress_hook, lambda: dist.group.WORLD, 2e-2),
                     (powerSGD_hook.powerSGD_hook, lambda: powerSGD_hook.PowerSGDState(dist.group.WORLD, 64, 2), 1e-3)]
            for hook, state, tolerance in hooks:
                model = DistributedDataParallel(network())
                model.register_comm_hook(state(), hook)
                mine = share_of(rank, size, data)
                with model.no_sync():
                    loss_of(model, *mine[0]).backward()
                loss_of(model, *mine[1]).backward()
                for got, wanted in zip(model.parameters(), alone.parameters()):
                    torch.testing.assert_close(got.grad, wanted.grad, rtol=tolerance, atol=tolerance,
                                               msg=lambda text, hook=hook: f"{hook.__name__}: {text}")
        ranks.run(2, body)

    def test_parameters_that_some_ranks_do_not_use_and_buffers(self):
        class Branches(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.norm = torch.nn.BatchNorm1d(20)
                self.branches = torch.nn.ModuleList(torch.nn.Linear(20, 3) for _ in range(3))

            def forward(self, inputs, which):
                return self.branches[which](self.norm(inputs))

        def body(rank, size):
            model = DistributedDataParallel(Branches(), find_unused_parameters=True)
            for _ in range(3):  # each rank goes another way; nobody the last one
                model(torch.randn(8, 20) + rank, rank).sum().backward()
            gradients = [p.grad for p in model.module.branches[0].parameters()]
            for gradient in gradients:
                everybodys = [torch.zeros_like(gradient) for _ in range(size)]
                dist.all_gather(everybodys, gradient)
                assert all(torch.equal(g, gradient) for g in everybodys) and gradient.abs().sum() > 0
            model(torch.ones(8, 20), rank)  # buffers are rank 0's from here on, and go on from there alike
            mean = model.module.norm.running_mean
            means = [torch.zeros_like(mean) for _ in range(size)]
            dist.all_gather(means, mean)
            assert torch.equal(means[0], means[1]), means
        ranks.run(2, body)

    def test_a_killed_rank_ends_the_training_of_the_others_within_a_second_though_it_has_workers(self):
        def body(rank, size):
            if os.fork() == 0:  # a worker, which has all that the rank has
                time.sleep(4)
                os._exit(0)
            model = DistributedDataParallel(network(), bucket_cap_mb=0.002)
            optimizer, data = torch.optim.SGD(model.parameters(), 0.1), share_of(rank, size, batches(5, 24))
            train(model, optimizer, data)
            open(f"{folder}/{rank}", "wb").close()
            try:
                while True:
                    train(model, optimizer, data)
            except RuntimeError as error:
                return time.monotonic(), str(error)
        folder = tempfile.mkdtemp(prefix="tutti-torch-killed-")
        processes, pipes = ranks.start(3, body)
        began = time.monotonic()
        while len(os.listdir(folder)) < 3 and time.monotonic() - began < 40:
            time.sleep(0.1)
        os.kill(processes[2], signal.SIGKILL)
        killed = time.monotonic()
        for answer in ranks.finish(processes, pipes, may_die={2})[:2]:
            self.assertLess(answer[0] - killed, 1.0)
            self.assertRegex(answer[1], r"rank 2 .*died")

    def test_zero_redundancy_optimizer_is_the_optimizer_of_one_process(self):
        def body(rank, size):
            for settings in ({}, {"overlap_with_ddp": False, "parameters_as_bucket_view": True}):
                model = DistributedDataParallel(network())
                optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01, **settings)
                train(model, optimizer, share_of(rank, size, batches(5, 24)))
                assert_close(model.parameters(), weights_of_one_process(torch.optim.Adam, lr=0.01))
                optimizer.consolidate_state_dict(to=1)
                if rank == 1:
                    assert len(optimizer.state_dict()["state"]) == 4
        ranks.run(2, body)


@unittest.skipIf(fully_shard is None, "this PyTorch has no FSDP2 or keeps distributed tensors elsewhere")
class Sharded(unittest.TestCase):
    def test_fsdp_gives_the_weights_that_one_process_gets(self):
        def body(rank, size):
            model = network()
            mesh = init_device_mesh("cpu", (size,))
            for layer in model:
                if list(layer.parameters()):
                    fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            train(model, torch.optim.Adam(model.parameters(), lr=0.01), share_of(rank, size, batches(5, 24)))
            assert_close([p.full_tensor() for p in model.parameters()],
                         weights_of_one_process(torch.optim.Adam, lr=0.01))
        for size in (2, 3):
            ranks.run(size, body)

    def test_tensor_parallel_layers_compute_what_whole_ones_do(self):
        def body(rank, size):
            mesh = init_device_mesh("cpu", (size,))
            whole, [(inputs, labels)] = network(), batches(1, 24)
            loss_of(whole, inputs, labels).backward()
            parts = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
            assert parts[0].weight.to_local().shape == (64 // size, 20)
            loss_of(parts, inputs, labels).backward()
            assert_close([p.grad.full_tensor() for p in parts.parameters()], [p.grad for p in whole.parameters()])
        ranks.run(2, body)

    def test_distributed_tensors_change_their_placement(self):
        def body(rank, size):
            mesh = init_device_mesh("cpu", (size,))
            whole = torch.arange(35.0).reshape(7, 5)  # shards of sizes that differ
            rows = distribute_tensor(whole, mesh, [Shard(0)])
            columns = rows.redistribute(mesh, [Shard(1)])
            assert torch.equal(columns.to_local(), whole.split(3, 1)[rank])
            assert torch.equal(columns.full_tensor(), whole) and torch.equal((rows * 2).full_tensor(), whole * 2)
            parts = DTensor.from_local(whole * (rank + 1), mesh, [Partial()])
            total = whole * size * (size + 1) / 2
            assert torch.equal(parts.redistribute(mesh, [Replicate()]).to_local(), total)
            assert torch.equal(parts.redistribute(mesh, [Shard(0)]).full_tensor(), total)
            product = rows @ distribute_tensor(whole.T, mesh, [Replicate()])
            assert torch.equal(product.full_tensor(), whole @ whole.T)
        ranks.run(2, body)

    def test_a_checkpoint_of_two_ranks_is_loaded_by_three(self):
        folder = tempfile.mkdtemp(prefix="tutti-torch-checkpoint-")
        whole = torch.arange(24.0).reshape(12, 2)

        def body(save, _, size):
            mesh = init_device_mesh("cpu", (size,))
            state = {"weights": distribute_tensor(whole if save else torch.zeros(12, 2), mesh, [Shard(0)]), "epoch": int(save)}
            (checkpoint.save if save else checkpoint.load)(state, checkpoint_id=folder)
            assert torch.equal(state["weights"].full_tensor(), whole) and state["epoch"] == 1, state
        ranks.run(2, functools.partial(body, True))
        ranks.run(3, functools.partial(body, False))


class Digits(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.full((1 << 14,), float(i))


class Processes(unittest.TestCase):
    def test_workers_of_a_data_loader_beside_collectives(self):
        def body(rank, size):
            total = torch.zeros(1)
            pending = []
            for shared in (False, True):
                tutti.torch.use_shared_memory(shared)
                sampler = torch.utils.data.DistributedSampler(Digits(), size, rank)
                loader = torch.utils.data.DataLoader(Digits(), batch_size=5, num_workers=2, sampler=sampler)
                for batch in loader:
                    seen = batch[:, 0].sum().reshape(1)
                    pending.append((seen, dist.all_reduce(seen, async_op=True)))
            for seen, work in pending:
                work.wait()
                total += seen
            assert total.item() == 2 * sum(range(40)), total
        ranks.run(2, body)

    def test_a_fork_of_a_rank_may_end_as_it_likes_and_the_rank_goes_on(self):
        def body(rank, size):
            tensor, column = torch.ones(1000), torch.zeros(1)
            dist.all_reduce(tensor, async_op=True).wait()
            (dist.send if rank == 0 else dist.recv)(column, 1 - rank)  # so that all threads are there
            finish = ctypes.pythonapi.Py_Exit  # destroys what Python and C++ still have
            for destroys, end in ((False, os._exit), (False, finish), (True, finish)):
                child = os.fork()
                if child == 0:
                    if destroys:
                        dist.destroy_process_group()
                    end(7)
                began = time.monotonic()
                while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
                    assert time.monotonic() - began < 20, "the fork does not end"
                    time.sleep(0.02)
                assert os.waitstatus_to_exitcode(done[1]) == 7, done
                dist.all_reduce(tensor)
            assert tensor[0] == size ** 4, tensor
        ranks.run(2, body)

    def test_python_makes_what_it_knows_of_a_thread_of_the_backend_once(self):
        """For it does so under a lock that a fork in that moment would keep for ever."""
        def states_made():
            made = []
            state_id = ctypes.pythonapi.PyThreadState_GetID
            state_id.argtypes, state_id.restype = [ctypes.c_void_p], ctypes.c_uint64
            this = ctypes.pythonapi.PyThreadState_Get
            this.restype = ctypes.c_void_p
            thread = threading.Thread(target=lambda: made.append(state_id(this())))
            thread.start()
            thread.join()
            return made[0]

        def body(rank, _):
            tensors = [torch.ones(10) for _ in range(8)]  # Python has them too, while the backend lets them go
            made = []
            for _ in range(20):
                works = [(dist.isend if rank == 0 else dist.irecv)(tensor, 1 - rank) for tensor in tensors]
                time.sleep(0.001)  # the lane's thread takes them up
                works += [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
                while not all(work.is_completed() for work in works):
                    pass
                made.append(states_made())
            # One for each of the backend's threads: of the calls, of the lane to the other rank and of that from it.
            assert made[-1] - made[0] <= len(made) - 1 + 3, made
        ranks.run(2, body)

    def test_forks_while_threads_of_the_backend_let_tensors_go(self):
        def body(rank, _):
            tensors = [torch.ones(10) for _ in range(8)]
            for turn in range(40):
                works = [(dist.isend if rank == 0 else dist.irecv)(tensor, 1 - rank) for tensor in tensors]
                works += [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
                time.sleep(turn % 20 * 2e-5)
                child = os.fork()
                if child == 0:
                    os._exit(0)
                began = time.monotonic()
                while os.waitpid(child, os.WNOHANG)[0] == 0:
                    if time.monotonic() - began > 10:
                        os.kill(child, signal.SIGKILL)
                        raise AssertionError(f"fork {turn} does not end")
                    time.sleep(0.001)
                for work in works:
                    work.wait()
        ranks.run(2, body)

    def test_a_call_in_a_fork_is_refused(self):
        def body(_, size):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    dist.all_reduce(torch.ones(3))
                    os.write(writer, b"nothing was raised")
                except RuntimeError as error:
                    os.write(writer, str(error).encode())
                os._exit(0)
            os.close(writer)
            told = os.read(reader, 1000).decode()
            os.waitpid(child, 0)
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            assert tensor[0] == size
            return told
        for told in ranks.run(2, body):
            self.assertRegex(told, "fork")

    def test_spawned_ranks(self):
        script = pathlib.Path(__file__).with_name("spawned.py")
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=100)
        self.assertEqual((done.returncode, done.stdout), (0, "the sum over 2 spawned ranks is 1.0\n"), done.stderr)


def setUpModule():
    """What ranks would do once each, done before they are forked."""
    fine = network()
    loss_of(fine, *batches(1, 8)[0]).backward()
    torch.optim.Adam(fine.parameters()).step()


class Package(unittest.TestCase):
    def test_calls_of_the_package_take_tensors_where_they_lie_and_refuse_those_that_lie_otherwise(self):
        [comm] = tutti.Communicator.all(1)
        numbers = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                   torch.float64, torch.complex64, torch.complex128, torch.bool]
        for dtype in numbers:
            source, target = torch.arange(6).to(dtype), torch.zeros(6, dtype=dtype)
            place = target.data_ptr()
            comm.all_reduce(source, target)
            self.assertTrue(target.equal(source) and target.data_ptr() == place, dtype)
            comm.all_reduce(target)
            self.assertTrue(target.equal(source), dtype)
        pairs = torch.complex(torch.ones(3), torch.ones(3))
        for tensor, words in ((torch.ones(3, 3).t(), "not contiguous"), (pairs.conj(), "is_conj.*resolve_conj"),
                              (pairs[:1].conj().imag, "is_neg.*resolve_neg")):
            with self.assertRaisesRegex(tutti.InvalidArgument, f"send.*{words}"):
                comm.all_reduce(tensor, torch.zeros_like(tensor))
        for tensor in (torch.ones(3, device="meta"), torch.ones(3).to_sparse()):
            with self.assertRaisesRegex(TypeError, "incompatible function arguments"):
                comm.all_reduce(tensor)


if __name__ == "__main__":
    unittest.main(verbosity=2)
