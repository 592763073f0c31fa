#!/usr/bin/env python3
"""The backend of torch.distributed, rank by rank: every call on every type against what it must give, beside gloo, wrong
calls, deaths. Usage: backend_test.py [unittest's arguments]"""
import datetime
import inspect
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import ranks
import torch
import torch.distributed as dist

import tutti.torch

NUMBERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
           torch.float64, torch.complex64, torch.complex128, torch.bool]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (4099,)]
Op = dist.ReduceOp
# PyTorch 2.2 refuses it to all others.
MONITORED_BARRIER = "only implemented for GLOO" not in inspect.getsource(dist.monitored_barrier)


def make(rank, shape, dtype, salt=0):
    """Small whole numbers, so that sums are exact in every type."""
    made = torch.arange(int(torch.tensor(shape).prod()) if shape else 1).reshape(shape)
    made = (made * (rank + 1) + 3 * rank + salt) % 5
    if dtype == torch.bool:
        return made % 2 == 1
    return made.to(dtype) + (1j * ((made + rank) % 3).to(dtype) if dtype.is_complex else 0)


def combine(op, tensors):
    result = tensors[0].clone()
    for other in tensors[1:]:
        if op == Op.SUM or op == Op.AVG:
            result = result | other if result.dtype == torch.bool else result + other
        elif op == Op.PRODUCT:
            result = result & other if result.dtype == torch.bool else result * other
        elif op == Op.MIN:
            result = torch.minimum(result, other)
        elif op == Op.MAX:
            result = torch.maximum(result, other)
        elif op == Op.BAND:
            result = result & other
        elif op == Op.BOR:
            result = result | other
        elif op == Op.BXOR:
            result = result ^ other
    return result / len(tensors) if op == Op.AVG else result


def operators_of(dtype):
    if dtype.is_complex:
        return [Op.SUM, Op.AVG]  # what torch.distributed lets pass
    if dtype.is_floating_point:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG]
    return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]


def same(got, wanted, what):
    if not torch.allclose(got.to(wanted.dtype), wanted, rtol=1e-2 if got.element_size() == 2 else 1e-6, equal_nan=True):
        raise AssertionError(f"{what}: {got} in place of {wanted}")


def strided(tensor):
    """The same elements with gaps between them."""
    room = torch.full((*tensor.shape, 2), 1, dtype=tensor.dtype)
    view = room.select(-1, 0)
    view.copy_(tensor)
    return view


def each_case():
    for dtype in NUMBERS:
        for shape in SHAPES:
            yield dtype, shape, lambda t: t
        yield dtype, (3, 5), strided


