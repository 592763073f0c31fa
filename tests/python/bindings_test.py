#!/usr/bin/env python3
"""The Python package: every method on arrays of numpy, zero copy, lifetimes, errors. Ranks are threads of this process,
which also shows that calls run without Python's lock. Usage: bindings_test.py [unittest's arguments]"""
import ast
import os
import pathlib
import re
import subprocess
import sys
import threading
import unittest

import numpy as np

import tutti

DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32,
          np.float64, np.complex64, np.complex128, np.bool_]


def run(size, body):
    """body(communicator) of each rank on a thread; their results."""
    results, errors = [None] * size, []

    def be(rank, comm):
        try:
            results[rank] = body(comm)
            comm.close()
        except BaseException as error:  # the others shall not wait
            errors.append((rank, error))
            if not comm.closed:
                comm.abort()
    threads = [threading.Thread(target=be, args=pair) for pair in enumerate(tutti.Communicator.all(size))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0][1]
    return results


class Collectives(unittest.TestCase):
    def test_every_collective_on_every_type(self):
        def body(comm):
            rank, size = comm.rank, comm.size
            for dtype in DTYPES:
                one = np.ones(5, dtype)
                total = np.ones(5, dtype) if dtype == np.bool_ else one * size
                out = np.zeros(5, dtype)
                comm.all_reduce(one, out)
                np.testing.assert_array_equal(out, total)
                mine = np.array([rank, rank + 1]).astype(dtype)
                everything = np.array([[r, r + 1] for r in range(size)]).astype(dtype)
                got = np.zeros((size, 2), dtype)
                comm.all_gather(mine, got)
                np.testing.assert_array_equal(got, everything)
                got[:] = 0
                comm.gather(mine, got if rank == 1 else None, 1)
                if rank == 1:
                    np.testing.assert_array_equal(got, everything)
                back = np.zeros(2, dtype)
                comm.scatter(everything if rank == 0 else None, back)
                np.testing.assert_array_equal(back, mine)
                comm.reduce_scatter(np.stack([one[:2]] * size), back)
                np.testing.assert_array_equal(back, total[:2])
                comm.all_to_all(np.stack([mine] * size), got)
                np.testing.assert_array_equal(got, everything)
                comm.broadcast(back, 1)
                comm.reduce(one, out if rank == 0 else None, root=0)
                comm.barrier()
        for size in (2, 3):
            run(size, body)

    def test_scans_v_forms_point_to_point_and_groups(self):
        def body(comm):
            rank, size = comm.rank, comm.size
            out = np.full(2, -1.0)
            comm.scan(np.full(2, rank + 1.0), out)
            self.assertEqual(out[0], (rank + 1) * (rank + 2) / 2)
            comm.exscan(np.full(2, rank + 1.0), out)
            self.assertEqual(out[0], rank * (rank + 1) / 2 if rank else 1)
            counts = [r + 1 for r in range(size)]
            out = np.zeros(sum(counts))
            comm.all_gather_v(np.full(rank + 1, float(rank)), out, counts)
            np.testing.assert_array_equal(out, np.repeat(np.arange(size), counts))
            mine = np.zeros(rank + 1)
            comm.scatter_v(out if rank == 0 else None, counts if rank == 0 else None, mine)
            np.testing.assert_array_equal(mine, rank)
            comm.gather_v(mine, out if rank == 0 else None, counts if rank == 0 else None)
            comm.reduce_scatter_v(np.arange(sum(counts)) * 1.0, counts, mine)
            self.assertEqual(mine[0], size * rank * (rank + 1) / 2)
            got = np.zeros(size * (rank + 1))
            comm.all_to_all_v(np.full(sum(counts), float(rank)), counts, got, [rank + 1] * size)
            np.testing.assert_array_equal(got, np.repeat(np.arange(size), rank + 1))
            right, left = (rank + 1) % size, (rank - 1) % size
            with tutti.group():
                comm.send(np.full(100000, float(rank)), right)
                got = np.zeros(100000)
                comm.recv(got, left)
            self.assertEqual(got[-1], left)
            comm.send_recv(np.array([rank]), right, one := np.zeros(1, int), left)
            self.assertEqual(one[0], left)
        run(3, body)

    def test_operators_types_and_options(self):
        def body(comm):
            pairs = np.array([(3.0 - comm.rank, comm.rank)], [("value", "f4"), ("index", "i4")])
            comm.all_reduce(pairs.view(np.uint8), op=tutti.MINLOC, datatype=tutti.Type.FLOAT32_INT32)
            self.assertEqual(tuple(pairs[0]), (4.0 - comm.size, comm.size - 1))

            def largest(left, right):
                np.maximum(left.view(np.float32), right.view(np.float32), out=right.view(np.float32))
            operator = tutti.Operator(comm, largest, tutti.Type.FLOAT32)
            data = np.full(9, comm.rank, np.float32)
            comm.all_reduce(data, op=operator.op)
            self.assertEqual(data.tolist(), [comm.size - 1.0] * 9)
            half = tutti.Operator.premultiplied_sum(comm, np.array([0.5]))
            data = np.ones(3)
            comm.all_reduce(data, op=half.op)
            self.assertEqual(data[0], comm.size / 2)
            exact = tutti.Options(determinism=tutti.Determinism.INVARIANT, inputs=2)
            out = np.zeros(2)
            comm.all_reduce(np.array([1e300, 1.0, -1e300, 1.0]), out, options=exact)
            self.assertEqual(out.tolist(), [0.0, 2.0 * comm.size])
        run(3, body)

    def test_streams_prepared_calls_and_windows(self):
        def body(comm):
            with tutti.Stream() as stream:
                arrays = [np.full(1000, float(comm.rank)) for _ in range(5)]
                for array in arrays:
                    comm.all_reduce(array, stream=stream)
                comm.all_reduce(np.ones(10), stream=stream)  # nothing else holds this array
                stream.synchronize()
                self.assertTrue(stream.idle())
            self.assertTrue(all(a[0] == 1 for a in arrays))
            data, prepared = np.ones(4), tutti.Prepared()
            with prepared:
                comm.all_reduce(data)
            prepared.start()
            prepared.start()
            self.assertEqual(data[0], 4)
            memory = tutti.empty(4, np.float64)
            with tutti.Window(comm, memory) as window:
                window.put(np.array([comm.rank + 1.0]), 1 - comm.rank, 8)
                window.signal(1 - comm.rank)
                window.wait_signal(1 - comm.rank)
                self.assertEqual(memory[1], 2 - comm.rank)
                window.get(got := np.zeros(1), 1 - comm.rank, 8)
                self.assertEqual(got[0], comm.rank + 1)
        run(2, body)

    def test_communicators_from_communicators(self):
        def body(comm):
            half = comm.split(comm.rank % 2, -comm.rank)
            self.assertEqual((half.size, half.rank), (2 if comm.rank % 2 == 0 else 1, 0 if comm.rank else half.size - 1))
            twin = comm.duplicate(tutti.Config(timeout_ms=5000))
            self.assertEqual(twin.transport(comm.rank), "self")
            self.assertTrue(twin.algorithm("all_reduce", 8))
            half.close()
            twin.close()
            if comm.rank != 1:
                rest = comm.shrink([1])
                self.assertEqual(rest.size, 2)
                rest.close()
        run(3, body)

    def test_those_who_live_go_on_and_are_replaced(self):
        def body(comm):
            with self.assertRaisesRegex(tutti.InvalidUsage, "no rank gives the id"):
                comm.replace()
            if comm.rank != 1:
                living = comm.shrink_to_living()
                self.assertEqual(living.size, 2)
                living.close()
        run(3, body)


