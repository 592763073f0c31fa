#!/usr/bin/env python3
"""Wrong use of the backend and of the package: every rank gets an exception that says what is wrong; nothing crashes, nothing
hangs. Usage: misuse_test.py [unittest's arguments]"""
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import ranks
import torch
import torch._dynamo  # which DistributedDataParallel would import in each rank
import torch.distributed as dist

import tutti
import tutti.torch
from tutti.torch import _compile


def differently(rank):
    """Calls that do not fit together: name, this rank's call on a group, a pattern of what both ranks must be told."""
    three, other = torch.ones(3), torch.ones(3 + rank)
    lists = [torch.zeros(3 + rank), torch.zeros(3 + rank)]
    mine = lists if rank == 0 else None
    split = [1, 2]  # rank 0 sends two elements to rank 1, who waits for one
    # (Where both ranks only send, each meets the other's message in the barrier that follows: which is told first varies.)
    return [
        ("roots of broadcast", lambda g: dist.broadcast(three, group_src=rank, group=g),
         "broadcast.* while .*(root 1|barrier)|barrier.* while .*broadcast"),
        ("counts of broadcast", lambda g: dist.broadcast(other, group_src=0, group=g), "count 3.* while .*count 4"),
        ("types", lambda g: dist.all_reduce(three.to((torch.float32, torch.float64)[rank]), group=g),
         "float32.* while .*float64"),
        ("operators", lambda g: dist.all_reduce(three, (dist.ReduceOp.SUM, dist.ReduceOp.AVG)[rank], g), "sum.* while .*avg"),
        ("blocks of all_gather", lambda g: dist.all_gather(lists, other, group=g), "count 3.* while .*count 4"),
        ("blocks of all_gather_into_tensor", lambda g: dist.all_gather_into_tensor(torch.zeros(6 + 2 * rank), other, group=g),
         "count 3.* while .*count 4"),
        ("blocks of reduce_scatter", lambda g: dist.reduce_scatter(other, lists, group=g), "count 3.* while .*count 4"),
        ("what gather's root waits for", lambda g: dist.gather(other, mine, group_dst=0, group=g), "rank 0.*rank 1"),
        ("what scatter's root sends", lambda g: dist.scatter(other, mine, group_src=0, group=g), "rank 0.*rank 1"),
        # Both wait for the other's block, and nobody sends.
        ("roots of gather", lambda g: dist.gather(three, [torch.zeros(3), torch.zeros(3)], group_dst=rank, group=g),
         "gather.*root 0.* while .*gather.*root 1"),
        ("splits of all_to_all", lambda g: dist.all_to_all_single(three.clone(), torch.ones(3), split, split, group=g),
         "rank 0.*rank 1"),
        ("kinds", lambda g: dist.reduce(three, group_dst=0, group=g) if rank else dist.all_reduce(three, group=g),
         "all_reduce.* while .*(reduce|barrier)"),
        ("a barrier", lambda g: dist.barrier(g) if rank else dist.all_reduce(three, group=g), "all_reduce.* while .*barrier"),
        ("the order of calls under way", lambda g: in_order(rank, three, g), "all_reduce.* while .*broadcast"),
        ("networks of DistributedDataParallel",
         lambda g: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3 + rank, 2), process_group=g),
         "not to match sizes|waited 3000 ms .*rank 1"),
    ]


def in_order(rank, tensor, group):
    calls = [lambda: dist.all_reduce(tensor, group=group, async_op=True),
             lambda: dist.broadcast(tensor, group_src=0, group=group, async_op=True)]
    for work in [call() for call in (reversed(calls) if rank else calls)]:
        work.wait()