class Collectives(unittest.TestCase):
    def run_everywhere(self, body, sizes=(2, 3, 4)):
        for size in sizes:
            with self.subTest(ranks=size):
                ranks.run(size, body)

    def test_all_reduce_reduce_and_reduce_scatter_of_every_type_and_operator(self):
        def body(rank, size):
            for dtype, shape, lie in each_case():
                for op in operators_of(dtype):
                    wanted = combine(op, [make(r, shape, dtype) for r in range(size)])
                    tensor = lie(make(rank, shape, dtype))
                    dist.all_reduce(tensor, op)
                    same(tensor, wanted, f"all_reduce of {dtype} {shape} by {op}")
                    root = size - 1
                    tensor = lie(make(rank, shape, dtype))
                    dist.reduce(tensor, root, op)
                    if rank == root:
                        same(tensor, wanted, f"reduce of {dtype} {shape} by {op}")
                    blocks = [lie(make(rank, shape, dtype, salt=b)) for b in range(size)]
                    output = lie(torch.zeros(shape, dtype=dtype))
                    dist.reduce_scatter(output, blocks, op)
                    wanted = combine(op, [make(r, shape, dtype, salt=rank) for r in range(size)])
                    same(output, wanted, f"reduce_scatter of {dtype} {shape} by {op}")
        self.run_everywhere(body)

    def test_what_moves_elements_moves_every_type(self):
        def body(rank, size):
            for dtype, shape, lie in each_case():
                what = f"{dtype} {shape}"
                tensor = lie(make(rank, shape, dtype))
                dist.broadcast(tensor, size - 1)
                same(tensor, make(size - 1, shape, dtype), f"broadcast of {what}")
                mine = lie(make(rank, shape, dtype))
                wanted = [make(r, shape, dtype) for r in range(size)]
                blocks = [lie(torch.zeros(shape, dtype=dtype)) for _ in range(size)]
                dist.all_gather(blocks, mine)
                for r in range(size):
                    same(blocks[r], wanted[r], f"all_gather of {what}")
                blocks = [lie(torch.zeros(shape, dtype=dtype)) for _ in range(size)]
                dist.gather(mine, blocks if rank == 0 else None, 0)
                for r in range(size if rank == 0 else 0):
                    same(blocks[r], wanted[r], f"gather of {what}")
                output = lie(torch.zeros(shape, dtype=dtype))
                dist.scatter(output, [lie(make(9, shape, dtype, salt=b)) for b in range(size)] if rank == 1 else None, 1)
                same(output, make(9, shape, dtype, salt=rank), f"scatter of {what}")
                outputs = [lie(torch.zeros(shape, dtype=dtype)) for _ in range(size)]
                dist.all_to_all(outputs, [lie(make(rank, shape, dtype, salt=b)) for b in range(size)])
                for r in range(size):
                    same(outputs[r], make(r, shape, dtype, salt=rank), f"all_to_all of {what}")
        self.run_everywhere(body)

    def test_single_tensor_forms_and_uneven_blocks(self):
        def body(rank, size):
            if hasattr(dist, "gather_single"):
                root = size - 1
                gathered = torch.zeros(size, 2) if rank == root else None
                dist.gather_single(torch.full((2,), float(rank)), gathered, root)
                if rank == root:
                    same(gathered, torch.arange(size).float().reshape(-1, 1).expand(size, 2), "gather_single")
            gathered = torch.zeros(size * 3)
            dist.all_gather_into_tensor(gathered, torch.full((3,), float(rank)))
            same(gathered, torch.arange(size).repeat_interleave(3).float(), "all_gather_into_tensor")
            scattered = torch.zeros(3)
            dist.reduce_scatter_tensor(scattered, torch.arange(size * 3).float())
            same(scattered, size * torch.arange(rank * 3, rank * 3 + 3).float(), "reduce_scatter_tensor")
            exchanged = torch.zeros(size)
            dist.all_to_all_single(exchanged, torch.arange(size).float() + 10 * rank)
            same(exchanged, torch.arange(size) * 10.0 + rank, "all_to_all_single")
            # rank r sends s + 1 rows to rank s
            rows = [s + 1 for s in range(size)]
            exchanged = torch.zeros(size * (rank + 1), 2)
            dist.all_to_all_single(exchanged, torch.full((sum(rows), 2), float(rank)), [rank + 1] * size, rows)
            same(exchanged[:, 1], torch.arange(size).repeat_interleave(rank + 1).float(), "all_to_all_single with splits")
            uneven = [torch.zeros(r + 1) for r in range(size)]
            dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
            for r in range(size):
                same(uneven[r], torch.full((r + 1,), float(r)), "all_gather of uneven blocks")
        self.run_everywhere(body)

    def test_several_tensors_at_once(self):
        def body(rank, size):
            tensors = [torch.full((n,), float(rank + n)) for n in (1, 5, 9)]
            group = dist.group.WORLD
            group.allreduce_coalesced(tensors).wait()
            for n, tensor in zip((1, 5, 9), tensors):
                same(tensor, torch.full((n,), float(size * n + size * (size - 1) / 2)), "all_reduce_coalesced")
            outputs = [torch.zeros(size * n) for n in (2, 3)]
            group.allgather_into_tensor_coalesced(outputs, [torch.full((n,), float(rank)) for n in (2, 3)]).wait()
            same(outputs[1], torch.arange(size).repeat_interleave(3).float(), "all_gather_into_tensor_coalesced")
            outputs = [torch.zeros(n) for n in (2, 3)]
            group.reduce_scatter_tensor_coalesced(outputs, [torch.arange(size * n).float() for n in (2, 3)]).wait()
            same(outputs[1], size * torch.arange(rank * 3, rank * 3 + 3).float(), "reduce_scatter_tensor_coalesced")
            lists = [[torch.zeros(n) for n in (1, 4)] for _ in range(size)]
            dist.all_gather_coalesced(lists, [torch.full((n,), float(rank)) for n in (1, 4)])
            for r in range(size):
                same(lists[r][1], torch.full((4,), float(r)), "all_gather_coalesced")
            tensors = [torch.full((n,), float(rank)) for n in (1, 5)]
            with dist.distributed_c10d._coalescing_manager(async_ops=True) as together:
                for tensor in tensors:
                    dist.all_reduce(tensor)
            together.wait()
            same(tensors[1], torch.full((5,), size * (size - 1) / 2), "calls of a coalescing manager")
        self.run_everywhere(body)

    def test_premultiplied_sums_float8_uint16_and_sparse_tensors(self):
        def body(rank, size):
            tensor = torch.full((5,), float(rank + 1))
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
            same(tensor, torch.full((5,), 0.5 * size * (size + 1) / 2), "PREMUL_SUM by a number")
            tensor = torch.full((5,), 2.0)
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(torch.tensor([float(rank)])))
            same(tensor, torch.full((5,), float(size * (size - 1))), "PREMUL_SUM by a tensor")
            small = torch.full((16,), float(rank + 1)).to(torch.float8_e4m3fn)
            dist.all_reduce(small)
            same(small.float(), torch.full((16,), size * (size + 1) / 2), "all_reduce of float8")
            if hasattr(torch, "uint16"):
                wide = torch.full((3,), 40000 + rank, dtype=torch.uint16)
                dist.broadcast(wide, 1)
                assert wide.tolist() == [40001] * 3, wide
            entries = torch.sparse_coo_tensor([[0, rank + 1]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (size + 2, 2))
            dist.all_reduce(entries)
            wanted = torch.zeros(size + 2, 2)
            wanted[0] = torch.tensor([1.0, 2.0]) * size
            wanted[1:size + 1] = torch.tensor([3.0, 4.0])
            same(entries.to_dense(), wanted, "all_reduce of sparse tensors")
        self.run_everywhere(body)

    def test_results_equal_gloos_bit_for_bit_where_order_does_not_matter_and_to_rounding_elsewhere(self):
        def body(rank, size):
            torch.manual_seed(rank)
            results = []
            for op in (Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT):
                tensor = torch.randn(10007)
                dist.all_reduce(tensor, op)
                results.append(tensor)
            blocks = [torch.zeros(100) for _ in range(size)]
            dist.all_gather(blocks, torch.randn(100))
            return results, torch.cat(blocks)
        for size in (2, 4):
            ours, theirs = ranks.run(size, body, "tutti"), ranks.run(size, body, "gloo")
            for rank in range(size):
                for got, wanted in zip(ours[rank][0], theirs[rank][0]):
                    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
                self.assertTrue(torch.equal(ours[rank][0][1], theirs[rank][0][1]))
                self.assertTrue(torch.equal(ours[rank][1], theirs[rank][1]))
                self.assertTrue(torch.equal(ours[rank][0][0], ours[0][0][0]))  # all ranks have the same bits


class Asynchronous(unittest.TestCase):
    def test_many_calls_are_under_way_and_their_futures_run(self):
        def body(rank, size):
            tensors = [torch.full((1000 * (i + 1),), float(rank + i)) for i in range(20)]
            works = [dist.all_reduce(t, async_op=True) for t in tensors]
            doubled = [w.get_future().then(lambda f: f.value()[0] * 2) for w in works]
            synchronous = torch.ones(3)
            dist.all_reduce(synchronous)  # behind them all
            assert all(w.is_completed() for w in works)
            for i, (work, future, tensor) in enumerate(zip(works, doubled, tensors)):
                assert work.wait() is True and work.is_success()
                wanted = size * i + size * (size - 1) / 2
                assert tensor[0] == wanted and future.wait()[0] == 2 * wanted, (tensor[0], future.wait()[0], wanted)
                assert work.result()[0].data_ptr() == tensor.data_ptr()
        ranks.run(3, body)

    @unittest.skipUnless(hasattr(dist.AllreduceOptions(), "asyncOp"), "this PyTorch does not say who waits")
    def test_who_waits_at_once_gets_the_result_or_the_error_and_no_work(self):
        def body(rank, _):
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            options = dist.AllreduceOptions()
            options.asyncOp = False
            column = torch.full((500, 2), rank + 1.0)[:, 0]
            assert backend.allreduce([column], options) is None and column.unique().tolist() == [3], column.unique()
            pending = dist.all_reduce(torch.ones(1 << 20), async_op=True)  # and behind another call
            assert backend.allreduce([column], options) is None and column.unique().tolist() == [6], column.unique()
            pending.wait()
            with torch.autograd.profiler.profile(use_kineto=False) as profile:
                assert backend.allreduce([column], options) is None
            assert any(event.name == "tutti:all_reduce" for event in profile.function_events), profile
            try:
                backend.allreduce([torch.ones(3 + rank)], options)
                raise AssertionError("nothing was raised")
            except dist.DistBackendError as error:
                assert "while rank" in str(error), error
        ranks.run(2, body)

    @unittest.skipUnless(hasattr(dist.distributed_c10d, "_maybe_attach_flight_recorder"), "this PyTorch records no such group")
    def test_pytorchs_flight_recorder_has_the_calls_where_it_is_asked_for_and_costs_nothing_elsewhere(self):
        def body(asked):
            del os.environ["TORCH_FR_BUFFER_SIZE"]
            os.environ.update(asked)
            dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
            dist.all_reduce(torch.ones(3))
            dist.all_reduce(torch.ones(3), async_op=True).wait()
            recorded = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(backend="tutti")).get("entries", [])
            return [(call["profiling_name"], call["retired"]) for call in recorded]
        both = [("tutti:all_reduce", True)] * 2
        for asked, wanted in (({"TORCH_FR_BUFFER_SIZE": "16"}, both), ({}, []), ({"TORCH_FR_BUFFER_SIZE": "0"}, [])):
            self.assertEqual(ranks.run(1, lambda *_, asked=asked: body(asked), backend=None), [wanted])

    def test_calls_of_two_groups_in_different_orders_do_not_wait_for_each_other(self):
        def body(rank, _):
            other = dist.new_group([0, 1])
            groups = [dist.group.WORLD, other] if rank == 0 else [other, dist.group.WORLD]
            tensors = [torch.ones(200000), torch.ones(200000)]
            works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip(tensors, groups)]
            for work in works:
                work.wait()
            assert all(t[-1] == 2 for t in tensors)
        ranks.run(2, body)

    def test_subgroups_object_collectives_and_barriers(self):
        def body(rank, size):
            odd, even = dist.new_group([1, 3]), dist.new_group([0, 2])
            mine = odd if rank % 2 else even
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=mine)
            assert tensor.item() == (4 if rank % 2 else 2), tensor
            everything = [None] * size
            dist.all_gather_object(everything, {"rank": rank, "text": "x" * rank})
            assert [e["rank"] for e in everything] == list(range(size)), everything
            objects = [["from", rank]]
            dist.broadcast_object_list(objects, src=2)
            assert objects == [["from", 2]], objects
            taken = [None]
            dist.scatter_object_list(taken, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
            assert taken == [f"for {rank}"], taken
            dist.barrier()
            if MONITORED_BARRIER:
                dist.monitored_barrier(timeout=datetime.timedelta(seconds=10))
            dist.barrier(group=mine)
        ranks.run(4, body)

    @unittest.skipUnless(MONITORED_BARRIER, "this PyTorch lets Gloo alone have a monitored_barrier")
    def test_monitored_barrier_names_who_is_missing_and_the_group_goes_on(self):
        def body(rank, _):
            if rank != 2:
                try:
                    dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.5), wait_all_ranks=True)
                    raise AssertionError("it passed")
                except RuntimeError as error:
                    assert "Rank 2 failed to pass monitoredBarrier" in str(error), error
            dist.barrier()
        ranks.run(3, body)


