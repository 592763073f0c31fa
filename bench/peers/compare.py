#!/usr/bin/env python3
"""Tutti side by side with Open MPI and MPICH: the same program with the same sizes, pinned alike, in turns.

Builds bench/peers/mpi_perf.cc with each MPI compiler wrapper that is there, then runs round after round
Tutti, Open MPI, MPICH, so that a change of the machine's mood meets all of them. Prints a Markdown table of the
medians over the rounds. Timings compare only within one such run."""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES = {"tutti": "Tutti", "openmpi": "Open MPI", "mpich": "MPICH"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="meson's build folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--collectives", default="all_reduce,broadcast,barrier")
    parser.add_argument("--sizes", default="8,1K,64K,1M,64M")
    parser.add_argument("--peers", default="openmpi,mpich", help="of those that are installed")
    parser.add_argument("--no-pin", action="store_true", help="let the ranks move between the cores")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that one run may take")
    parser.add_argument("--json", type=pathlib.Path, help="write all single results")
    parser.add_argument("--output", type=pathlib.Path, help="write the table here as well")
    return parser.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


def build_peer(peer, options, folder):
    """The path of mpi_perf for this MPI, or None where its compiler wrapper is missing."""
    wrapper = shutil.which(f"mpicxx.{peer}")
    if wrapper is None or shutil.which(f"mpirun.{peer}") is None:
        say(f"compare: no mpicxx.{peer} or mpirun.{peer} here: {NAMES[peer]} is left out")
        return None
    program = folder / f"mpi_perf_{peer}"
    command = [wrapper, "-std=c++20", "-O3", "-I", ROOT, "-I", ROOT / "include", "-I", ROOT / "src", "-o", program,
               ROOT / "bench/peers/mpi_perf.cc", options.build / "bench/perf/libtutti_perf_parts.a",
               options.build / "tools/libtutti_plot.a", "-lfmt"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        say(f"compare: {NAMES[peer]} is left out, its program does not compile:\n{done.stderr}")
        return None
    return program


def command_of(peer, program, ranks, transport, options):
    """The command line up to the program's own options, and the environment."""
    environment = dict(os.environ)
    cores = len(os.sched_getaffinity(0))
    if peer == "tutti":
        environment["TUTTI_TRANSPORT"] = transport
        return [options.build / "tools/run/tutti-run", "-n", ranks, "--no-prefix",
                options.build / "bench/perf/tutti-perf"], environment
    if peer == "openmpi":
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        transports = "self,vader" if transport == "shm" else "self,tcp"
        # More ranks than cores: let waiting ranks yield, which Open MPI advises for that case.
        return ["mpirun.openmpi", "-n", ranks, "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1",
                "--mca", "btl", transports, "--mca", "btl_tcp_if_include", "lo",
                "--mca", "mpi_yield_when_idle", int(ranks > cores), program], environment
    environment["UCX_LOG_LEVEL"] = "error"
    if transport == "tcp":
        environment.update(MPIR_CVAR_NOLOCAL="1", UCX_TLS="tcp,self", UCX_NET_DEVICES="lo")
    return ["mpirun.mpich", "-n", ranks, "-bind-to", "none", program], environment


def run_once(peer, program, collective, ranks, transport, options, folder):
    """{size: row of the JSON}, or a sentence that says why not."""
    command, environment = command_of(peer, program, ranks, transport, options)
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    command += [collective, "--sizes", options.sizes, "--json", result]
    if not options.no_pin:
        command.append("--bind")
    try:
        done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                              timeout=options.timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"not done within {options.timeout:.0f} s"
    if done.returncode != 0:
        return f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"
    return {row["size_bytes"]: row for row in json.loads(result.read_text())["rows"]}


def line_exchange(options):
    """Nanoseconds of an exchange of two flag lines between two cores, or None."""
    program = options.build / "bench/micro/line-exchange"
    if not program.exists() or len(os.sched_getaffinity(0)) < 2:
        return None
    done = subprocess.run([program], capture_output=True, text=True)
    try:
        return float(done.stdout.split()[0])
    except (IndexError, ValueError):
        return None


def size_text(size):
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power} {unit}"
    return f"{size} B"


