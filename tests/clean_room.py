#!/usr/bin/env python3
"""Proves the set-up on a minimal Debian, made by debootstrap in a folder: a clone of this repository, then `./dev demo` and
`./dev test` inside, or the commands that are named. Needs root, debootstrap and some GB of disk.

Nothing is shared with this machine but the kernel and, where CCACHE_DIR is set, the compiler's cache. All mounts and
processes live in namespaces that end with the run; then the folder is removed."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SUITE = "bookworm"
SOURCE = pathlib.Path(__file__).resolve().parent.parent
# How apt and pip reach their registries from here; the same way leads there from inside.
REGISTRY_FILES = ("etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/apt/trusted.gpg.d",
                  "etc/apt/auth.conf", "etc/apt/auth.conf.d", "etc/resolv.conf", "etc/hosts", "etc/pip.conf",
                  "usr/local/share/ca-certificates")
REGISTRY_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_DEFAULT_TIMEOUT")


def say(text):
    print(f"\n== clean room: {text}", flush=True)


def run(*command, **options):
    subprocess.run([str(c) for c in command], check=True, **options)


def mirror():
    """The first URI of apt's own source list."""
    folder = pathlib.Path("/etc/apt")
    lists = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list")),
             *sorted(folder.glob("sources.list.d/*.sources"))]
    for path in (p for p in lists if p.is_file()):
        match = re.search(r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S+)", path.read_text(), re.M)
        if match:
            return match[1]
    sys.exit("clean room: apt's source list names no URI")


def prepare(room):
    say(f"a minimal Debian in {room}")
    with open(room.parent / "debootstrap.log", "w", encoding="utf-8") as log:
        run("debootstrap", "--variant=minbase", "--include=git,ca-certificates", SUITE, room, mirror(), stdout=log)
    (room / "etc/apt/sources.list").unlink()  # debootstrap's own
    for entry in REGISTRY_FILES:
        source, target = pathlib.Path("/") / entry, room / entry
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.is_file():
            target.unlink(missing_ok=True)
            shutil.copy(source, target)
    run("chroot", room, "update-ca-certificates", stdout=subprocess.DEVNULL)  # and those that this machine trusts besides
    run("git", "clone", "-q", "--no-hardlinks", SOURCE, room / "tutti")


def environment_inside():
    names = {*REGISTRY_VARIABLES, "TUTTI_TEST_JOBS", "CCACHE_NOHASHDIR", "TERM"}
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") or name in names}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", **kept}


def work_inside(room, commands):
    """In namespaces of its own: what is mounted here, nobody else sees."""
    room.mkdir()
    prepare(room)
    run("mount", "-t", "proc", "proc", room / "proc")
    for folder in ("sys", "dev"):
        run("mount", "--rbind", f"/{folder}", room / folder)
    environment = environment_inside()
    if "CCACHE_DIR" in os.environ:
        (room / "ccache").mkdir()
        run("mount", "--bind", os.environ["CCACHE_DIR"], room / "ccache")
        environment["CCACHE_DIR"] = "/ccache"
    for command in commands:
        say(f"./dev {command}")
        begin = time.monotonic()
        done = subprocess.run(["chroot", room, "/bin/bash", "-c", f"cd /tutti && ./dev {command}"], env=environment,
                              check=False)
        say(f"./dev {command} ended with exit code {done.returncode} after {time.monotonic() - begin:.0f} s")
        if done.returncode != 0:
            sys.exit(1)


def main():
    if os.geteuid() != 0 or shutil.which("debootstrap", path=os.environ["PATH"] + ":/usr/sbin") is None:
        sys.exit("clean room: needs root and debootstrap")
    if sys.argv[1:2] == ["--inside"]:
        return work_inside(pathlib.Path(sys.argv[2]), sys.argv[3:])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-clean-room-"))
    try:
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                               "--mount-proc", sys.executable, __file__, "--inside", folder / "debian",
                               *(sys.argv[1:] or ["demo", "test"])], check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return sys.exit(done.returncode)


main()