class PointToPoint(unittest.TestCase):
    def test_exchange_in_any_order_with_tags_from_any_source(self):
        def body(rank, size):
            big = 300000
            right, left = (rank + 1) % size, (rank - 1) % size
            received = torch.zeros(big)
            sends = [dist.isend(torch.full((big,), float(rank)), right), dist.isend(torch.full((2,), 7.0), right, tag=5)]
            tagged = torch.zeros(2)
            dist.irecv(tagged, left, tag=5).wait()  # overtakes what was sent before it
            dist.irecv(received, left).wait()
            assert received[-1] == left and tagged[0] == 7, (received[-1], tagged)
            for work in sends:
                work.wait()
            batch = [dist.P2POp(dist.irecv, received, left), dist.P2POp(dist.isend, torch.full((big,), 3.0 + rank), right)]
            for work in dist.batch_isend_irecv(batch):
                work.wait()
            assert received[0] == 3 + left
            if rank == 0:
                seen = {}
                for _ in range(size - 1):
                    tensor = torch.zeros(1)
                    source = dist.recv(tensor)
                    seen[source] = tensor.item()
                assert seen == {r: 100.0 + r for r in range(1, size)}, seen
            else:
                dist.send(torch.tensor([100.0 + rank]), 0)
            column = torch.zeros(4, 2)[:, 1]
            if rank == 0:
                dist.send(torch.arange(8.0).reshape(4, 2)[:, 1], 1)
            elif rank == 1:
                dist.recv(column, 0)
                same(column, torch.tensor([1.0, 3.0, 5.0, 7.0]), "recv of a column")
            dist.barrier()
        for size in (2, 4):
            ranks.run(size, body)

    def test_wrong_size_and_wrong_peer_are_told_and_the_next_message_arrives(self):
        def body(rank, _):
            if rank == 0:
                dist.send(torch.ones(3), 1)
                dist.send(torch.full((5,), 2.0), 1)
            else:
                for tensor in (torch.zeros(4), torch.zeros(5)):
                    try:
                        dist.recv(tensor, 0)
                        assert tensor[0] == 2
                    except ValueError as error:
                        assert "rank 0 sent 12 bytes with tag 0, but the tensor to be received has 16" in str(error), error
                        assert tensor.numel() == 4
            dist.barrier()
        ranks.run(2, body)

    def test_a_receive_that_nothing_comes_for_ends_at_the_groups_timeout(self):
        def body(rank, _):
            if rank == 1:
                try:
                    dist.recv(torch.zeros(1), 0)
                    raise AssertionError("it came")
                except dist.DistBackendError as error:
                    assert "rank 1 waited 700 ms for tutti:recv" in str(error), error
        ranks.run(2, body, timeout_s=0.7)


