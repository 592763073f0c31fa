#!/usr/bin/env python3
"""How much slower the algorithm that Tutti chooses is than the fastest that it has, by trying all of them.

For every collective, size and number of ranks, each algorithm is forced in turn (TUTTI_ALGO), round after round, so that
a change of the machine's mood meets all of them. Each round measures calls that follow each other and may overlap, as
nccl-tests does, and calls apart, as OSU's benchmarks do; an algorithm's time is the mean of both, each its least over
rounds: a chain hands on many small messages fast, and one of them slowly. Which algorithm is the fastest is found in every
other round, and how much faster it is than the chosen one in the rounds between: of ten that take equally long, one is
always lucky, and luck is no speed. Both halves take their turn at finding, and the regret of a choice is the mean of both
halves' time of the chosen / time of the fastest - 1. Ranks are processes here (--over shm or tcp), or each on a host of its
own: a network namespace whose way out is limited (--over hosts --rate 1gbit). Prints a Markdown table and a summary."""
import argparse
import datetime
import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import namespaces  # noqa: E402: found by the path above

NAMES_OF_PERF = {"all_to_all": "alltoall"}
PORT = 29650
PIPELINED_FROM = 4096  # bytes; nothing smaller is cut into pieces


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="meson's build folder")
    parser.add_argument("--over", default="shm", choices=["shm", "tcp", "hosts"])
    parser.add_argument("--rate", default="1gbit", help="of each host's way out, with --over hosts")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--collectives", default="", help="comma list; all that have a choice where empty")
    parser.add_argument("--sizes", default="8,512,8K,64K,512K,4M,32M")
    parser.add_argument("--rounds", type=int, default=6, help="an even number")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that one run may take")
    parser.add_argument("--json", type=pathlib.Path, help="write all times")
    options = parser.parse_args()
    if options.rounds < 2 or options.rounds % 2 != 0:
        parser.error(f"--rounds {options.rounds}: must be even, and at least 2")
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def catalog(build):
    """{collective: [algorithm, ...]}"""
    listed = subprocess.run([build / "tools/schedule/tutti-schedule", "list"], check=True, capture_output=True, text=True)
    found = {}
    for line in listed.stdout.splitlines():
        collective, _, algorithm = line.split()[0].partition("/")
        found.setdefault(collective, []).append(algorithm)
    return found


def schedules(build, collective, algorithms, ranks, hosts, pipeline):
    """{algorithm: its steps as text}: equal where two algorithms are one schedule for so many ranks."""
    texts = {}
    for name in algorithms:
        command = [build / "tools/schedule/tutti-schedule", "print", f"{collective}/{name}", "-n", str(ranks), "--lowered",
                   "--pipeline", str(pipeline)]
        if hosts:
            command += ["--hosts", ",".join(["1"] * ranks)]
        printed = subprocess.run(command, capture_output=True, text=True)
        texts[name] = printed.stdout if printed.returncode == 0 else name
    return texts


class Runner:
    """Runs tutti-perf once for all sizes; where is a Hosts, or None for this host."""

    def __init__(self, options, ranks, where):
        self.options, self.ranks, self.where = options, ranks, where

    def command(self, collective, file):
        return [str(self.options.build / "bench/perf/tutti-perf"), NAMES_OF_PERF.get(collective, collective),
                "--sizes", self.options.sizes, "-c", "0", "--json", str(file)]

    def start_on_hosts(self, command, environment):
        common = {**environment, "WORLD_SIZE": str(self.ranks), "MASTER_ADDR": self.where.address(0),
                  "MASTER_PORT": str(PORT), "LOCAL_RANK": "0", "TUTTI_JOB_KEY": secrets.token_hex(16)}
        return [self.where.start(rank, command, env={**common, "RANK": str(rank)}, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for rank in range(self.ranks)]

    def times(self, collective, algorithm, apart=False):
        """{size in bytes: (algorithm that ran, µs)}; algorithm None: the library's own choice."""
        environment = {**os.environ, "TUTTI_TRANSPORT": "tcp" if self.options.over != "shm" else "shm"}
        if algorithm is not None:
            environment["TUTTI_ALGO"] = algorithm
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "times.json")
            command = self.command(collective, file) + (["--apart"] if apart else [])
            if self.where is None:
                command += ["--local", str(self.ranks), "--bind"]
                processes = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                              stderr=subprocess.PIPE, text=True)]
            else:
                processes = self.start_on_hosts(command, environment)
            for process in processes:
                _, said = process.communicate(timeout=self.options.timeout)
                if process.returncode != 0:
                    sys.exit(f"regret: {collective} by {algorithm} failed:\n{said}")
            rows = json.loads(file.read_text())["rows"]
        return {row["size_bytes"]: (row["algorithm"], row["out_of_place"]["time_us"]) for row in rows}


