"""The package as a program with types uses it: mypy --strict has nothing to say of it. (Read by types_test.py, never run.)"""
import array

import numpy as np
from typing_extensions import assert_type

import tutti


class OfAnotherLibrary:
    """What has DLPack alone."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return object()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class StreamOfAnotherLibrary:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 1)


def every_kind_of_array(comm: tutti.Communicator) -> None:
    comm.all_reduce(np.ones(3), op=tutti.AVG, datatype=tutti.Type.FLOAT64)
    comm.all_reduce(OfAnotherLibrary(), OfAnotherLibrary())
    comm.broadcast(bytearray(8))
    comm.broadcast(array.array("d", [1.0]), 1)
    comm.all_reduce(tutti.empty((3, 4), np.int16))


def every_kind_of_stream(comm: tutti.Communicator) -> None:
    with tutti.Stream() as stream:
        comm.barrier(stream)
        stream.synchronize()
    comm.barrier(stream=1)
    comm.barrier(stream=StreamOfAnotherLibrary())
    comm.barrier(options=tutti.Options(deadline_ms=100, determinism=tutti.Determinism.STRICT))


def what_with_gives() -> None:
    with tutti.Communicator.from_environment() as comm:
        assert_type(comm.rank + comm.size, int)
        half = comm.split(None if comm.rank else 0)
        assert_type(half, tutti.Communicator | None)
        with tutti.group(), tutti.Window(comm, np.zeros(3)) as window, tutti.Registration(comm, np.zeros(3)):
            window.put(np.ones(1), 0)
        with tutti.Prepared() as prepared:
            comm.scan(np.ones(3))
        prepared.start()
        largest = tutti.Operator(comm, lambda left, right: None, tutti.Type.FLOAT32)
        comm.all_reduce(np.ones(3, np.float32), op=largest.op)


def who_failed(error: tutti.Error) -> str:
    return f"{error.result}: {error}"
