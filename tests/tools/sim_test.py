#!/usr/bin/env python3
"""tutti-sim as a person calls it: tables, JSON, traces, curves, loaded fabrics, faults, and what it says to wrong input."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM = sys.argv.pop(1)


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def rows(*arguments):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["algorithms"]


class Sim(unittest.TestCase):
    def test_a_table_says_time_bandwidth_loads_and_the_best(self):
        done = run("all_reduce", "-n", 64, "--topology", "fat-tree:8x8,oversubscription=2", "--size", "16M")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("busbw GB/s", "best: ", "leaf up", "host down", "busiest busy"):
            self.assertIn(word, done.stdout)

    def test_the_best_comes_first_and_bandwidth_follows_from_time(self):
        seen = rows("all_reduce", "-n", 16, "--size", "1M")
        times = [row["time_ns"] for row in seen if "time_ns" in row]
        self.assertEqual(times, sorted(times))
        self.assertAlmostEqual(seen[0]["busbw_gbps"], 2 * 15 / 16 * (1 << 20) / times[0])

    def test_one_algorithm_alone_and_its_pipeline(self):
        seen = rows("broadcast", "-n", 8, "--algorithm", "chain", "--pipeline", 7)
        self.assertEqual([(row["algorithm"], row["pipeline"]) for row in seen], [("chain", 7)])

    def test_small_and_large_messages_have_different_winners(self):
        best = {size: rows("all_reduce", "-n", 128, "--size", size)[0]["algorithm"] for size in ("64", "64M")}
        self.assertNotEqual(best["64"], best["64M"])

    def test_what_takes_too_many_events_is_bounded(self):
        seen = rows("all_reduce", "-n", 256, "--events-max", 20000, "--size", "1K")
        self.assertTrue(any("time_ns" in row for row in seen))
        self.assertTrue(any("at_least_ns" in row for row in seen))

    def test_hundred_thousand_ranks(self):
        seen = rows("all_reduce", "-n", 100000, "--algorithm", "circulant", "--size", "64K", "--topology", "fat-tree")
        self.assertGreater(seen[0]["events"], 5e6)

    def test_a_trace_is_json_that_perfetto_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.json")
            done = run("all_reduce", "-n", 4, "--algorithm", "ring", "--size", "64K", "--trace", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            events = json.loads(path.read_text())["traceEvents"]
        sends = [event for event in events if event["name"].startswith("send to")]
        self.assertEqual(len(sends), 4 * 6)
        for event in events:
            self.assertIn(event["ph"], "XM")
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)

    def test_a_sweep_draws_one_plot_for_each_number_of_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "sweep.svg")
            done = run("all_reduce", "--sweep", path, "--ranks", "4,16", "--sizes", "1K..1M", "--topology", "torus")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = path.read_text()
        xml.etree.ElementTree.fromstring(text)
        for ranks in (4, 16):
            self.assertIn(f"among {ranks} ranks on torus", text)
        self.assertEqual(done.stdout.count(" ranks, "), 2 * 6)

    def test_what_if_takes_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "machine.json")
            path.write_text(json.dumps({"hosts": 2, "keys": "ranks=4", "links": [
                {"from": "host0", "to": "spine", "link": "100G"}, {"from": "host1", "to": "spine", "link": "100G"}]}))
            done = run("all_reduce", "-n", 8, "--what-if", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("2 hosts, 4 links", done.stdout)
            path.write_text('{"fabric": "ring:4"}')
            done = run("all_reduce", "-n", 4, "--what-if", path)
        self.assertEqual(done.returncode, 2)
        self.assertIn("machine.json: fabric: \"ring\" is none of switch", done.stderr)

    def test_faults_hold_and_one_seed_is_one_run(self):
        done = run("faults", "--seeds", 50)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("50 seeds from 0: 0 violations", done.stdout)
        once, again = run("faults", "--seed", 7), run("faults", "--seed", 7)
        self.assertEqual(once.stdout, again.stdout)
        self.assertIn("held: ", once.stdout)

    def test_joining_holds_and_says_how_many_messages_it_takes(self):
        done = run("joining", "--seeds", 50)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("50 seeds from 0: 0 violations", done.stdout)
        scene = {"n": 4, "faults": [{"kind": "absent", "rank": 2}]}
        done = run("joining", "--scene", json.dumps(scene))
        self.assertIn("rank 2 of 4 did not join within 3.0 s", done.stdout)
        self.assertIn("messages a rank", done.stdout)

    def test_a_joining_violation_is_shrunk_and_says_how_to_see_it_again(self):
        scene = {"n": 6, "mistake": 5, "faults": [{"kind": "pause", "rank": 2}]}
        done = run("joining", "--scene", json.dumps(scene))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("descriptors", done.stdout)
        small = done.stdout.rsplit("--scene '", 1)[1].split("'")[0]
        self.assertEqual((json.loads(small)["n"], json.loads(small).get("faults")), (2, None))

    def test_a_violation_says_how_to_see_it_again(self):
        scene = {"n": 4, "mistake": 7, "calls": [{"call": "all_reduce", "algorithm": "ring", "count": 100}]}
        done = run("faults", "--scene", json.dumps(scene))
        self.assertEqual(done.returncode, 1)
        self.assertIn("was ok but element 99 of 100 is wrong", done.stdout)
        replay = next(line for line in done.stdout.splitlines() if "--scene '" in line)
        again = run("faults", "--scene", replay.split("'")[1])
        self.assertEqual(again.returncode, 1)
        self.assertIn("was ok but element 0 of 1 is wrong", again.stdout)

    def test_wrong_arguments_are_named(self):
        for arguments, sentence in (
                (("all_reduce", "-n", 0), "-n: 0 is less than 1"),
                (("all_reduce", "--size", "big"), "--size is \"big\""),
                (("broadcast", "-n", 4, "--root", 4), "--root: 4 is no rank of 4"),
                (("all_reduce", "--algorithm", "rung"), "algorithm \"rung\" is none of all_reduce: there are"),
                (("all_reduce", "--topology", "switch:2"), "holds 2 ranks, and 8 are asked for"),
                (("all_reduce", "--calls", 0), "--calls: 0 is not within 1..1000"),
                (("faults", "--scene", "{}"), "scene: "),
                (("faults", "--seed", "x"), "--seed is \"x\""),
                (("faults", "--seeds", "-1"), "--seeds is \"-1\""),
                (("joining", "--scene", '{"n": 2, "faults": [{"kind": "flood"}]}'), "\"flood\" is no fault"),
                (("all_reduce", "--ranks", "16,64"), "--ranks belongs to --sweep"),
                (("all_reduce", "--pipeline", "-3"), "--pipeline: -3 is less than 0")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(sentence, done.stderr)
        self.assertEqual(run("all_reduce", "--sweep", "/no/such/folder/a.svg").returncode, 1)
        self.assertEqual(run("dance").returncode, 2)


if __name__ == "__main__":
    unittest.main()
