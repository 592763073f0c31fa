#!/usr/bin/env python3
"""Tutti side by side with other libraries and with the machine's limits: the same measurement, sizes and pinning, in turns.

Every library runs the same program (bench/perf's measurement over that library's calls). Round after round all of them run
in turn, so that a change of the machine's mood meets all. Two cores of a virtual machine sit now near each other, now far
apart: an exchange of two flag lines (X) before and after each run tells, runs in which it changed are dropped, and near is
never compared with far. Writes the medians over the rounds as Markdown: an overview, and a table of all rows with the ratio to
the best peer and, where it is known, to what the machine could do just before and after; --plots draws them. Modes: hot (buffers as the last call left them), cold (out of
all caches before each call), registered (memory that the library itself gives), in_place (hot, and a rank's input lies in its
output, as frameworks call; of libraries that offer it), apart (hot, with a barrier before each call, as calls of a program come
one by one; where each rank has a core, all begin at a moment agreed upon). --envelope measures Tutti alone at sizes
that double, and lists those at which its time falls or more than doubles."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import peers
import tables

COLLECTIVES = ("all_reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "barrier")
OTHERS = ("send_recv",  # each rank sends to the next and receives from the one before it
          "pass_round",  # from rank 0 from each to the next, who sends it when it has come, and back: between two, a ping-pong
          "reduce", "gather", "scatter", "scan", "exscan", "all_gather_v", "reduce_scatter_v", "all_to_all_v", "gather_v", "scatter_v")
OF_BLOCKS = ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter", "all_gather_v", "reduce_scatter_v", "all_to_all_v",
             "gather_v", "scatter_v")
NAMES_OF_PERF = {"all_to_all": "alltoall", "all_to_all_v": "alltoall_v", "send_recv": "sendrecv"}
IN_PLACE = {"broadcast"}  # the others' calls have one buffer
MODES = {"hot": [], "cold": ["--cold"], "registered": ["-R", "1"], "in_place": [],
         "apart": ["--apart"]}
NEAR_NS = 120  # an exchange of two lines between near cores takes less
# One process measures a group of sizes; X is looked at between groups.
GROUP_ENDS = (4 << 10, 1 << 20, 1 << 40)
ENVELOPE_SIZES = ",".join([f"{64 << i}K" for i in range(4)] + [f"{1 << i}M" for i in range(8)])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=peers.ROOT / "build", help="meson's build folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--transports", default="shm")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES), help=f"of these and {', '.join(OTHERS)}")
    parser.add_argument("--sizes", default="8,64,512,4K,16K,64K,256K,1M,4M,16M,64M,256M")
    parser.add_argument("--modes", default="hot", help="comma list of " + ", ".join(MODES))
    parser.add_argument("--peers", default=",".join(peer.name for peer in peers.ALL), help="of those that can be had")
    parser.add_argument("--no-pin", action="store_true", help="let the ranks move between the cores")
    parser.add_argument("--cores", choices=["near", "far"], default="near", help="what to wait for where their distance changes")
    parser.add_argument("--wait", type=float, default=10, help="for so many seconds at most before each run")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that one run may take")
    parser.add_argument("--json", type=pathlib.Path, help="write all single results, collective by collective; what the file holds already is kept")
    parser.add_argument("--output", type=pathlib.Path, help="write the table here as well")
    parser.add_argument("--plots", type=pathlib.Path, help="folder for one drawing of each collective and number of ranks")
    parser.add_argument("--envelope", action="store_true", help="no peers, sizes that double from 64K to 128M; what stands out")
    options = parser.parse_args()
    if options.envelope:
        options.peers, options.sizes = "", ENVELOPE_SIZES
    for collective in options.collectives.split(","):
        if collective not in COLLECTIVES + OTHERS:
            parser.error(f"--collectives {collective}: none of {', '.join(COLLECTIVES + OTHERS)}")
    for mode in options.modes.split(","):
        if mode not in MODES:
            parser.error(f"--modes {mode}: none of {', '.join(MODES)}")
    for name in options.peers.split(","):
        if name and name not in {peer.name for peer in peers.ALL}:
            parser.error(f"--peers {name}: none of {', '.join(peer.name for peer in peers.ALL)}")
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def bytes_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]] if text[-1] in "KMG" else int(text)


def groups_of(sizes):
    groups, begin = [], 0
    for end in GROUP_ENDS:
        group = [size for size in sizes if begin <= bytes_of(size) <= end]
        begin = end + 1
        if group:
            groups.append(group)
    return groups


class Machine:
    def __init__(self, build):
        self.build = build
        self.cores = sorted(os.sched_getaffinity(0))

    def line_exchange_ns(self):
        """Of two flag lines between two cores; None where there is one core."""
        if len(self.cores) < 2:
            return None
        done = subprocess.run([self.build / "bench/micro/line-exchange"], capture_output=True, text=True, check=True)
        return float(done.stdout.split()[0])

    def state(self):
        """near, far, or (one core) alone."""
        ns = self.line_exchange_ns()
        return ("alone" if ns is None else "near" if ns < NEAR_NS else "far"), ns

    def wait_for(self, wanted, seconds):
        """state() after that."""
        until = time.monotonic() + seconds
        while (state := self.state())[0] not in (wanted, "alone") and time.monotonic() < until:
            time.sleep(0.5)
        return state

    def limits(self, *words):
        if len(self.cores) < 2:
            return {}
        done = subprocess.run([self.build / "bench/micro/machine-limits", *words], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def memory(self):
        """What both cores can do with memory now: medians, not the best."""
        return self.limits("--memory")

    def copies(self):
        """{bytes: µs} of plain copying by two cores at once."""
        return {int(size): us for size, us in self.limits("--copies").items()}


def flags_of(mode, run):
    """A barrier may let one rank go first: calls that are apart (cold ones too) begin by the clock, where each rank has a core to wait on."""
    return MODES[mode] + (["--by-clock"] if mode in ("apart", "cold") and not run.crowded else [])


def run_once(peer, collective, run, sizes, mode, options):
    """{size: {out_of_place or in_place times}}, or a sentence that says why not."""
    with tempfile.TemporaryDirectory() as name:
        run.folder = pathlib.Path(name)
        result = run.folder / "result.json"
        words, environment = peer.command(run)
        command = [*words, NAMES_OF_PERF.get(collective, collective), "--sizes", ",".join(sizes), "--percentiles", "--json",
                   result, *flags_of(mode, run), *([] if options.no_pin else ["--bind"])]
        try:
            done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                                  timeout=options.timeout, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return f"not done within {options.timeout:.0f} s"
        if done.returncode != 0:
            return f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"
        half = "in_place" if collective in IN_PLACE or mode == "in_place" else "out_of_place"
        rows = [row for row in json.loads(result.read_text())["rows"] if row[half] is not None]
        wrong = [tables.size_text(row["size_bytes"]) for row in rows if row[half]["wrong"]]
        if wrong:
            return f"wrong results at {', '.join(wrong)}"
        return {row["size_bytes"]: row[half] for row in rows}


class Results:
    """Times by case, state of the cores and library."""

    def __init__(self):
        self.times, self.failures, self.dropped = {}, [], 0

    def add(self, key, state, peer, row):
        self.times.setdefault(key, {}).setdefault(state, {}).setdefault(peer, []).append(row)

    def merge(self, rows, failures):
        """Adds what an earlier run on this machine found."""
        for row in rows:
            key = (row["transport"], row["ranks"], row["mode"], row["collective"], row["size_bytes"])
            for state, found in row["times"].items():
                for peer, singles in found.items():
                    for single in singles:
                        self.add(key, state, peer, single)
        self.failures += failures

    def rows(self):
        return [{"transport": t, "ranks": r, "mode": m, "collective": c, "size_bytes": s, "times": found}
                for (t, r, m, c, s), found in self.times.items()]

    def states(self, key):
        """Those in which Tutti and some other were measured; all where there is none."""
        states = self.times[key]
        both = [state for state, found in states.items() if "tutti" in found and len(found) > 1]
        return both or list(states)


def sizes_of(collective, ranks, options):
    """Those asked for, where blocks have an element each; the least that they can have in place of less."""
    least = ranks * tables.ELEMENT_BYTES if collective in OF_BLOCKS else 0
    return list(dict.fromkeys(size if bytes_of(size) >= least else str(least) for size in options.sizes.split(",")))


def measure(chosen, machine, options, results):
    """Yields after each collective, so that what is measured can be kept."""
    for transport in options.transports.split(","):
        for ranks in map(int, options.ranks.split(",")):
            for mode in options.modes.split(","):
                for collective in options.collectives.split(","):
                    if collective == "barrier" and mode != "hot":
                        continue
                    say(f"compare: {collective}, {ranks} ranks, {transport}, {mode}")
                    willing = [peer for peer in chosen if collective in peer.collectives and transport in peer.transports and
                               (mode != "registered" or peer.gives_memory)]
                    sizes = sizes_of(collective, ranks, options)
                    for group in [["8"]] if collective == "barrier" else groups_of(sizes):
                        measure_group(willing, machine, (transport, ranks, mode, collective), group, options, results)
                    yield collective


def mean_of(before, after):
    return {name: (value + after[name]) / 2 for name, value in before.items() if value is not None}


def measure_group(willing, machine, case, group, options, results):
    transport, ranks, mode, collective = case
    willing = list(willing)  # who fails once is not asked again for this group
    for _ in range(options.rounds):
        for peer in list(willing):
            before, line_ns_before = machine.wait_for(options.cores, options.wait)
            to_be_limited = peer.name == "tutti" and transport == "shm" and bytes_of(group[-1]) >= tables.LIMIT_FROM
            memory_before = machine.memory() if to_be_limited else {}
            rows = run_once(peer, collective, peers.Run(ranks, transport, None), group, mode, options)
            memory_after = machine.memory() if to_be_limited else {}
            after, line_ns_after = machine.state()
            if isinstance(rows, str):
                results.failures.append(f"{peer.title}, {collective}, {ranks} ranks, {transport}, {mode}, "
                                        f"{group[0]} to {group[-1]}: {rows}")
                willing.remove(peer)
            elif before == after:
                for size, row in rows.items():
                    row["limits"] = mean_of({"line_exchange_ns": line_ns_before, **memory_before},
                                            {"line_exchange_ns": line_ns_after, **memory_after})
                    results.add((transport, ranks, mode, collective, size), before, peer.name, row)
            else:
                results.dropped += 1


def draw(curves, chosen, options):
    options.plots.mkdir(parents=True, exist_ok=True)
    titles = {peer.name: peer.title for peer in chosen}
    colours = {kind.name: number for number, kind in enumerate((peers.Tutti, *peers.ALL))}  # the same in all drawings
    for (collective, ranks, transport, mode, state), libraries in curves.items():
        if collective == "barrier":
            continue
        series = [{"name": titles[name], "points": libraries[name], "colour": colours[name]} for name in colours
                  if name in libraries]
        plot = {"title": f"{collective}, {ranks} ranks over {transport}, {mode} buffers, cores {state}", "x_label": "size",
                "y_label": "time (µs)", "series": series}
        done = subprocess.run([options.build / "bench/peers/draw-curves"], input=json.dumps([plot]), text=True,
                              capture_output=True, check=True)
        (options.plots / f"{collective}-{ranks}-{transport}-{mode}-{state}.svg").write_text(done.stdout)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def prepare(options):
    chosen, absent = [peers.Tutti(options.build)], []
    for kind in peers.ALL:
        if kind.name not in options.peers.split(","):
            continue
        peer = kind(options.build)
        try:
            say(f"compare: preparing {peer.title}")
            peer.prepare()
            chosen.append(peer)
        except peers.Unavailable as error:
            absent.append(f"{peer.title}: {error}")
            say(f"compare: left out: {absent[-1]}")
    return chosen, absent


def add_limits(limits, state, found):
    best = limits.setdefault(state, found)
    for name, value in found.items():
        best[name] = max(best[name], value) if name.endswith("gbps") else min(best[name], value)


def measured_limits(machine, limits):
    """Adds what the machine can do in the state that it is in."""
    found = machine.limits()
    if found:
        add_limits(limits, "near" if found["line_exchange_ns"] < NEAR_NS else "far", found)


def read_earlier(path, results, limits):
    """Adds what the file holds from earlier runs."""
    before = json.loads(path.read_text())
    results.merge(before["rows"], before["failures"])
    for state, found in before["limits"].items():
        add_limits(limits, state, found)


def write_file(path, results, limits):
    """The whole file or none: a run may be ended at any time."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps({"limits": limits, "rows": results.rows(), "failures": results.failures}, indent=1) + "\n")
    temporary.replace(path)


