#!/usr/bin/env python3
"""`pip wheel .` of this source tree, and the package that it gives, used from elsewhere: wheel_test.py SOURCE_FOLDER"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAM = """
import numpy as np, tutti
[comm] = tutti.Communicator.all(1)
data = np.ones(3)
comm.all_reduce(data)
import torch, torch.distributed as dist
dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.ones(3)
dist.all_reduce(tensor)
dist.destroy_process_group()
print(tutti.library(), data.sum() + tensor.sum().item())
"""


class Wheel(unittest.TestCase):
    def test_it_has_library_tools_and_backend_and_needs_nothing_of_the_source_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder}
            for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):  # of the build that runs this test
                environment.pop(name, None)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            subprocess.run([*pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, SOURCE], check=True,
                           env=environment)
            [wheel] = pathlib.Path(folder).glob("tutti-*.whl")
            subprocess.run([*pip, "install", "-q", "--no-deps", "--no-compile", "--target", f"{folder}/site", wheel],
                           check=True, env=environment)
            done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, capture_output=True, text=True, check=False,
                                  env={**environment, "PYTHONPATH": f"{folder}/site"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith(f"{folder}/site"), done.stdout)
            self.assertTrue(done.stdout.endswith(" 6.0\n"), done.stdout)
            tools = {path.name for path in pathlib.Path(folder, "site", "bin").iterdir()}
            self.assertEqual({f"tutti-{name}" for name in ("doctor", "perf", "run", "schedule", "sim", "topo", "trace")}, tools)
            for words in (["tutti-topo"], ["tutti-schedule", "list"], ["tutti-run", "-n", "2", "true"],
                          ["tutti-perf", "all_reduce", "--local", "2", "-b", "8", "-e", "1K"]):
                tool = subprocess.run([f"{folder}/site/bin/{words[0]}", *words[1:]], capture_output=True, text=True, check=False,
                                      env=environment)
                self.assertEqual(tool.returncode, 0, f"{words}: {tool.stderr}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
