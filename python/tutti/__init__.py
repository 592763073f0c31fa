"""Tutti for Python: collective communication among ranks that are threads, processes or hosts.

    import numpy as np, tutti
    with tutti.Communicator.from_environment() as comm:      # under torchrun, tutti-run, mpirun, srun
        gradients = np.full(3, comm.rank, np.float32)
        comm.all_reduce(gradients, op=tutti.AVG)             # in place

Buffers are anything with the buffer protocol or DLPack (numpy arrays, tensors of PyTorch, JAX, CuPy's on the host):
contiguous, of the host or of a CUDA device, never copied. Calls run without Python's lock. Errors are exceptions with the library's whole
sentence (tutti.errors). Meanings are those of include/tutti/tutti.h. tutti.torch is a backend of torch.distributed."""
import enum as _enum
import math as _math
from typing import Any as _Any

import numpy as _numpy
from numpy.typing import DTypeLike as _DTypeLike, NDArray as _NDArray

from . import errors
try:
    from ._core import (HEADER_VERSION, Communicator, Config, Operator, Options, Prepared, Registration, Stream, Window,
                        allocate, environment_rank, error_string, group, library, opaque, type_size, unique_id, version)
except ImportError as error:
    raise ImportError(f"libtutti or the bindings of this package cannot be loaded: {error}; reinstall the package") from error
from .errors import (Aborted, DeviceError, Error, InternalError, InvalidArgument, InvalidUsage, Mismatch, RemoteError,
                     SystemError, Timeout, Unsupported)

if version() // 100 != HEADER_VERSION // 100:
    raise ImportError(f"the bindings were compiled for version {HEADER_VERSION} of libtutti, but {library()} is "
                      f"version {version()}: reinstall the package")

__version__ = f"{version() // 10000}.{version() // 100 % 100}.{version() % 100}"


class Type(_enum.IntEnum):
    """Element types, for `datatype`: an array's own where it is not given."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8E4M3 = 10
    FLOAT8E5M2 = 11
    BOOL = 12
    INT16 = 13
    UINT16 = 14
    COMPLEX64 = 15
    COMPLEX128 = 16
    FLOAT32_INT32 = 17
    FLOAT64_INT64 = 18
    INT32_INT32 = 19
    INT64_INT64 = 20


class Op(_enum.IntEnum):
    """Reduction operators; Operator makes more."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    LAND = 8
    LOR = 9
    MINLOC = 10
    MAXLOC = 11


class Determinism(_enum.IntEnum):
    """What the bits of a result may depend on (docs/determinism.md)."""

    BITWISE = 0
    STRICT = 1
    INVARIANT = 2


SUM, PROD, MAX, MIN, AVG = Op.SUM, Op.PROD, Op.MAX, Op.MIN, Op.AVG
BAND, BOR, BXOR, LAND, LOR, MINLOC, MAXLOC = Op.BAND, Op.BOR, Op.BXOR, Op.LAND, Op.LOR, Op.MINLOC, Op.MAXLOC


def empty(shape: int | tuple[int, ...], dtype: _DTypeLike = _numpy.float32) -> _NDArray[_Any]:
    """A numpy array of zeros that the other ranks of this host reach directly (docs/memory.md): large calls on it copy
    less. It takes whole pages, so it is meant for large arrays."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = _numpy.dtype(dtype)
    return allocate(_math.prod(shape) * kind.itemsize).view(kind).reshape(shape)


__all__ = ["Aborted", "Communicator", "Config", "DeviceError", "Determinism", "Error", "HEADER_VERSION", "InternalError",
           "InvalidArgument", "InvalidUsage", "Mismatch", "Op", "Operator", "Options", "Prepared", "Registration",
           "RemoteError", "Stream", "SystemError", "Timeout", "Type", "Unsupported", "Window", "allocate", "empty", "environment_rank",
           "error_string", "errors", "group", "library", "opaque", "type_size", "unique_id", "version",
           "SUM", "PROD", "MAX", "MIN", "AVG", "BAND", "BOR", "BXOR", "LAND", "LOR", "MINLOC", "MAXLOC"]
