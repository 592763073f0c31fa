"""Tutti as a backend of torch.distributed: `import tutti.torch`, then `init_process_group("tutti")`.

Where PyTorch looks for backends itself (2.15 does), no import is needed. docs/pytorch.md says more."""
import collections.abc
import contextlib
import datetime
import functools
import os
import sys

import torch
import torch.distributed as dist

if not dist.is_available():
    raise ImportError("this PyTorch is built without torch.distributed")

from . import _compile  # noqa: E402


@functools.cache
def _module():
    """The compiled backend, or None where there is no compiler."""
    try:
        return _compile.load()
    except _compile.NoCompiler as error:
        print(f"tutti: {error}. The backend runs in Python, and is slower.", file=sys.stderr, flush=True)
        return None


def _recorded_by_pytorch() -> bool:
    """Whether the environment asks for PyTorch's flight recorder, in whose words one that is not asked for is on."""
    sizes = [os.environ.get(name) for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")]
    return int(next(filter(None, sizes), 0)) > 0


def _create(store, rank: int, size: int, timeout: datetime.timedelta):
    # The recorder (since 2.15) would take a third of a small call's time, and Tutti keeps its last calls itself
    # (TUTTI_RECORD). So it records groups of Tutti where it is asked for, and then each call gives a Work that it can look at.
    recorded = _recorded_by_pytorch()
    record_themselves = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    (record_themselves.discard if recorded else record_themselves.add)("tutti")
    if (module := _module()) is not None:
        return module.make(store, rank, size, timeout.total_seconds(), recorded)
    from .fallback import PythonProcessGroup
    return PythonProcessGroup(store, rank, size, timeout)


def register() -> None:
    """Makes "tutti" a backend of torch.distributed. Nothing is compiled before a group is made."""
    if "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, devices=["cpu", "cuda"])


def _compiled(what: str):
    if (module := _module()) is None:
        raise NotImplementedError(f"{what} needs the compiled backend, and there is no C++ compiler")
    return module


def use_shared_memory(on: bool = True) -> None:
    """From now on tensors of 64 KiB and more are allocated in memory that the other ranks of this host reach directly, so
    that collectives on them copy less. Call it before the model is made. After a fork such memory is the parent's and the
    child's at once: what one writes, the other sees."""
    _compiled("use_shared_memory").use_shared_memory(on)


@contextlib.contextmanager
def shared_memory() -> collections.abc.Iterator[None]:
    """use_shared_memory for the tensors that are made inside a `with`."""
    module = _compiled("shared_memory")
    before = module.uses_shared_memory()
    module.use_shared_memory(True)
    try:
        yield
    finally:
        module.use_shared_memory(before)


def _backend(group):
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("there is no process group: call init_process_group first")
    try:
        return group._get_backend(torch.device("cpu"))
    except RuntimeError:  # a group for GPUs alone
        return group._get_backend(torch.device("cuda"))


def transport(peer: int, group: dist.ProcessGroup | None = None) -> str:
    """What reaches rank `peer` of the group: "self", "shm" or "tcp"."""
    return _compiled("transport").transport(_backend(group), peer)


def algorithm(collective: str, nbytes: int, group: dist.ProcessGroup | None = None) -> str:
    """What runs for a collective ("all_reduce", ...) of so many bytes."""
    return _compiled("algorithm").algorithm(_backend(group), collective, nbytes)


def abort(group: dist.ProcessGroup | None = None) -> None:
    """Ends every pending call of the group, on all ranks, with an error."""
    _compiled("abort").abort(_backend(group))


register()
