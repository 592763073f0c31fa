#!/usr/bin/env python3
"""The main job, end to end: the machine and what Tutti would choose on it, the tables of four ranks over shared memory
and over TCP, and a network trained by four ranks on real digits. The last line sums it up."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
RANKS = 4
RUN, TOPO = BUILD / "tools" / "run" / "tutti-run", BUILD / "tools" / "topo" / "tutti-topo"
PERF, MLP = BUILD / "bench" / "perf" / "tutti-perf", BUILD / "examples" / "mlp" / "mlp"


def say(text):
    print(f"\n== {text}", flush=True)


def run(*command, **environment):
    shown = [str(c) for c in command]
    done = subprocess.run(shown, env=dict(os.environ, **environment), check=False)
    if done.returncode != 0:
        sys.exit(f"demo: failed with exit code {done.returncode}: {' '.join(shown)}")


def table(collective, transport, folder):
    """One table of tutti-perf, as printed and as data."""
    say(f"{collective}, {RANKS} ranks over {transport}")
    result = folder / f"{collective}-{transport}.json"
    run(RUN, "-n", RANKS, "--no-prefix", PERF, collective, "-b", "8", "-e", "16M", "-f", "8", "--json", result,
        TUTTI_TRANSPORT=transport)
    return json.loads(result.read_text())


def busbw(data):
    """The greatest bus bandwidth of a table's sizes."""
    return max(row[place]["busbw_gbps"] for row in data["rows"] for place in ("out_of_place", "in_place")
               if row[place] is not None)


def main():
    say("this machine")
    run(TOPO)
    for size in ("8", "64K", "16M"):
        say(f"what Tutti chooses here for all_reduce of {size}, {RANKS} ranks")
        run(TOPO, "--explain", "all_reduce", size, "-n", RANKS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tables = {(collective, transport): table(collective, transport, folder)
                  for transport in ("shm", "tcp") for collective in ("all_reduce", "broadcast")}
        say(f"training on real digits, {RANKS} ranks")
        trained = folder / "training.json"
        run(RUN, "-n", RANKS, "--no-prefix", MLP, "--data", ROOT / "data" / "mnist-10k", "--epochs", "20", "--lr", "0.5",
            "--json", trained)
        accuracy = json.loads(trained.read_text())["test_accuracy"]
    wrong = sum(data["wrong"] for data in tables.values())
    print(f"\ndemo: test_accuracy={accuracy:.4f} allreduce_shm_busbw_gbps={busbw(tables['all_reduce', 'shm']):.2f} "
          f"allreduce_tcp_busbw_gbps={busbw(tables['all_reduce', 'tcp']):.2f} wrong={wrong}", flush=True)
    sys.exit(0 if wrong == 0 else 1)


main()
