"""tutti-schedule as a person uses it: each command's output, each mistake named, docs/algorithms.md up to date.

Usage: schedule_test.py TUTTI_SCHEDULE DOCS"""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SCHEDULE, DOCS = sys.argv[1], pathlib.Path(sys.argv[2])


def schedule(*arguments):
    return subprocess.run([SCHEDULE, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Shows(unittest.TestCase):
    def output(self, *arguments):
        done = schedule(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def test_lists_all_algorithms(self):
        names = [line.split()[0] for line in self.output("list").splitlines()]
        self.assertEqual(len(names), 11)
        self.assertIn("all_reduce/ring", names)

    def test_prints_schedules_and_plans(self):
        self.assertEqual(self.output("print", "all_reduce/tree", "-n", 2, "--rank", 1),
                         "rank 1 of 2, 1 chunks\n   0  send in[0] to 0\n   1  recv out[0] from 0\n")
        self.assertEqual(self.output("print", "broadcast/binomial", "-n", 3, "--root", 2, "--rank", 2, "--lowered"),
                         "rank 2 of 3, 1 chunks\n   0  out[0] = in[0], send to 1 0\n")
        self.assertEqual(self.output("print", "all_reduce/ring", "-n", 5).count("rank "), 5)

    def test_checks_one_and_all(self):
        self.assertEqual(self.output("check", "all_reduce/ring", "-n", "1..9").split("proven")[1], " (36 proofs)\n")
        self.assertEqual(self.output("check", "all", "-n", 7).count(": proven ("), 11)
        self.assertIn("proven", self.output("check", "all_reduce/hierarchical", "-n", 7, "--hosts", "4,2,1"))

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
            self.assertEqual(len(written), 12)
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
                (("price", "all_reduce/ring", "--size", "much"), "--size: 'much' is no size"),
                (("price", "all_reduce/ring", "--gbps", 0), "--gbps: 0 is not within"),
                (("draw", "broadcast/chain", "--pipeline", -1), "--pipeline: -1 is not within 1..4096"),
        ]:
            done = schedule(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(sentence, done.stderr)

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
