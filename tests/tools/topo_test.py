"""tutti-topo as a person uses it: each output is well formed and complete, each mistake is named.

Usage: topo_test.py TUTTI_TOPO TOPOLOGIES"""
import json
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

    def test_an_unknown_option(self):
        self.assertIn("--colour", self.refusal("--colour"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
