#!/usr/bin/env python3
"""Tensors of devices, on Tutti's simulated ones, which simulated_torch.cc makes devices of PyTorch: memory that the host
cannot touch, streams that run behind. Usage: devices_test.py MODULE SOURCE_FOLDER [unittest's arguments]"""
import ctypes
import datetime
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest

import torch
import torch.distributed as dist

import tutti

DEVICE = "privateuseone"
ASYNC = os.environ.get("TUTTI_DEVICE_ASYNC") == "1"


def live_again(module):
    """Tutti looks for the module of its devices beside its own library: once more, with a library beside which it lies."""
    folder = tempfile.TemporaryDirectory()
    library = pathlib.Path(folder.name, "libtutti.so.0")
    library.symlink_to(os.path.realpath(tutti.library()))
    pathlib.Path(folder.name, "libtutti_cuda.so").symlink_to(os.path.realpath(module))
    environment = {**os.environ, "LD_PRELOAD": str(library), "TUTTI_DEVICE": "cuda"}
    return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


def compiled(sources):
    """The module of simulated_torch.cc, kept as backends are."""
    source = pathlib.Path(__file__).with_name("simulated_torch.cc")
    headers = sources / "src"
    mark = hashlib.sha256(_compile.fingerprint().encode() + source.read_bytes() +
                          (headers / "device/device.h").read_bytes()).hexdigest()[:16]
    target = _compile.cache_folder() / f"simulated_torch_{mark}.so"
    with _compile.only_one(target.parent):
        if not target.exists():
            words = [str(source) if word.endswith("unit.cc") else word for word in _compile.command()]
            subprocess.run([*words, f"-I{headers}", f"-DTUTTI_MODULE_NAME={target.stem}", "-o", str(target)], check=True)
    return _compile.loaded(target)


if __name__ == "__main__" and "LD_PRELOAD" not in os.environ:
    sys.exit(live_again(sys.argv[1]))

import ranks  # noqa: E402 - in the second life
import tutti.torch  # noqa: E402
from tutti.torch import _compile  # noqa: E402

MODULE, SOURCES = pathlib.Path(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1))
devices = compiled(SOURCES)
of_torch = types.ModuleType(f"torch.{DEVICE}")  # what PyTorch asks a device's module
of_torch._lazy_init, of_torch.is_available, of_torch._is_in_bad_fork = (lambda: None), (lambda: True), (lambda: False)
of_torch.device_count, of_torch.current_device = (lambda: 2), (lambda: 0)
torch._register_device_module(DEVICE, of_torch)
dist.Backend.register_backend("tutti_everywhere", tutti.torch._create, devices=["cpu", DEVICE])


def run(size, body, number=lambda rank: rank % 2, **more):
    """body(rank, size, device); each rank with a device, whose current stream is not the default one."""
    def with_device(rank, _):
        devices.load(os.environ["LD_PRELOAD"].replace("libtutti.so.0", "libtutti_cuda.so"))
        devices.exchange_stream(number(rank), devices.new_stream(number(rank)))
        return body(rank, size, torch.device(DEVICE, number(rank)))
    return ranks.run(size, with_device, backend="tutti_everywhere", **more)


def there(values, device):
    return torch.as_tensor(values).to(device)


def same(got, wanted, what):
    if not torch.allclose(got.cpu().double(), torch.as_tensor(wanted).double()):
        raise AssertionError(f"{what}: {got.cpu()} in place of {wanted}")


