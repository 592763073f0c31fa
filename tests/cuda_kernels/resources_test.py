#!/usr/bin/env python3
"""What the build recorded of the kernels: all are there for all architectures, none spills, none takes so many registers
that fewer than two blocks fit a multiprocessor, and all together stay small. Prints the costliest."""
import json
import pathlib
import sys

REGISTERS_MAX = 128               # 65536 registers, two blocks of 256 threads
CODE_BYTES_MAX = 6 * 1024 * 1024  # of one architecture; 1 MiB of it is kernels of packets
rows = [row for path in sys.argv[1:] for row in json.loads(pathlib.Path(path).read_text())]
by_architecture = {}
for row in rows:
    by_architecture.setdefault(row["architecture"], {})[row["kernel"]] = row
assert sorted(by_architecture) == [80, 90, 100], sorted(by_architecture)
names = set(by_architecture[80])
assert len(names) > 100, len(names)
problems = []
for architecture, kernels in sorted(by_architecture.items()):
    if set(kernels) != names:
        problems.append(f"sm_{architecture} lacks {sorted(names - set(kernels))}")
    total = sum(row["code_bytes"] for row in kernels.values())
    print(f"sm_{architecture}: {len(kernels)} kernels, {total} bytes of code, "
          f"at most {max(row['registers'] for row in kernels.values())} registers")
    if total > CODE_BYTES_MAX:
        problems.append(f"sm_{architecture}: {total} bytes of code, more than {CODE_BYTES_MAX}")
    for row in kernels.values():
        if row["spilled"] or row["stack"] or row["registers"] > REGISTERS_MAX or row["code_bytes"] == 0:
            problems.append(f"{row}")
    for row in sorted(kernels.values(), key=lambda row: -row["code_bytes"])[:3]:
        print(f"    {row['code_bytes']:7} bytes, {row['registers']:3} registers: {row['kernel']}")
print(*problems, sep="\n")
sys.exit(1 if problems else 0)
