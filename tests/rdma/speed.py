#!/usr/bin/env python3
"""The verbs transport beside perftest, in one guest with soft-RoCE devices: a table in Markdown, with the median and the
spread of so many rounds. Every other round has the two sides in the other order.

Usage: speed.py FOLDER BUILD [ROUNDS [FILE]]
Emulation multiplies every instruction, so only ratios within a round mean anything; they scatter. FILE: gets what every
round printed, with the devices' counters of packets that were sent again."""
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
again() {  # what the devices have sent or had again so far
  echo again $(cat /sys/class/infiniband/rxe*/ports/1/hw_counters/completer_retry_err) \
    $(cat /sys/class/infiniband/rxe*/ports/1/hw_counters/duplicate_request)
}
perftest() {  # NAME PROGRAM OPTIONS...: what the client prints
  name=$1; shift
  "$@" -d rxe1 -x 1 -F >/dev/null 2>&1 & sleep 0.5; echo "begins $name"; "$@" -d rxe0 -x 1 -F 127.0.0.1 2>&1 | grep -A1 '#bytes'
  wait; again
}
tutti() {  # NAME COMMAND...
  echo "begins $1"; shift; "$@"; again
}
collective() {  # NAME COLLECTIVE
  tutti $1 ./tutti-run -n 2 sh rank ./tutti-perf $2 -b 16M -e 16M -n 4 -w 1 -R 1 -c 0
}
"""
# Each comparison: perftest's side and Tutti's.
PAIRS = [*[("perftest lat ib_write_lat -s 8 -n 3000", "tutti round_trip ./verbs-speed rxe0 rxe1 0")] * 3,
         ("perftest bw ib_write_bw -s 1048576 -n 100",
          "tutti one_way ./verbs-speed rxe0 rxe1 100; collective broadcast broadcast"),
         ("perftest both ib_write_bw -s 1048576 -n 100 -b", "collective all_reduce all_reduce")]
# Half a round trip is over in no time, so whatever else the machine does spoils it: of three, the least of each is taken.
# A row: its name, where it stands, the pattern of its figure, and what the figure is the inverse of (16 MiB in so many us).
LAT, BW, BOTH = ("ib_write_lat 8 B, typical (µs)", "ib_write_bw 1 MiB, one way (MiB/s)",
                 "ib_write_bw -b, both ways together (MiB/s)")
MIB_US = 16e6
ROWS = [(LAT, "lat", r"#bytes.*t_typical.*\n *8 +\d+ +\S+ +\S+ +(\S+)", None),
        ("Tutti 8 B, half a round trip, median (µs)", "round_trip", r"round trip: median (\S+)", None),
        (BW, "bw", r"#bytes.*BW average.*\n *1048576 +\d+ +\S+ +(\S+)", None),
        ("Tutti one way, copied (MiB/s)", "one_way", r"copied: (\S+)", None),
        ("Tutti one way, lent and viewed (MiB/s)", "one_way", r"viewed: (\S+)", None),
        ("Tutti one way, lent and written to its place (MiB/s)", "one_way", r"its place: (\S+)", None),
        ("Tutti broadcast 16 MiB, 2 ranks, busbw (MiB/s)", "broadcast", r" 16777216 +\d+ +\S+ +\S+ +\S+ +(\S+)", MIB_US),
        (BOTH, "both", r"#bytes.*BW average.*\n *1048576 +\d+ +\S+ +(\S+)", None),
        ("Tutti all_reduce 16 MiB, 2 ranks, busbw (MiB/s)", "all_reduce", r" 16777216 +\d+ +\S+ +\S+ +\S+ +(\S+)", MIB_US)]
RATIOS = [("8 B: Tutti / perftest (goal: at most 1.3)", 1, 0), ("one way, copied / perftest (goal: at least 0.95)", 3, 2),
          ("one way, lent and viewed / perftest (goal: at least 0.95)", 4, 2),
          ("one way, written to its place / perftest (goal: at least 0.95)", 5, 2),
          ("broadcast / perftest one way", 6, 2), ("all_reduce / perftest both ways (goal: at least 0.85)", 8, 7)]


def figures(text):
    found = []
    for name, where, pattern, inverse in ROWS:
        parts = re.findall(rf"begins {where}\n(.*?)again", text, re.S)
        values = [float(m[1]) for part in parts if (m := re.search(pattern, part))]
        if not parts or len(values) != len(parts):
            raise SystemExit(f"no {name} in:\n{text}")
        found.append(inverse / values[0] if inverse else min(values))
    return found


def sent_again(text, before):
    """Of each measurement of a round: how often packets were sent again, and how many came twice."""
    told = []
    for name, numbers in re.findall(r"begins (\w+)\n.*?again ([\d ]+)", text, re.S):
        now = [int(n) for n in numbers.split()]
        told.append((name, sum(now[:2]) - sum(before[:2]), sum(now[2:]) - sum(before[2:])))
        before[:] = now
    return told


def main():
    folder, build = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    reason = guest.why_not()
    if reason:
        raise SystemExit(f"skipped: {reason}")
    programs = [build / p for p in ("bench/micro/verbs-speed", "bench/perf/tutti-perf", "tools/run/tutti-run", "libtutti.so.0")]
    tools = [shutil.which(p) for p in ("ib_write_lat", "ib_write_bw")]
    script = "PATH=$PATH:/guest\n" + PREPARE
    for i in range(rounds):
        script += "echo round\n" + "".join("\n".join(pair[::-1] if i % 2 else pair) + "\n" for pair in PAIRS)
    done = guest.Bed(folder).boot(script, programs + tools, timeout_s=120 * rounds)
    if len(sys.argv) > 4:
        pathlib.Path(sys.argv[4]).write_text(done.output)
    texts, before = done.output.split("round\n")[1:], [0, 0, 0, 0]
    columns = [figures(text) for text in texts]
    print("| |", " | ".join(map(str, range(1, rounds + 1))), "| median |")
    print("|---" * (rounds + 2) + "|")
    for i, (name, *_) in enumerate(ROWS):
        values = [column[i] for column in columns]
        print(f"| {name} |", " | ".join(f"{v:.1f}" for v in values), f"| {statistics.median(values):.1f} |")
    for name, a, b in RATIOS:
        values = [column[a] / column[b] for column in columns]
        print(f"| **{name}** |", " | ".join(f"{v:.2f}" for v in values), f"| **{statistics.median(values):.2f}** |")
    print()
    for i, text in enumerate(texts):  # as list items
        print(f"- round {i + 1}, sent again and come twice:",
              ", ".join(f"{name} {sent}/{twice}" for name, sent, twice in sent_again(text, before)))
    print(*re.findall(r"\d+ messages \(.*", done.output), sep="\n")


if __name__ == "__main__":
    main()
