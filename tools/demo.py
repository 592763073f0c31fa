#!/usr/bin/env python3
"""The main job, end to end: the machine and what Tutti would choose on it, the tables of four ranks over shared memory
and over TCP, and a network trained by four ranks on real digits. The last line sums it up."""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
RANKS = 4


def say(text):
    print(f"\n== {text}", flush=True)


def run(*command, **environment):
    import os
    shown = [str(c) for c in command]
    done = subprocess.run(shown, env=dict(os.environ, **environment), check=False)
    if done.returncode != 0:
        sys.exit(f"demo: failed with exit code {done.returncode}: {' '.join(shown)}")


def table(collective, transport, folder):
    """One table of tutti-perf; its JSON rows."""
    say(f"{collective}, {RANKS} ranks over {transport}")
    result = folder / f"{collective}-{transport}.json"
    run(BUILD / "tools" / "tutti-run", "-n", RANKS, "--no-prefix", BUILD / "bench" / "perf" / "tutti-perf", collective,
        "-b", "8", "-e", "16M", "-f", "8", "-n", "20", "-w", "5", "--json", result, TUTTI_TRANSPORT=transport)
    return json.loads(result.read_text())["results"]


def main():
    tools = BUILD / "tools"
    say("this machine")
    run(tools / "tutti-topo")
    say("what Tutti would choose here")
    for size in ("8", "64K", "16M"):
        run(tools / "tutti-topo", "--explain", "all_reduce", size, "-n", RANKS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = {(c, t): table(c, t, folder) for t in ("shm", "tcp") for c in ("all_reduce", "broadcast")}
        say(f"training on real digits, {RANKS} ranks")
        trained = folder / "training.json"
        run(tools / "tutti-run", "-n", RANKS, "--no-prefix", BUILD / "examples" / "mlp" / "mlp", "--data",
            ROOT / "data" / "mnist-10k", "--epochs", "20", "--lr", "0.5", "--json", trained)
        accuracy = json.loads(trained.read_text())["test_accuracy"]

    def busbw(transport):
        return max(row["out_of_place"]["busbw_gbps"] for row in rows["all_reduce", transport])

    wrong = sum(row[place]["wrong"] for table_rows in rows.values() for row in table_rows
                for place in ("out_of_place", "in_place"))
    print(f"demo: test_accuracy={accuracy:.4f} allreduce_shm_busbw_gbps={busbw('shm'):.2f} "
          f"allreduce_tcp_busbw_gbps={busbw('tcp'):.2f} wrong={wrong}")
    sys.exit(0 if wrong == 0 else 1)


main()