class Devices(unittest.TestCase):
    def test_every_collective_also_with_gaps_and_lists(self):
        def body(rank, size, device):
            total, ranks_of_all = size * (size + 1) / 2, torch.arange(size).double()
            for count in (1, 1000, 70000):
                for dtype in (torch.float32, torch.int64, torch.bfloat16):
                    tensor = there(torch.full((count,), rank + 1, dtype=dtype), device)
                    dist.all_reduce(tensor)
                    same(tensor, torch.full((count,), total), f"all_reduce of {count} {dtype}")
            tensor = there(torch.full((5,), float(rank)), device)
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            same(tensor, [(size - 1) / 2] * 5, "average")
            tensor = there(torch.ones(3), device)
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
            same(tensor, [0.5 * size] * 3, "PREMUL_SUM")
            column = there(torch.full((4, 2), float(rank)), device)[:, 1]
            dist.broadcast(column, 1)
            same(column, [1.0] * 4, "broadcast of a column")
            dist.reduce(column, 0)
            if rank == 0:
                same(column, [float(size)] * 4, "reduce of a column")
            blocks = [there(torch.zeros(r + 1), device) for r in range(size)]
            dist.all_gather(blocks, there(torch.full((rank + 1,), float(rank)), device))
            for r in range(size):
                same(blocks[r], [float(r)] * (r + 1), "all_gather of uneven blocks")
            whole = there(torch.zeros(size), device)
            dist.all_gather_into_tensor(whole, there([float(rank)], device))
            same(whole, ranks_of_all, "all_gather_into_tensor")
            views = list(whole.chunk(size))  # one after the other: used where they lie
            dist.all_gather(views, there([10.0 + rank], device))
            same(whole, ranks_of_all + 10, "all_gather into views of one tensor")
            one = there([0.0], device)
            dist.reduce_scatter_tensor(one, there(ranks_of_all.float(), device))
            same(one, [float(size * rank)], "reduce_scatter_tensor")
            dist.reduce_scatter(one, [there([float(r)], device) for r in range(size)])
            same(one, [float(size * rank)], "reduce_scatter")
            dist.all_to_all_single(whole, there(ranks_of_all.float() + 10 * rank, device))
            same(whole, ranks_of_all * 10 + rank, "all_to_all_single")
            dist.gather(one.fill_(float(rank)), [whole[r:r + 1] for r in range(size)] if rank == 0 else None, 0)
            if rank == 0:
                same(whole, ranks_of_all, "gather")
            dist.scatter(one, [there([7.0 + r], device) for r in range(size)] if rank == 1 else None, 1)
            same(one, [7.0 + rank], "scatter")
            many = [there(torch.full((n,), float(rank)), device) for n in (2, 3)]
            dist.group.WORLD.allreduce_coalesced(many).wait()
            same(torch.cat(many), [size * (size - 1) / 2] * 5, "all_reduce_coalesced")
            host = torch.tensor([float(rank)])
            dist.all_reduce(host)  # the same group, on the host
            same(host, [size * (size - 1) / 2], "all_reduce on the host")
            dist.barrier()
        run(2, body)
        run(3, body)

    def test_calls_come_between_what_is_before_and_after_on_the_callers_stream(self):
        def body(rank, size, device):
            warm = there([1.0], device)
            dist.all_reduce(warm)
            late = there(torch.full((5000,), 1.0 + rank), device)
            tensor = there(torch.zeros(5000), device)
            flag = devices.stall(device.index)
            tensor.copy_(late)  # behind the stall
            work = dist.all_reduce(tensor, async_op=True)
            time.sleep(0.05)
            assert not work.is_completed()
            if ASYNC:
                assert work.wait()  # the stream waits, the caller does not
            else:
                threading.Timer(0.05, devices.release, [flag]).start()
                assert work.wait()  # the caller waits
            copied = torch.empty_like(tensor).copy_(tensor)
            if ASYNC:
                time.sleep(0.05)
                assert not work.is_completed()
                devices.release(flag)
            same(copied, [3.0] * 5000, "what follows on the stream")
            assert work.is_completed() and work.is_success()
        run(2, body)

    def test_who_says_how_long_waits_for_the_device(self):
        def body(_rank, _size, device):
            tensor = there([1.0], device)
            dist.all_reduce(tensor)
            flag = devices.stall(device.index)
            work = dist.all_reduce(tensor, async_op=True)
            try:
                work.wait(datetime.timedelta(milliseconds=100))
                raise AssertionError("it waited for nothing")
            except dist.DistBackendError as error:
                assert "waited 100 ms for tutti:all_reduce" in str(error), error
            devices.release(flag)
            assert work.wait(datetime.timedelta(seconds=20)) and work.is_completed()
            same(tensor, [4.0], "twice")
        run(2, body)

    def test_memory_that_the_caller_lets_go_is_kept_until_the_device_is_through(self):
        def body(rank, _size, device):
            works = []
            for _ in range(10):
                tensor = there(torch.full((20000,), 1.0 + rank), device)
                works.append(dist.all_reduce(tensor, async_op=True))
                del tensor
            results = [work.result()[0] for work in works]
            for work in works:
                work.wait()
            for result in results:
                same(result, [3.0] * 20000, "all_reduce")
            assert devices.recorded() >= 10
        run(2, body)

    def test_futures_hooks_and_views_come_after_the_call(self):
        def body(rank, _size, device):
            tensor = there(torch.full((3000,), 1.0 + rank), device)
            work = dist.all_reduce(tensor, async_op=True)
            doubled = work.get_future().then(lambda f: f.value()[0] + f.value()[0])
            same(doubled.wait(), [6.0] * 3000, "what the hook made")
        run(2, body)

    def test_point_to_point_with_tags_and_from_any_source(self):
        def body(rank, size, device):
            if rank == 0:
                first, second = there(torch.zeros(3), device), there(torch.zeros(4, 2), device)[:, 1]
                dist.recv(second, 1, tag=5)  # overtakes what was sent before it
                dist.recv(first, 1)
                same(first, [1.0, 2.0, 3.0], "what was put aside")
                same(second, [9.0] * 4, "recv of a column")
                seen = {dist.recv(first) for _ in range(size - 1)}
                assert seen == set(range(1, size)), seen
                same(first, [4.0] * 3, "from any source")
            else:
                if rank == 1:
                    made, nines = there([1.0, 2.0, 3.0], device), there([9.0] * 4, device)
                    message, tagged = torch.zeros(3, device=device), torch.zeros(4, device=device)
                    flag = devices.stall(device.index)
                    message.copy_(made)  # behind the stall
                    tagged.copy_(nines)
                    works = [dist.isend(message, 0), dist.isend(tagged, 0, tag=5)]
                    time.sleep(0.05)
                    assert not works[0].is_completed()
                    devices.release(flag)
                    for work in works:
                        work.wait()
                dist.send(there([4.0] * 3, device), 0)
            dist.barrier()
        run(2, body)
        run(3, body)

    def test_a_barrier_waits_for_what_the_devices_have(self):
        def body(rank, _size, device):
            tensor = there([1.0], device)
            dist.all_reduce(tensor)
            flag = devices.stall(device.index) if rank == 0 else None
            barrier = dist.barrier(async_op=True)
            if rank == 0:
                time.sleep(0.05)
                assert not barrier.is_completed()
                released = time.monotonic()
                devices.release(flag)
                return released
            barrier.wait()
            return time.monotonic()
        released, passed = run(2, body)
        self.assertGreaterEqual(passed, released)

    def test_errors_are_told_by_the_next_call(self):
        def body(rank, _size, device):
            tensor = there(torch.zeros(3 + rank), device)
            try:
                dist.all_reduce(tensor)
                for _ in range(200):
                    time.sleep(0.02)
                    dist.all_reduce(tensor)
            except dist.DistBackendError as error:
                assert "count 3" in str(error) and "count 4" in str(error), error
                return
            raise AssertionError("nothing was raised")
        run(2, body)

    def test_where_tutti_finds_no_device_its_tensors_are_refused_by_name(self):
        def body(_rank, _size, device):
            for call in (lambda t: dist.all_reduce(t), lambda t: dist.send(t, 1 - dist.get_rank())):
                try:
                    call(there([1.0], device))
                    raise AssertionError("nothing was raised")
                except NotImplementedError as error:
                    assert f"is on {device}, but" in str(error) and "TUTTI_DEVICE is none" in str(error), error
            host = torch.ones(1)
            dist.all_reduce(host)
            assert host.item() == 2
        os.environ["TUTTI_DEVICE"] = "none"
        try:
            run(2, body)
        finally:
            os.environ["TUTTI_DEVICE"] = "cuda"


