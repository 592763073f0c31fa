#!/usr/bin/env python3
"""What `./dev gpu` does: on a machine with a GPU builds, runs the tests of devices on it, also under compute-sanitizer where
that is installed, measures, and writes docs/gpu-results.md. Ends with 3 where there is no GPU, with 1 where a test failed.
Usage: gpu.py [--build FOLDER] [--torch PYTHON PACKAGE_FOLDER]: where all is built already; a Python that has PyTorch, and where
Tutti's package for it is."""
import argparse
import concurrent.futures
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-gpu"
RESULTS = ROOT / "docs" / "gpu-results.md"
NO_GPU = 3
# On a GPU: what a device computes, how its errors read, and what is as good as before after faults. Under the sanitizer a part of it, which is slow there.
PROGRAMS = ["tests/cuda_kernels/device_kernels_test", "tests/cuda_kernels/cuda_platform_test"]
ANY_DEVICE, COLLECTIVES = "tests/device/any_device_test", "tests/device/device_collectives_test"
# Ranks that share a GPU; and where one GPU is given out as three, so that what devices have among them runs on one too.
WHOLE = {ANY_DEVICE: "*", COLLECTIVES: "*shared*"}
PARTS = {ANY_DEVICE: "-*OutOfMemory*", COLLECTIVES: "*spread*:*mixed_on*"}
SANITIZED = {"memcheck": (PROGRAMS[0], "*float32:*bfloat16:*float8*:*RunLinked*:DeviceMemory.*"),
             "racecheck": (PROGRAMS[0], "*RunLinked*"), "synccheck": (PROGRAMS[0], "*RunLinked*"),
             "memcheck of calls": (ANY_DEVICE, "*TwoStreams*")}


@dataclasses.dataclass
class Machine:
    """Where the programs are, what devices they use, and how much of it. (A test rehearses all this on simulated ones.)"""
    build: pathlib.Path = BUILD
    kind: str = "cuda"
    mebibytes: int = 256
    epochs: int = 20
    variables: dict = dataclasses.field(default_factory=dict)
    torch: tuple = ()  # a Python that has PyTorch, and the folder of Tutti's package

    def environment(self):
        """Programs that have the library in themselves do not find the module beside it. Streams of CUDA share a few queues, 8 if
        nothing is said, and one that waits holds up those behind it: here many ranks share a device."""
        module = self.build / "src" / "cuda_kernels" / "libtutti_cuda.so"
        return {"TUTTI_DEVICE": self.kind, "TUTTI_TEST_CUDA_MODULE": str(module), "LD_LIBRARY_PATH": str(module.parent),
                "CUDA_DEVICE_MAX_CONNECTIONS": "32"} | self.variables

    def in_parts(self):
        return self.environment() | {"LD_LIBRARY_PATH": str(self.build / "tests/device/parts")}


def say(text):
    print(f"\n== {text}", flush=True)