def time_text(us):
    return f"{us:.0f}" if us >= 1000 else f"{us:.3g}"


def measure(programs, options, folder):
    """Lists of times in µs, by (collective, transport, ranks, size) and peer, out of place."""
    times, failures = {}, []
    for transport in options.transports.split(","):
        for ranks in map(int, options.ranks.split(",")):
            for collective in options.collectives.split(","):
                say(f"compare: {collective}, {ranks} ranks, {transport}")
                willing = dict(programs)  # who fails once is not asked again for this case
                for _ in range(options.rounds):
                    for peer, program in list(willing.items()):
                        rows = run_once(peer, program, collective, ranks, transport, options, folder)
                        if isinstance(rows, str):
                            failures.append(f"{NAMES[peer]}, {collective}, {ranks} ranks, {transport}: {rows}")
                            del willing[peer]
                            continue
                        for size, row in rows.items():
                            key = (collective, transport, ranks, size)
                            times.setdefault(key, {}).setdefault(peer, []).append(row["out_of_place"]["time_us"])
    return times, failures


def table(times, programs):
    lines = ["| collective | ranks | over | size | " + " | ".join(f"{NAMES[p]} (µs)" for p in programs) +
             " | best peer / Tutti |", "|---|---|---|---|" + "---|" * len(programs) + "---|"]
    for (collective, transport, ranks, size), peers in times.items():
        medians = {peer: statistics.median(values) for peer, values in peers.items()}
        others = [value for peer, value in medians.items() if peer != "tutti"]
        ratio = f"{min(others) / medians['tutti']:.2f}" if others and "tutti" in medians else ""
        cells = [time_text(medians[peer]) if peer in medians else "failed" for peer in programs]
        what = "" if collective == "barrier" else size_text(size)
        lines.append(f"| {collective} | {ranks} | {transport} | {what} | " + " | ".join(cells) + f" | {ratio} |")
    return lines


def main():
    options = parse_arguments()
    for needed in ("tools/run/tutti-run", "bench/perf/tutti-perf"):
        if not (options.build / needed).exists():
            sys.exit(f"compare: {options.build / needed} is missing; build the project first")
    options.build = options.build.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs = {"tutti": None}
        for peer in options.peers.split(","):
            if program := build_peer(peer, options, folder):
                programs[peer] = program
        before = line_exchange(options)
        times, failures = measure(programs, options, folder)
        after = line_exchange(options)
    cores = len(os.sched_getaffinity(0))
    text = [f"Medians of {options.rounds} rounds in turns, {datetime.date.today()}, {cores} cores, ranks "
            + ("free to move" if options.no_pin else "pinned to one core each, in turn where ranks outnumber cores")
            + "; float32 sum, out of place. Above 1 in the last column, Tutti is faster.",
            "Open MPI: pml ob1, btl vader or tcp over lo, --oversubscribe, mpi_yield_when_idle where ranks outnumber "
            "cores. MPICH: its defaults, or UCX over tcp on lo."]
    if before is not None and after is not None:
        text.append(f"Exchange of two flag lines between two cores: {before:.0f} ns before, {after:.0f} ns after.")
    text += [""] + table(times, programs)
    text += ["", *(f"- failed: {failure}" for failure in failures)] if failures else []
    print("\n".join(text))
    if options.output:
        options.output.write_text("\n".join(text) + "\n")
    if options.json:
        rows = [{"collective": c, "transport": t, "ranks": r, "size_bytes": s, "times_us": p}
                for (c, t, r, s), p in times.items()]
        options.json.write_text(json.dumps({"line_exchange_ns": [before, after], "rows": rows,
                                            "failures": failures}, indent=2) + "\n")
    return 1 if any(failure.startswith("Tutti") for failure in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