def least_of(rounds, groups):
    """{algorithm: µs}: the mean of both ways to call, of the least over these rounds. rounds: a slice; groups: {algorithm:
    the times, following and apart, of each that is the same schedule}."""
    return {name: statistics.mean(min(time for twin in twins for time in twin[way][rounds]) for way in (0, 1))
            for name, twins in groups.items()}


def judge(groups, chosen):
    """(fastest over all rounds, its and the chosen one's least over all rounds, regret)"""
    halves = least_of(slice(0, None, 2), groups), least_of(slice(1, None, 2), groups)
    regrets = [judging[chosen] / judging[min(finding, key=finding.get)] - 1 for finding, judging in (halves, halves[::-1])]
    least = least_of(slice(None), groups)
    return min(least, key=least.get), least, statistics.mean(regrets)


def measure(runner, collective, algorithms):
    """[{size, chosen, fastest, regret, times_us: {algorithm: µs}, rounds_us: {algorithm: (following, apart)}}]"""
    chosen = {size: name for size, (name, _) in runner.times(collective, None).items()}
    times = {size: {} for size in chosen}  # then by algorithm: those that follow each other, and those apart
    for _ in range(runner.options.rounds):
        for algorithm in algorithms:
            for apart in (False, True):
                for size, (ran, time_us) in runner.times(collective, algorithm, apart).items():
                    if ran == algorithm:  # not where another had to stand in for it
                        times[size].setdefault(algorithm, ([], []))[apart].append(time_us)
    whole, pieces = (schedules(runner.options.build, collective, algorithms, runner.ranks, runner.where is not None, pipeline)
                     for pipeline in (1, 4))
    results = []
    for size, by_algorithm in times.items():
        texts = whole if size < PIPELINED_FROM else pieces
        groups = {name: [by_algorithm[other] for other in by_algorithm if texts[other] == texts[name]]
                  for name in by_algorithm}
        fastest, least, regret = judge(groups, chosen[size])
        results.append({"collective": collective, "ranks": runner.ranks, "size": size, "chosen": chosen[size],
                        "fastest": fastest, "regret": regret, "times_us": least, "rounds_us": by_algorithm})
    return results


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def print_table(results, options):
    over = {"shm": "shared memory", "tcp": "TCP on the loopback interface",
            "hosts": f"TCP between hosts (network namespaces) limited to {options.rate}"}[options.over]
    print(f"Over {over}, {datetime.date.today()}, least of {options.rounds} rounds, out of place, float32:\n")
    print("| collective | ranks | size | chosen (µs) | fastest (µs) | regret |\n|---|---|---|---|---|---|")
    for r in results:
        chosen, fastest = r["chosen"], r["fastest"]
        print(f"| {r['collective']} | {r['ranks']} | {size_text(r['size'])} | {chosen} ({r['times_us'][chosen]:.3g}) | "
              f"{fastest} ({r['times_us'][fastest]:.3g}) | {100 * r['regret']:.0f} % |")
    regrets = [r["regret"] for r in results]
    print(f"\nRegret over {len(regrets)} choices: mean {100 * statistics.mean(regrets):.1f} %, "
          f"worst {100 * max(regrets):.0f} %")


def main():
    options = parse_arguments()
    if options.over == "hosts":
        namespaces.become_root_of_a_user_namespace()
        reason = namespaces.why_not()
        if reason is not None:
            sys.exit(f"regret: {reason}")
    known = catalog(options.build)
    wanted = options.collectives.split(",") if options.collectives else [c for c, a in known.items() if len(a) > 1]
    for collective in wanted:
        if collective not in known:
            sys.exit(f"regret: {collective} is none of {', '.join(known)}")
    results = []
    for ranks in map(int, options.ranks.split(",")):
        where = None
        if options.over == "hosts":
            where = namespaces.Hosts(ranks, rate=options.rate)
            where.create()
        try:
            for collective in wanted:
                say(f"regret: {collective} among {ranks} ranks")
                results += measure(Runner(options, ranks, where), collective, known[collective])
        finally:
            if where is not None:
                where.destroy()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    print_table(results, options)


if __name__ == "__main__":
    main()