class Errors(unittest.TestCase):
    def test_they_say_which_argument_and_the_rank_goes_on(self):
        def body(comm):
            for call, kind, text in (
                    (lambda: comm.all_reduce(np.zeros((3, 3))[:, 0]), tutti.InvalidArgument, "send is not contiguous"),
                    (lambda: comm.all_reduce(np.zeros(3), np.zeros(4)), tutti.InvalidArgument, "3 elements in place of 4"),
                    (lambda: comm.all_reduce(np.zeros(3), np.zeros(3, int)), tutti.InvalidArgument, "of type 8, recv of type 4"),
                    (lambda: comm.broadcast(np.zeros(3), 7), tutti.InvalidArgument, "root is 7"),
                    (lambda: comm.all_reduce(np.zeros(3), op=99), tutti.InvalidArgument, "op is 99"),
                    (lambda: comm.send(np.zeros(3), comm.rank), tutti.InvalidArgument, "peer"),
                    (lambda: comm.all_gather_v(np.zeros(1), np.zeros(2), [1]), tutti.InvalidArgument, "1 counts"),
                    (lambda: tutti.Communicator.join(2, b"short", 0), tutti.InvalidArgument, "5 bytes in place of 128"),
                    (lambda: comm.all_reduce(np.zeros(3, "M8[s]")), (TypeError, tutti.Error, BufferError, ValueError), "")):
                with self.assertRaisesRegex(kind, text):
                    call()
            read_only = np.zeros(3)
            read_only.setflags(write=False)
            for name, call in (("data", lambda: comm.broadcast(read_only, 0)), ("send", lambda: comm.all_reduce(read_only)),
                               ("recv", lambda: comm.all_reduce(np.zeros(3), read_only)),
                               ("data", lambda: comm.recv(b"bytes", 1 - comm.rank))):
                with self.assertRaisesRegex(tutti.InvalidArgument, f"{name} is read-only"):
                    call()
            data = np.ones(1)
            comm.all_reduce(data)
            self.assertEqual(data[0], comm.size)
        run(2, body)

    def test_ranks_that_disagree_raise_on_both_sides(self):
        def body(comm):
            with self.assertRaisesRegex(tutti.Mismatch, r"count 2, .*while .*count 3, "):
                comm.all_reduce(np.zeros(2 + comm.rank))
            self.assertNotEqual(comm.state(), 0)
            self.assertIn("while", comm.last_error())
        run(2, body)

    def test_after_the_end_and_after_an_exception(self):
        def body(comm):
            with self.assertRaises(ZeroDivisionError), tutti.group():
                comm.all_reduce(np.zeros(2))
                raise ZeroDivisionError
            comm.barrier()  # what the group held was dropped
            comm.close()
            with self.assertRaisesRegex(tutti.InvalidUsage, "closed"):
                comm.barrier()
        run(2, body)

    def test_a_child_of_tutti_run_style_environment_joins(self):
        code = ("import numpy as np, tutti\n"
                "with tutti.Communicator.from_environment() as c:\n"
                "    a = np.full(3, c.rank + 1.0); c.all_reduce(a); print(a[0])")
        base = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29417", "TUTTI_JOB_KEY": "k"}
        children = [subprocess.Popen([sys.executable, "-c", code], env={**base, "RANK": str(r), "LOCAL_RANK": str(r)},
                                     stdout=subprocess.PIPE, text=True) for r in range(2)]
        self.assertEqual([c.communicate(timeout=30)[0].strip() for c in children], ["3.0", "3.0"])

    def test_a_program_that_ends_by_an_exception_says_that_exception_alone(self):
        # As a group of PyTorch that nobody has destroyed, C code holds the communicator to the end.
        code = ("import ctypes, tutti\n[kept] = tutti.Communicator.all(1)\n"
                "ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))\nraise KeyError('mine')")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.endswith("KeyError: 'mine'\n"), done.stderr)


