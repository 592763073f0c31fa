#!/usr/bin/env python3
"""How much slower the algorithm that Tutti chooses is than the fastest that it has, by trying all of them.

For every collective, size and number of ranks, each algorithm is asked for by name. One run of tutti-perf measures all of
them in turns of some 20 ms each, so that they share the machine's moods, and an algorithm's time is told as its ratio to
the chosen one's in the same turn: the median of all turns. Measured are calls that follow each other and may overlap, as
in nccl-tests, and calls apart, as in OSU's benchmarks, and the cost is the sum of both: a chain hands on many small
messages fast, and one of them slowly. Which algorithm is the fastest is found in every other turn, and how much faster it
is than the chosen one in the turns between: of ten that take equally long, one is always lucky, and luck is no speed.
Both halves take their turn at finding, and the regret of a choice is the mean of both halves' cost of the chosen / cost of
the fastest - 1. Ranks are processes here (--over shm or tcp), or each on a host of its own: a network namespace whose way
out is limited (--over hosts --rate 1gbit). Prints a Markdown table and a summary."""
import argparse
import datetime
import json
import os
import pathlib
import re
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
BURST = "8kb"  # what a link may send at once that stood idle: five frames, for a cable would send none so
PIPELINED_FROM = 4096  # bytes; nothing smaller is cut into pieces


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="meson's build folder")
    parser.add_argument("--over", default="shm", choices=["shm", "tcp", "hosts"])
    parser.add_argument("--rate", default="200mbit", help="of each host's way out, with --over hosts; one that the cores keep up with")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--collectives", default="", help="comma list; all that have a choice where empty")
    parser.add_argument("--sizes", default="8,512,8K,64K,512K,4M,32M")
    parser.add_argument("--turns", type=int, default=12, help="of each algorithm; an even number")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that one run may take")
    parser.add_argument("--json", type=pathlib.Path, help="write all times")
    options = parser.parse_args()
    if options.turns < 2 or options.turns % 2 != 0:
        parser.error(f"--turns {options.turns}: must be even, and at least 2")
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
        if name == "by_core" and not hosts and ranks > len(os.sched_getaffinity(0)):
            texts[name] = name  # for ranks that are dealt out to cores, as tutti-perf binds them; print is of such that have one each
            continue
        command = [build / "tools/schedule/tutti-schedule", "print", f"{collective}/{name}", "-n", str(ranks), "--lowered",
                   "--pipeline", str(pipeline)]
        if hosts:
            command += ["--hosts", ",".join(["1"] * ranks)]
        printed = subprocess.run(command, capture_output=True, text=True)
        texts[name] = any_order(printed.stdout) if printed.returncode == 0 else name
    return texts


def any_order(schedule):
    """The text with every sum's operands sorted: in which order they are added is not what takes time."""
    operand = r"(?:from \d+|\w+\[[^\]]*\])"
    return re.sub(rf"{operand}(?: \+ {operand})+", lambda found: " + ".join(sorted(found[0].split(" + "))), schedule)