def gpus():
    """A line for each GPU: name, driver, memory. Empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return []
    run = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                         capture_output=True, text=True)
    return [line.strip() for line in run.stdout.splitlines() if line.strip()] if run.returncode == 0 else []


def output_of(command, environment=None, limit_s=300):
    """Exit status and what was printed, which is shown too. What cannot be started ended with 127."""
    say(" ".join(map(str, command)))
    try:
        run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env=os.environ | (environment or {}), timeout=limit_s)
    except OSError as missing:
        return 127, str(missing)
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        return 124, f"{text}\nended after {limit_s} s"
    print(run.stdout[-4000:], flush=True)
    return run.returncode, run.stdout


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def build():
    if not (BUILD / "build.ninja").exists():
        status, text = output_of(["meson", "setup", str(BUILD), "-Dcuda=enabled", "-Dpython=disabled"])
        if status:
            sys.exit(f"gpu: meson could not configure:\n{text[-2000:]}")
    status, _ = output_of(["ninja", "-C", str(BUILD)], limit_s=3600)
    if status:
        sys.exit("gpu: the build failed")


def tests(machine):
    """Rows of (what, how it ended), and whether all went well."""
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")

    def row(what, command, environment):
        status, text = output_of(command, environment)
        return what, "passed" if status == 0 else f"FAILED ({status}): {last_line(text)}"

    def sanitized(tool):
        program, chosen = SANITIZED[tool]
        if not sanitizer:
            return f"{program} under {tool}", "not run: compute-sanitizer is not installed"
        # The tests look at each error that a call tells of, and some want one.
        options = ["--report-api-errors", "no"] if tool.startswith("memcheck") else []
        return row(f"{program} under {tool}", [sanitizer, "--tool", tool.split()[0], "--error-exitcode", "9", *options,
                                               machine.build / program, f"--gtest_filter={chosen}"], machine.environment())

    def of_torch():
        if not machine.torch:
            return "tests/torch/cuda_test.py", "not run: no Python with PyTorch was named (--torch)"
        return row("tests/torch/cuda_test.py", [sys.executable, ROOT / "tests/torch/run.py", *machine.torch,
                                                ROOT / "tests/torch/cuda_test.py"], {"TUTTI_DEVICE": machine.kind})

    # Several at once, for most of them wait; but one takes all the memory that there is.
    with concurrent.futures.ThreadPoolExecutor(4) as together:
        plain = [functools.partial(row, program, [machine.build / program], machine.environment()) for program in PROGRAMS]
        under = [functools.partial(sanitized, tool) for tool in SANITIZED]
        rows = list(together.map(lambda job: job(), [of_torch, *plain, *under]))
    for chosen, environment, how in [(WHOLE, machine.environment(), ""), (PARTS, machine.in_parts(), ", one GPU as three")]:
        if how and machine.kind != "cuda":
            continue
        rows += [row(program + how, [machine.build / program, f"--gtest_filter={tests}"], environment)
                 for program, tests in chosen.items()]
    return rows, not any(how.startswith("FAILED") for _, how in rows)


def benchmarks(machine):
    status, text = output_of([machine.build / "bench/micro/device-speed", str(machine.mebibytes)], machine.environment())
    return text if status == 0 else f"device-speed ended with {status}: {last_line(text)}\n", status == 0


def limits(table):
    """D and H as device-speed measured them, in bytes a second: the lesser of both ways for H."""
    match = re.search(r"# D = ([\d.]+) GB/s.*H = ([\d.]+) GB/s to the device, ([\d.]+) GB/s from it", table)
    return (float(match[1]) * 1e9, min(float(match[2]), float(match[3])) * 1e9) if match else (None, None)


def among_ranks(machine, table):
    """all_reduce among ranks on one GPU, directly and by way of the host, beside what D and H allow."""
    d, h = limits(table)
    lines = [f"| all_reduce of {machine.mebibytes} MiB among ranks that share a GPU | us | limit, us | share |", "|---|---|---|---|"]
    well = True
    size = machine.mebibytes << 20
    with tempfile.TemporaryDirectory() as folder:
        for ranks, kind, peers in [(2, "threads", "1"), (2, "processes", "1"), (4, "processes", "1"), (8, "processes", "1"),
                                   (2, "threads", "0"), (2, "processes", "0")]:
            results = pathlib.Path(folder) / "results.json"
            what = f"{ranks} {kind}, {'directly' if peers == '1' else 'by way of the host'}"
            status, text = output_of([machine.build / "bench/perf/tutti-perf", "all_reduce", "-t" if kind == "threads" else "--local",
                                      str(ranks), "--device", machine.kind, "--sizes", str(size), "-n", "10", "-J", results],
                                     machine.environment() | {"TUTTI_PEERS": peers, "CUDA_VISIBLE_DEVICES": "0"})
            if status:
                lines.append(f"| {what} | ended with {status}: {last_line(text)} | | |")
                well = False
                continue
            took = json.loads(results.read_text())["rows"][0]["out_of_place"]["time_us"]
            # Each rank reads and writes everything once; by the host, 2 (p - 1) / p of it passes H in each direction, both at once,
            # and all ranks share it.
            limit = (2 * ranks * size / d if peers == "1" else 2 * (ranks - 1) * size / h) * 1e6 if d else 0
            lines.append(f"| {what} | {took:.0f} | {limit:.0f} | {limit / took:.2f} |")
    return "\n".join(lines), well


def training(machine):
    """The digits, on ranks that share the GPU: how well they are told apart at the end."""
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results.json"
        status, text = output_of([machine.build / "tools/run/tutti-run", "-n", "4", machine.build / "examples/mlp/mlp",
                                  "--device", machine.kind, "--data", ROOT / "data/mnist-10k", "--epochs", str(machine.epochs),
                                  "--lr", "0.5", "--verify", "--json", results], machine.environment())
        if status:
            return f"Training on 4 ranks ended with {status}: {last_line(text)}", False
        accuracy = json.loads(results.read_text())["test_accuracy"]
        return f"Training on 4 ranks that share the GPU, {machine.epochs} epochs: test accuracy {accuracy:.4f}.", accuracy > 0.95


def commit():
    """What was run, or nothing where this is no checkout."""
    git = shutil.which("git")
    run = git and subprocess.run([git, "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return f", commit {run.stdout.strip()}" if run and run.returncode == 0 else ""


def page(machine, found):
    """What docs/gpu-results.md is to say, and whether all went well."""
    rows, tests_well = tests(machine)
    table, bench_well = benchmarks(machine)
    of_ranks, ranks_well = among_ranks(machine, table)
    trained, training_well = training(machine)
    text = ["# Results on GPUs", "", f"Written by `./dev gpu` on {datetime.date.today()}{commit()}.", ""]
    text += [f"- {line}" for line in found] + ["", "## Tests", "", "| test | result |", "|---|---|"]
    text += [f"| {what} | {how} |" for what, how in rows] + ["", "## Measurements", "", table.rstrip(), "",
                                                                of_ranks, "", trained, ""]
    return "\n".join(text), tests_well and bench_well and ranks_well and training_well


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--torch", nargs=2, default=())
    options = parser.parse_args()
    found = gpus()
    if not found:
        print("gpu: no GPU here: nothing was run, docs/gpu-results.md stays as it is", file=sys.stderr)
        sys.exit(NO_GPU)
    if not options.build:
        build()
    text, well = page(Machine(build=(options.build or BUILD).resolve(), torch=tuple(options.torch)), found)
    RESULTS.write_text(text)
    print(f"gpu: {RESULTS.relative_to(ROOT)} is written")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
