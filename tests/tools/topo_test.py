"""tutti-topo as a person uses it: each output is well formed and complete, each mistake is named.

Usage: topo_test.py TUTTI_TOPO TOPOLOGIES"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TOPO, MACHINES = sys.argv[1], pathlib.Path(sys.argv[2])


def topo(*arguments):
    return subprocess.run([TOPO, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Shows(unittest.TestCase):
    def output(self, *arguments):
        done = topo(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def test_this_host_as_text(self):
        self.assertRegex(self.output(), r"^host .*: \d+ packages?, \d+ NUMA nodes?, \d+ cores?, \d+ logical CPUs?\n")

    def test_json_of_the_recorded_machines(self):
        expected = {"2socket-1gpu-1ib": (2, 2, 16, 1, 1), "4socket-96core": (16, 4, 96, 0, 0),
                    "dgx2-16gpu-nvswitch": (2, 2, 4, 16, 0)}
        for name, counts in expected.items():
            host = json.loads(self.output("--load", MACHINES / f"{name}.xml", "--json"))
            kinds = [d["kind"] for d in host["devices"]]
            self.assertEqual((len(host["packages"]), len(host["numa"]), len(host["physical_cores"]),
                              kinds.count("gpu"), kinds.count("hca")), counts, name)

    def test_the_nvlink_matrix_is_in_the_json(self):
        host = json.loads(self.output("--load", MACHINES / "dgx2-16gpu-nvswitch.xml", "--json"))
        matrix = next(m for m in host["links"] if m["name"] == "NVLinkBandwidth")
        self.assertEqual((len(matrix["ends"]), matrix["ends"][0]), (28, "nvml0"))
        self.assertEqual(sum(value > 0 for row in matrix["values"] for value in row), 2 * 96)

    def test_json_of_this_host(self):
        host = json.loads(self.output("--json"))
        self.assertLessEqual(set(host["cores_allowed"]), set(host["cores"]))

    def test_xml_comes_back_as_the_same_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("2socket-1gpu-1ib", "4socket-96core", "dgx2-16gpu-nvswitch"):
                copy = pathlib.Path(folder) / f"{name}.xml"
                copy.write_text(self.output("--load", MACHINES / f"{name}.xml", "--xml"))
                self.assertEqual(self.output("--load", copy, "--json"),
                                 self.output("--load", MACHINES / f"{name}.xml", "--json"))

    def test_svg_is_well_formed(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("2socket-1gpu-1ib", "4socket-96core", "dgx2-16gpu-nvswitch"):
                drawing = pathlib.Path(folder) / f"{name}.svg"
                self.output("--load", MACHINES / f"{name}.xml", "--svg", drawing)
                root = xml.etree.ElementTree.parse(drawing).getroot()
                self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
                words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
                self.assertIn("NUMALatency", words)
        xml.etree.ElementTree.fromstring(self.output("--svg", "-"))


class Explains(unittest.TestCase):
    """On a machine from a file, whose constants are the defaults: the predictions are the same everywhere."""

    def explain(self, *arguments):
        done = topo("--load", MACHINES / "2socket-1gpu-1ib.xml", "--json", "--explain", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return json.loads(done.stdout)

    def test_every_algorithm_is_a_candidate_once_and_the_fastest_comes_first(self):
        answer = self.explain("all_reduce", "1M", "-n", "16")
        names = [c["algorithm"] for c in answer["candidates"]]
        times = [c["time_us"] for c in answer["candidates"]]
        self.assertEqual(len(set(names)), len(names))
        self.assertGreaterEqual(set(names), {"one_shot", "two_shot", "ring", "tree", "double_tree",
                                             "recursive_doubling", "hierarchical"})
        self.assertEqual(times, sorted(times))
        self.assertTrue(answer["reason"].startswith(f"{names[0]} wins for 1 MiB"), answer["reason"])

    def test_rounds_decide_small_calls_and_bytes_large_ones(self):
        small, large = (self.explain("all_reduce", size, "-n", "8")["candidates"][0] for size in ("8", "64M"))
        self.assertLess(small["rounds"], 4)
        self.assertLess(large["bytes_sent"], 2.1)

    def test_tcp_takes_longer_than_shared_memory(self):
        shm, tcp = (self.explain("broadcast", "1M", "-n", "8", "--transport", kind)["candidates"][0]["time_us"]
                    for kind in ("shm", "tcp"))
        self.assertLess(shm, tcp)

    def test_verbs_are_faster_than_tcp_and_told_of(self):
        answers = {kind: self.explain("all_reduce", "1M", "-n", "4", "--hosts", "2", "--transport", kind)
                   for kind in ("shm,verbs", "shm,tcp", "verbs")}
        self.assertLess(answers["shm,verbs"]["candidates"][0]["time_us"], answers["shm,tcp"]["candidates"][0]["time_us"])
        self.assertEqual({kind: answer["transport"] for kind, answer in answers.items()}, {kind: kind for kind in answers})

    def test_several_hosts_send_bytes_between_them(self):
        answer = self.explain("all_reduce", "16M", "-n", "16", "--hosts", "2")
        self.assertTrue(all(c["bytes_between_hosts"] > 0 for c in answer["candidates"]))
        least = min(c["bytes_between_hosts"] for c in answer["candidates"])
        self.assertEqual(answer["candidates"][0]["bytes_between_hosts"], least)

    def test_ranks_beyond_the_cores_share_them(self):
        self.assertEqual(self.explain("barrier", "-n", "64")["ranks_per_core"], 2)

    def test_of_ranks_that_are_bound_to_a_core_one_may_work_for_all(self):
        for bind in ([], ["--bind"]):
            answer = self.explain("all_reduce", "64K", "-n", "96", *bind)
            rounds = [c["rounds"] for c in answer["candidates"] if c["algorithm"] == "by_core"]
            self.assertEqual((answer["ranks_per_core"], answer["bound"], rounds), (3, True, [3]) if bind else (3, False, []))
        self.assertEqual(self.explain("all_reduce", "64K", "-n", "8", "--bind")["ranks_per_core"], 1)

    def test_as_text_for_this_host(self):
        done = topo("--explain", "all_reduce", "1M", "-n", "16")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"all_reduce of 1 MiB among 16 ranks on 1 host")
        self.assertRegex(done.stdout, r"\n  ring  .* [un]?m?s ")
        self.assertRegex(done.stdout, r" wins for 1 MiB.* because ")

    def test_a_forced_algorithm_is_the_only_candidate(self):
        done = subprocess.run([TOPO, "--explain", "all_reduce", "1M", "-n", "4"], capture_output=True, text=True,
                              env=os.environ | {"TUTTI_ALGO": "ring"}, timeout=60)
        self.assertIn("ring is forced by TUTTI_ALGO.", done.stdout)
        self.assertNotIn("two_shot", done.stdout)

    def test_a_users_schedule_is_a_candidate(self):
        steps = [[{"verb": "send", "to": 1 - r, "a": "in[0]"},
                  {"verb": "recv_reduce", "from": 1 - r, "a": "in[0]", "dst": "out[0]", "incoming_first": r == 1},
                  {"verb": "finish", "dst": "out[0]"}] for r in range(2)]
        pair = {"tutti_schedule": 1, "name": "pair", "collective": "all_reduce", "ranks": 2,
                "shape": {"input": 1, "output": 1, "scratch": 0, "message": 1}, "steps": steps}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(pair, file)
            file.flush()
            done = subprocess.run([TOPO, "--explain", "all_reduce", "8", "-n", "2"], capture_output=True, text=True,
                                  env=os.environ | {"TUTTI_SCHEDULES": file.name}, timeout=60)
        self.assertRegex(done.stdout, r"\n  pair +[0-9.]+ [nu]s +1 +1 +2 +0\n")

    def test_a_wrong_schedule_is_refused(self):
        done = subprocess.run([TOPO, "--explain", "all_reduce", "8", "-n", "2"], capture_output=True, text=True,
                              env=os.environ | {"TUTTI_SCHEDULES": "/nowhere.json"}, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere.json: cannot be read", done.stderr)


class Refuses(unittest.TestCase):
    def refusal(self, *arguments):
        done = topo(*arguments)
        self.assertEqual(done.returncode, 2, (arguments, done.stderr))
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_a_missing_file(self):
        self.assertEqual(self.refusal("--load", "/nowhere.xml"),
                         "tutti-topo: --load: cannot read topology file /nowhere.xml: "
                         "No such file or directory (errno 2)\n")

    def test_a_malformed_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write("<topology><object")
            file.flush()
            self.assertIn(f"tutti-topo: --load: {file.name} is not a topology in hwloc's XML format",
                          self.refusal("--load", file.name))

    def test_a_drawing_that_cannot_be_written(self):
        self.assertIn("--svg: cannot write /nowhere/a.svg", self.refusal("--svg", "/nowhere/a.svg"))

    def test_an_unknown_collective(self):
        self.assertEqual(self.refusal("--explain", "allreduce", "1M", "-n", "4"),
                         'tutti-topo: --explain: "allreduce" is no collective; there are all_reduce, broadcast, '
                         'reduce, all_gather, reduce_scatter, gather, scatter, all_to_all, scan, exscan and barrier\n')

    def test_a_size_that_is_none(self):
        for size in ("1X", "-5", "M", "9999999G", ""):
            self.assertIn(f'--explain: "{size}" is no size', self.refusal("--explain", "all_reduce", size, "-n", "4"))
        self.assertIn("--explain: all_reduce needs a size", self.refusal("--explain", "all_reduce", "-n", "4"))

    def test_numbers_out_of_range(self):
        self.assertIn("-n: -3 is not", self.refusal("--explain", "all_reduce", "1M", "-n", "-3"))
        self.assertIn("-n: 100000 is not", self.refusal("--explain", "all_reduce", "1M", "-n", "100000"))
        self.assertIn("-n = four", self.refusal("--explain", "all_reduce", "1M", "-n", "four"))
        self.assertIn("--hosts: 5 is not", self.refusal("--explain", "all_reduce", "1M", "-n", "4", "--hosts", "5"))

    def test_an_unknown_transport(self):
        self.assertIn('--transport: "ib" is no transport',
                      self.refusal("--explain", "all_reduce", "1M", "-n", "4", "--transport", "ib"))

    def test_an_algorithm_that_does_not_exist(self):
        done = subprocess.run([TOPO, "--explain", "all_reduce", "1M", "-n", "4"], capture_output=True, text=True,
                              env=os.environ | {"TUTTI_ALGO": "rign"}, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn('"rign"', done.stderr)

    def test_an_unknown_option(self):
        self.assertIn("--colour", self.refusal("--colour"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
