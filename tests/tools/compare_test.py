#!/usr/bin/env python3
"""The bench beside other libraries, with none beside: compare_test.py SOURCE_FOLDER BUILD_FOLDER"""
import importlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

BUILD = pathlib.Path(sys.argv.pop(2))
COMPARE = pathlib.Path(sys.argv.pop(1)) / "bench/peers/compare.py"
sys.path.insert(0, str(COMPARE.parent))
bench = importlib.import_module("compare")
peers = importlib.import_module("peers")
tables = importlib.import_module("tables")


def command(*arguments):
    words = [sys.executable, COMPARE, "--build", BUILD, "--peers", "", "--ranks", 2, "--rounds", 1, "--wait", 0,
             "--sizes", "8,64K", *arguments]
    return [str(word) for word in words]


def compare(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, check=False)


class Compare(unittest.TestCase):
    def test_measures_all_modes_draws_them_and_keeps_what_was_measured_before(self):
        with tempfile.TemporaryDirectory() as folder:
            files = ["--json", folder + "/a.json", "--plots", folder]
            for times in (1, 2):
                got = compare("--collectives", "all_reduce,barrier", "--modes", "hot,cold,registered,in_place,apart", *files)
                self.assertEqual(got.returncode, 0, got.stderr)
                kept = json.loads(pathlib.Path(folder, "a.json").read_text())
                self.assertEqual(kept["failures"], [])
                if not kept["rows"]:
                    self.skipTest("the cores' distance changed in every run")
                for row in kept["rows"]:
                    found = [single for libraries in row["times"].values() for single in libraries["tutti"]]
                    self.assertLessEqual(len(found), times)
                    for single in found:
                        self.assertGreater(single["time_us"], 0)
                        self.assertGreaterEqual(single["p99_us"], single["min_us"])
                        self.assertIn(single["wrong"], (0, None))
            drawings = list(pathlib.Path(folder).glob("all_reduce-2-shm-*.svg"))
            self.assertTrue(drawings)
            self.assertIn("Tutti", drawings[0].read_text())
            if len(os.sched_getaffinity(0)) > 1:
                self.assertIn("line_exchange_ns", list(kept["limits"].values())[0])

    def test_draws_each_library_in_a_colour_of_its_own(self):
        chosen = [peers.Tutti, *peers.ALL]
        curves = {("broadcast", 2, "shm", "hot", "near"): {peer.name: [[8, 1 + i], [64, 2 + i]] for i, peer in enumerate(chosen)}}
        with tempfile.TemporaryDirectory() as folder:
            bench.draw(curves, chosen, types.SimpleNamespace(build=BUILD, plots=pathlib.Path(folder)))
            drawing = pathlib.Path(folder, "broadcast-2-shm-hot-near.svg").read_text()
        colours = re.findall(r"<path d='[^']*' fill='none' stroke='(#\w+)'", drawing)
        self.assertEqual(len(colours), len(chosen))
        self.assertEqual(len(set(colours)), len(chosen), colours)
        series = {"name": "one more", "points": [[8, 1]], "colour": 9}
        plots = [{"title": "", "x_label": "", "y_label": "", "series": [series]}]
        refused = subprocess.run([BUILD / "bench/peers/draw-curves"], input=json.dumps(plots), text=True, capture_output=True, check=False)
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        self.assertIn("colour: 9 is not below 9", refused.stderr)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two cores")
    def test_holds_tutti_against_what_memory_could_do_at_the_time(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.json")
            got = compare("--collectives", "broadcast", "--sizes", "64M", "--json", path)
            self.assertEqual(got.returncode, 0, got.stderr)
            rows = json.loads(path.read_text())["rows"]
            if not rows:
                self.skipTest("the cores' distance changed in every run")
            self.assertRegex(got.stdout, r"\| 64 MiB \|.*\| \d\.\d\d \(memory(, reading|, writing)?\) \|")
            for found in rows[0]["times"].values():
                for name in ("copy_2_gbps", "read_2_gbps", "write_2_gbps", "line_exchange_ns"):
                    self.assertGreater(found["tutti"][0]["limits"][name], 0)

    def test_a_run_that_is_ended_leaves_what_it_has_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.json")
            words = command("--collectives", "barrier,all_reduce,broadcast,reduce_scatter,all_gather,all_to_all",
                            "--sizes", "8,4K,64K,1M,16M,64M", "--json", path)
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
                until = time.monotonic() + 60
                while not path.exists() and run.poll() is None and time.monotonic() < until:
                    time.sleep(0.01)
                self.assertIsNone(run.poll(), "the file came only with the end of the run")
                run.send_signal(signal.SIGINT)
            found = {row["collective"] for row in json.loads(path.read_text())["rows"]}
            self.assertLess(len(found), 6)

    def test_a_mode_is_that_mode_also_where_calls_begin_by_the_clock(self):
        for ranks in (1, 1000):
            run = peers.Run(ranks, "shm", None)
            for mode, flags in bench.MODES.items():
                got = bench.flags_of(mode, run)
                self.assertLessEqual(set(flags), set(got), mode)
                self.assertEqual("--by-clock" in got, ranks == 1 and mode in ("apart", "cold"), mode)

    def test_the_overview_holds_medians_beside_the_best_peer_where_both_were_measured(self):
        results = bench.Results()
        def add(ranks, collective, size, peer, *times):
            for time_us in times:
                results.add(("shm", ranks, "hot", collective, size), "near", peer, {"time_us": time_us})
        add(4, "all_gather", 16, "tutti", 3, 1, 2)
        add(4, "all_gather", 16, "openmpi", 9, 6, 1)
        add(4, "all_gather", 16, "ucc", 3)
        add(4, "all_gather", 64, "tutti", 4)
        add(4, "all_gather", 64, "ucc", 2)
        add(4, "barrier", 0, "tutti", 5)
        add(4, "scan", 64, "ucc", 2)
        self.assertEqual(tables.overview_lines(results), [
            "4 ranks over shm, hot, cores near, Tutti's µs (best peer / Tutti; of 2 ratios the least 0.50, the median 1.00):", "",
            "| | 8 B | 64 B |", "|---|---|---|",
            "| all_gather | 2 (1.50) | **4 (0.50)** |",
            "| barrier | 5 |  |"])

    def test_refuses_what_is_no_mode_and_no_peer(self):
        for option, value in (("--modes", "lukewarm"), ("--peers", "nobody")):
            got = compare(option, value)
            self.assertEqual(got.returncode, 2)
            self.assertIn(f"{option} {value}: none of", got.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
