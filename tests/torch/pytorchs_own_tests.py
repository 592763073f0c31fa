#!/usr/bin/env python3
"""PyTorch's own tests of its backends (torch.testing._internal.distributed.distributed_test, which its wheel brings along),
with the backend tutti on the CPU, judged by what the same tests do with gloo: what passes there must pass here, but for the
exceptions that stand in EXCEPTIONS with their reasons.

    pytorchs_own_tests.py [--world 3] [--json FILE] [--few | names of tests]      # judged by the list that is kept
    pytorchs_own_tests.py --both [names of tests]                                 # by a run with gloo, here and now
    pytorchs_own_tests.py --record                                                # that run's results become the list

Each test runs in processes of its own, forks of one that has imported everything: a session, which is killed at its end or
when its time is over. A rank that a signal ends makes its test fail, though PyTorch looks at rank 0 alone."""
import argparse
import collections
import json
import os
import pathlib
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import unittest

# Tests that pass with gloo and not here, and why.
EXCEPTIONS = {
    "test_ddp_logging_data_cpu": "PyTorch logs \"custom\" as the name of every backend that is not among its own",
}
# Every kind of call once, in a few seconds.
FEW = """test_all_reduce_sum test_all_reduce_sum_async test_all_reduce_coalesced_sum test_all_gather test_all_gather_coalesced_simple
test_all_gather_object_default_pg test_broadcast test_broadcast_full_group test_reduce_max test_gather test_scatter test_scatter_object_list
test_all_to_all test_all_to_all_single_unequal_split test_barrier test_barrier_timeout_global test_monitored_barrier_gloo_subgroup
test_send_recv test_send_recv_any_source test_isend test_batch_isend_irecv_gloo test_sparse_all_reduce_sum test_get_backend
test_destroy_group test_ddp_logging_data_cpu test_DistributedDataParallelCPU_grad_is_view test_static_graph_api_cpu""".split()
TEST_S = 90
RECORD = pathlib.Path(__file__).with_name("pytorchs_own_tests.json")


class AlsoGloo(str):
    """A backend's name that equals "gloo" and "mpi" as well: many tests are for backends whose names they know, those of
    all_to_all on the CPU for MPI alone."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other in ("gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash("gloo")


def tests_of(backend):
    """The class of the tests, for that backend."""
    known = os.environ.decodevalue
    os.environ["BACKEND"] = backend
    os.environ.decodevalue = lambda value: AlsoGloo(backend) if value == backend.encode() else known(value)
    os.environ["INIT_METHOD"] = "file://" + tempfile.gettempdir() + "/tutti-own-init"
    import torch
    from torch.testing._internal import common_distributed
    common_distributed.DistTestCases.backend_feature["plugin"].add("tutti")
    from torch.testing._internal.distributed import distributed_test
    os.environ.decodevalue = known
    for known_backends in (distributed_test.PROFILING_SUPPORTED_BACKENDS,
                           distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        known_backends.append("tutti")
    if backend == "tutti":
        import tutti.torch
        tutti.torch._module()  # compiled and loaded once
    torch.set_num_threads(1)

    class OwnTests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def _check_return_codes(self, fn, elapsed_time):
            super()._check_return_codes(fn, elapsed_time)
            died = [f"rank {rank} by {signal.Signals(-p.exitcode).name}" for rank, p in enumerate(self.processes)
                    if p.exitcode is not None and p.exitcode < 0]
            if died and fn not in self.skip_return_code_checks:
                raise RuntimeError("died: " + ", ".join(died))
    return OwnTests


def be_test(own_tests, name, pipe, log, folder):
    """In a process of its own: runs a test, whose files are in the folder, and writes [what, why] to the pipe."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["TEMP_DIR"] = tempfile.tempdir = folder
    from torch.testing._internal.distributed import distributed_test
    distributed_test.INIT_METHOD = f"file://{os.environ['TEMP_DIR']}/init"
    result = unittest.TestResult()
    try:
        own_tests(name).run(result)
    except unittest.SkipTest as skip:
        result.skipped.append((name, str(skip)))
    if wrong := result.errors + result.failures:
        answer = ["failed", wrong[0][1]]
    elif result.skipped:
        answer = ["skipped", result.skipped[0][1]]
    else:
        answer = ["passed", ""]
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(pipe, "w") as out:
        json.dump(answer, out)
    os._exit(0)


def answer_of(reader, seconds):
    """What be_test has written, or why it has written nothing."""
    deadline, text = time.monotonic() + seconds, b""
    while True:
        if not select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return ["failed", f"not over after {seconds} s"]
        if part := os.read(reader, 1 << 16):
            text += part
        else:
            return json.loads(text) if text else ["failed", "the process of the test died"]


