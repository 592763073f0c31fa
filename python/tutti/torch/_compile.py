"""Compiles the backend against the PyTorch that is installed, once for each version of it, and loads it.

C++ classes of PyTorch change between its versions, and a module made for another one may crash or hang in place of failing
to load. So a compiled module is found by a name that says all that it depends on, and asked for its version before use."""
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile

import torch

import tutti

SOURCES = pathlib.Path(__file__).resolve().parent
HEADERS = SOURCES.parent / "include"


class NoCompiler(ImportError):
    """There is no C++ compiler, or the headers that it needs are missing."""


def include_folder():
    """Where tutti/tutti.h is: in the package, or in the source tree that this is run from."""
    folders = [HEADERS, *(parent / "include" for parent in SOURCES.parents[:5])]
    for folder in folders:
        if (folder / "tutti" / "tutti.h").is_file():
            return folder
    raise NoCompiler(f"tutti/tutti.h is in none of {', '.join(map(str, folders))}")


def compiler():
    named = os.environ.get("CXX")
    for words in ([shlex.split(named)] if named else [["c++"], ["g++"], ["clang++"]]):
        if words and shutil.which(words[0]):
            return words
    raise NoCompiler(f"CXX={named} is no program" if named else "none of c++, g++ and clang++ is installed")


def torch_version():
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def command():
    """The compiler's words, all but its output."""
    folder = pathlib.Path(torch.__file__).parent
    words = [*compiler(), "-shared", "-fPIC", "-O2", "-g0", "-w", "-fvisibility=hidden",
             "-std=c++20" if torch_version() >= (2, 9) else "-std=c++17",
             f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):  # PyTorch before 2.9 says what its pybind11 was built for
        value = getattr(torch._C, f"_PYBIND11_{name}", None)
        if value is not None:
            words.append(f'-DPYBIND11_{name}="{value}"')
    words += [f"-I{include_folder()}", f"-I{SOURCES}"]
    words += ["-isystem", str(folder / "include"), "-isystem", str(folder / "include/torch/csrc/api/include"),
              "-isystem", sysconfig.get_paths()["include"], str(SOURCES / "unit.cc"), tutti.library(),
              f"-L{folder / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
    return words


def fingerprint():
    """Names all that a compiled module depends on."""
    mark = hashlib.sha256()
    for part in (torch.__version__, str(torch._C._GLIBCXX_USE_CXX11_ABI), str(pathlib.Path(torch.__file__).stat().st_mtime_ns),
                 sysconfig.get_config_var("EXT_SUFFIX") or "", str(tutti.version()), tutti.library()):
        mark.update(part.encode() + b"\0")
    for source in sorted(SOURCES.glob("*.h")) + sorted(SOURCES.glob("*.cc")):
        mark.update(source.read_bytes())
    return mark.hexdigest()[:16]


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "tutti" / "torch"


@contextlib.contextmanager
def only_one(folder):
    """The ranks of a host wait for whoever compiles."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_to(target, say):
    words = command()  # refuses where there is no compiler, before anything is said
    say(f"compiling the backend for PyTorch {torch.__version__} (once, about 20 s) into {target.parent}")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = pathlib.Path(scratch) / target.name
        words += [f"-DTUTTI_MODULE_NAME={target.name.split('.')[0]}", "-o", str(made)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if not (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
                raise NoCompiler(f"Python.h is not in {sysconfig.get_paths()['include']}: install Python's headers "
                                 "(Debian: python3-dev)")
            errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise ImportError("the backend could not be compiled:\n" + shlex.join(words) + "\n" + "\n".join(errors[:20]))
        os.replace(made, target)  # at once or not at all


def check_whole(target):
    """A file that was cut off would not fail to load but end the process. (The table of sections stands at its end.)"""
    with open(target, "rb") as file:
        header = file.read(64)
    if len(header) < 64 or header[:4] != b"\x7fELF":
        raise ImportError("it is no library")
    (table,), (entry_bytes, entries) = struct.unpack_from("@Q", header, 40), struct.unpack_from("@HH", header, 58)
    if target.stat().st_size < table + entry_bytes * entries:
        raise ImportError("its end is missing")


def loaded(target):
    if not target.is_file():
        raise ImportError("it does not exist")
    check_whole(target)
    name = target.name.split(".")[0]
    spec = importlib.util.spec_from_file_location(name, target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(say=lambda text: print("tutti:", text, file=sys.stderr, flush=True)):
    """The module for the PyTorch that is imported. Raises NoCompiler, ImportError."""
    target = cache_folder() / f"tutti_torch_{fingerprint()}.so"
    try:
        module = loaded(target)
    except ImportError:
        with only_one(target.parent):
            try:  # another rank may have made it
                module = loaded(target)
            except ImportError as error:
                if target.exists():
                    say(f"{target} cannot be loaded ({error}): it is made anew")
                compile_to(target, say)
                module = loaded(target)
    if module.TORCH_VERSION != torch.__version__.split("+")[0]:
        raise ImportError(f"{target} was compiled for PyTorch {module.TORCH_VERSION}, but {torch.__version__} is imported: "
                          "headers and library of the installed PyTorch do not belong together")
    return module
