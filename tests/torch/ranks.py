"""Ranks for tests: forks of one process, which has imported PyTorch once for all of them.

    results = run(3, body, backend="tutti")      # body(rank, size) in each; their results in order

A rank that raises, dies or hangs fails the test with its own words."""
import datetime
import faulthandler
import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

import tutti.torch

LONGEST_S = 60


class RankFailed(AssertionError):
    """What went wrong, rank by rank."""


def _be_rank(rank, size, body, backend, store, timeout_s, pipe):
    faulthandler.enable()
    torch.set_num_threads(1)
    try:
        if backend is None:
            result = body(rank, size)
        else:
            dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size,
                                    timeout=datetime.timedelta(seconds=timeout_s))
            result = body(rank, size)
            if dist.is_initialized() and backend != "gloo":  # whose end may wait, holding Python's lock, for a thread that wants it
                dist.destroy_process_group()
        answer = (True, result)
    except BaseException:  # what happened goes to the parent, whatever it is
        answer = (False, traceback.format_exc())
    with os.fdopen(pipe, "wb") as out:
        pickle.dump(answer, out)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def start(size, body, backend="tutti", timeout_s=30):
    """(process ids, their pipes)."""
    tutti.torch._module()  # compiled and loaded once
    store = tempfile.mktemp(prefix="tutti-torch-test-")
    processes, pipes = [], []
    for rank in range(size):
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reader)
            _be_rank(rank, size, body, backend, store, timeout_s, writer)
        os.close(writer)
        processes.append(process)
        pipes.append(reader)
    return processes, pipes


def finish(processes, pipes, may_die=()):
    """The ranks' results; None of those that may die."""
    deadline = time.monotonic() + LONGEST_S
    answers = []
    for rank, pipe in enumerate(pipes):
        data = b""
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(processes[rank], signal.SIGKILL)
                answers.append((False, f"no answer within {LONGEST_S} s"))
                break
            part = os.read(pipe, 1 << 20)
            if not part:
                answers.append(pickle.loads(data) if data else (rank in may_die, None if rank in may_die else "died"))
                break
            data += part
        os.close(pipe)
    for process in processes:
        os.waitpid(process, 0)
    if not all(fine for fine, _ in answers):
        raise RankFailed("\n".join(f"rank {rank}: {what}" for rank, (fine, what) in enumerate(answers) if not fine))
    return [result for _, result in answers]


def run(size, body, backend="tutti", timeout_s=30):
    return finish(*start(size, body, backend, timeout_s))
