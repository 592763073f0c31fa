#!/usr/bin/env python3
"""Installs into a folder, then builds and runs a C99 program (shared and static, by pkg-config), README's examples and a
CMake project against that tree alone, and looks at the exported symbols and the SONAME."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

build, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
here = source / "tests" / "install"
os.environ.pop("LD_LIBRARY_PATH", None)  # meson's, which leads to the build tree


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(root):
    run("meson", "install", "-C", build, "--destdir", root, "--no-rebuild")
    library = next(root.rglob("libtutti.so"))
    prefix = next(p for p in library.parents if (p / "include" / "tutti").is_dir())
    environment = dict(os.environ, PKG_CONFIG_PATH=str(library.parent / "pkgconfig"),
                       LD_LIBRARY_PATH=str(library.parent))

    def flags(*wanted):
        variable = f"--define-variable=prefix={prefix}"
        return run("pkg-config", variable, *wanted, "tutti", env=environment).split()

    user = root / "user"
    compile_c = ("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", here / "user.c", "-o", user)
    run(*compile_c, *flags("--cflags", "--libs"))
    assert "works" in run(user, env=environment)
    print("a C99 program runs against the shared library")

    libs = [library.parent / "libtutti.a" if f == "-ltutti" else f for f in flags("--static", "--libs")]
    run(*compile_c, *flags("--cflags"), *libs, "-lpthread", "-lm")
    assert "works" in run(user)
    print("a C99 program runs against the static library")

    for language, compiler in (("c", ("cc", "-std=c99")), ("cpp", ("c++", "-std=c++20"))):
        example = root / f"example.{language}"
        example.write_text(re.search(rf"^```{language}\n(.*?)^```", (source / "README.md").read_text(), re.M | re.S)[1])
        run(*compiler, "-Wall", "-Wextra", "-Werror", example, *flags("--cflags", "--libs"), "-o", root / "example")
        said = run(prefix / "bin" / "tutti-run", "-n", "3", root / "example", env=environment)
        assert sorted(said.split("\n"))[1].startswith("[0] rank 0: 1 "), said
    print("README's examples run on three ranks")

    cmake = root / "cmake-build"
    run("cmake", "-G", "Ninja", "-S", here / "cmake_project", "-B", cmake, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", cmake)
    assert "agree" in run(cmake / "user", env=environment)
    print("a CMake project runs")

    symbols = run("nm", "-D", "--defined-only", library).split("\n")
    names = [line.split()[2].split("@")[0] for line in symbols if len(line.split()) == 3]
    strangers = [n for n in names if not re.match(r"tutti[A-Z]|TUTTI_0$", n)]
    assert names and not strangers, f"exported beside tutti*: {strangers}"
    assert re.search(r"SONAME.*libtutti\.so\.0\b", run("readelf", "-d", library))
    heap = library.parent / "libtutti_malloc.so"
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", heap))
    assert all(re.match(r"(libc|ld-linux.*)\.so\.", n) for n in needed), f"the heap needs more than the C library: {needed}"
    run(*compile_c, *flags("--cflags", "--libs"))
    assert "works" in run(user, env=dict(environment, LD_PRELOAD=str(heap)))
    print("the preloadable heap needs the C library alone, and a C99 program runs with it")
    tools = sorted(p.name for p in (prefix / "bin").glob("tutti-*"))
    assert {"tutti-run", "tutti-perf", "tutti-topo", "tutti-schedule"} <= set(tools), tools
    for tool in tools:
        run(prefix / "bin" / tool, "--help")  # wherever the tree stands: each finds its library
    print(f"{len(names)} symbols, all tutti*; tools: {' '.join(tools)}")


if shutil.which("cmake") is None:
    print("skipped: no cmake here")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    main(pathlib.Path(folder))
