#!/usr/bin/env python3
"""What a checker of types says of the package, of a program that uses it well and of one that does not.
Usage: types_test.py [unittest's arguments]"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import tutti

HERE = pathlib.Path(__file__).resolve().parent


def mypy(*arguments):
    """What it says, without its last line."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *arguments], text=True,
                              capture_output=True, check=False, cwd=pathlib.Path(tutti.__file__).parents[1])
    if done.returncode > 1:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout.splitlines()[:-1]


class Types(unittest.TestCase):
    def test_the_package_and_a_program_that_uses_it_well_are_as_their_types_say(self):
        self.assertEqual(mypy("-p", "tutti", "--exclude", "/torch/"), [])
        self.assertEqual(mypy(HERE / "typed_use.py"), [])

    def test_wrong_use_is_seen_line_by_line(self):
        lines = (HERE / "wrong_use.py").read_text(encoding="utf-8").splitlines()
        wanted = {number: match[1] for number, line in enumerate(lines, 1) if (match := re.search("# error: (.*)", line))}
        said = [re.search(r"wrong_use.py:(\d+): error: .*\[(.*)\]$", line) for line in mypy(HERE / "wrong_use.py")]
        self.assertEqual({int(match[1]): match[2] for match in said if match}, wanted)


if __name__ == "__main__":
    found = subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        print("skip: mypy is not in", sys.executable, "-", found.stderr.strip())
        sys.exit(77)
    unittest.main(verbosity=2)