class Mistakes(unittest.TestCase):
    def test_calls_that_do_not_fit_together_are_told_to_both_ranks_and_other_groups_go_on(self):
        def body(rank, size):
            told = []
            for name, call, pattern in differently(rank):
                group = dist.new_group(timeout=datetime.timedelta(seconds=3))
                began = time.monotonic()
                try:
                    call(group)  # who only sends a little is done before anybody sees that it was wrong
                    dist.barrier(group)
                    told.append((name, pattern, "nothing was raised"))
                except RuntimeError as error:  # DistBackendError is one
                    told.append((name, pattern, str(error)))
                assert time.monotonic() - began < 10, f"{name}: {time.monotonic() - began} s"
                tensor = torch.ones(1)
                dist.all_reduce(tensor)
                assert tensor.item() == size
            return told
        for rank, told in enumerate(ranks.run(2, body)):
            for name, pattern, sentence in told:
                with self.subTest(differ=name, rank=rank):
                    self.assertRegex(sentence, pattern)

    def test_a_rank_that_does_not_take_part_in_a_new_group_is_named(self):
        def body(rank, _):
            told = None
            if rank != 2:
                told = "nothing was raised"
                try:
                    dist.new_group(timeout=datetime.timedelta(seconds=1))
                except dist.DistBackendError as error:
                    told = str(error)
            dist.barrier()  # the world goes on; and until both are told, the process where they met lives
            return told
        told = ranks.run(3, body)
        for rank in (0, 1):
            self.assertRegex(told[rank], r"ranks? (\S+ )*2\b")

    def test_after_the_end_every_call_says_so(self):
        def body(rank, _):
            group = dist.group.WORLD
            backend = group._get_backend(torch.device("cpu"))
            other = dist.new_group()
            pending = dist.all_reduce(torch.ones(3), async_op=True)
            dist.destroy_process_group()
            assert pending.wait() or pending.is_completed()
            told = []
            for call in (lambda: backend.allreduce([torch.ones(1)], dist.AllreduceOptions()).wait(),
                         lambda: backend.barrier(dist.BarrierOptions()).wait(),
                         lambda: backend.send([torch.ones(1)], 1 - rank, 0).wait(),
                         lambda: backend.recv([torch.ones(1)], 1 - rank, 0).wait(),
                         lambda: tutti.torch.transport(0, group),
                         lambda: tutti.torch.algorithm("all_reduce", 8, group),
                         lambda: dist.all_reduce(torch.ones(1), group=other),
                         lambda: dist.all_reduce(torch.ones(1))):
                try:
                    call()
                    told.append("nothing was raised")
                except (ValueError, RuntimeError) as error:
                    told.append(str(error))
            return told
        for told in ranks.run(2, body):
            for sentence in told[:6]:
                self.assertIn("has been shut down", sentence)
            for sentence in told[6:]:  # PyTorch's own words
                self.assertRegex(sentence, "(?i)process group|shut down")

    def test_a_call_on_several_threads_at_once_is_no_crash(self):
        def body(_rank, size):
            import threading
            groups = [dist.new_group() for _ in range(4)]
            tensors = [torch.ones(1000) for _ in groups]

            def work(group, tensor):
                for _ in range(50):
                    dist.all_reduce(tensor, dist.ReduceOp.MAX, group)
            threads = [threading.Thread(target=work, args=pair) for pair in zip(groups, tensors)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return all(tensor.sum() == 1000 for tensor in tensors) and size
        self.assertEqual(ranks.run(2, body), [2, 2])


class Installations(unittest.TestCase):
    def python(self, program, folder):
        return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(folder), "LD_LIBRARY_PATH": ""})

    def package_in(self, folder):
        package = pathlib.Path(folder, "tutti")
        shutil.copytree(pathlib.Path(tutti.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        return package

    def test_a_package_without_its_library_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            [core] = self.package_in(folder).glob("_core*.so")
            subprocess.run(["patchelf", "--remove-rpath", core], check=True)
            done = self.python("import tutti", folder)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, r"ImportError: libtutti or the bindings .*libtutti\.so.*reinstall")

    def test_a_library_of_another_version_is_refused_by_both_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "other.c")
            symbols = subprocess.run(["nm", "-D", "--defined-only", "--format=just-symbols", tutti.library()], check=True,
                                     capture_output=True, text=True).stdout
            names = set(re.findall(r"^tutti\w+", symbols, re.M)) - {"tuttiGetVersion"}
            source.write_text("".join(f"int {name}(void) {{ return 3; }}\n" for name in names) +
                              "int tuttiGetVersion(int* version) { *version = 990000; return 0; }\n")
            versions = pathlib.Path(folder, "versions")
            versions.write_text("TUTTI_0 { global: tutti*; local: *; };\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-w", source, "-o", pathlib.Path(folder, "libtutti.so.0"),
                            "-Wl,-soname,libtutti.so.0", f"-Wl,--version-script={versions}"], check=True)
            [core] = self.package_in(folder).glob("_core*.so")
            subprocess.run(["patchelf", "--set-rpath", folder, core], check=True)
            done = self.python("import tutti", folder)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, rf"compiled for version {tutti.HEADER_VERSION} of libtutti, but .* is version 990000")

    def test_a_backend_for_another_pytorch_is_refused_before_it_is_used(self):
        tutti.torch._module()
        fingerprint, version = _compile.fingerprint(), torch.__version__
        try:
            torch.__version__, _compile.fingerprint = "2.99.0", lambda: fingerprint
            with self.assertRaisesRegex(ImportError, rf"compiled for PyTorch {version.split('+')[0]}, but 2\.99\.0 is imported"):
                _compile.load()
        finally:
            torch.__version__ = version
            import importlib
            importlib.reload(_compile)

    def test_a_backend_that_was_cut_off_is_made_anew(self):
        """A disk that was full, a file that a copy broke."""
        folder, before = tempfile.mkdtemp(), os.environ.get("XDG_CACHE_HOME")
        target = _compile.cache_folder() / f"tutti_torch_{_compile.fingerprint()}.so"
        whole = target.read_bytes()
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            broken = _compile.cache_folder() / target.name
            broken.parent.mkdir(parents=True)
            broken.write_bytes(whole[:1000])
            said = []
            real, _compile.compile_to = _compile.compile_to, lambda to, say: to.write_bytes(whole)
            self.assertEqual(_compile.load(said.append).TORCH_VERSION, torch.__version__.split("+")[0])
            self.assertRegex(said[0], f"{broken} cannot be loaded .*: it is made anew")
        finally:
            _compile.compile_to = real
            os.environ["XDG_CACHE_HOME"] = before or ""
            shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
