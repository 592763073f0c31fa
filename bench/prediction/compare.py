#!/usr/bin/env python3
"""How far tutti-sim's forecasts are from what is measured on links whose speed is known.

Ranks are processes, each on a host of its own: a network namespace whose way out is limited (tbf) to --rate. Each algorithm
is forced in turn (TUTTI_ALGO), and tutti-perf takes the mean of calls that follow each other, out of place and in place. Small
ones come after as many that are not timed: by then the limiter's bucket is empty. Every case is measured in several rounds, a round of
all cases after the other, and its median counts. What was measured while other programs of this machine used more than
--foreign of a core is thrown away and measured again; with --real-time they cannot disturb, as ranks go first.

The fabric that tutti-sim is given has the links as they were made, this machine's cores, and what a message costs the ranks,
which depends on how crowded the cores are: it is taken, for each number of ranks, from one measurement, the ring's smallest
size, whose messages are the most and the smallest. Nothing else is fitted. Prints a Markdown table of all cases, and the median and the 95th percentile of the
error, |forecast / measured - 1|, over the others.

With --measured, what was measured is kept in a file after each launch, and --seconds ends this run after so long: the next
one goes on where this one ended. --rounds 0 only forecasts."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import namespaces  # noqa: E402: found by the path above

PORT = 29750
BURST = 128 * 1000  # bytes, as namespaces.py tells tbf
PAYLOAD = 1448 / 1514  # of a full packet, which tbf counts with its headers
ALGORITHMS = {
    "all_reduce": ["ring", "recursive_doubling", "two_shot", "halving_doubling"],
    "all_gather": ["circulant", "ring"],
    "reduce_scatter": ["circulant", "ring"],
    "broadcast": ["binomial", "double_tree"],
}
# Up to which size: timed calls, calls before them, and rounds.
CALLS = [(64 << 10, 200, 200, 3), (1 << 20, 12, 12, 3), (16 << 20, 2, 1, 1), (1 << 62, 1, 0, 1)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="meson's build folder")
    parser.add_argument("--rate", type=int, default=500, help="of each host's way out, in Mbit/s")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--collectives", default=",".join(ALGORITHMS))
    parser.add_argument("--algorithms", help="of one collective, instead of those that are usual here")
    parser.add_argument("--sizes", default="1024,16384,262144,4194304,67108864", help="in bytes")
    parser.add_argument("--rounds", type=int, default=3, help="at most")
    parser.add_argument("--seconds", type=float, default=1e9, help="of measuring, at most")
    parser.add_argument("--foreign", type=float, default=0.05, help="of a core, that other programs may use meanwhile")
    parser.add_argument("--real-time", action="store_true", help="ranks go before all other programs (SCHED_RR)")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="that all ranks share")
    parser.add_argument("--measured", type=pathlib.Path, help="where what was measured is kept")
    return parser.parse_args()


def calls_of(size):
    return next(row[1:] for row in CALLS if size <= row[0])


class OtherPrograms:
    """How much of a core programs other than those started here use."""

    def __init__(self):
        self.time, self.used = time.monotonic(), self.used_by_others()

    @staticmethod
    def used_by_others():
        user, nice, system = map(int, pathlib.Path("/proc/stat").read_text().split()[1:4])
        ours = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return (user + nice + system) / os.sysconf("SC_CLK_TCK") - ours

    def share(self):
        return (self.used_by_others() - self.used) / (time.monotonic() - self.time)


class Launch:
    """What one start of tutti-perf measures: an algorithm at sizes that take as many calls."""

    def __init__(self, ranks, collective, algorithm, sizes):
        self.ranks, self.collective, self.algorithm, self.sizes = ranks, collective, algorithm, sizes

    def key(self, size):
        return f"{self.ranks} {self.collective} {self.algorithm} {size}"

    def measure(self, options, hosts):
        """{key: µs}; a case is missing where another algorithm had to stand in."""
        calls, warm_up, _ = calls_of(self.sizes[0])
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "times.json")
            command = [*(["chrt", "-r", "1"] if options.real_time else []), str(options.build / "bench/perf/tutti-perf"), self.collective, "--sizes",
                       ",".join(map(str, self.sizes)), "-c", "0", "-n", str(calls), "-w", str(warm_up), "--json", str(file)]
            common = {**os.environ, "TUTTI_TRANSPORT": "tcp", "TUTTI_ALGO": self.algorithm, "LOCAL_RANK": "0",
                      "WORLD_SIZE": str(self.ranks), "MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(PORT),
                      "TUTTI_JOB_KEY": secrets.token_hex(16)}
            processes = [hosts.start(rank, command, env={**common, "RANK": str(rank)}, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True) for rank in range(self.ranks)]
            for process in processes:
                _, said = process.communicate(timeout=300)
                if process.returncode != 0:
                    sys.exit(f"compare: {self.algorithm} among {self.ranks} ranks failed:\n{said}")
            rows = json.loads(file.read_text())["rows"]
        # (A size is cut to whole blocks of all ranks.)
        return {self.key(size): [row[half]["time_us"] for half in ("out_of_place", "in_place")]
                for size, row in zip(self.sizes, rows) if row["algorithm"] == self.algorithm}


def launches(options):
    sizes = sorted(map(int, options.sizes.split(",")))
    groups = [[size for size in sizes if calls_of(size) == tuple(row[1:])] for row in CALLS]
    for ranks in map(int, options.ranks.split(",")):
        for collective in options.collectives.split(","):
            names = options.algorithms.split(",") if options.algorithms else ALGORITHMS[collective]
            for algorithm in names:
                for group in filter(None, groups):
                    yield Launch(ranks, collective, algorithm, group)


def measure(options, times):
    """Adds to times, {key: [µs of each measurement]}."""
    namespaces.become_root_of_a_user_namespace()
    reason = namespaces.why_not()
    if reason is not None:
        sys.exit(f"compare: {reason}")
    end = time.monotonic() + options.seconds
    done = lambda one: min(len(times.get(one.key(size), [])) for size in one.sizes)  # noqa: E731
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(namespaces.Hosts(max(map(int, options.ranks.split(","))), rate=f"{options.rate}mbit",
                                                     congestion_control="reno"))
        for round_number in range(options.rounds):
            for one in launches(options):
                if time.monotonic() >= end:
                    return
                if done(one) > 2 * round_number or round_number >= calls_of(one.sizes[0])[2]:
                    continue
                share = float("inf")
                while share > options.foreign and time.monotonic() < end:
                    others = OtherPrograms()
                    seen = one.measure(options, hosts)
                    share = others.share()
                    print(f"others: {100 * share:.0f} % of a core", *(f"{key}: {us[0]:.1f} us" for key, us in seen.items()),
                          sep="\n  ", file=sys.stderr, flush=True)
                if share > options.foreign:
                    return
                for key, us in seen.items():
                    times.setdefault(key, []).extend(us)
                if options.measured:
                    options.measured.write_text(json.dumps(times, indent=1))


def forecast(options, case, message_us):
    # Of a message's cost, half is the sender's and half the receiver's. What leaves a namespace is on its way at once:
    # the links are memory, but for the queue that limits them, which takes packets in turn, whomever they are for.
    fabric = (f"switch,link={options.rate * PAYLOAD:.3f}M,down=100G,hop=0,latency=0,buffer=2M,burst={BURST},fan_out=0,"
              f"cores={options.cores},message={message_us / 2:.3f}us,receive={message_us / 2:.3f}us")
    printed = subprocess.run(
        [options.build / "tools/sim/tutti-sim", case["collective"], "-n", str(case["ranks"]), "--size", str(case["size"]),
         "--algorithm", case["algorithm"], "--topology", fabric, "--calls", str(sum(calls_of(case["size"])[:2])), "--json"],
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


def cases_of(options, times):
    for one in launches(options):
        for size in one.sizes:
            if us := times.get(one.key(size)):
                yield {"ranks": one.ranks, "collective": one.collective, "algorithm": one.algorithm, "size": size,
                       "us": statistics.median(us), "least": min(us), "most": max(us)}


def main():
    options = parse_arguments()
    times = {}
    if options.measured and options.measured.exists():
        times = json.loads(options.measured.read_text())
    if options.rounds > 0:
        measure(options, times)
    cases = sorted(cases_of(options, times), key=lambda case: case["ranks"])
    smallest = min(case["size"] for case in cases)
    firsts = {}
    for case in cases:
        if case["size"] == smallest:
            firsts.setdefault(case["ranks"], case)
    costs = {ranks: calibrate(options, first) for ranks, first in firsts.items()}
    print(f"TCP between network namespaces limited to {options.rate} Mbit/s, float32, {datetime.date.today()}. "
          "A message costs " + ", ".join(f"{us:.1f} µs among {ranks} ranks" for ranks, us in costs.items()) + ".\n")
    print("| ranks | collective | algorithm | size | measured (ms) | least to most | forecast (ms) | error |")
    print("|---|---|---|---|---|---|---|---|")
    errors = []
    for case in cases:
        seen = forecast(options, case, costs[case["ranks"]])
        error = seen / case["us"] - 1
        fitted = case is firsts.get(case["ranks"])
        if not fitted:
            errors.append(abs(error))
        print(f"| {case['ranks']} | {case['collective']} | {case['algorithm']} | {size_text(case['size'])} | "
              f"{case['us'] / 1e3:.3f} | {case['least'] / 1e3:.3f} to {case['most'] / 1e3:.3f} | {seen / 1e3:.3f} | "
              f"{'fitted' if fitted else f'{100 * error:+.0f} %'} |")
    errors.sort()
    print(f"\n{len(errors)} cases: median error {100 * errors[len(errors) // 2]:.0f} %, 95th percentile "
          f"{100 * errors[int(0.95 * (len(errors) - 1))]:.0f} %")


if __name__ == "__main__":
    main()
