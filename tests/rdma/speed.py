#!/usr/bin/env python3
"""The verbs transport beside perftest, in one guest with soft-RoCE devices: a table in Markdown, a column a round.

Usage: speed.py FOLDER BUILD [ROUNDS]
Emulation multiplies every instruction, so only ratios within a round mean anything; they scatter."""
import pathlib
import re
import shutil
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import guest

PREPARE = r"""
export TUTTI_IFNAME=lo TUTTI_TRANSPORT=verbs TUTTI_LOG=error
cat >rank <<'END'
TUTTI_IB_HCA=rxe$((RANK % 2)); export TUTTI_IB_HCA
exec "$@"
END
perftest() {  # PROGRAM OPTIONS...: what the client prints
  "$@" -d rxe1 -x 1 -F >/dev/null 2>&1 & sleep 0.5; "$@" -d rxe0 -x 1 -F 127.0.0.1 2>&1 | grep -A1 '#bytes'; wait
}
"""
ROUND = r"""
echo round
for i in 1 2 3; do perftest ib_write_lat -s 8 -n 3000; ./verbs-speed rxe0 rxe1 0; done
perftest ib_write_bw -s 1048576 -n 100
perftest ib_write_bw -s 1048576 -n 100 -b
./verbs-speed rxe0 rxe1 100
./tutti-run -n 2 sh rank ./tutti-perf all_reduce -b 16M -e 16M -n 5 -w 1 -R 1 -c 0
"""
# Half a round trip is over in no time, so whatever else the machine does spoils it: of three, the least of each is taken.
LATENCIES = [
    ("ib_write_lat 8 B, typical (µs)", r"#bytes.*t_typical.*\n *8 +\d+ +\S+ +\S+ +(\S+)"),
    ("Tutti 8 B, half a round trip, median (µs)", r"round trip: median (\S+)"),
]
# What else is looked for in a round's output, each time after the last, and what it is called.
FIGURES = [
    ("ib_write_bw 1 MiB, one way (MiB/s)", r"#bytes.*BW average.*\n *1048576 +\d+ +\S+ +(\S+)"),
    ("ib_write_bw -b, both ways together (MiB/s)", r"#bytes.*BW average.*\n *1048576 +\d+ +\S+ +(\S+)"),
    ("Tutti one way, copied (MiB/s)", r"copied: (\S+)"),
    ("Tutti one way, lent and viewed (MiB/s)", r"viewed: (\S+)"),
    ("Tutti one way, lent and written to its place (MiB/s)", r"its place: (\S+)"),
    ("Tutti all_reduce 16 MiB, 2 ranks, busbw (MiB/s)", r" 16777216 +\d+ +\S+ +\S+ +\S+ +(\S+)"),
]
RATIOS = [("8 B: Tutti / perftest", 1, 0), ("one way, copied / perftest", 4, 2), ("one way, lent and viewed / perftest", 5, 2),
          ("one way, written to its place / perftest", 6, 2), ("all_reduce / perftest both ways", 7, 3)]
US_MIB = 16e6  # of what takes some µs: MiB/s


def figures(text):
    found, at = [min(map(float, re.findall(pattern, text)[:3])) for _, pattern in LATENCIES], 0
    for name, pattern in FIGURES:
        match = re.compile(pattern).search(text, at)
        if match is None:
            raise SystemExit(f"no {name} in:\n{text}")
        at = match.end()
        found.append(US_MIB / float(match[1]) if "busbw" in name else float(match[1]))
    return found


def main():
    folder, build = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    reason = guest.why_not()
    if reason:
        raise SystemExit(f"skipped: {reason}")
    programs = [build / p for p in ("bench/micro/verbs-speed", "bench/perf/tutti-perf", "tools/run/tutti-run", "libtutti.so.0")]
    tools = [shutil.which(p) for p in ("ib_write_lat", "ib_write_bw")]
    done = guest.Bed(folder).boot(PREPARE + "PATH=$PATH:/guest\n" + ROUND * rounds, programs + tools, timeout_s=120 * rounds)
    columns = [figures(text) for text in done.output.split("round\n")[1:]]
    print("| |", " | ".join(map(str, range(1, rounds + 1))), "| median |")
    print("|---" * (rounds + 2) + "|")
    for i, (name, _) in enumerate(LATENCIES + FIGURES):
        values = [column[i] for column in columns]
        print(f"| {name} |", " | ".join(f"{v:.1f}" for v in values), f"| {statistics.median(values):.1f} |")
    for name, a, b in RATIOS:
        values = [column[a] / column[b] for column in columns]
        print(f"| **{name}** |", " | ".join(f"{v:.2f}" for v in values), f"| {statistics.median(values):.2f} |")
    print(*re.findall(r"\d+ messages \(.*", done.output), sep="\n")


if __name__ == "__main__":
    main()