def main():
    options = parse_arguments()
    options.build = options.build.resolve()
    for needed in ("tools/run/tutti-run", "bench/perf/tutti-perf", "bench/micro/machine-limits", "bench/peers/draw-curves"):
        if not (options.build / needed).exists():
            sys.exit(f"compare: {options.build / needed} is missing; build the project first")
    machine = Machine(options.build)
    chosen, absent = prepare(options)
    results, limits = Results(), {}
    if options.json and options.json.exists():
        read_earlier(options.json, results, limits)
    measured_limits(machine, limits)
    for _ in measure(chosen, machine, options, results):
        if options.json:
            write_file(options.json, results, limits)
    measured_limits(machine, limits)
    copies = machine.copies() if options.envelope else {}
    if options.json:
        write_file(options.json, results, limits)
    curves = tables.curves_of(results)
    text = [f"{datetime.date.today()}, {len(machine.cores)} cores of {processor()}; medians of up to {options.rounds} rounds in "
            "turns, in µs; ranks " + ("free to move" if options.no_pin else
                                      "pinned to one core each, in turn where ranks outnumber cores")
            + "; float32 sum, out of place but in mode in_place, broadcast always in place. Above 1 in the column "
            f"*best peer / Tutti*, Tutti is faster. {results.dropped} runs in which the cores' distance changed are left out.", ""]
    text += [f"- {peer.title}: {peer.settings}." for peer in chosen if peer.settings]
    text += [f"- not there: {reason}" for reason in absent]
    text += ["", *(tables.limits_line(state, found) for state, found in limits.items())]
    text += ["", *tables.overview_lines(results), "", *tables.lines_of(results, chosen)]
    text += ["", *tables.envelope_lines(curves, copies)] if options.envelope else []
    text += ["", *(f"- failed: {failure}" for failure in results.failures)] if results.failures else []
    print("\n".join(text))
    if options.output:
        options.output.write_text("\n".join(text) + "\n")
    if options.plots:
        draw(curves, chosen, options)
    return 1 if any(failure.startswith("Tutti") for failure in results.failures) else 0


if __name__ == "__main__":
    sys.exit(main())
