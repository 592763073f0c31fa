#!/usr/bin/env python3
"""tutti-perf over a library that makes mistakes on demand: each is found, and told by the exit code.
Usage: perf_checks_test.py PATH_OF_TUTTI_PERF_FAULTY"""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PERF = os.path.abspath(sys.argv[1])
CLEAN = {k: v for k, v in os.environ.items() if k not in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")}


def perf(*arguments, fault=""):
    return subprocess.run([PERF, *arguments], capture_output=True, text=True, timeout=60,
                          env={**CLEAN, "FAULT": fault})


def rows(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


class Checks(unittest.TestCase):
    SMALL = ("-t", "3", "-b", "4K", "-e", "16K", "-n", "3", "-w", "1")

    def test_a_good_library_passes(self):
        for collective in ("all_reduce", "broadcast", "sendrecv", "barrier", "reduce", "all_gather", "reduce_scatter",
                           "gather", "scatter", "alltoall", "scan", "exscan", "all_gather_v", "reduce_scatter_v", "gather_v",
                           "scatter_v", "alltoall_v"):
            got = perf(collective, *self.SMALL)
            self.assertEqual((got.returncode, got.stderr), (0, ""), got.stdout)
            self.assertEqual(len(rows(got.stdout)), 1 if collective == "barrier" else 3)
            self.assertIn("# Out of bounds values : " + ("N/A" if collective == "barrier" else "0 OK"), got.stdout)

    def test_each_operator_and_root_has_a_line(self):
        got = perf("all_reduce", *self.SMALL, "-o", "all")
        self.assertEqual([r[3] for r in rows(got.stdout)][::3], ["sum", "prod", "max", "min", "avg", "mulsum"])
        self.assertEqual(got.returncode, 0, got.stdout)
        got = perf("broadcast", *self.SMALL, "-r", "all", "-d", "int8")
        self.assertEqual([r[4] for r in rows(got.stdout)][::3], ["0", "1", "2"])
        self.assertEqual(got.returncode, 0, got.stdout)

    def test_each_mistake_is_found(self):
        for collective in ("all_reduce", "broadcast", "sendrecv", "scan", "exscan"):
            for fault in ("wrong_value", "beyond_end", "input_changed"):
                if (collective, fault) == ("broadcast", "input_changed"):
                    continue  # only the root's input counts, and it is not the rank that errs here
                got = perf(collective, *self.SMALL, fault=fault)
                self.assertEqual(got.returncode, 1, (collective, fault, got.stdout))
                self.assertIn("FAILED", got.stdout)
        got = perf("all_reduce", *self.SMALL, "-c", "2", fault="late_value")
        self.assertEqual(got.returncode, 1, "a mistake in every second run only")

    def test_each_mistake_in_blocks_is_found(self):
        for collective in ("all_gather", "alltoall", "all_gather_v", "alltoall_v"):
            for fault in ("wrong_value", "beyond_end", "input_changed"):
                got = perf(collective, *self.SMALL, fault=fault)
                self.assertEqual(got.returncode, 1, (collective, fault, got.stdout))
        # The rank that errs is the last: where it is the root, or gets a block.
        for arguments in (("gather", "-r", "2"), ("reduce", "-r", "2"), ("scatter", "-r", "0"),
                          ("gather_v", "-r", "2"), ("scatter_v", "-r", "0")):
            for fault in ("wrong_value", "beyond_end"):
                got = perf(*arguments, *self.SMALL, fault=fault)
                self.assertEqual(got.returncode, 1, (arguments, fault, got.stdout))

    def test_without_checks_nothing_is_claimed(self):
        got = perf("all_reduce", *self.SMALL, "-c", "0", fault="wrong_value")
        self.assertEqual(got.returncode, 0)
        self.assertIn("N/A", rows(got.stdout)[0])
        self.assertIn("# Out of bounds values : N/A", got.stdout)

    def test_an_error_of_the_library_is_told(self):
        got = perf("all_reduce", "-t", "2", "-b", "4K", fault="refuse")
        self.assertEqual(got.returncode, 3)
        self.assertIn("tutti-perf: rank 0: tuttiAllReduce: the phrase: the sentence", got.stderr)

    def test_wrong_options_exit_with_2(self):
        for arguments, words in [(["all_reduce", "-b", "x"], "-b x"), (["nothing"], "collective nothing"),
                                 (["all_reduce", "-t", "2", "-o", "bxor"], "-o bxor: type float does not have it"),
                                 (["broadcast", "-r", "5", "-t", "2"], "-r 5"),
                                 (["all_reduce", "-g", "8"], "-g 8"),
                                 (["all_reduce", "--json", "/no/such/folder/x"], "--json /no/such/folder/x")]:
            got = perf(*arguments)
            self.assertEqual((got.returncode, got.stdout), (2, ""), got.stderr)
            self.assertIn(words, got.stderr)

    def test_help_and_version(self):
        got = perf("-h")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertIn("--percentiles", got.stdout)
        self.assertEqual(perf("--version").stdout.split()[0], "tutti-perf")

    def test_a_barrier_before_each_operation_alone_measures_too(self):
        got = perf("all_reduce", *self.SMALL, "--apart", "--percentiles")
        self.assertEqual(got.returncode, 0, got.stderr)
        rows = [line.split() for line in got.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual([row[0] for row in rows], ["4096", "8192", "16384"])

    def test_json_csv_and_plot_hold_the_same_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            got = perf("all_reduce", *self.SMALL, "--by-clock", "--percentiles", "--json", folder + "/a.json", "--csv",
                       folder + "/a.csv", "--plot", folder + "/a.svg")
            self.assertEqual(got.returncode, 0, got.stderr)
            data = json.loads(pathlib.Path(folder + "/a.json").read_text())
            lines = list(csv.DictReader(pathlib.Path(folder + "/a.csv").read_text().splitlines()))
            self.assertEqual([r["size_bytes"] for r in data["rows"]], [4096, 8192, 16384])
            self.assertEqual([int(r["size_bytes"]) for r in lines], [4096, 8192, 16384])
            self.assertEqual((data["ranks"], data["wrong"], len(data["places"])), (3, 0, 3))
            for row, line in zip(data["rows"], lines):
                half = row["out_of_place"]
                self.assertLessEqual(half["min_us"], half["median_us"])
                self.assertLessEqual(half["median_us"], half["p99_us"])
                self.assertAlmostEqual(half["busbw_gbps"], half["algbw_gbps"] * 4 / 3)
                self.assertAlmostEqual(float(line["in_place_time_us"]), row["in_place"]["time_us"], 3)
            xml.etree.ElementTree.parse(folder + "/a.svg")
            self.assertEqual(sorted(os.listdir(folder)), ["a.csv", "a.json", "a.svg"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
