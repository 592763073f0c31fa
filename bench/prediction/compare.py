#!/usr/bin/env python3
"""How far tutti-sim's forecasts are from what is measured on links whose speed is known.

Ranks are processes, each on a host of its own: a network namespace whose way out is limited (tbf) to --rate. Each algorithm
is forced in turn (TUTTI_ALGO), and tutti-perf takes the mean of calls that follow each other. The fabric that tutti-sim is
given has the links as they were made, this machine's cores, and what a message costs the ranks, which depends on how
crowded the cores are: it is taken, for each number of ranks, from one measurement, the first algorithm's smallest size.
Nothing else is fitted. Prints a Markdown table of all cases, and the median and the 95th percentile of the error,
|forecast / measured - 1|, over the others."""
import argparse
import datetime
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import namespaces  # noqa: E402: found by the path above

PORT = 29750
BURST = 128 * 1000  # bytes, as namespaces.py tells tbf
PAYLOAD = 1448 / 1514  # of a full packet, which tbf counts with its headers
# Up to which size: timed and other calls, so that all take about as long, and rounds, of which the least time counts: the
# machine's mood is a matter of small messages.
RUNS = [(64 << 10, 400, 40, 5), (1 << 20, 30, 3, 1), (16 << 20, 5, 1, 1), (1 << 62, 1, 1, 1)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="meson's build folder")
    parser.add_argument("--rate", type=int, default=500, help="of each host's way out, in Mbit/s")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--algorithms", default="recursive_doubling,ring,two_shot,halving_doubling")
    parser.add_argument("--sizes", default="1024,16384,262144,4194304,67108864", help="in bytes")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="that all ranks share")
    parser.add_argument("--measured", type=pathlib.Path, help="write what was measured; where it exists, read it instead")
    return parser.parse_args()


def measure(options, hosts, ranks, algorithm, size):
    """µs of one all_reduce, or None where another algorithm had to stand in."""
    _, iterations, warm_up, _ = next(row for row in RUNS if size <= row[0])
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "times.json")
        command = [str(options.build / "bench/perf/tutti-perf"), "all_reduce", "--sizes", str(size), "-c", "0", "-n",
                   str(iterations), "-w", str(warm_up), "--json", str(file)]
        common = {**os.environ, "TUTTI_TRANSPORT": "tcp", "TUTTI_ALGO": algorithm, "WORLD_SIZE": str(ranks),
                  "MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(PORT), "LOCAL_RANK": "0",
                  "TUTTI_JOB_KEY": secrets.token_hex(16)}
        processes = [hosts.start(rank, command, env={**common, "RANK": str(rank)}, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
        for process in processes:
            _, said = process.communicate(timeout=300)
            if process.returncode != 0:
                sys.exit(f"compare: {algorithm} among {ranks} ranks failed:\n{said}")
        row = json.loads(file.read_text())["rows"][0]
    return row["out_of_place"]["time_us"] if row["algorithm"] == algorithm else None


def measure_all(options):
    """[{ranks, algorithm, size, us}]"""
    if options.measured and options.measured.exists():
        return json.loads(options.measured.read_text())
    namespaces.become_root_of_a_user_namespace()
    reason = namespaces.why_not()
    if reason is not None:
        sys.exit(f"compare: {reason}")
    cases = []
    for ranks in map(int, options.ranks.split(",")):
        with namespaces.Hosts(ranks, rate=f"{options.rate}mbit") as hosts:
            for algorithm in options.algorithms.split(","):
                for size in map(int, options.sizes.split(",")):
                    rounds = next(row[3] for row in RUNS if size <= row[0])
                    times = [measure(options, hosts, ranks, algorithm, size) for _ in range(rounds)]
                    if None not in times:
                        us = min(times)
                        cases.append({"ranks": ranks, "algorithm": algorithm, "size": size, "us": us})
                        print(f"{ranks} ranks, {algorithm}, {size} bytes: {us:.1f} us", file=sys.stderr, flush=True)
    if options.measured:
        options.measured.write_text(json.dumps(cases, indent=1))
    return cases


def forecast(options, case, message_us):
    # Of a message's cost, half is the sender's and half the receiver's. What leaves a namespace is on its way at once:
    # the links are memory, but for the queue that limits them.
    fabric = (f"switch,link={options.rate * PAYLOAD:.3f}M,down=100G,hop=0,latency=0,buffer=2M,burst={BURST},"
              f"cores={options.cores},message={message_us / 2:.3f}us,receive={message_us / 2:.3f}us")
    calls = 200 if case["size"] <= RUNS[0][0] else 8  # the first ones empty the bucket
    printed = subprocess.run(
        [options.build / "tools/sim/tutti-sim", "all_reduce", "-n", str(case["ranks"]), "--size", str(case["size"]),
         "--algorithm", case["algorithm"], "--topology", fabric, "--calls", str(calls), "--json"],
        check=True, capture_output=True, text=True)
    return json.loads(printed.stdout)["algorithms"][0]["time_ns"] / 1e3


def calibrate(options, first):
    """What a message costs, in µs, so that this case is forecast as it was measured."""
    low, high = 0.0, 1000.0
    while high - low > 0.05:
        middle = (low + high) / 2
        low, high = (middle, high) if forecast(options, first, middle) < first["us"] else (low, middle)
    return low


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def main():
    options = parse_arguments()
    cases = measure_all(options)
    smallest = min(case["size"] for case in cases)
    firsts = {}
    for case in cases:
        if case["size"] == smallest:
            firsts.setdefault(case["ranks"], case)
    costs = {ranks: calibrate(options, first) for ranks, first in firsts.items()}
    print(f"all_reduce over TCP between network namespaces limited to {options.rate} Mbit/s, float32, "
          f"{datetime.date.today()}. A message costs "
          + ", ".join(f"{us:.1f} µs among {ranks} ranks" for ranks, us in costs.items()) + ".\n")
    print("| ranks | algorithm | size | measured (ms) | forecast (ms) | error |\n|---|---|---|---|---|---|")
    errors = []
    for case in cases:
        seen = forecast(options, case, costs[case["ranks"]])
        error = seen / case["us"] - 1
        fitted = case is firsts.get(case["ranks"])
        if not fitted:
            errors.append(abs(error))
        print(f"| {case['ranks']} | {case['algorithm']} | {size_text(case['size'])} | {case['us'] / 1e3:.3f} | "
              f"{seen / 1e3:.3f} | {'fitted' if fitted else f'{100 * error:+.0f} %'} |")
    errors.sort()
    print(f"\n{len(errors)} cases: median error {100 * errors[len(errors) // 2]:.0f} %, 95th percentile "
          f"{100 * errors[int(0.95 * (len(errors) - 1))]:.0f} %")


if __name__ == "__main__":
    main()
