#!/usr/bin/env python3
"""PyTorch's own tests of its backends, which its wheel brings along, with Tutti on the CPU. Since many of them are skipped for
a backend whose name they do not know, Tutti stands in gloo's place for them. Each test that does not pass is run with the
real gloo too: what passes there must pass here, but for the exceptions that stand below with their reasons.

    pytorchs_own_tests.py [names of tests]"""
import collections
import os
import re
import subprocess
import sys
import tempfile
import time

# Tests that pass with gloo and not here, and why.
EXCEPTIONS = {}
WORLD_SIZE = "3"
TEST_S = 60


def be_backend(backend, names):
    """In a process of its own: runs the tests, and prints a line for each."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=WORLD_SIZE, TEMP_DIR=tempfile.mkdtemp(prefix="tutti-torch-own-"),
                      INIT_METHOD="file://" + tempfile.mktemp(prefix="tutti-torch-own-"))
    import unittest

    import torch
    import torch.multiprocessing
    import tutti.torch
    from torch.testing._internal.distributed import distributed_test
    torch.set_num_threads(1)
    tutti.torch._module()
    if backend == "tutti":
        plugins = torch.distributed.Backend._plugins
        plugins["GLOO"] = plugins["TUTTI"]

    class OwnTests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            # Forks of this process, which has imported everything, in place of new ones.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    for name in names or sorted(n for n in dir(OwnTests) if n.startswith("test_")):
        result = unittest.TestResult()
        began = time.monotonic()
        try:
            OwnTests(name).run(result)
        except unittest.SkipTest as skip:
            result.skipped.append((name, str(skip)))
        wrong = result.errors + result.failures
        what = "failed" if wrong else "skipped" if result.skipped else "passed"
        why = wrong[0][1] if wrong else result.skipped[0][1] if result.skipped else ""
        print(f"OWN {name} {what} {time.monotonic() - began:.1f} {why.strip().splitlines()[-1] if why.strip() else ''}",
              flush=True)
    sys.stdout.flush()
    os._exit(0)


def run(backend, names):
    """{test: (passed | failed | skipped, why)}"""
    done = subprocess.run([sys.executable, __file__, "--as", backend, *names], capture_output=True, text=True, check=False,
                          env={**os.environ, "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(TEST_S)})
    found = {m[1]: (m[2], m[3]) for m in re.finditer(r"^OWN (\w+) (\w+) [\d.]+ (.*)$", done.stdout, re.M)}
    if not found:
        sys.exit(f"{backend}: no test ran:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return found


def main():
    names = sys.argv[1:]
    ours = run("tutti", names)
    doubtful = [name for name, (what, _) in ours.items() if what != "passed"]
    theirs = run("gloo", doubtful) if doubtful else {}
    worse = [name for name in doubtful if theirs.get(name, ("", ""))[0] == "passed"]
    counts = collections.Counter(what for what, _ in ours.values())
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped; with gloo, of those that did not "
          f"pass: {collections.Counter(what for what, _ in theirs.values())}")
    for name in worse:
        print(f"{'exception' if name in EXCEPTIONS else 'WORSE'}: {name}: {ours[name][0]} here, passed with gloo; "
              f"{EXCEPTIONS.get(name, ours[name][1])}")
    stale = [name for name in EXCEPTIONS if (not names or name in names) and name not in worse]
    for name in stale:
        print(f"STALE exception: {name} is no worse than with gloo")
    sys.exit(1 if stale or any(name not in EXCEPTIONS for name in worse) else 0)


if sys.argv[1:2] == ["--as"]:
    be_backend(sys.argv[2], sys.argv[3:])
main()
