#!/usr/bin/env python3
"""Programs that know nothing of libtutti_malloc.so run with it preloaded, and do what they do without it."""
import os
import subprocess
import sys
import tempfile

library, tutti_run, lent_ranks, source = sys.argv[1:5]


def run(*command, preload, **options):
    environment = dict(os.environ, PYTHONHASHSEED="0", TUTTI_MALLOC_THRESHOLD=options.pop("threshold", "256K"))
    environment.pop("LD_PRELOAD", None)
    if preload:
        environment["LD_PRELOAD"] = library
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120, **options)
    assert done.returncode == 0, (command, done.returncode, done.stderr[-2000:])
    return done.stdout, done.stderr


def same(what, *command, **options):
    without = run(*command, preload=False, **options)
    assert run(*command, preload=True, **options) == without, f"{what}: another output with the heap"
    assert without[0], what
    print(f"{what}: the same output with the heap as without")


# Blocks that grow, shrink, are zeroed and thrown away, a fork in the middle, threads, and a child by vfork.
python_program = """
import hashlib, os, random, subprocess, threading, zlib
random.seed(3)
text = bytearray()
for i in range(200000):
    text += b"%d," % random.randrange(10**9)
packed = zlib.compress(bytes(text))
lists = sorted(list(range(700000)), key=lambda i: hash(str(i % 1000)))
print(len(text), hashlib.sha256(packed).hexdigest(), hashlib.sha256(repr(lists[:5000]).encode()).hexdigest())
shared = bytearray(b"x" * 5_000_000)
pid = os.fork()
if pid == 0:
    shared[:] = b"y" * len(shared)
    os._exit(0 if len(zlib.decompress(packed)) == len(text) else 1)
shared[10] = 33
assert os.waitpid(pid, 0)[1] == 0
assert bytes(shared) == b"x" * 10 + b"!" + b"x" * (len(shared) - 11), "the child's writing shows"
print(subprocess.run(["echo", "from a child"], capture_output=True).stdout)
results = [None] * 4
def work(i):
    results[i] = hashlib.sha256(bytes(bytearray(b"z" * (3_000_000 + i)))).hexdigest()
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(results)
"""


def check_lending():
    for preload, wanted in ((False, b"files 0"), (True, b"files 2")):
        out, _ = run(tutti_run, "-n", "2", lent_ranks, preload=preload)
        assert out.count(wanted) == 2, out
    print("two ranks read each other's malloc'd buffers in place with the heap, and not without")
    out, _ = run(tutti_run, "-n", "2", lent_ranks, preload=True, threshold="1G")
    assert out.count(b"files 0") == 2, out
    print("TUTTI_MALLOC_THRESHOLD says which blocks")


def check_threshold():
    for wrong in ("many", "5", "-1"):
        out, err = run("true", preload=True, threshold=wrong)
        assert b"TUTTI_MALLOC_THRESHOLD" in err and err.count(b"\n") == 1, err
    print("a threshold that is none is named")


with tempfile.TemporaryDirectory() as folder:
    numbers = os.path.join(folder, "numbers")
    with open(numbers, "w") as file:
        file.writelines(f"{i * 7919 % 1000003} {i}\n" for i in range(300000))
    same("python3", sys.executable, "-c", python_program)
    same("sort", "sort", "-n", "-S", "32M", "--parallel=2", numbers)
    same("sort, where address space is limited", "sh", "-c", 'ulimit -v 400000; exec sort -n "$0"', numbers)
    same("gzip", "sh", "-c", 'gzip -9n <"$0" | sha256sum', numbers)
    same("the compiler", "cc", "-O1", "-E", "-I", os.path.join(source, "include"), os.path.join(
        source, "tests", "heap", "lent_ranks.c"))
    check_lending()
    check_threshold()
