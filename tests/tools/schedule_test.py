"""tutti-schedule as a person uses it: each command's output, each mistake named, docs/algorithms.md up to date.

Usage: schedule_test.py TUTTI_SCHEDULE DOCS"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SCHEDULE, DOCS, MSCCL = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(__file__).parent / "msccl"


def schedule(*arguments):
    return subprocess.run([SCHEDULE, *map(str, arguments)], capture_output=True, text=True, timeout=600)


class Shows(unittest.TestCase):
    def output(self, *arguments):
        done = schedule(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def test_lists_all_algorithms(self):
        names = [line.split()[0] for line in self.output("list").splitlines()]
        self.assertEqual(len(names), 47)
        self.assertIn("all_reduce/ring", names)

    def test_prints_schedules_and_plans(self):
        self.assertEqual(self.output("print", "all_reduce/tree", "-n", 2, "--rank", 1),
                         "rank 1 of 2, 1 chunks\n   1  send in[0] to 0\n   2  recv out[0] from 0\n")
        self.assertEqual(self.output("print", "broadcast/binomial", "-n", 3, "--root", 2, "--rank", 2, "--lowered"),
                         "rank 2 of 3, 1 chunks\n   1  out[0] = in[0], send to 1 0\n")
        self.assertEqual(self.output("print", "all_reduce/ring", "-n", 5).count("rank "), 5)

    def test_checks_one_and_all(self):
        self.assertEqual(self.output("check", "all_reduce/ring", "-n", "1..9").split("proven")[1],
                         " (36 proofs, 4 in the memory of all), 16 rounds, 1.000 x least bytes, 0.00 x scratch, 1 slots, same bits\n")
        self.assertIn("same bits, rank order", self.output("check", "all_reduce/two_shot", "-n", "9"))
        self.assertIn("proven", self.output("check", "all_reduce/hierarchical", "-n", 7, "--hosts", "4,2,1"))
        self.assertIn("3 rounds", self.output("check", "all_reduce/by_core", "-n", 7, "--cores", "4,2,1"))
        self.assertIn("2 rounds", self.output("check", "all_reduce/by_core", "-n", 7))

    def test_proves_all_for_1_to_40_ranks(self):
        names = [line.split()[0] for line in self.output("list").splitlines()]
        lines = self.output("check", "all", "-n", "1..40").splitlines()
        self.assertEqual([line.split()[0] for line in lines], names)
        for line in lines:
            self.assertIn("n = 1..40: proven (", line)

    def test_a_file_takes_an_algorithms_place(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ring.json"
            self.assertEqual(self.output("export", "all_reduce/ring", "-n", 4, "-o", path), "")
            self.assertEqual(json.loads(path.read_text())["name"], "ring-4")
            self.assertEqual(self.output("export", path), path.read_text())
            self.assertTrue(self.output("check", path).startswith("all_reduce/ring-4              n = 4: proven (5 proofs), "))
            self.assertEqual(self.output("print", path), self.output("print", "all_reduce/ring", "-n", 4))
            self.assertEqual(self.output("print", path, "--lowered", "--rank", 2),
                             self.output("print", "all_reduce/ring", "-n", 4, "--lowered", "--rank", 2))
            self.assertEqual(self.output("draw", path, "--text"), self.output("draw", "all_reduce/ring", "--text"))
            self.assertEqual(self.output("price", path).split(": ")[1],
                             self.output("price", "all_reduce/ring").split(": ")[1])

    def test_exports_with_root_pipeline_and_name(self):
        text = self.output("export", "broadcast/chain", "-n", 3, "--root", 2, "--pipeline", 5, "--name", "mine")
        parsed = json.loads(text)
        self.assertEqual((parsed["name"], parsed["root"], parsed["shape"]["output"]), ("mine", 2, 5))

    def test_imports_msccl(self):
        for path in sorted(MSCCL.glob("*.xml")):
            with tempfile.TemporaryDirectory() as folder:
                json_path = pathlib.Path(folder) / "imported.json"
                self.assertEqual(self.output("import", path, "-o", json_path), "")
                self.assertIn(": proven (5 proofs)", self.output("check", json_path))
        self.assertEqual(json.loads(self.output("import", path, "--name", "mine"))["name"], "mine")

    def test_the_guide_s_example(self):
        guide = (DOCS / "schedules.md").read_text()
        example = guide.split("```json\n")[1].split("```")[0]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "example.json"
            path.write_text(example)
            self.assertIn(": proven (5 proofs)", self.output("check", path))
            for line in guide.split("```text\n")[1].split("```")[0].splitlines():
                if line.startswith("all_reduce/"):
                    self.assertEqual(self.output("check", path), line + "\n")

    def test_prices(self):
        # One round: a step, three messages of 1000 bytes, a flight, a step, a sum of four operands.
        line = self.output("price", "all_reduce/one_shot", "-n", 4, "--size", 1000, "--latency-ns", 500, "--message-ns",
                           100, "--gbps", 8, "--memory-gbps", 80, "--step-ns", 0)
        self.assertEqual(line, "all_reduce/one_shot: 4.200 us, 12 messages, 12000 bytes\n")
        self.assertRegex(self.output("price", "broadcast/chain", "-n", 8), r"[0-9]+ pipeline chunks\n$")

    def test_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ring.svg"
            self.assertEqual(self.output("draw", "all_reduce/ring", "-n", 4, "-o", path), "")
            lines = xml.etree.ElementTree.parse(path).getroot().findall("{http://www.w3.org/2000/svg}line")
            self.assertEqual(len(lines), 4 + 24)  # lanes and messages
        self.assertIn("tick | rank 0", self.output("draw", "all_reduce/ring", "-n", 3, "--text"))

    def test_the_document_is_what_the_catalog_says(self):
        self.output("document", DOCS, "--check")
        with tempfile.TemporaryDirectory() as folder:
            self.output("document", folder)
            written = sorted(p.relative_to(folder) for p in pathlib.Path(folder).rglob("*.*"))
            self.assertEqual(len(written), 1 + len(self.output("list").splitlines()))
            text = (pathlib.Path(folder) / "algorithms.md").read_text()
            for path in written[1:]:
                self.assertIn(f"]({path})", text)


class Refuses(unittest.TestCase):
    def test_mistakes_with_argument_and_value(self):
        for arguments, sentence in [
                (("print", "all_reduce/rign", "-n", 4), "NAME: there is no algorithm 'all_reduce/rign'; there are "),
                (("print", "all_reduce/ring", "-n", 0), "-n: 0 is not within 1..4096"),
                (("print", "all_reduce/ring", "-n", "four"), "-n: 'four' is no whole number"),
                (("print", "all_reduce/ring", "-n", "1..4"), "-n: one number of ranks is needed here, not 1..4"),
                (("check", "all", "-n", "9..4"), "-n: 9..4 ends before it starts"),
                (("print", "broadcast/chain", "-n", 4, "--root", 4), "--root: 4 is not within 0..3"),
                (("print", "all_reduce/ring", "-n", 4, "--root", 1), "--root: all_reduce/ring has none"),
                (("print", "all_reduce/ring", "-n", 4, "--rank", 9), "--rank: 9 is not within 0..3"),
                (("print", "all_reduce/hierarchical", "-n", 4, "--hosts", "2,1"), "--hosts: 2,1 are 3 ranks, but -n is 4"),
                (("print", "reduce/by_core", "-n", 4, "--cores", "2,1"), "--cores: 2,1 are 3 ranks, but -n is 4"),
                (("print", "reduce/by_core", "-n", 4, "--cores", "2,x"), "--cores: '2,x' is no whole number"),
                (("price", "all_reduce/ring", "--size", "much"), "--size: 'much' is no size"),
                (("price", "all_reduce/ring", "--gbps", 0), "--gbps: 0 is not within"),
                (("draw", "broadcast/chain", "--pipeline", -1), "--pipeline: -1 is not within 1..4096"),
        ]:
            done = schedule(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(sentence, done.stderr)

    def test_files_that_are_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ring.json"
            schedule("export", "all_reduce/ring", "-n", 3, "-o", path)
            text = path.read_text()
            for arguments, code, sentence in [
                    (("check", path, "-n", 4), 2, f"-n: {path} is for 3 ranks, not 4"),
                    (("print", path, "--root", 1), 2, f"--root: {path} is for root 0, not 1"),
                    (("draw", path, "--pipeline", 2), 2, f"--pipeline: {path} has its chunks already"),
                    (("price", path, "--hosts", "2,1"), 2, f"--hosts: {path} has its ranks already"),
                    (("price", path, "--cores", "2,1"), 2, f"--cores: {path} has its ranks already"),
                    (("check", str(path) + ".json"), 2, ".json.json: cannot be read: No such file or directory"),
                    (("import", path), 2, "line 1: '<' is expected"),
                    (("import", "/nowhere.xml"), 1, "cannot read /nowhere.xml: No such file or directory")]:
                done = schedule(*arguments)
                self.assertEqual((done.returncode, done.stdout), (code, ""), arguments)
                self.assertIn(sentence, done.stderr)
            path.write_text(text.replace('"to": 1', '"to": 2', 1))
            for command in "check", "price", "draw":
                done = schedule(command, path)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(f"{path}: rank ", done.stderr)

    def test_an_unknown_command_or_none(self):
        self.assertEqual(schedule().returncode, 2)
        self.assertEqual(schedule("prove").returncode, 2)

    def test_a_file_that_cannot_be_written(self):
        done = schedule("draw", "all_reduce/ring", "-o", "/nowhere/ring.svg")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write /nowhere/ring.svg: No such file or directory", done.stderr)

    def test_an_old_document(self):
        with tempfile.TemporaryDirectory() as folder:
            done = schedule("document", folder, "--check")
            self.assertEqual(done.returncode, 1)
            self.assertIn("is not what the catalog says now", done.stderr)


unittest.main(argv=sys.argv[:1], verbosity=2)
