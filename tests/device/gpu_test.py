#!/usr/bin/env python3
"""`./dev gpu` rehearsed where there is no GPU: the same programs on simulated devices, through the same reading of what they
print to the page, with a stand-in for compute-sanitizer. Usage: gpu_test.py BUILD_FOLDER"""
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

BUILD = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import gpu  # noqa: E402

# Refuses what the real one would (12.9), then runs the program.
SANITIZER = """#!/bin/sh
[ "$1" = --tool ] && [ "$3" = --error-exitcode ] && [ "$4" = 9 ] || exit 255
tool=$2
shift 4
case $tool in
  memcheck) [ "$1" = --report-api-errors ] && [ "$2" = no ] || exit 255; shift 2 ;;
  racecheck | synccheck) ;;
  *) exit 255 ;;
esac
exec "$@"
"""


def rehearsal(**changed):
    return gpu.Machine(build=BUILD, kind="simulated", mebibytes=1, epochs=1,
                       variables={"TUTTI_DEVICE": "simulated:memory=512M"} | changed)


class Rehearsal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sanitizer = self.folder / "compute-sanitizer"
        sanitizer.write_text(SANITIZER)
        sanitizer.chmod(sanitizer.stat().st_mode | stat.S_IXUSR)
        path = mock.patch.dict(os.environ, {"PATH": f"{folder.name}:{os.environ['PATH']}"})
        path.start()
        self.addCleanup(path.stop)

    def test_the_page_has_a_number_for_every_measurement(self):
        # (Of the tests of devices, which run on their own elsewhere, a few; what a command line asks for comes first.)
        few = mock.patch.dict(gpu.WHOLE, {gpu.ANY_DEVICE: "*WrongPointers*", gpu.COLLECTIVES: "*shared_on_no_stream*"})
        few.start()
        self.addCleanup(few.stop)
        machine = rehearsal(GTEST_FILTER="DeviceMemory*:CudaErrors*:*WrongPointers*")
        text, _ = gpu.page(machine, ["NVIDIA of the future, 999.1, 81559 MiB"])
        self.assertIn("- NVIDIA of the future, 999.1, 81559 MiB", text)
        for program in [*gpu.PROGRAMS, *gpu.WHOLE]:
            self.assertIn(f"| {program} | passed |", text)
        for tool, (program, _) in gpu.SANITIZED.items():
            self.assertIn(f"| {program} under {tool} | passed |", text)
        d, h = gpu.limits(text)
        self.assertGreater(d, 0)
        self.assertGreater(h, 0)
        numbers = r" +[\d.]+ \| +[\d.]+ \| +[\d.]+ \|"
        for what in ["reduce float32 of 2 inputs", "reduce float8e4m3 of 8 inputs", "two_shot of 8 ranks in one launch, 1024 KiB",
                     "one_shot of 8 ranks in one launch, 8 KiB", "all_reduce of 8 ranks, threads, 1024 KiB",
                     "all_reduce of 8 ranks, threads, 8 KiB", "2 processes, directly", "8 processes, directly",
                     "2 processes, by way of the host", "2 threads, directly", "2 threads, by way of the host"]:
            self.assertRegex(text, rf"\| {re.escape(what)} +\|{numbers}")
        self.assertRegex(text, r"Training on 4 ranks that share the GPU, 1 epochs: test accuracy 0\.\d{4}\.")
        self.assertNotIn("ended with", text)

    def test_what_fails_is_told_and_the_rest_goes_on(self):
        machine = rehearsal()
        machine.build = self.folder  # nothing is there
        text, well = gpu.page(machine, ["a GPU"])
        self.assertFalse(well)
        self.assertEqual(text.count("| FAILED (127): "), len(gpu.PROGRAMS) + len(gpu.WHOLE) + len(gpu.SANITIZED), text)
        self.assertIn("device-speed ended with 127", text)
        self.assertIn("| 2 processes, directly | ended with 127", text)
        self.assertIn("Training on 4 ranks ended with 127", text)

    def test_without_a_gpu_it_says_so_and_writes_nothing(self):
        if gpu.gpus():
            self.skipTest("there is a GPU here")
        before = gpu.RESULTS.read_bytes()
        done = subprocess.run([ROOT / "dev", "gpu"], capture_output=True, text=True)
        self.assertEqual(done.returncode, gpu.NO_GPU)
        self.assertEqual(done.stderr, "gpu: no GPU here: nothing was run, docs/gpu-results.md stays as it is\n")
        self.assertEqual(gpu.RESULTS.read_bytes(), before)


unittest.main(argv=sys.argv[:1], verbosity=2)
