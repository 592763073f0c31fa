#!/usr/bin/env python3
"""Hosts for tests: network namespaces joined by a switch, each with one interface eth0.

    with Hosts(3, rate="100mbit") as hosts:
        worker = hosts.start(1, ["program", hosts.address(0)])

The namespaces live as long as their holder processes, which end with this one however it ends: nothing has a name,
and nothing outside the namespaces is touched. why_not() says why a machine does not permit them, or None."""
import ctypes
import os
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def _end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {result.stdout.strip() or result.returncode}")
    return result.stdout


def become_root_of_a_user_namespace():
    """Where this user is not root but may make user namespaces, starts the program anew inside one."""
    if os.geteuid() == 0 or os.environ.get("IN_USER_NAMESPACE") or shutil.which("unshare") is None:
        return
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0:
        os.environ["IN_USER_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-rn", sys.executable] + sys.argv)


def why_not():
    for tool in ("unshare", "nsenter", "ip", "tc"):
        if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            return f"the program {tool} is missing"
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    try:
        with Hosts(1):
            return None
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"network namespaces are not permitted here: {error}"


class CannotShape(Exception):
    """This kernel has no such queue: no tbf (rate) or no netem (delay)."""


class Hosts:
    """n hosts, numbered from 0. rate (as tc writes it: "100mbit") and delay ("5ms") are of each host's way out; what has not
    been sent at that rate for a while may go at once later, up to burst: a cable knows none, tests are kinder to the cores.
    ipv4 False: the hosts have IPv6 addresses only. congestion_control: of their TCP, such as "reno"; None: this machine's."""

    def __init__(self, n, rate=None, delay=None, ipv4=True, congestion_control=None, burst="128kb"):
        self.n, self.rate, self.delay, self.ipv4, self.congestion_control = n, rate, delay, ipv4, congestion_control
        self.burst = burst
        self._holders, self._started = [], []

    def __enter__(self):
        try:
            self.create()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *_):
        self.destroy()

    def create(self):
        for _ in range(self.n + 1):  # the last is the switch
            self._holders.append(self._hold())
        self._in(self.n, "ip link add name switch type bridge")
        self._in(self.n, "ip link set switch up")
        for host in range(self.n):
            self._in(self.n, f"ip link add port{host} type veth peer name eth0 netns {self._holders[host].pid}")
            self._in(self.n, f"ip link set port{host} master switch up")
            self._in(host, "ip link set lo up")
            if self.ipv4:
                self._in(host, f"ip addr add 10.77.0.{host + 1}/24 dev eth0")
            self._in(host, f"ip addr add fd77::{host + 1}/64 dev eth0 nodad")
            self._in(host, "ip link set eth0 up")
            if self.congestion_control:
                self._in(host, f"sysctl -qw net.ipv4.tcp_congestion_control={self.congestion_control}")
            self._shape(host)

    def destroy(self):
        for process in self._started + self._holders:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._started, self._holders = [], []

    def address(self, host):
        return f"10.77.0.{host + 1}" if self.ipv4 else f"fd77::{host + 1}"

    def start(self, host, command, **options):
        """A process on that host. Killed by destroy() where it still runs, and when this process ends."""
        process = subprocess.Popen(self._enter(host) + command, preexec_fn=_end_with_parent, **options)
        self._started.append(process)
        return process

    def cut(self, host):
        self._in(self.n, f"ip link set port{host} down")

    def mend(self, host):
        self._in(self.n, f"ip link set port{host} up")

    @staticmethod
    def _hold():
        holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo ready; exec sleep 1000000"],
                                  preexec_fn=_end_with_parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True)
        if holder.stdout.readline() != "ready\n":
            reason = holder.stderr.read().strip()
            holder.wait()
            raise RuntimeError(reason or "unshare -n failed")
        return holder

    def _shape(self, host):
        try:
            if self.delay:
                self._in(host, f"tc qdisc add dev eth0 root handle 1: netem delay {self.delay}")
            if self.rate:
                place = "parent 1:1" if self.delay else "root"
                self._in(host, f"tc qdisc add dev eth0 {place} tbf rate {self.rate} burst {self.burst} latency 200ms")
        except RuntimeError as error:
            if "kind is unknown" in str(error):
                raise CannotShape(str(error)) from error
            raise

    def _enter(self, host):
        return ["nsenter", "-t", str(self._holders[host].pid), "-n", "--"]

    def _in(self, host, command):
        return _run(self._enter(host) + command.split())
