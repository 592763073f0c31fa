#!/usr/bin/env python3
"""Makes PyPI's PyTorch, which is linked with CUDA's libraries, importable on a machine without a GPU: puts stand-ins for
those libraries beside its own, all of whose functions say that there is no device.

Only for environments that serve tests: the stand-ins hide the real libraries. Usage: cuda_stand_ins.py, run by the Python
that has the PyTorch."""
import collections
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

OF_CUDA = re.compile(r"lib(cu|nv|nccl)")
UNVERSIONED_OF_CUDA = re.compile(r"(cu|nv|nccl|__cuda|__nv|_?cuda)")
# What every function gives: cudaErrorNoDevice; those whose result is a text give one.
CODE = """.text
{functions}
 mov $100, %eax
 ret
{texts}
 lea 0f(%rip), %rax
 ret
.section .rodata
0: .asciz "no CUDA device: this library is a stand-in"
.section .note.GNU-stack,"",@progbits
"""


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


class Wanted:
    """What PyTorch's libraries want of libraries that are not theirs."""

    def __init__(self, files):
        own = {file.name for file in files}
        self.libraries, self.undefined, self.defined = set(), {}, set()
        self.versions = collections.defaultdict(set)  # of a library
        for file in files:
            self.libraries |= set(re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", file))) - own
            self.read_symbols(file)
            self.read_versions(file)
        self.libraries = {name for name in self.libraries if OF_CUDA.match(name)}

    def read_symbols(self, file):
        for line in readelf("--dyn-syms", file).splitlines():
            fields = line.split()
            if len(fields) < 8 or not fields[0].endswith(":"):
                continue
            name, _, version = fields[7].partition("@")
            if fields[6] != "UND":
                self.defined.add(name)
            elif fields[4] != "WEAK":
                self.undefined[name] = version.lstrip("@")

    def read_versions(self, file):
        library = None
        for line in readelf("-V", file).splitlines():
            if match := re.search(r"Version: 1\s+File: (\S+)", line):
                library = match[1]
            elif match := re.search(r"Name: (\S+)\s+Flags", line):
                self.versions[library].add(match[1])

    def symbols_of(self, library):
        """name: version, "" for none. What has no version may be of any library, so each gets it."""
        return {name: version for name, version in self.undefined.items() if name not in self.defined and
                (version in self.versions[library] if version else UNVERSIONED_OF_CUDA.match(name))}


def make(library, wanted, folder):
    symbols = wanted.symbols_of(library)
    label = ".globl {0}\n.type {0},@function\n{0}:".format
    gives_text = re.compile(r"(Get|_)(Error|Last)?.*(String|Name)$")
    functions = [label(name) for name in symbols if not gives_text.search(name)]
    texts = [label(name) for name in symbols if gives_text.search(name)]
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stand_in.S"), pathlib.Path(scratch, "versions")
        source.write_text(CODE.format(functions="\n".join(functions), texts="\n".join(texts)))
        command = ["gcc", "-shared", "-nostdlib", "-o", folder / library, source, f"-Wl,-soname,{library}"]
        if versions := sorted(wanted.versions[library]):
            named = {v: "".join(f" {n};" for n, of in symbols.items() if of == v) for v in versions}
            script.write_text("".join(f"{v} {{ {'global:' + named[v] if named[v] else ''} }};\n" for v in versions))
            command.append(f"-Wl,--version-script,{script}")
        subprocess.run(command, check=True)


def main():
    found = importlib.util.find_spec("torch")
    if found is None:
        sys.exit("cuda_stand_ins: this Python has no PyTorch")
    torch = pathlib.Path(found.origin).parent
    wanted = Wanted([*(torch / "lib").glob("*.so*"), *torch.glob("_C*.so")])
    for library in sorted(wanted.libraries):
        make(library, wanted, torch / "lib")
    print(f"stand-ins: {' '.join(sorted(wanted.libraries)) or 'none are needed'}")
    subprocess.run([sys.executable, "-c", "import torch, torch.distributed"], check=True)


main()
