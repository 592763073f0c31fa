#!/usr/bin/env python3
"""Compiles one CUDA source and records what its kernels cost: registers, stack, spills and bytes of code, for each
architecture, as JSON. A kernel that spills registers or keeps anything on a stack is an error."""
import argparse
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
CUDA_MACHINE = 190  # e_machine of an ELF file with code for a GPU


def kernels_of(report):
    """From what `ptxas -v` prints: a row for each kernel and architecture."""
    rows = []
    for line in report:
        if match := ENTRY.search(line):
            rows.append({"kernel": match[1], "architecture": int(match[2])})
        elif rows and (match := STACK.search(line)):
            rows[-1] |= {"stack": int(match[1]), "spilled": int(match[2]) + int(match[3])}
        elif rows and (match := REGISTERS.search(line)):
            rows[-1]["registers"] = int(match[1])
    return rows


def code_sizes(data, architectures):
    """(kernel, architecture) → bytes, from the ELF files for GPUs that lie in an object as they are."""
    sizes, at = {}, data.find(b"\x7fELF", 1)
    while at >= 0:
        machine, = struct.unpack_from("<H", data, at + 18)
        if machine == CUDA_MACHINE:
            sections, = struct.unpack_from("<Q", data, at + 40)
            flags, = struct.unpack_from("<I", data, at + 48)
            entry, count, names = struct.unpack_from("<3H", data, at + 58)
            # Where the architecture stands has changed with the toolkit.
            architecture = next(a for a in (flags & 0xff, flags >> 8 & 0xff) if a in architectures)
            headers = [struct.unpack_from("<IIQQQQ", data, at + sections + i * entry) for i in range(count)]
            strings = at + headers[names][4]
            for name, _, _, _, _, size in headers:
                text = data[strings + name:data.index(b"\0", strings + name)].decode()
                if text.startswith(".text."):
                    sizes[text.removeprefix(".text."), architecture] = size
        at = data.find(b"\x7fELF", at + 1)
    return sizes


def demangled(names):
    if not shutil.which("c++filt"):
        return names
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                          check=True).stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--object", required=True, type=pathlib.Path)
    parser.add_argument("--depfile", required=True)
    parser.add_argument("--resources", required=True, type=pathlib.Path)
    parser.add_argument("flags", nargs="*")
    a = parser.parse_args()
    cache = [shutil.which("ccache")] if shutil.which("ccache") else []
    # Code lies in the object as it is, not compressed, so that its size can be read.
    command = cache + [a.nvcc, "-c", a.source, "-o", str(a.object), "-MD", "-MF", a.depfile, "-Xptxas", "-v",
                       "--no-compress", *a.flags]
    run = subprocess.run(command, capture_output=True, text=True)
    report = (run.stdout + run.stderr).splitlines()
    for line in report:
        if run.returncode or not re.match(r"ptxas info|\s+\d+ bytes stack frame|\s*$", line):
            print(line, file=sys.stderr)
    if run.returncode:
        sys.exit(run.returncode)
    rows = kernels_of(report)
    sizes = code_sizes(a.object.read_bytes(), {row["architecture"] for row in rows})
    for row, name in zip(rows, demangled([row["kernel"] for row in rows])):
        row["code_bytes"] = sizes[row["kernel"], row["architecture"]]
        row["kernel"] = name
    a.resources.write_text(json.dumps(rows, indent=1) + "\n")
    costly = [row for row in rows if row["spilled"] or row["stack"]]
    for row in costly:
        print(f"{a.source}: error: sm_{row['architecture']}: {row['spilled']} bytes spilled, {row['stack']} bytes of stack: "
              f"{row['kernel']}", file=sys.stderr)
    if costly:
        os.unlink(a.object)
        sys.exit(1)


main()