class Memory(unittest.TestCase):
    def test_arrays_live_as_long_as_their_views_and_no_longer(self):
        view = tutti.empty((3, 4), np.int16)[1:]
        self.assertEqual(view.shape, (2, 4))
        view[:] = 7
        self.assertEqual(view.sum(), 56)
        self.assertEqual(tutti.allocate(0).size, 0)
        with self.assertRaises(tutti.Error):
            tutti.allocate(1 << 60)

    def test_nothing_is_copied(self):
        def body(comm):
            data = tutti.empty(1 << 20, np.float32)
            data[:] = 1
            place = data.ctypes.data
            comm.all_reduce(data)
            self.assertEqual((data.ctypes.data, data[-1]), (place, comm.size))
        run(2, body)


    def test_registered_memory_stays_until_the_registration_ends(self):
        def body(comm):
            memory = tutti.empty(1 << 16, np.float32)
            memory[:] = 1
            with tutti.Registration(comm, memory) as registration:
                del memory  # the registration holds it
            registration.close()  # once more does not hurt
            kept = tutti.Registration(comm, np.ones(3))
            with self.assertRaisesRegex(tutti.InvalidArgument, "size"):
                tutti.Registration(comm, np.ones(0))
            with self.assertRaises(TypeError):
                tutti.Registration(np.ones(3), np.ones(3))
            comm.close()
            del kept  # after its communicator
        run(1, lambda comm: body(comm.duplicate()))