class Mistakes(unittest.TestCase):
    def everybody_sees(self, body, kind, text, size=2, **more):
        def guarded(rank, ranks_in_all):
            try:
                body(rank, ranks_in_all)
            except kind as error:
                return str(error)
            raise AssertionError("nothing was raised")
        for rank, sentence in enumerate(ranks.run(size, guarded, **more)):
            self.assertRegex(sentence, text, f"rank {rank}")

    def test_sizes_types_operators_and_orders_that_differ_are_errors_on_all_ranks(self):
        self.everybody_sees(lambda rank, _: dist.all_reduce(torch.ones(3 + rank)), dist.DistBackendError,
                            r"rank 0 .* called all_reduce\(count 3, .* while rank 1 .* called all_reduce\(count 4, ")
        self.everybody_sees(lambda rank, _: dist.all_reduce(torch.ones(3, dtype=(torch.float32, torch.int32)[rank])),
                            dist.DistBackendError, "float32.* while .*int32")
        self.everybody_sees(lambda rank, _: dist.all_reduce(torch.ones(3), (Op.SUM, Op.MAX)[rank]),
                            dist.DistBackendError, "sum.* while .*max")
        self.everybody_sees(lambda rank, _: dist.barrier() if rank else dist.all_reduce(torch.ones(3)),
                            dist.DistBackendError, "all_reduce.* while .*barrier")

    def test_what_can_be_seen_at_once_is_refused_and_the_group_goes_on(self):
        def body(rank, size):
            for call, kind, text in (
                    (lambda: dist.all_reduce(torch.ones(3), Op.BAND), ValueError, "band"),
                    (lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), Op.MAX), (ValueError, RuntimeError), "MAX|max"),
                    (lambda: dist.all_gather([torch.ones(3)] * (size - 1), torch.ones(3)), ValueError, "1 tensors for 2"),
                    (lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2)), ValueError, "3 elements in place of 4"),
                    (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), ValueError, "3 rows"),
                    (lambda: dist.group.WORLD._get_backend(torch.device("cpu")).allreduce(
                        [torch.ones(3, device="meta")], dist.AllreduceOptions()), NotImplementedError, "on meta; Tutti moves")):
                try:
                    call()
                    raise AssertionError(f"{text}: nothing was raised")
                except kind as error:
                    assert any(word in str(error) for word in text.split("|")), (text, error)
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            assert tensor.item() == size
        ranks.run(2, body)

    def test_a_rank_that_does_not_come_and_use_after_the_end(self):
        def late(rank, _):
            if rank == 1:
                time.sleep(1.5)
                dist.barrier()
            dist.barrier()
        self.everybody_sees(late, dist.DistBackendError, "waited 500 ms", timeout_s=0.5)

        def after_the_end(_rank, _):
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            dist.destroy_process_group()
            for _ in range(2):  # twice does not hurt; PyTorch 2.2 has not done it yet
                tutti.torch._module().shutdown(backend)
            from torch.distributed import AllreduceOptions
            backend.allreduce([torch.ones(1)], AllreduceOptions()).wait()
        self.everybody_sees(after_the_end, dist.DistBackendError, "has been shut down")

    def test_a_group_that_lacks_a_rank_says_who_did_not_come(self):
        def body(rank, _):
            if rank == 0:
                try:
                    dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=2,
                                            timeout=datetime.timedelta(seconds=1))
                    raise AssertionError("it began")
                except dist.DistBackendError as error:
                    assert "rank 1" in str(error) or "ranks 1" in str(error), error
        ranks.run(1, body, backend=None)

    def test_abort_ends_pending_calls_on_all_ranks(self):
        def body(rank, _):
            if rank == 0:
                time.sleep(0.3)
                tutti.torch.abort()
                return
            started = time.monotonic()
            try:
                dist.all_reduce(torch.ones(3))
                raise AssertionError("it passed")
            except dist.DistBackendError as error:
                assert "Abort" in str(error), error
            assert time.monotonic() - started < 5
        ranks.run(2, body)


