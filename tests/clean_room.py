#!/usr/bin/env python3
"""Proves the set-up on a minimal Debian made by debootstrap in a folder: a clone of this repository, `./dev demo` and
`./dev test` inside. Needs root, debootstrap and some GB of disk. Everything is removed at the end."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SUITE = "bookworm"


def mirror():
    """The first URI of apt's own source list."""
    lists = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]
    for path in (p for p in lists if p.is_file()):
        match = re.search(r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S+)", path.read_text(), re.M)
        if match:
            return match[1]
    sys.exit("clean room: apt's source list names no URI")


def run(*command, **options):
    subprocess.run([str(c) for c in command], check=True, **options)


def prepare(room):
    run("debootstrap", "--variant=minbase", "--include=git,ca-certificates", SUITE, room, mirror())
    for entry in ("etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/apt/trusted.gpg.d",
                  "etc/resolv.conf", "etc/apt/auth.conf", "etc/apt/auth.conf.d"):
        source, target = pathlib.Path("/") / entry, room / entry
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.is_file():
            target.unlink(missing_ok=True)
            shutil.copy(source, target)
    run("git", "clone", "-q", pathlib.Path(__file__).resolve().parent.parent, room / "root" / "tutti")


def main():
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit("clean room: needs root and debootstrap")
    room = pathlib.Path(tempfile.mkdtemp(prefix="tutti-clean-room-"))
    mounts = [(["-t", "proc", "proc"], room / "proc"), (["--rbind", "/sys"], room / "sys"),
              (["--rbind", "/dev"], room / "dev")]
    try:
        prepare(room)
        for options, target in mounts:
            run("mount", *options, target)
        for command in sys.argv[1:] or ["demo", "test"]:
            inside = f"cd /root/tutti && ./dev {command}"
            keep = {k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}
            environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **keep}
            run("chroot", room, "/bin/bash", "-c", inside, env=environment)
    finally:
        for _, target in reversed(mounts):
            subprocess.run(["umount", "-R", "-l", str(target)], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(room, ignore_errors=True)


main()
