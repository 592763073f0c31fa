#!/usr/bin/env python3
"""Runs a test of the Python package: run.py PYTHON PACKAGE_FOLDER SCRIPT [arguments]. Ends with 77, a skip with its
reason, where there is no such Python or it has no PyTorch."""
import os
import pathlib
import subprocess
import sys

python, package, script, *arguments = sys.argv[1:]
environment = {**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1",
               "XDG_CACHE_HOME": str(pathlib.Path(package).parent / "cache"),
               # A recorder that asks CUDA for the time of every call, also of those on the CPU.
               "TORCH_FR_BUFFER_SIZE": "0", "PATH": f"{pathlib.Path(python).parent}:{os.environ['PATH']}"}
if not pathlib.Path(python).exists():
    print("skip: there is no", python)
    sys.exit(77)
if pathlib.Path(script).parent.name == "torch":
    found = subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                           env=environment, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        print("skip: PyTorch is not in", python, "-", (found.stderr.strip().splitlines() or ["no reason"])[-1])
        sys.exit(77)
sys.exit(subprocess.run([python, script, *arguments], env=environment, check=False).returncode)