class Deaths(unittest.TestCase):
    def test_a_killed_rank_is_named_by_the_others_within_a_second(self):
        def body(rank, _):
            dist.barrier()
            tensor = torch.ones(1000)
            try:
                for _ in range(10**9):
                    dist.all_reduce(tensor, Op.MAX)
            except dist.DistBackendError as error:
                return time.monotonic(), str(error)
        processes, pipes = ranks.start(3, body)
        time.sleep(1)
        os.kill(processes[1], signal.SIGKILL)
        killed = time.monotonic()
        answers = ranks.finish(processes, pipes, may_die={1})
        for rank in (0, 2):
            when, sentence = answers[rank]
            self.assertLess(when - killed, 1.0)
            self.assertIn("rank 1", sentence)

    def test_a_killed_sender_fails_the_receive_that_waits_for_it(self):
        def body(rank, _):
            tensor = torch.zeros(1)
            if rank == 1:
                dist.send(tensor, 0)
                time.sleep(60)
            dist.recv(tensor, 1)
            try:
                dist.recv(tensor, 1)
            except dist.DistBackendError as error:
                return time.monotonic(), str(error)
        processes, pipes = ranks.start(2, body)
        time.sleep(1)
        os.kill(processes[1], signal.SIGKILL)
        killed = time.monotonic()
        when, sentence = ranks.finish(processes, pipes, may_die={1})[0]
        self.assertLess(when - killed, 1.0)
        self.assertIn("rank 1", sentence)


