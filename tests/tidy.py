#!/usr/bin/env python3
"""The house rules as a test: imports go one way, every environment variable stands in the table, every source has a
test. Long functions, files and lines are printed, not failed: one sees them grow."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")

# Which rooms each room may include.
ARROWS = {
    "base": set(),
    "reduce": {"base"},
    "schedule": {"base"},
    "algorithms": {"base", "schedule"},
    "topology": {"base", "schedule", "algorithms"},
    "memory": {"base"},
    "heap": {"base", "memory"},
    "bootstrap": {"base"},
    "transport": {"base", "reduce", "memory", "bootstrap"},
    "device": {"base", "reduce", "memory", "schedule"},
    "cuda_kernels": {"base", "reduce", "schedule", "algorithms", "device"},
    "engine": {"base", "reduce", "schedule", "algorithms", "topology", "transport", "device"},
    "communicator": {"base", "reduce", "schedule", "algorithms", "topology", "memory", "transport", "bootstrap",
                     "device", "engine"},
    "simulation": {"base", "reduce", "schedule", "algorithms", "topology", "transport", "bootstrap", "engine",
                   "communicator"},
}
BYTES_MAX = 256 << 10  # of a file that is no data
# Libraries whose headers stand in a folder, as rooms do.
LIBRARIES = {"hwy", "fmt", "nlohmann", "gtest"}
SOURCES = sorted(p for e in ("*.h", "*.cc", "*.cu", "*.cuh") for p in (ROOT / "src").rglob(e))
OTHERS = sorted(p for d in ("tools", "bench", "tests", "examples", "python") for e in ("*.h", "*.cc", "*.hpp")
                for p in (ROOT / d).rglob(e))
problems, remarks = [], []


def check_imports():
    for path in SOURCES:
        room = path.relative_to(ROOT / "src").parts[0]
        for line in path.read_text().splitlines():
            match = re.match(r'#include "([a-z_]+)/', line)
            if not match or match[1] in LIBRARIES | {room, "tutti"}:
                continue
            if match[1] not in ARROWS.get(room, set()):
                problems.append(f"{path.relative_to(ROOT)}: {room} must not import {match[1]}: {line}")


def check_environment():
    table = set(re.findall(r'{"([A-Z_]+)",', (ROOT / "src/base/environment.cc").read_text()))
    for path in SOURCES + OTHERS:
        text = path.read_text()
        top = path.relative_to(ROOT).parts[0]
        if top == "src" and path.name != "environment.cc" and re.search(r"\bgetenv\(", text):
            problems.append(f"{path.relative_to(ROOT)}: reads the environment outside base/environment.cc")
        for name in set(re.findall(r'"(TUTTI_[A-Z_]*[A-Z])"', text)) - table:
            if top != "tests":
                problems.append(f"{path.relative_to(ROOT)}: {name} does not stand in the environment table")


def check_tests():
    tests = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("*") if p.suffix in (".cc", ".py", ".c"))
    for path in SOURCES:
        if path.suffix != ".cc":
            continue
        room = path.relative_to(ROOT / "src").parent
        header = f"{room}/{path.stem.removesuffix('_datapath')}.h"
        own = list((ROOT / "tests").rglob(f"{path.stem}_test.cc"))
        if not own and f'"{header}"' not in tests:
            problems.append(f"{path.relative_to(ROOT)}: no test includes {header} and none is named {path.stem}_test.cc")


def check_sizes():
    """Beside data, nothing is kept here that could be fetched or made: packages, archives, programs."""
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    for name in tracked.stdout.split("\0") if tracked.returncode == 0 else ():
        path = ROOT / name
        if name and not name.startswith("data/") and path.is_file() and path.stat().st_size > BYTES_MAX:
            problems.append(f"{name}: {path.stat().st_size} bytes, more than {BYTES_MAX}")


def look_at_lengths():
    for path in SOURCES + OTHERS:
        lines = path.read_text().splitlines()
        name = path.relative_to(ROOT)
        if len(lines) > 500:
            remarks.append(f"{name}: {len(lines)} lines")
        start = None
        for number, line in enumerate(lines, 1):
            if len(line) > 120:
                remarks.append(f"{name}:{number}: {len(line)} characters")
            if re.match(r"^[A-Za-z].*\) ?(const)? ?(noexcept)? ?(override)? ?{$", line):
                start = number
            if line == "}" and start is not None:
                if number - start > 70:
                    remarks.append(f"{name}:{start}: a function of {number - start} lines")
                start = None
        first = next((l for l in lines if l.strip()), "")
        if not first.startswith(("//", "/*")):
            problems.append(f"{name}: the first line does not say what the file holds")


check_imports()
check_environment()
check_tests()
check_sizes()
look_at_lengths()
for remark in remarks:
    print("remark:", remark)
for problem in problems:
    print("problem:", problem)
print(f"tidy: {len(SOURCES) + len(OTHERS)} files, {len(problems)} problems, {len(remarks)} remarks")
sys.exit(1 if problems else 0)