class Runner:
    """Runs tutti-perf, once for all sizes and algorithms; where is a Hosts, or None for this host."""

    def __init__(self, options, ranks, where):
        self.options, self.ranks, self.where = options, ranks, where

    def start_on_hosts(self, command, environment):
        common = {**environment, "WORLD_SIZE": str(self.ranks), "MASTER_ADDR": self.where.address(0),
                  "MASTER_PORT": str(PORT), "LOCAL_RANK": "0", "TUTTI_JOB_KEY": secrets.token_hex(16)}
        return [self.where.start(rank, command, env={**common, "RANK": str(rank)}, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for rank in range(self.ranks)]

    def rows(self, collective, *more):
        """What tutti-perf writes of each case: size by size, and of each the algorithms in their order."""
        environment = {**os.environ, "TUTTI_TRANSPORT": "tcp" if self.options.over != "shm" else "shm"}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "times.json")
            command = [str(self.options.build / "bench/perf/tutti-perf"), NAMES_OF_PERF.get(collective, collective),
                       "--sizes", self.options.sizes, "-c", "0", "--json", str(file), *more]
            if self.where is None:
                command += ["--local", str(self.ranks), "--bind"]
                processes = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                              stderr=subprocess.PIPE, text=True)]
            else:
                processes = self.start_on_hosts(command, environment)
            for process in processes:
                _, said = process.communicate(timeout=self.options.timeout)
                if process.returncode != 0:
                    sys.exit(f"regret: {collective} failed:\n{said}")
            return json.loads(file.read_text())["rows"]

    def choices(self, collective):
        """{size in bytes: the library's own algorithm}"""
        return {row["size_bytes"]: row["algorithm"] for row in self.rows(collective, "-n", "1")}

    def times(self, collective, algorithms):
        """{size: {algorithm: (µs of each turn of calls that follow each other, of calls apart)}}"""
        asked = ["--algorithms", ",".join(algorithms), "--turns", str(self.options.turns)]
        both = [self.rows(collective, *asked), self.rows(collective, *asked, "--apart")]
        found = {}
        for i, pair in enumerate(zip(*both)):
            if pair[0]["algorithm"] == algorithms[i % len(algorithms)]:  # not where another had to stand in for it
                found.setdefault(pair[0]["size_bytes"], {})[pair[0]["algorithm"]] = \
                    tuple(row["out_of_place"]["turns_us"] for row in pair)
        return found


def costs(turns, times, twins, chosen):
    """{algorithm: µs}: the sum of both ways to call. turns: which; twins: {algorithm: those that are the same schedule}."""
    sums = dict.fromkeys(twins, 0.0)
    for way in (0, 1):
        base = times[chosen][way]
        for name, group in twins.items():
            ratios = [times[twin][way][turn] / base[turn] for twin in group for turn in turns]
            sums[name] += statistics.median(base) * statistics.median(ratios)
    return sums


def judge(count, times, twins, chosen):
    """(costs over all turns, regret)"""
    even, odd = (costs(range(first, count, 2), times, twins, chosen) for first in (0, 1))
    regrets = [judging[chosen] / judging[min(finding, key=finding.get)] - 1 for finding, judging in ((even, odd), (odd, even))]
    return costs(range(count), times, twins, chosen), statistics.mean(regrets)


def measure(runner, collective, algorithms):
    """[{size, chosen, fastest, regret, costs_us: {algorithm: µs}, turns_us: {algorithm: (following, apart)}}]"""
    chosen = runner.choices(collective)
    whole, pieces = (schedules(runner.options.build, collective, algorithms, runner.ranks, runner.where is not None, pipeline)
                     for pipeline in (1, 4))
    results = []
    for size, times in runner.times(collective, algorithms).items():
        texts = whole if size < PIPELINED_FROM else pieces
        twins = {name: [other for other in times if texts[other] == texts[name]] for name in times}
        cost, regret = judge(runner.options.turns, times, twins, chosen[size])
        results.append({"collective": collective, "ranks": runner.ranks, "size": size, "chosen": chosen[size],
                        "fastest": min(cost, key=cost.get), "regret": regret, "costs_us": cost, "turns_us": times})
    return results


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def print_table(results, options):
    over = {"shm": "shared memory", "tcp": "TCP on the loopback interface",
            "hosts": f"TCP between hosts (network namespaces) limited to {options.rate}"}[options.over]
    print(f"Over {over}, {datetime.date.today()}, {options.turns} turns, out of place, float32; µs of a call that follows "
          "another and of one apart, together:\n")
    print("| collective | ranks | size | chosen (µs) | fastest (µs) | regret |\n|---|---|---|---|---|---|")
    for r in results:
        chosen, fastest = r["chosen"], r["fastest"]
        print(f"| {r['collective']} | {r['ranks']} | {size_text(r['size'])} | {chosen} ({r['costs_us'][chosen]:.3g}) | "
              f"{fastest} ({r['costs_us'][fastest]:.3g}) | {100 * r['regret']:.0f} % |")
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
            where = namespaces.Hosts(ranks, rate=options.rate, burst=BURST)
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