def run_one(own_tests, name, logs):
    # This process outlives the test's, which may be killed.
    with tempfile.TemporaryDirectory(prefix="tutti-own-", ignore_cleanup_errors=True) as folder:
        return run_in(folder, own_tests, name, logs)


def run_in(folder, own_tests, name, logs):
    began = time.monotonic()
    reader, writer = os.pipe()
    sys.stdout.flush()
    with open(logs / f"{name}.log", "wb") as log:
        process = os.fork()
        if process == 0:
            os.close(reader)
            be_test(own_tests, name, writer, log.fileno(), folder)
    os.close(writer)
    # Ranks have the pipe's end too: it is closed when all are gone.
    what, why = answer_of(reader, TEST_S)
    os.close(reader)
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(process, 0)
    return {"what": what, "why": why, "seconds": round(time.monotonic() - began, 1)}


def last_words(why):
    """The sentence of a traceback that says what was wrong."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line) and "exited with error code" not in line]
    return (errors[:1] or lines[-1:] or [""])[0][:300]


def run(backend, names, logs):
    """In a process of its own: {test: {what, why, seconds}} as JSON on standard output's descriptor."""
    own_tests = tests_of(backend)
    results = {}
    for name in names or sorted(n for n in dir(own_tests) if n.startswith("test_")):
        results[name] = found = run_one(own_tests, name, logs)
        print(f"{backend}: {name} {found['what']} in {found['seconds']} s"
              f"{': ' + last_words(found['why']) if found['why'] else ''}", file=sys.stderr, flush=True)
    return results


def results_with(backend, names, world, logs):
    import subprocess
    logs.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sys.executable, __file__, "--as", backend, str(logs), *names], stdout=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"})
    if done.returncode != 0:
        sys.exit(f"{backend}: the runner ended with {done.returncode}")
    return json.loads(done.stdout)


def judge(ours, theirs, whole):
    """Prints the table and says whether it is as it must be."""
    worse = [name for name, found in ours.items()
             if found["what"] != "passed" and theirs.get(name, {}).get("what") == "passed"]
    counts = collections.Counter(found["what"] for found in ours.values())
    print(f"tutti: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped; "
          f"gloo: {sum(theirs.get(name, {}).get('what') == 'passed' for name in ours)} passed")
    for name in worse:
        reason = EXCEPTIONS.get(name)
        print(f"{'exception' if reason else 'WORSE'}: {name}: passes with gloo, {ours[name]['what']} here: "
              f"{reason or last_words(ours[name]['why'])}")
    stale = [name for name in EXCEPTIONS if name in ours and name not in worse]
    for name in stale:
        print(f"STALE exception: {name} is no worse than with gloo")
    missing = [name for name in theirs if whole and name not in ours]
    if missing:
        print(f"NOT RUN: {', '.join(missing)}")
    return not stale and not missing and all(name in EXCEPTIONS for name in worse)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--json", help="where the table goes")
    parser.add_argument("--few", action="store_true", help="some tests of each kind, in seconds")
    parser.add_argument("--both", action="store_true", help="run gloo as well, in place of the list that is kept")
    parser.add_argument("--record", action="store_true", help="run gloo alone, and keep what it does")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    import torch
    version = torch.__version__.split("+")[0]
    kept = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    names = FEW if options.few else options.names
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-own-logs-"))
    print("logs of the tests, kept where one is worse than it should be:", folder, flush=True)
    if options.record:
        found = results_with("gloo", [], options.world, folder / "gloo")
        failed = [name for name, result in found.items() if result["what"] == "failed"]
        print(f"{len(found)} tests; with gloo failed: {failed or 'none'}")
        passed = sorted(name for name, result in found.items() if result["what"] == "passed")
        kept.setdefault(version, {})[str(options.world)] = passed
        RECORD.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
        return
    of_kept = kept.get(version, {}).get(str(options.world))
    if options.both or of_kept is None:
        theirs = results_with("gloo", names, options.world, folder / "gloo")
    else:
        theirs = {name: {"what": "passed"} for name in of_kept}
    ours = results_with("tutti", names, options.world, folder / "tutti")
    if options.json:
        table = {name: {"tutti": ours[name], "gloo": theirs.get(name)} for name in ours}
        pathlib.Path(options.json).write_text(json.dumps({"torch": version, "ranks": options.world, "tests": table}, indent=1))
    good = judge(ours, theirs, not names)
    if good:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if good else 1)


if sys.argv[1:2] == ["--as"]:
    results_text = json.dumps(run(sys.argv[2], sys.argv[4:], pathlib.Path(sys.argv[3])))
    os.write(1, results_text.encode())
    os._exit(0)
main()