class Tensor(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class ByDlpack:
    """Another library's array of floats: memory of a device, which a stream of its own (made_on) still works on."""

    def __init__(self, tensor, made_on, device_type=2):  # kDLCUDA
        self.tensor, self.made_on, self.asked = tensor, made_on, []
        self.shape = ctypes.c_int64(tensor.numel())
        self.described = Tensor(data=tensor.data_ptr(), device_type=device_type, device_id=tensor.device.index or 0, ndim=1,
                                code=2, bits=32, lanes=1, shape=ctypes.pointer(self.shape))

    def __dlpack_device__(self):
        return self.described.device_type, self.described.device_id

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        if stream is not None:  # 1: the default stream
            devices.follow(self.described.device_id, 0 if stream == 1 else stream, self.made_on)
        return new_capsule(ctypes.addressof(self.described), b"dltensor", None)


class ByInterface:
    """The same with __cuda_array_interface__."""

    def __init__(self, tensor, read_only=False, **more):
        self.tensor = tensor
        self.__cuda_array_interface__ = {"data": (tensor.data_ptr(), read_only), "shape": (tensor.numel(),), "typestr": "<f4",
                                         "version": 3, **more}


def joined(rank, size):
    id_ = [tutti.unique_id() if rank == 0 else None]
    dist.broadcast_object_list(id_)
    return tutti.Communicator.join(size, id_[0], rank)


class Bindings(unittest.TestCase):
    def test_arrays_of_a_device_come_by_dlpack_after_their_producers_work(self):
        def body(rank, size, device):
            with joined(rank, size) as comm:
                mine, late, total = devices.new_stream(device.index), there(torch.full((5000,), rank + 1.0), device), None
                for stream in (None, devices.new_stream(device.index)):
                    devices.exchange_stream(device.index, mine)
                    data = array = None  # what is let go waits for its stream, which must not stall yet
                    data = there(torch.zeros(5000), device)
                    flag = devices.stall(device.index)
                    data.copy_(late)  # behind the stall
                    array = ByDlpack(data, mine)
                    blocks = stream is None or not ASYNC  # until the result is there
                    if blocks:
                        threading.Timer(0.05, lambda flag=flag: devices.release(flag)).start()
                    number = 1 if stream is None else devices.handle(device.index, stream)
                    comm.all_reduce(array, **({} if stream is None else {"stream": number}))
                    assert number in array.asked, array.asked
                    if not blocks:
                        devices.release(flag)
                    if stream is not None:
                        devices.exchange_stream(device.index, stream)
                    total = data.cpu()
                    same(total, [size * (size + 1) / 2] * 5000, f"all_reduce on stream {stream}")
                class OfCuda:
                    def __cuda_stream__(self):
                        return 0, devices.handle(device.index, mine)
                devices.exchange_stream(device.index, mine)
                whole = there(torch.zeros(size), device)
                comm.all_gather(ByDlpack(there([float(rank)], device), mine), ByDlpack(whole, mine), stream=OfCuda())
                same(whole, torch.arange(size), "all_gather")
        run(2, body)

    def test_arrays_of_a_device_come_by_cuda_array_interface(self):
        def body(rank, size, device):
            with joined(rank, size) as comm:
                mine = devices.new_stream(device.index)
                devices.exchange_stream(device.index, mine)
                data, number = there(torch.full((300,), rank + 1.0), device), devices.handle(device.index, mine)
                comm.all_reduce(ByInterface(data, stream=number), stream=number)
                same(data, [3.0] * 300, "all_reduce")
                devices.synchronize(device.index, mine)
                comm.all_reduce(ByInterface(data, stream=None, strides=(4,)))
                same(data, [6.0] * 300, "all_reduce without a stream")
                def refused(error, words, call):
                    try:
                        call()
                    except error as caught:
                        assert words in str(caught), caught
                        return
                    raise AssertionError(f"not refused: {words}")
                refused(tutti.Unsupported, f"send belongs to stream {number}, and the call is on the default stream",
                        lambda: comm.all_reduce(ByInterface(data, stream=number)))
                refused(tutti.InvalidArgument, "data is read-only", lambda: comm.broadcast(ByInterface(data, read_only=True)))
                refused(tutti.InvalidArgument, "not contiguous", lambda: comm.broadcast(ByInterface(data, strides=(8,))))
                refused(tutti.InvalidArgument, '">f4"', lambda: comm.broadcast(ByInterface(data, typestr=">f4")))
                refused(tutti.Unsupported, "data lies on a device, which a host stream does not wait for",
                        lambda: comm.broadcast(ByInterface(data), stream=tutti.Stream()))
                refused(tutti.Unsupported, "device of DLPack's type 10",
                        lambda: comm.broadcast(ByDlpack(data, mine, device_type=10)))
                refused(tutti.Unsupported, "memory lies in the memory of a device",
                        lambda: tutti.Window(comm, ByInterface(data)))
                comm.barrier()  # the communicator goes on
        run(2, body)

    def test_where_there_is_no_device_its_arrays_are_refused_by_name(self):
        def body(_rank, _size, device):
            data = there([1.0], device)
            with tutti.Communicator.join(1, tutti.unique_id(), 0) as comm:
                for array in (ByDlpack(data, 0), ByInterface(data)):
                    try:
                        comm.all_reduce(array)
                        raise AssertionError("nothing was raised")
                    except tutti.Unsupported as error:
                        assert "send lies in the memory of CUDA device" in str(error) and "TUTTI_DEVICE is none" in str(error), error
        os.environ["TUTTI_DEVICE"] = "none"
        try:
            run(2, body)
        finally:
            os.environ["TUTTI_DEVICE"] = "cuda"


if __name__ == "__main__":
    unittest.main(verbosity=2)