class SharedMemory(unittest.TestCase):
    def test_tensors_lie_there_and_gives_the_same_results(self):
        def body(rank, size):
            tutti.torch.use_shared_memory()
            tensors = [torch.full((1 << 20,), float(rank + i)) for i in range(3)]
            for tensor in tensors:
                dist.all_reduce(tensor)
            for i, tensor in enumerate(tensors):
                assert tensor[-1] == size * i + size * (size - 1) / 2
            with open("/proc/self/maps", encoding="utf-8") as maps:
                spans = [line.split()[0].split("-") for line in maps if "memfd" in line]
            place = tensors[0].data_ptr()
            assert any(int(low, 16) <= place < int(high, 16) for low, high in spans), "the tensor is not in shared memory"
            tutti.torch.use_shared_memory(False)
            with open("/proc/self/maps", encoding="utf-8") as maps:
                spans = [line.split()[0].split("-") for line in maps if "memfd" in line]
            ordinary = torch.ones(1 << 20)
            assert not any(int(low, 16) <= ordinary.data_ptr() < int(high, 16) for low, high in spans)
            del tensors
            return True
        self.assertEqual(ranks.run(2, body), [True, True])


class EntryPoints(unittest.TestCase):
    """As pip installs them."""
    SOURCES = pathlib.Path(__file__).resolve().parents[2]
    PROGRAM = ("import sys, torch, torch.distributed as dist; assert not any(name.startswith('tutti') for name in sys.modules)\n"
               "dist.init_process_group('tutti', store=dist.HashStore(), rank=0, world_size=1)\n"
               "one = torch.ones(1); dist.all_reduce(one); print(dist.get_backend(), one.item())")

    def run_program(self, program, package, **environment):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(self.SOURCES / "python" / "_tutti_autoload.py", folder)
            information = pathlib.Path(folder, "tutti-0.dist-info")
            information.mkdir()
            (information / "METADATA").write_text("Name: tutti\nVersion: 0\n")
            groups = re.findall(r'^\[project.entry-points."(.*)"\]\n(.*) = "(.*)"$', (self.SOURCES / "pyproject.toml").read_text(), re.M)
            (information / "entry_points.txt").write_text("".join(f"[{group}]\n{name} = {what}\n" for group, name, what in groups))
            return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PYTHONPATH": f"{folder}:{package}", **environment})

    @unittest.skipUnless(hasattr(torch, "_import_device_backends"), "this PyTorch looks for no entry points")
    def test_the_backend_is_found_without_an_import(self):
        tutti.torch._module()  # compiled
        package = pathlib.Path(tutti.__file__).parents[1]
        found = [self.run_program(self.PROGRAM, package)]
        if hasattr(dist.Backend, "_ensure_backend_registered"):  # also where `import torch` looks for nothing
            found.append(self.run_program(self.PROGRAM, package, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
        for done in found:
            self.assertEqual((done.returncode, done.stdout), (0, "tutti 1.0\n"), done.stderr)

    @unittest.skipUnless(hasattr(torch, "_import_device_backends"), "this PyTorch looks for no entry points")
    def test_a_broken_package_does_not_keep_others_from_pytorch(self):
        done = self.run_program(self.PROGRAM.replace("dist.init", "print(torch.ones(1).item())\ndist.init", 1), "/nowhere")
        self.assertEqual(done.stdout, "1.0\n", done.stderr)
        self.assertRegex(done.stderr, "No module named 'tutti'|Failed to load the c10d backend entry point")


if __name__ == "__main__":
    unittest.main(verbosity=2)
