#!/usr/bin/env python3
"""The backend in Python, which serves machines without a compiler. Usage: fallback_test.py [unittest's arguments]"""
import os
import tempfile
import unittest
import unittest.mock

import ranks
import torch
import torch.distributed as dist

import tutti.torch
from tutti.torch import _compile


class Fallback(unittest.TestCase):
    def test_without_a_compiler_it_says_so_and_every_call_works(self):
        os.environ["CXX"] = "no-such-compiler"
        with self.assertRaisesRegex(_compile.NoCompiler, "CXX=no-such-compiler is no program"):
            _compile.compiler()
        del os.environ["CXX"]

        def body(rank, size):
            assert type(dist.group.WORLD).__name__ == "PythonProcessGroup", dist.group.WORLD
            for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
                tensor = torch.full((3, 2), rank + 1).to(dtype)
                dist.all_reduce(tensor)
                assert tensor[0, 0] == torch.tensor(size * (size + 1) / 2).to(dtype), tensor
            column = torch.full((4, 2), float(rank))[:, 0]
            dist.broadcast(column, 1)
            assert column.tolist() == [1.0] * 4
            tensor = torch.tensor([1.0 + rank])
            dist.reduce(tensor, 1, dist.ReduceOp.MAX)
            assert rank != 1 or tensor.item() == size
            blocks = [torch.zeros(2) for _ in range(size)]
            dist.all_gather(blocks, torch.full((2,), float(rank)))
            assert [b[0].item() for b in blocks] == list(range(size))
            dist.gather(torch.full((2,), 5.0 + rank), blocks if rank == 0 else None, 0)
            assert rank != 0 or [b[0].item() for b in blocks] == [5.0 + r for r in range(size)]
            dist.scatter(tensor, [torch.tensor([10.0 + r]) for r in range(size)] if rank == 0 else None, 0)
            assert tensor.item() == 10 + rank
            dist.reduce_scatter(tensor, [torch.tensor([float(r)]) for r in range(size)])
            assert tensor.item() == size * rank
            whole = torch.zeros(size)
            dist.all_gather_into_tensor(whole, torch.tensor([float(rank)]))
            assert whole.tolist() == list(range(size))
            dist.reduce_scatter_tensor(tensor, torch.ones(size))
            assert tensor.item() == size
            dist.all_to_all_single(whole, torch.arange(size) * 1.0 + 10 * rank)
            assert whole.tolist() == [10.0 * r + rank for r in range(size)]
            if rank == 0:
                dist.send(torch.arange(3.0), 1)
            elif rank == 1:
                three = torch.zeros(3)
                dist.recv(three, 0)
                assert three.tolist() == [0, 1, 2]
            works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(5)]
            assert all(w.get_future().wait()[0][0] == size for w in works)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
            model(torch.full((1, 3), float(rank))).sum().backward()
            assert torch.allclose(model.module.weight.grad, torch.full((2, 3), (size - 1) / 2))
            dist.barrier()
            try:
                dist.all_reduce(torch.ones(2 + rank))
                raise AssertionError("nothing was raised")
            except dist.DistBackendError as error:
                assert "while rank" in str(error), error
        tutti.torch._module.cache_clear()
        module, tutti.torch._compile.load = tutti.torch._compile.load, self.no_compiler
        try:
            for size in (2, 3):
                ranks.run(size, body)
        finally:
            tutti.torch._compile.load = module
            tutti.torch._module.cache_clear()

    def test_where_nothing_can_be_compiled_nothing_says_that_it_is(self):
        said = []
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder, "CXX": "no-such-compiler"}):
            with self.assertRaisesRegex(_compile.NoCompiler, "CXX=no-such-compiler is no program"):
                _compile.load(said.append)
        self.assertEqual(said, [])

    @staticmethod
    def no_compiler():
        raise _compile.NoCompiler("none of c++, g++ and clang++ is installed")


if __name__ == "__main__":
    unittest.main(verbosity=2)
