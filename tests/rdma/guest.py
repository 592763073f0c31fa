#!/usr/bin/env python3
"""A guest for tests: Debian's kernel under QEMU, with RDMA devices that exist in software only (soft-RoCE).

    bed = Bed(folder)                                       # keeps the kernel there; see why_not()
    done = bed.boot("ibv_devinfo && ./test", ["build/test", shutil.which("ibv_devinfo")])
    done.code, done.output

The guest's file system is what it is given: programs (with the libraries that they load), a shell, and the tools to set
up interfaces. It has two devices, rxe0 and rxe1, at the two ends of one virtual cable, 10.9.0.1 and 10.9.1.1; messages
between them take the whole way. Where a pair of guests is booted, each has one more device, rxe2, on the network between
them, 10.9.2.1 and 10.9.2.2.

Usage by hand: guest.py FOLDER COMMAND [PROGRAM-OR-FILE ...]"""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PACKAGES = ("qemu-system-x86", "busybox-static", "kmod", "cpio", "iproute2", "ibverbs-utils", "ibverbs-providers",
            "rdma-core", "perftest")
TOOLS = ("ip", "rdma", "ibv_devinfo")
MODULES = ("crc32_generic", "rdma_rxe", "veth", "virtio_pci", "virtio_net")
SHELL_NAMES = ("sh mount insmod ls cat sleep poweroff dmesg mkdir grep head tail kill ps sed md5sum wc tr cut seq rm cp "
               "find hostname ping env true timeout sort uniq date touch expr ulimit").split()
INIT = """#!/bin/sh
export PATH=/bin:/usr/bin:/sbin HOME=/ LD_LIBRARY_PATH=/lib:/guest
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; ln -s /proc/self/fd /dev/fd
for m in {modules}; do insmod /lib/modules/$m.ko 2>/dev/null; done
echo 7 >/proc/sys/kernel/printk_ratelimit; dmesg -n 1
/usr/bin/ip link set lo up; hostname {name}
echo 1 >/proc/sys/net/ipv4/conf/all/accept_local; echo 1 >/proc/sys/net/ipv4/conf/default/accept_local
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter
cable() {{
  /usr/bin/ip link add veth0 type veth peer name veth1
  /usr/bin/ip addr add 10.9.0.1/16 dev veth0; /usr/bin/ip addr add 10.9.1.1/16 dev veth1
  for i in 0 1; do /usr/bin/ip link set veth$i mtu 4500; /usr/bin/ip link set veth$i up; done
  /usr/bin/ip neigh add 10.9.1.1 dev veth0 lladdr $(cat /sys/class/net/veth1/address)
  /usr/bin/ip neigh add 10.9.0.1 dev veth1 lladdr $(cat /sys/class/net/veth0/address)
}}
cable
for i in 0 1; do rdma link add rxe$i type rxe netdev veth$i; done
if [ -e /sys/class/net/eth0 ]; then
  /usr/bin/ip link set eth0 mtu 4500; /usr/bin/ip addr add {address}/24 dev eth0; /usr/bin/ip link set eth0 up
  rdma link add rxe2 type rxe netdev eth0
fi
cd /guest
sh /guest/command </dev/null
echo "guest: the command ended with $?"
poweroff -f
"""


@dataclasses.dataclass
class Done:
    code: int      # the command's; -1: it did not end
    output: str


