#!/usr/bin/env python3
"""The examples of PyTorch under its launchers: a restart after a death, every example with 2 and with 4 processes, by each way
to start it, and over two hosts. Usage: examples_test.py FOLDER [unittest's arguments]"""
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(*command, timeout=150, **more):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-5000:]}")
    return done.stdout


def torchrun(ranks, example, *arguments, before=()):
    return run("-m", "torch.distributed.run", "--nnodes", 1, "--nproc_per_node", ranks, "--master_addr", "127.0.0.1",
               "--master_port", free_port(), *before, FOLDER / example, *arguments)


def figure(pattern, text):
    found = re.findall(pattern, text)
    if not found:
        raise AssertionError(f"{pattern} is not in:\n{text}")
    return float(found[-1])


class Examples(unittest.TestCase):
    def check_primitives(self, text, size):
        words = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.split()}
        self.assertEqual(words["all_reduce"], [f"{size * (size + 1) / 2}"] * size)
        self.assertEqual(words["scatter"], [f"{10.0 * r}" for r in range(size)])
        self.assertEqual(words["reduce_scatter"], [f"{float(size * r)}" for r in range(size)])
        self.assertIn("passed by all", text)

    def test_data_parallel_learns_and_goes_on_after_a_death(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint, plot = pathlib.Path(folder, "digits.pt"), pathlib.Path(folder, "plot.svg")
            text = torchrun(2, "ddp_mnist.py", "--epochs", 3, "--lr", 0.1, "--die", 1, "--checkpoint", checkpoint, "--plot",
                            plot, "--shared-memory", before=("--max-restarts", 2))
            self.assertIn("goes on after epoch 1", text)
            self.assertGreater(figure(r"epoch 3: .*accuracy ([\d.]+)", text), 0.85)
            self.assertIn("polyline", plot.read_text())

    def test_by_hand(self):
        text = torchrun(4, "by_hand.py", "--epochs", 1)
        self.assertIn("the mean over 4 ranks is 14.0", text)
        self.assertIn("weights are equal on all ranks: True", text)
        self.assertGreater(figure(r"accuracy ([\d.]+)", text), 0.5)

    def test_every_example_with_two_and_four_ranks(self):
        for size in (2, 4):
            with self.subTest(ranks=size):
                self.check_primitives(torchrun(size, "primitives.py"), size)
                self.assertGreater(figure(r"accuracy ([\d.]+)", torchrun(size, "ddp_mnist.py", "--epochs", 1, "--lr", 0.1)), 0.6)
                self.assertIn(f"the mean over {size} ranks is", torchrun(size, "by_hand.py", "--epochs", 1))
                text = torchrun(size, "two_kinds.py")
                self.assertLess(figure(r"difference between the two: (\S+)", text), 1e-4)
                self.assertLess(figure(r"data parallel:  loss \S+ to (\S+)", text), 0.8)
                text = torchrun(size, "pipeline.py")
                self.assertGreater(figure(r"accuracy ([\d.]+)", text), 0.5)
                if size == 2:
                    self.assertLess(figure(r"layer each: loss \S+ to (\S+)", text), 1.5)

    def test_by_the_older_launcher_and_by_an_address(self):
        text = run("-W", "ignore", "-m", "torch.distributed.launch", "--use_env", "--nproc_per_node", 2, "--master_port",
                   free_port(), FOLDER / "primitives.py")
        self.check_primitives(text, 2)
        where = f"tcp://127.0.0.1:{free_port()}"
        children = [subprocess.Popen([sys.executable, FOLDER / "primitives.py", "--init", where, "--rank", str(rank),
                                      "--world-size", "2"], stdout=subprocess.PIPE, text=True) for rank in range(2)]
        texts = [child.communicate(timeout=100)[0] for child in children]
        self.check_primitives(texts[0], 2)

    def test_over_two_hosts(self):
        import namespaces
        if (reason := namespaces.why_not()) is not None:
            self.skipTest(reason)
        with namespaces.Hosts(2) as hosts, tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            for example, ranks_each, arguments, wanted in (
                    ("primitives.py", 2, ("--folder", "."), "network that was saved"),
                    ("by_hand.py", 2, ("--epochs", "1"), "on all ranks: True"),
                    ("two_kinds.py", 2, (), "difference"), ("pipeline.py", 1, (), "a layer each: loss"),
                    ("ddp_mnist.py", 2, ("--epochs", "1", "--checkpoint", "digits.pt"), "accuracy"),
                    ("ddp_mnist.py", 2, ("--epochs", "2", "--checkpoint", "digits.pt"), "goes on after epoch 1")):
                port = free_port()
                started = [hosts.start(node, [
                    sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node_rank", str(node),
                    "--nproc_per_node", str(ranks_each), "--master_addr", hosts.address(0), "--master_port", str(port),
                    str(FOLDER / example), *arguments], stdout=subprocess.PIPE, text=True, cwd=(one, other)[node])
                           for node in range(2)]  # each host with a disk of its own
                texts = [process.communicate(timeout=150)[0] for process in started]
                self.assertEqual([process.returncode for process in started], [0, 0], texts)
                self.assertIn(wanted, texts[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