class Devices(unittest.TestCase):
    def test_ranks_of_one_process_name_their_devices(self):
        code = ("import tutti\nprint([c.device for c in tutti.Communicator.all(2, [1, -1])])\n"
                "try: tutti.Communicator.all(2, [1])\nexcept tutti.InvalidArgument as error: print(error)")
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TUTTI_DEVICE": "simulated:devices=2"}, text=True,
                              capture_output=True, check=True)
        self.assertEqual(done.stdout.splitlines(), ["[1, -1]", "devices has 1 numbers for 2 ranks"])

    def test_a_rank_names_its_device_and_hears_where_there_is_none(self):
        code = ("import numpy as np, tutti\n"
                "for device in (None, 1, 7):\n"
                "    try:\n"
                "        with tutti.Communicator.join(1, tutti.unique_id(), 0, tutti.Config(device=device)) as comm:\n"
                "            comm.all_reduce(np.ones(3)); print(comm.device)\n"
                "    except tutti.Error as error: print(type(error).__name__, error)")

        def said(devices):
            return subprocess.run([sys.executable, "-c", code], env={**os.environ, "TUTTI_DEVICE": devices}, text=True,
                                  capture_output=True, check=True).stdout.splitlines()
        with_two, with_none = said("simulated:devices=2"), said("none")
        self.assertEqual(with_two[:2] + with_none[:1], ["-1", "1", "-1"])
        self.assertRegex(with_two[2], "InvalidArgument .*device is 7, outside 0 to 1")
        self.assertRegex(with_none[1], "Unsupported .*device is 1, but this process has none")


class Whole(unittest.TestCase):
    def test_every_function_of_the_c_interface_is_bound(self):
        [core] = pathlib.Path(tutti.__file__).parent.glob("_core*.so")

        header = (pathlib.Path(__file__).resolve().parents[2] / "include" / "tutti" / "tutti.h").read_text(encoding="utf-8")
        there = set(re.findall(r"^TUTTI_API [\w ]+?\**(tutti\w+)\(", header, re.M))
        used = subprocess.run(["nm", "-D", "--undefined-only", "--format=just-symbols", core], capture_output=True, text=True,
                              check=True).stdout
        bound = {line.partition("@")[0] for line in used.splitlines()}
        self.assertGreater(len(there), 60)
        missing = {name for name in there - bound if not {name + "With", name + "Config"} & bound}
        self.assertEqual(missing, set())


class Types(unittest.TestCase):
    def test_stubs_name_all_that_there_is_with_its_types(self):
        core = sys.modules["tutti._core"]
        stub = ast.parse(pathlib.Path(tutti.__file__).with_name("_core.pyi").read_text(encoding="utf-8"))

        def declared(body):
            functions = (ast.FunctionDef, ast.ClassDef)
            named = [n.name for n in body if isinstance(n, functions)]
            named += [n.target.id for n in body if isinstance(n, ast.AnnAssign)]
            return {name for name in named if not name.startswith("_")}

        def there(thing):
            return {name for name in vars(thing) if not name.startswith("_")}
        self.assertEqual(declared(stub.body), there(core))
        for kind in (node for node in stub.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")):
            self.assertEqual(declared(kind.body), there(getattr(core, kind.name)), kind.name)
        for function in (node for node in ast.walk(stub) if isinstance(node, ast.FunctionDef)):
            self.assertIsNotNone(function.returns, function.name)
            arguments = [*function.args.args, *function.args.kwonlyargs]
            untyped = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "arg")]
            self.assertEqual(untyped, [], function.name)

    def test_every_result_has_an_exception(self):
        kinds = {kind.result: kind for kind in tutti.errors.BY_RESULT.values()}
        self.assertEqual(kinds, tutti.errors.BY_RESULT)
        for result, kind in kinds.items():
            self.assertIs(getattr(tutti, kind.__name__), kind)
            self.assertTrue(issubclass(kind, tutti.Error) and tutti.error_string(result), kind)


if __name__ == "__main__":
    unittest.main(verbosity=2)