def run(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def why_not():
    """Why no guest can be booted here, or None."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.uname().machine != "x86_64":
        return f"guests are for x86_64, and this machine is {os.uname().machine}"
    for tool in ("qemu-system-x86_64", "busybox", "modinfo", "cpio", "apt-get", "dpkg", *TOOLS):
        if shutil.which(tool) is None:
            return f"the program {tool} is missing (Debian packages: {' '.join(PACKAGES)})"
    return None


def accelerator():
    """Emulation, which works everywhere; TUTTI_TEST_KVM=1 for the machine's own (where it is nested it may hang)."""
    if os.environ.get("TUTTI_TEST_KVM"):
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


class CannotFetch(Exception):
    """Debian's kernel cannot be had."""


class Bed:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kernel, self.modules = self._fetch_kernel()

    def _fetch_kernel(self):
        tree = self.folder / "kernel"
        if not list(tree.glob("boot/vmlinuz-*")):
            try:
                package = re.search(r"Depends: (linux-image-\S+)", run(["apt-cache", "depends", "linux-image-amd64"]))[1]
                with tempfile.TemporaryDirectory() as place:
                    os.chmod(place, 0o777)  # apt-get downloads as a user of its own
                    run(["apt-get", "download", "-qq", package], cwd=place)
                    run(["dpkg", "-x", *map(str, pathlib.Path(place).glob("*.deb")), str(tree)])
            except (subprocess.CalledProcessError, TypeError, FileNotFoundError) as error:
                raise CannotFetch(f"Debian's kernel cannot be had: {getattr(error, 'stderr', '') or error}") from error
        kernel = next(tree.glob("boot/vmlinuz-*"))
        return kernel, {p.stem: p for p in tree.rglob("*.ko")}

    def _in_order(self, names):
        """Modules and what they need, each after its own needs."""
        order = []

        def visit(name):
            if name in order or name not in self.modules:  # built in, else
                return
            for need in run(["modinfo", "-F", "depends", str(self.modules[name])]).strip().split(","):
                if need:
                    visit(need.replace("-", "_") if need.replace("-", "_") in self.modules else need)
            order.append(name)

        for name in names:
            visit(name)
        return order

    def _make_root(self, root, command, programs, name, address):
        for place in ("bin", "sbin", "proc", "sys", "dev", "tmp", "etc/libibverbs.d", "lib/modules", "guest", "usr/bin",
                      "usr/lib/x86_64-linux-gnu/libibverbs"):
            (root / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(shutil.which("busybox"), root / "bin/busybox")
        for applet in SHELL_NAMES:
            (root / "bin" / applet).symlink_to("busybox")
        order = self._in_order(MODULES)
        for module in order:
            shutil.copy(self.modules[module], root / "lib/modules")
        for tool in TOOLS:
            self._add(root, pathlib.Path(shutil.which(tool)), "usr/bin")
        for program in programs:
            self._add(root, pathlib.Path(program), "guest")
        provider = pathlib.Path("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so")
        for path in pathlib.Path("/usr/lib/x86_64-linux-gnu/libibverbs").glob("librxe-*"):
            provider = path
        self._add(root, provider, "usr/lib/x86_64-linux-gnu/libibverbs")
        self._add_library(root, "libibverbs.so.1")
        shutil.copy("/etc/libibverbs.d/rxe.driver", root / "etc/libibverbs.d")
        (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (root / "guest/command").write_text(command + "\n")
        (root / "init").write_text(INIT.format(modules=" ".join(order), name=name, address=address))
        (root / "init").chmod(0o755)

    def _add(self, root, file, folder):
        """A file and the shared libraries that it names."""
        shutil.copy(file, root / folder / file.name)
        listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True)
        for library in re.findall(r"(/\S+\.so\S*)", listed.stdout):
            target = root / library.lstrip("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)

    def _add_library(self, root, name):
        path = re.search(rf"{re.escape(name)} .*=> (\S+)", run(["/sbin/ldconfig", "-p"]))
        self._add(root, pathlib.Path(path[1]), pathlib.Path(path[1]).parent.as_posix().lstrip("/"))
        (root / "lib" / name).exists() or shutil.copy(path[1], root / "lib" / name)

    def start(self, command, programs, name="guest", network=(), address="10.9.2.1", memory_mb=2048):
        """A running guest; finish() waits for its end."""
        place = tempfile.TemporaryDirectory(dir=self.folder)
        root = pathlib.Path(place.name) / "root"
        root.mkdir()
        self._make_root(root, command, programs, name, address)
        image = pathlib.Path(place.name) / "initrd"
        with open(image, "wb") as out:
            names = run(["find", "."], cwd=root)
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), stdout=out, check=True)
        shutil.rmtree(root)
        console = pathlib.Path(place.name) / "console"
        process = subprocess.Popen(
            ["qemu-system-x86_64", *accelerator(), "-smp", "2", "-m", str(memory_mb), "-display", "none", "-no-reboot",
             "-serial", f"file:{console}", "-monitor", "none", "-nodefaults", "-kernel", str(self.kernel),
             "-initrd", str(image), "-append", "console=ttyS0 panic=-1 quiet tsc=reliable mitigations=off", *network],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return place, process, console

    @staticmethod
    def finish(started, timeout_s):
        place, process, console = started
        try:
            messages, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            messages = f"guest: stopped after {timeout_s} s\n" + process.communicate()[0]
        output = console.read_text(errors="replace").replace("\r", "") if console.exists() else ""
        place.cleanup()
        ended = re.search(r"guest: the command ended with (\d+)", output)
        return Done(int(ended[1]) if ended else -1, output + messages)

    def boot(self, command, programs, timeout_s=300, memory_mb=2048):
        return self.finish(self.start(command, programs, memory_mb=memory_mb), timeout_s)

    def boot_pair(self, commands, programs, timeout_s=300, meanwhile=lambda started: None):
        """Two guests, a and b, with a network between them; what became of each. `meanwhile` is called when both run."""
        with tempfile.TemporaryDirectory() as place:
            ends = [f"{place}/a", f"{place}/b"]
            started = []
            for i, command in enumerate(commands):
                network = ["-netdev", f"dgram,id=n,local.type=unix,local.path={ends[i]},remote.type=unix,"
                           f"remote.path={ends[1 - i]}", "-device", f"virtio-net-pci,romfile=,netdev=n,mac=52:54:00:00:00:0{i + 1}"]
                started.append(self.start(command, programs, "ab"[i], network, f"10.9.2.{i + 1}"))
            meanwhile(started)
            return [self.finish(guest, timeout_s) for guest in started]


def main():
    reason = why_not()
    if reason:
        print("skipped:", reason)
        return 77
    done = Bed(sys.argv[1]).boot(sys.argv[2], sys.argv[3:])
    print(done.output)
    return done.code if done.code >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
