#!/usr/bin/env python3
"""What `./dev gpu` does: on a machine with a GPU builds, runs the tests of devices on it, also under compute-sanitizer where
that is installed, measures, and writes docs/gpu-results.md. Ends with 3 where there is no GPU, with 1 where a test failed."""
import dataclasses
import datetime
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
PROGRAMS = ["tests/cuda_kernels/device_kernels_test", "tests/cuda_kernels/cuda_platform_test", "tests/device/any_device_test"]
SANITIZED = {"memcheck": (PROGRAMS[0], "*"), "racecheck": (PROGRAMS[0], "*RunLinked*"), "synccheck": (PROGRAMS[0], "*RunLinked*"),
             "memcheck of calls": (PROGRAMS[2], "*TwoStreams*")}


@dataclasses.dataclass
class Machine:
    """Where the programs are, what devices they use, and how much of it. (A test rehearses all this on simulated ones.)"""
    build: pathlib.Path = BUILD
    kind: str = "cuda"
    mebibytes: int = 256
    epochs: int = 20
    variables: dict = dataclasses.field(default_factory=dict)

    def environment(self):
        """Programs that have the library in themselves do not find the module beside it. Streams of CUDA share a few queues, 8 if
        nothing is said, and one that waits holds up those behind it: here many ranks share a device."""
        module = self.build / "src" / "cuda_kernels" / "libtutti_cuda.so"
        return {"TUTTI_DEVICE": self.kind, "TUTTI_TEST_CUDA_MODULE": str(module), "LD_LIBRARY_PATH": str(module.parent),
                "CUDA_DEVICE_MAX_CONNECTIONS": "32"} | self.variables


def say(text):
    print(f"\n== {text}", flush=True)


def gpus():
    """A line for each GPU: name, driver, memory. Empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return []
    run = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                         capture_output=True, text=True)
    return [line.strip() for line in run.stdout.splitlines() if line.strip()] if run.returncode == 0 else []


def output_of(command, environment=None, limit_s=1800):
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
    status, _ = output_of(["ninja", "-C", str(BUILD)])
    if status:
        sys.exit("gpu: the build failed")


def tests(machine):
    """Rows of (what, how it ended), and whether all went well."""
    rows, well = [], True
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    for program in PROGRAMS:
        status, text = output_of([machine.build / program], machine.environment())
        rows.append((program, "passed" if status == 0 else f"FAILED ({status}): {last_line(text)}"))
        well &= status == 0
    for tool, (program, chosen) in SANITIZED.items():
        what = f"{program} under {tool}"
        if not sanitizer:
            rows.append((what, "not run: compute-sanitizer is not installed"))
            continue
        # The tests look at each error that a call tells of, and some want one.
        options = ["--report-api-errors", "no"] if tool.startswith("memcheck") else []
        status, text = output_of([sanitizer, "--tool", tool.split()[0], "--error-exitcode", "9", *options,
                                  machine.build / program, f"--gtest_filter={chosen}"], machine.environment())
        rows.append((what, "passed" if status == 0 else f"FAILED ({status}): {last_line(text)}"))
        well &= status == 0
    return rows, well


def benchmarks(machine):
    status, text = output_of([machine.build / "bench/micro/device-speed", str(machine.mebibytes)], machine.environment())
    return text if status == 0 else f"device-speed ended with {status}: {last_line(text)}\n", status == 0


def limits(table):
    """D and H as device-speed measured them, in bytes a second: the lesser of both ways for H."""
    match = re.search(r"# D = ([\d.]+) GB/s.*H = ([\d.]+) GB/s to the device, ([\d.]+) GB/s from it", table)
    return (float(match[1]) * 1e9, min(float(match[2]), float(match[3])) * 1e9) if match else (None, None)


def processes(machine, table):
    """all_reduce among processes on one GPU, directly and by way of the host, beside what D and H allow."""
    d, h = limits(table)
    lines, well = [f"| all_reduce of {machine.mebibytes} MiB among processes | us | limit, us | share |", "|---|---|---|---|"], True
    size = machine.mebibytes << 20
    with tempfile.TemporaryDirectory() as folder:
        for ranks, peers in [(2, "1"), (4, "1"), (8, "1"), (2, "0")]:
            results = pathlib.Path(folder) / "results.json"
            what = f"{ranks} processes, {'directly' if peers == '1' else 'by way of the host'}"
            status, text = output_of([machine.build / "bench/perf/tutti-perf", "all_reduce", "--local", str(ranks),
                                      "--device", machine.kind, "--sizes", str(size), "-n", "10", "-J", results],
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


def page(machine, found):
    """What docs/gpu-results.md is to say, and whether all went well."""
    rows, tests_well = tests(machine)
    table, bench_well = benchmarks(machine)
    among_processes, processes_well = processes(machine, table)
    trained, training_well = training(machine)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    text = ["# Results on GPUs", "", f"Written by `./dev gpu` on {datetime.date.today()}, commit {commit}.", ""]
    text += [f"- {line}" for line in found] + ["", "## Tests", "", "| test | result |", "|---|---|"]
    text += [f"| {what} | {how} |" for what, how in rows] + ["", "## Measurements", "", table.rstrip(), "",
                                                                among_processes, "", trained, ""]
    return "\n".join(text), tests_well and bench_well and processes_well and training_well


def main():
    found = gpus()
    if not found:
        print("gpu: no GPU here: nothing was run, docs/gpu-results.md stays as it is", file=sys.stderr)
        sys.exit(NO_GPU)
    build()
    text, well = page(Machine(), found)
    RESULTS.write_text(text)
    print(f"gpu: {RESULTS.relative_to(ROOT)} is written")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
