#!/usr/bin/env python3
"""The trainer as a user starts it: the same program under every launcher, and what it says where something is wrong.
Usage: launch_test.py MLP TUTTI_RUN FOLDER_OF_MNIST"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

MLP, RUN, DATA = map(os.path.abspath, sys.argv[1:4])
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "OMPI_", "PMI", "SLURM_", "TUTTI_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
CLEAN.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
RANKS = 3


def run(*command, **variables):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=100,
                          env=CLEAN | variables)


def torchrun(rank, port):
    return {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": RANKS, "GROUP_RANK": 0,
            "ROLE_RANK": rank, "ROLE_WORLD_SIZE": RANKS, "MASTER_ADDR": "localhost", "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def srun(rank):
    return {"SLURM_PROCID": rank, "SLURM_NTASKS": RANKS, "SLURM_LOCALID": rank, "SLURM_NNODES": 1,
            "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0}


class Launchers(unittest.TestCase):
    """One epoch on three ranks: whoever starts them, the weights come out the same, bit by bit."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkpoint = pathlib.Path(folder.name) / "weights"
        self.command = [MLP, "--data", DATA, "--epochs", "1", "--batch", "256", "--checkpoint", str(self.checkpoint)]

    def weights_of(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{RANKS} ranks", done.stdout)
        weights = self.checkpoint.read_bytes()
        self.checkpoint.unlink()
        return weights

    def same_weights(self, done):
        weights = self.weights_of(done)
        self.assertEqual(weights, self.weights_of(run(RUN, "-n", RANKS, *self.command)))

    def with_variables(self, variables_of_rank):
        """Starts the ranks by hand, as a launcher that only sets variables would."""
        ranks = [subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=CLEAN | {k: str(v) for k, v in variables_of_rank(rank).items()})
                 for rank in range(RANKS)]
        said = [rank.communicate(timeout=100) for rank in ranks]
        for rank, (out, err) in zip(ranks, said):
            self.assertEqual(rank.returncode, 0, out + err)
        self.assertEqual([out for out, _ in said[1:]], [""] * (RANKS - 1))
        return subprocess.CompletedProcess(self.command, 0, *said[0])

    def test_torchruns_variables(self):
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        self.same_weights(self.with_variables(lambda rank: torchrun(rank, port)))

    def test_torchrun_itself_listens_at_the_port_that_it_names(self):
        with socket.socket() as store:
            store.bind(("", 0))
            store.listen(16)  # takes connections and never answers
            self.same_weights(self.with_variables(lambda rank: torchrun(rank, store.getsockname()[1])))

    def test_sruns_variables(self):
        self.same_weights(self.with_variables(srun))

    def under_mpirun(self, launcher, *options):
        if shutil.which(launcher) is None:
            self.skipTest(f"no {launcher} here")
        self.same_weights(run(launcher, "-n", RANKS, *options, *self.command))

    def test_mpirun_of_open_mpi(self):
        self.under_mpirun("mpirun.openmpi", "--oversubscribe", "--bind-to", "none")

    def test_mpirun_of_mpich(self):
        self.under_mpirun("mpirun.mpich")

    def test_a_rank_whose_peers_never_come_is_told_so(self):
        done = run(*self.command, **{k: str(v) for k, v in srun(1).items()}, TUTTI_TIMEOUT_MS="500")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank 1", done.stderr)


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, ranks, *options):
        done = run(RUN, "-n", ranks, "--no-prefix", MLP, "--data", DATA, *options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_one_rank_learns_as_fast_as_pytorch(self):
        # PyTorch with the same batch, rate and epochs: 83.6 %.
        self.train(1, "--batch", 64, "--lr", "0.01", "--epochs", 5, "--json", self.folder / "json")
        results = json.loads((self.folder / "json").read_text())
        self.assertEqual(len(results["epochs"]), 5)
        self.assertGreater(results["test_accuracy"], 0.80)
        self.assertLess(results["test_accuracy"], 0.87)

    def test_on_devices_that_ranks_share_the_weights_are_those_of_the_host(self):
        """Strict determinism: wherever gradients lie, and however they are bundled, their means have the same bits."""
        here, there = self.folder / "here", self.folder / "there"
        options = ("-n", RANKS, "--no-prefix", MLP, "--data", DATA, "--epochs", 1, "--batch", 256)
        on_host = run(RUN, *options, "--checkpoint", here, TUTTI_DETERMINISM="strict")
        self.assertEqual(on_host.returncode, 0, on_host.stderr)
        for devices in ("simulated", "simulated:devices=2,peers=0,delay_us=20"):
            on_device = run(RUN, *options, "--device", "simulated", "--verify", "--checkpoint", there,
                            TUTTI_DETERMINISM="strict", TUTTI_DEVICE=devices)
            self.assertEqual(on_device.returncode, 0, on_device.stderr)
            self.assertEqual(here.read_bytes(), there.read_bytes(), devices)

    def test_devices_that_cannot_be_had_are_told_of(self):
        none = run(MLP, "--data", DATA, "--device", "cuda", TUTTI_DEVICE="none")
        self.assertEqual(none.returncode, 1)
        self.assertIn("--device cuda: TUTTI_DEVICE is none", none.stderr)
        other = run(MLP, "--data", DATA, "--device", "cuda", TUTTI_DEVICE="simulated")
        self.assertEqual(other.returncode, 1)
        self.assertIn("gives devices of simulated", other.stderr)
        self.assertEqual(run(MLP, "--device", "abacus").returncode, 2)
        both = run(MLP, "--data", DATA, "--device", "simulated", "--model-parallel")
        self.assertEqual(both.returncode, 1)
        self.assertIn("on the host only", both.stderr)

    def test_results_as_files(self):
        self.train(2, "--batch", 256, "--epochs", 2, "--json", self.folder / "json", "--plot", self.folder / "plot.svg")
        self.assertIn("test accuracy", (self.folder / "plot.svg").read_text())
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_going_on_from_a_checkpoint(self):
        unbroken, broken = self.folder / "unbroken", self.folder / "broken"
        self.train(2, "--batch", 256, "--epochs", 3, "--checkpoint", unbroken)
        self.train(2, "--batch", 256, "--epochs", 1, "--checkpoint", broken)
        self.train(2, "--batch", 256, "--epochs", 3, "--checkpoint", broken, "--resume", broken)
        self.assertEqual(unbroken.read_bytes(), broken.read_bytes())
        self.assertIn("nothing to train", self.train(2, "--epochs", 3, "--resume", broken).stderr)

    def test_one_layer_on_each_of_two_ranks(self):
        done = self.train(2, "--batch", 256, "--epochs", 2, "--lr", "0.05", "--model-parallel")
        alone = self.train(1, "--batch", 256, "--epochs", 2, "--lr", "0.05")
        of_epochs = lambda text: [line.split("  ")[1:3] for line in text.splitlines() if line.startswith("epoch")]
        self.assertEqual(of_epochs(done.stdout), of_epochs(alone.stdout))

    def test_a_full_disk_under_the_checkpoint(self):
        enter = ("unshare", "--user", "--map-root-user", "--mount")
        if run(*enter, "true").returncode != 0:
            self.skipTest("a small disk may not be mounted here (unshare --user --mount is refused)")
        disk, kept = self.folder / "disk", self.folder / "kept"
        disk.mkdir()
        trainer = f"{RUN} -n 2 {MLP} --data {DATA} --batch 256 --checkpoint c"
        done = run(*enter, "sh", "-c", f"""mount -t tmpfs -o size=1M none {disk} && cd {disk} &&
            {trainer} --epochs 1 && cp c {kept} && {trainer} --epochs 2 --resume c
            echo "exit code $?"; ls; cmp c {kept} && echo "as it was" """)
        self.assertIn("c.unfinished: cannot write: No space left on device", done.stderr)
        self.assertTrue(done.stdout.endswith("exit code 1\nc\nas it was\n"), done.stdout + done.stderr)

    def test_what_is_wrong_is_said_before_the_work(self):
        for options, sentence in [(["--data", DATA, "--json", "/no/such/x"], "/no/such/x: no file can be made in its folder"),
                                  (["--epochs", "0"], "--epochs: 0 is not above 0"),
                                  (["--data", "/no/such"], "/no/such/train-images-idx3-ubyte: no such file")]:
            done = run(MLP, *options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("mlp: " + sentence, done.stderr)
            self.assertNotIn("epoch ", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
