#!/usr/bin/env python3
"""tutti-perf over the library: however the ranks are started, on each transport, every type, operator and root.
Usage: perf_run_test.py PATH_OF_TUTTI_PERF PATH_OF_TUTTI_RUN"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PERF, RUN = map(os.path.abspath, sys.argv[1:3])
LAUNCHERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
CLEAN = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
CLEAN.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
SHORT = ["-n", "3", "-w", "1"]


def run(*command, **variables):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                          env={**CLEAN, **variables})


class PerfTest(unittest.TestCase):
    def passes(self, got, rows, ranks):
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        lines = [line for line in got.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual(len(lines), rows, got.stdout)
        self.assertIn(f": {ranks} ranks on 1 host", got.stdout)
        self.assertIn("# Out of bounds values : 0 OK", got.stdout)


class Ranks(PerfTest):
    def test_under_tutti_run(self):
        self.passes(run(RUN, "-n", 3, "--no-prefix", PERF, "all_reduce", "--sizes", "8,64K", *SHORT), 2, 3)

    def test_as_threads(self):
        self.passes(run(PERF, "all_reduce", "-t", 3, "--sizes", "8,64K", *SHORT), 2, 3)

    def test_as_local_processes(self):
        self.passes(run(PERF, "all_reduce", "--local", 3, "--sizes", "8,64K", *SHORT), 2, 3)

    def test_as_threads_of_processes(self):
        self.passes(run(PERF, "all_reduce", "--local", 2, "-t", 2, "--sizes", "8,64K", *SHORT), 2, 4)
        self.passes(run(RUN, "-n", 2, "--no-prefix", PERF, "all_reduce", "-t", 2, "--sizes", "8,64K", *SHORT), 2, 4)

    def test_on_devices(self):
        device = ("--device", "simulated")
        for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "alltoall", "sendrecv", "gather_v"):
            self.passes(run(PERF, operation, "-t", 3, "--sizes", "12,200K", *SHORT, *device), 2, 3)
        for devices in ("simulated:devices=2", "simulated:exports=0"):
            self.passes(run(PERF, "all_reduce", "--local", 2, "--sizes", "8,300K", *SHORT, *device, TUTTI_DEVICE=devices), 2, 2)
        got = run(RUN, "-n", 2, "--no-prefix", PERF, "all_reduce", "--sizes", "8", *SHORT, *device)
        self.passes(got, 1, 2)
        self.assertIn("memory of simulated devices", got.stdout)
        self.assertIn("iterations on a stream of the device", got.stdout)

    def test_by_algorithms_in_turns(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "rows.json")
            got = run(PERF, "all_reduce", "--local", 3, "--sizes", "8,64K", "--algorithms", "ring,tree", "--turns", 4, "--json",
                      file, "--plot", pathlib.Path(folder, "rows.svg"), *SHORT)
            self.passes(got, 4, 3)
            self.assertIn("mean, the least of 4 turns;", got.stdout)
            rows = json.loads(file.read_text())["rows"]
            self.assertIn("tree, in place", pathlib.Path(folder, "rows.svg").read_text())
        self.assertEqual([(row["size_bytes"], row["algorithm"]) for row in rows],
                         [(8, "ring"), (8, "tree"), (65536, "ring"), (65536, "tree")])
        for half in (row[name] for row in rows for name in ("out_of_place", "in_place")):
            self.assertEqual(len(half["turns_us"]), 4)
            self.assertEqual(half["time_us"], min(half["turns_us"]))
            self.assertEqual(half["wrong"], 0)
        barrier = run(PERF, "barrier", "-t", 2, "--algorithms", "tree,recursive_doubling", *SHORT)
        self.assertEqual(barrier.returncode, 0, barrier.stderr)
        self.assertIn("recursive_doubling\n", barrier.stdout)

    def test_algorithms_that_cannot_be_had(self):
        for operation in ("sendrecv", "pass_round"):
            self.assertEqual(run(PERF, operation, "-t", 2, "--algorithms", "ring").returncode, 2)
        self.assertEqual(run(PERF, "all_reduce", "-t", 2, "--algorithms", "ring,").returncode, 2)
        unknown = run(PERF, "all_reduce", "-t", 2, "--sizes", "8", "--algorithms", "abacus")
        self.assertEqual(unknown.returncode, 3)
        self.assertIn('"abacus"', unknown.stderr)

    def test_devices_that_cannot_be_had(self):
        none = run(PERF, "all_reduce", "--device", "cuda", TUTTI_DEVICE="none")
        self.assertEqual(none.returncode, 3)
        self.assertIn("--device cuda: TUTTI_DEVICE is none", none.stderr)
        for wrong in (("--device", "abacus"), ("--device", "cuda", "-R", 1), ("--device", "cuda", "--stream")):
            self.assertEqual(run(PERF, "all_reduce", *wrong).returncode, 2, wrong)

    def test_alone(self):
        self.passes(run(PERF, "all_reduce", "--sizes", "8,64K", *SHORT), 2, 1)

    def under_mpi(self, launcher, *options):
        if shutil.which(launcher) is None:
            self.skipTest(f"no {launcher} here")
        self.passes(run(launcher, "-n", 3, *options, PERF, "all_reduce", "--sizes", "8,64K", *SHORT), 2, 3)

    def test_under_open_mpi(self):
        self.under_mpi("mpirun.openmpi", "--oversubscribe", "--bind-to", "none")

    def test_under_mpich(self):
        self.under_mpi("mpirun.mpich")

    def test_bound_to_cores(self):
        got = run(PERF, "all_reduce", "--local", 2, "--bind", "--sizes", "8", *SHORT)
        self.passes(got, 1, 2)
        cores = sorted(os.sched_getaffinity(0))
        self.assertEqual([int(c) for c in re.findall(r"cores (\S+),", got.stdout)],
                         [cores[0], cores[1 % len(cores)]])


class Operations(PerfTest):
    def test_every_type_and_operator_is_right_on_each_transport(self):
        for transport in ("shm", "tcp"):
            got = run(RUN, "-n", 3, "--no-prefix", PERF, "all_reduce", "-d", "all", "-o", "all",
                      "--sizes", "0,8,1000,100000", *SHORT, TUTTI_TRANSPORT=transport)
            self.passes(got, 149 * 4, 3)
            self.assertIn(f"peers by transport: {transport} 2", got.stdout)

    def test_every_root_of_broadcast_is_right(self):
        self.passes(run(PERF, "broadcast", "--local", 3, "-r", "all", "-d", "all", "--sizes", "0,8,1000,100000",
                        *SHORT), 21 * 3 * 4, 3)

    def test_blocks_and_roots_are_right_on_each_transport(self):
        for transport in ("shm", "tcp"):
            for collective in ("reduce", "all_gather", "reduce_scatter", "gather", "scatter", "alltoall", "scan",
                               "exscan", "all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "alltoall_v"):
                rooted = collective in ("reduce", "gather", "scatter", "gather_v", "scatter_v")
                got = run(RUN, "-n", 3, "--no-prefix", PERF, collective, "-r", "all", "--sizes", "0,24,1000,300000",
                          *SHORT, TUTTI_TRANSPORT=transport)
                self.passes(got, 4 * (3 if rooted else 1), 3)

    def test_point_to_point(self):
        for operation in ("sendrecv", "pass_round"):
            for ranks in (1, 2, 3):
                self.passes(run(PERF, operation, "--local", ranks, "--sizes", "0,8,1M", *SHORT), 3, ranks)
        self.passes(run(PERF, "pass_round", "--local", 2, "--stream", "--sizes", "8,1M", *SHORT), 2, 2)
        grouped = run(PERF, "pass_round", "--local", 2, "-m", 3, "--sizes", "8", *SHORT)
        self.assertEqual(grouped.returncode, 2)
        self.assertIn("-m 3", grouped.stderr)

    def test_barrier(self):
        got = run(PERF, "barrier", "--local", 3)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("# Out of bounds values : N/A", got.stdout)

    def test_on_a_stream_and_in_groups(self):
        for options in (["--stream"], ["--stream", "-z", "1"], ["-m", "3"], ["--stream", "-m", "3"]):
            for collective in ("all_reduce", "broadcast", "sendrecv"):
                self.passes(run(PERF, collective, "--local", 2, *options, "--sizes", "8,64K", *SHORT), 2, 2)

    def test_results_as_files(self):
        with tempfile.TemporaryDirectory() as folder:
            got = run(PERF, "all_reduce", "--local", 2, "--sizes", "8,64K", "--percentiles", "--line-exchange",
                      "--json", folder + "/a.json", "--plot", folder + "/a.svg", *SHORT)
            self.passes(got, 2, 2)
            data = json.loads(pathlib.Path(folder + "/a.json").read_text())
            self.assertEqual([place["transports"] for place in data["places"]], ["shm 1", "shm 1"])
            self.assertNotIn("-", [row["algorithm"] for row in data["rows"]])
            if len(os.sched_getaffinity(0)) > 1:
                self.assertGreater(data["line_exchange_ns"], 0)


class Failures(PerfTest):
    def test_one_sentence_for_wrong_options_under_a_launcher(self):
        for arguments, words in [(["-r", "3"], "-r 3: there are ranks 0 to 2 only"), (["-b", "x"], "-b x: not a size"),
                                 (["--json", "/no/such/x"], "--json /no/such/x: no file can be written")]:
            got = run(RUN, "-n", 3, "--no-prefix", PERF, "broadcast", *arguments)
            self.assertEqual((got.returncode, got.stdout), (2, ""))
            self.assertEqual([line for line in got.stderr.splitlines() if "tutti-perf:" in line],
                             ["tutti-perf: " + next(l for l in got.stderr.splitlines() if words in l)[12:]])

    def test_a_killed_rank_ends_all_and_is_named(self):
        process = subprocess.Popen([PERF, "all_reduce", "--local", "3", "--sizes", "64K", "-n", "1000000000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=CLEAN)
        victim = 0
        for line in process.stdout:
            if match := re.match(r"#\s+rank\s+2: .* pid (\d+)", line):
                victim = int(match[1])
            if "(elements)" in line:
                break
        time.sleep(0.3)
        os.kill(victim, 9)
        begin = time.monotonic()
        _, errors = process.communicate(timeout=20)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertNotEqual(process.returncode, 0)
        for rank in (0, 1):
            self.assertRegex(errors, f"tutti-perf: rank {rank}: .*rank 2")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
