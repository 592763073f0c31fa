#!/usr/bin/env python3
"""The verbs transport on real libibverbs: boots guests with soft-RoCE devices and runs tests inside.

Usage: rdma_test.py FOLDER BUILD [--long | --sanitized] [PATTERN]
Ends with 77, which is a skip, where no guest can be booted. --long: everything, with 200 faults of each kind of test, and
two guests. --sanitized: of a build with AddressSanitizer, what looks inside. PATTERN: only sections whose whole names match
this regular expression; those of two guests have names that begin with hosts_."""
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import guest

FOLDER, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
LONG, SANITIZED = "--long" in sys.argv, "--sanitized" in sys.argv
PATTERN = next((argument for argument in sys.argv[3:] if not argument.startswith("--")), ".*")
PROGRAMS = [BUILD / p for p in ("tests/transport/verbs_conformance_test", "tests/transport/verbs_recovery_test",
                                "tests/rdma/verbs-faults")]
if not SANITIZED:
    PROGRAMS += [BUILD / p for p in ("bench/perf/tutti-perf", "tools/run/tutti-run", "tools/doctor/tutti-doctor",
                                     "libtutti.so.0")]
COLLECTIVES = ("all_reduce reduce broadcast all_gather reduce_scatter gather scatter alltoall scan exscan sendrecv barrier "
               "all_gather_v reduce_scatter_v gather_v scatter_v alltoall_v").split()

# Each rank has one of the two devices; rank 0 and rank 1 are at the two ends of the cable.
PREPARE = r"""
export TUTTI_TRANSPORT=verbs TUTTI_IFNAME=lo TUTTI_TIMEOUT_MS=30000
cat >rank <<'END'
TUTTI_IB_HCA=rxe$((RANK % 2)); export TUTTI_IB_HCA
exec "$@"
END
section() {  # NAME COMMAND...: what it prints, how it ended and after how long
  name=$1; shift; begin=$(date +%s); echo "section $name begins"; "$@" 2>&1; echo "section $name ended with $? after $(($(date +%s) - begin)) s"
}
perf() {  # RANKS OPTIONS...
  n=$1; shift; ./tutti-run -n $n sh rank ./tutti-perf "$@"
}
# Two ranks started by hand, whose exit codes are told; DISTURB runs meanwhile, once they are under way.
pair() {
  disturb=$1; shift
  export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $(date +%s) % 10000)) TUTTI_JOB_KEY=$name
  rm -f out.0 out.1
  for r in 0 1; do
    (export RANK=$r LOCAL_RANK=$r; sh rank ./tutti-perf "$@" >out.$r 2>&1; echo "rank $r ended with $?" >>out.$r) &
  done
  for i in $(seq 200); do grep -q -e '^#       size' -e 'ended with' out.0 2>/dev/null && break; sleep 0.1; done
  sleep 0.5; eval "$disturb"
  for i in $(seq 400); do [ $(cat out.0 out.1 | grep -c 'ended with') = 2 ] && break; sleep 0.1; done
  cat out.0 out.1; [ $(cat out.0 out.1 | grep -c 'ended with') = 2 ]
}
pid_of() {
  for p in $(ls /proc | grep '^[0-9]'); do
    [ "$(cat /proc/$p/comm 2>/dev/null)" = tutti-perf ] && tr '\0' '\n' </proc/$p/environ | grep -qx "RANK=$1" && echo $p
  done
}
cable_up() {  # as it was: whoever takes an interface down takes away the neighbours that it was told, too
  /usr/bin/ip link set veth1 up; /usr/bin/ip neigh replace 10.9.0.1 dev veth1 lladdr $(cat /sys/class/net/veth0/address)
  for i in $(seq 100); do rdma link show | grep -q 'rxe1/1 state ACTIVE' && break; sleep 0.1; done; sleep 1
}
left() {  # the devices hold nothing any more
  rdma resource show | tee left; ! grep -v 'mr 0 ctx 0' left
}
"""
SWALLOWED = "/usr/bin/ip neigh replace 10.9.1.1 dev veth0 lladdr"
ENDLESS = "all_reduce -b 1M -e 1M -n 60 -w 1"  # seconds under emulation


class Section:
    def __init__(self, name, command, *wanted, unwanted=(), exit_code=0):
        self.name, self.command, self.wanted, self.unwanted = name, command, wanted, unwanted
        self.exit_code = exit_code

    def part(self, output):
        return re.search(rf"section {self.name} begins\n(.*?)section {self.name} ended with (\d+)", output, re.S)

    def seconds(self, output):
        """As the console tells, or nothing."""
        told = re.search(rf"section {self.name} ended with \d+ after (\d+) s", output)
        return f" ({told[1]} s)" if told and int(told[1]) > 0 else ""

    def is_the_kernels_fault(self, output):
        """Whether the guest's kernel stood still for tens of seconds meanwhile, which soft-RoCE brings about at times."""
        part = self.part(output)
        return part is not None and "BUG: soft lockup" in part[1] and self.problem(output) is not None

    def problem(self, output):
        """What is wrong with this section's part of the console; None: nothing."""
        part = self.part(output)
        if part is None:
            return "it did not end"
        if int(part[2]) != self.exit_code:
            return f"it ended with {part[2]}, not {self.exit_code}:\n{self.excerpt(part[1])}"
        for pattern in self.wanted:
            if not re.search(pattern, part[1]):
                return f"/{pattern}/ does not stand in:\n{self.excerpt(part[1])}"
        for pattern in self.unwanted:
            if re.search(pattern, part[1]):
                return f"/{pattern}/ stands in:\n{self.excerpt(part[1])}"
        return None

    @staticmethod
    def excerpt(text):
        """What failed with what it tells, which may be far from the end, and the end."""
        failures = re.findall(r"^.*FAILED.*\n(?: +.*\n)*", text[:-3000], re.M)
        return "".join(failures)[:6000] + ("…\n" if failures else "") + text[-3000:]


class Counters(Section):
    """Of large messages: work requests and completions of each (the lines in which ranks tell their counters)."""
    def problem(self, output):
        found = super().problem(output)
        told = re.findall(rf"section {self.name} begins\n(.*?)section {self.name} ended", output, re.S)
        lines = re.findall(r"verbs: (\d+) messages .* in (\d+) work requests, \d+ doorbells and (\d+) completions", *told or [""])
        messages, requests, completions = (sum(int(line[i]) for line in lines) for i in range(3))
        if found or not lines:
            return found or "no rank tells its counters"
        if requests > 1.05 * messages or completions > messages / 16:
            return f"{messages} messages took {requests} work requests and {completions} completions"
        return None


def faults(first, count):
    """Jobs of processes, each with a fault of its own; a fault's seed says what it is."""
    return Section(f"faults_from_{first}",
                   f"env TUTTI_TRANSPORT= TUTTI_LOG=error ./verbs-faults {first} {count}; rdma resource show | tee left; "
                   "! grep -v 'mr 0 ctx 0' left", rf"{count} faults: .*, 0 failed; [1-9]\d* messages")


def sanitized_sections():
    """Leaks are looked for as well; what libibverbs keeps for good, it keeps hold of."""
    options = "env ASAN_OPTIONS=detect_stack_use_after_return=0:detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1 TUTTI_LOG=error"
    clean = (r"AddressSanitizer", r"LeakSanitizer", r"runtime error")
    yield Section("conformance", f"{options} ./verbs_conformance_test --gtest_brief=1", r"PASSED  \] .*[1-9]\d* tests",
                  unwanted=clean)
    yield Section("recovery", f"{options} TUTTI_TEST_FAULTS=20 ./verbs_recovery_test --gtest_brief=1",
                  r"PASSED  \] .*[1-9]\d* tests", unwanted=clean)
    yield Section("faults", f"export TUTTI_TRANSPORT=; {options} ./verbs-faults 0 24", r"24 faults: .*, 0 failed",
                  unwanted=clean)
    yield Section("left", "left")


def sections():
    both_right = r"(?s)rank 0 ended with 0.*rank 1 ended with 0"
    conformance = "*" if LONG else "*/verbs"  # all of it runs on devices of a process alone too (tests/transport/fake_verbs.h)
    yield Section("conformance", f"./verbs_conformance_test --gtest_filter='{conformance}' --gtest_brief=1",
                  r"PASSED  \] .*[1-9]\d* tests")
    yield Section("receivers_ready", "grep . /sys/class/infiniband/rxe*/ports/1/hw_counters/*rnr*", "rcvd_rnr_err:0",
                  "send_rnr_err:0", unwanted=(r"rnr\w*:[1-9]",))
    yield Section("recovery", f"env TUTTI_LOG=error TUTTI_TEST_FAULTS={200 if LONG else 5} ./verbs_recovery_test",
                  r"paths failed", r"PASSED  \] .*17 tests")
    for first in range(0, 200, 50) if LONG else (0,):
        yield faults(first, 50 if LONG else 4)
    for ranks in (2, 3, 5) if LONG else (3,):
        for collective in COLLECTIVES if LONG else ("all_reduce", "all_gather", "alltoall", "sendrecv", "gather_v"):
            kind = "-d all -o sum " if LONG and ranks == 2 and collective == "all_reduce" else ""
            yield Section(f"{collective}_{ranks}", f"perf {ranks} {collective} {kind}-b 8 -e {'1M' if LONG else '64K'} "
                          f"-f {32 if LONG else 8192} -n 2 -w 0",
                          r"peers by transport: verbs", r"Out of bounds values : (0 OK|N/A)")
    direct = r"\([1-9]\d* straight to their places"
    for name, options in (("all_reduce_lent", "all_reduce -b 16M -e 16M -R 1"), ("all_reduce_copied", "all_reduce -b 16M -e 16M"),
                          ("sendrecv_lent", "sendrecv -b 64M -e 64M -R 1"))[:None if LONG else 1]:
        yield Counters(f"counters_{name}", f"(export TUTTI_LOG=debug; perf 2 {options} -n 2 -w 1 -c 0)",
                       *([direct] if "lent" in name else []))
    yield Section("packets_swallowed", "export TUTTI_TRANSPORT=verbs,tcp; "
                  f"pair '{SWALLOWED} 02:00:00:00:00:99' {ENDLESS}; {SWALLOWED} $(cat /sys/class/net/veth1/address)",
                  r"verbs: rxe\d port 1 .* failed: .*does not answer \(retry count exceeded\); likely: ",
                  r"its messages go by TCP", both_right)
    if LONG:
        yield Section("peer_stands_still", f"pair 'kill -STOP $(pid_of 1); sleep 6; kill -CONT $(pid_of 1)' {ENDLESS}",
                      both_right, unwanted=(r"failed:",))
        yield Section("busy_machine", "for i in $(seq 20); do (while true; do :; done) & echo $! >>busy; done; "
                      "perf 2 all_reduce -b 1M -e 1M -n 20 -w 1; ended=$?; kill $(cat busy); [ $ended = 0 ]",
                      r"Out of bounds values : 0 OK", unwanted=(r"failed:",))
    yield Section("link_down", "export TUTTI_TRANSPORT=verbs,tcp; "
                  f"pair '/usr/bin/ip link set veth1 down' {ENDLESS}",
                  r"verbs: rxe\d port 1 \(GID \d+, RoCE v2 over IPv4\) to rank \d .* failed: ", r"likely: ",
                  r"its messages go by TCP", both_right)
    yield Section("link_up", "cable_up; rdma link show", r"rxe1/1 state ACTIVE")
    yield Section("link_down_without_tcp", "export TUTTI_TRANSPORT=verbs; "
                  f"pair '/usr/bin/ip link set veth1 down' {ENDLESS}",
                  r"(?s)rank 0 ended with 3.*rank 1 ended with 3", r"the verbs link to rank \d .* failed: .*rxe\d port 1")
    no_way = r"no allowed transport \(verbs\) reaches rank {} \(.*\): not verbs, since {}"
    yield Section("joining_without_a_link", "export TUTTI_TRANSPORT=verbs; pair true all_reduce -b 8 -e 8",
                  no_way.format(1, "it has no device with a port that is up") + "|" +
                  no_way.format(0, "there is no device here with a port that is up"),
                  r"(?s)rank 0 ended with 3.*rank 1 ended with 3")
    yield Section("joining_without_a_way", "cable_up; export TUTTI_TRANSPORT=verbs TUTTI_IB_GID_INDEX=1; "
                  f"{SWALLOWED} 02:00:00:00:00:99; pair true all_reduce -b 8 -e 8; {SWALLOWED} $(cat /sys/class/net/veth1/address)",
                  no_way.format(r"\d", r"rxe\d port 1 GID \d+ to rxe\d port 1 GID \d+ of rank \d .*: "),
                  r"(?s)rank 0 ended with 3.*rank 1 ended with 3")
    yield Section("peer_killed", "cable_up; "
                  f"pair 'kill -9 $(pid_of 1)' {ENDLESS}", r"rank 0 ended with 3", r"rank 1 \(host guest, pid \d+\)",
                  r"rank 1 ended with 137")
    yield Section("device_removed", "cable_up; export TUTTI_TRANSPORT=verbs,tcp; "
                  f"pair 'rdma link delete rxe1 & sleep 1' {ENDLESS}; sleep 1; rdma link show", both_right,
                  unwanted=(r"link rxe1/1",))
    yield Section("device_added", "rdma link add rxe1 type rxe netdev veth1; sleep 1; rdma link show", r"rxe1/1 state ACTIVE")
    yield Section("doctor", "TUTTI_TRANSPORT= ./tutti-doctor", r"ok +InfiniBand: .*rxe0.*rxe1", r"InfiniBand rxe0:1: RoCE, active.*GID 1 is",
                  r"packets hold 4096|RoCE v2")
    yield Section("pairs", "./tutti-run -n 2 sh rank ./tutti-doctor --pairs", r"pair 0-1: .*: verbs, [0-9.]+ us")
    yield Section("receivers_ready_to_the_end", "grep . /sys/class/infiniband/rxe0/ports/1/hw_counters/*rnr*",
                  "rcvd_rnr_err:0", "send_rnr_err:0", unwanted=(r"rnr\w*:[1-9]",))
    yield Section("left", "left")


# Two hosts with two ranks each: verbs between them, shared memory inside.
HOST = r"""
first=0; [ $(hostname) = b ] && first=2
export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.9.2.1 TUTTI_IFNAME=eth0 TUTTI_IB_HCA=rxe2 TUTTI_TIMEOUT_MS=60000
port=20000
ranks() {  # COMMAND...: this host's ranks of a job among all
  port=$((port + 20)); export MASTER_PORT=$port TUTTI_JOB_KEY=$port
  for r in 0 1; do (export RANK=$((first + r)) LOCAL_RANK=$r; "$@" >out.$r 2>&1; echo "rank ended with $?" >>out.$r) & done
  wait; cat out.0 out.1; [ $(cat out.0 out.1 | grep -c 'rank ended with 0') = 2 ]
}
train() {  # TRANSPORTS: one epoch; the weights' checksum
  export TUTTI_TRANSPORT=$1 TUTTI_DETERMINISM=strict
  ranks ./mlp --data . --epochs 1 --batch 125 --quiet --checkpoint weights && echo "weights $(md5sum <weights)"
}
section() {
  name=$1; shift; echo "section $name begins"; "$@" 2>&1; echo "section $name ended with $?"
}
"""


AT_WORK = "all hosts are at work"
HOSTS_TIMEOUT_S = 900


def host_sections():
    for collective in COLLECTIVES:
        yield Section(f"hosts_{collective}", f"export TUTTI_TRANSPORT=shm,verbs; ranks ./tutti-perf {collective} -b 8 -e 64K -f 8192 "
                      "-n 2 -w 0")
    yield Section("hosts_pairs", "export TUTTI_TRANSPORT=shm,verbs; ranks ./tutti-doctor --pairs")
    for transports in ("shm,verbs", "tcp", "shm,tcp"):
        yield Section("hosts_mnist_" + transports.replace(",", "_and_"), f"train {transports}")
    yield Section("hosts_standing_still", "export TUTTI_TRANSPORT=shm,verbs; rm -f out.0; "
                  f"[ $first = 2 ] || (until grep -q '^#       size' out.0; do sleep 0.1; done; echo {AT_WORK}) & ranks ./tutti-perf all_reduce -b 1M -e 1M -n 60 -w 1",
                  unwanted=(r"failed:",))


def stop_for_a_while(started):
    """Host b stands still for some seconds, network and all, in the midst of that section: slow is not dead. Whether it came to that."""
    (_, _, console), (_, other, _) = started
    deadline = time.monotonic() + HOSTS_TIMEOUT_S
    while not (console.exists() and AT_WORK in console.read_text(errors="replace")):
        if other.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    other.send_signal(signal.SIGSTOP)
    time.sleep(2)
    other.send_signal(signal.SIGCONT)
    return other.poll() is None


def two_hosts(bed):
    """Problems, as sentences, and how many sections there were."""
    listed = wanted_of(host_sections())
    if not listed:
        return [], 0
    data = [pathlib.Path(__file__).parents[2] / "data/mnist-10k" / f"{part}-ubyte.gz" for part in
            ("t10k-images-idx3", "t10k-labels-idx1", "train-images-idx3", "train-labels-idx1")]
    stood_still = []
    ended = bed.boot_pair([script(listed, HOST)] * 2, PROGRAMS + [BUILD / "examples/mlp/mlp"] + data, timeout_s=HOSTS_TIMEOUT_S,
                          meanwhile=lambda started: stood_still.append(stop_for_a_while(started)))
    problems = [f"host {'ab'[i]}: {s.name}: {p}" for i, done in enumerate(ended) for s in listed
                if (p := s.problem(done.output))]
    both, names = ended[0].output, {s.name for s in listed}
    patterns = [r"peers by transport: shm 1, verbs 2"] if names - {"hosts_pairs"} else []
    if "hosts_pairs" in names:
        patterns += [r"pair 0-1: .*: shm, ", r"pair 0-2: .*: verbs, ", r"pair 1-3: .*: verbs, "]
    problems += [f"/{p}/ does not stand in what host a prints" for p in patterns if not re.search(p, both)]
    if "hosts_standing_still" in names and not stood_still[0]:
        problems.append("host b did not stand still while it was at work")
    trained = sum("mnist" in name for name in names)
    weights = re.findall(r"weights ([0-9a-f]{32})", both)
    if len(weights) != trained or len(set(weights)) > 1:
        problems.append(f"training ends with other weights over other transports: {weights}")
    return problems, len(listed)


def wanted_of(all_sections):
    return [section for section in all_sections if re.fullmatch(PATTERN, section.name)]


def script(listed, prepare=PREPARE):
    lines = [prepare]
    for section in listed:
        lines.append(f"body_{section.name}() {{ {section.command}; }}")
        lines.append(f"section {section.name} body_{section.name}")
    return "\n".join(lines)


def main():
    reason = guest.why_not()
    if reason is None:
        try:
            bed = guest.Bed(FOLDER)
        except guest.CannotFetch as error:
            reason = str(error)
    if reason is not None:
        print("skipped:", reason)
        return 77
    listed = wanted_of(sanitized_sections() if SANITIZED else sections())

    def boot(some):
        return bed.boot(script(some), PROGRAMS, timeout_s=2700 if LONG else 1200 if SANITIZED else 300,
                        memory_mb=4096 if SANITIZED else 2048)

    done = boot(listed) if listed else guest.Done(0, "")
    void = [section for section in listed if section.is_the_kernels_fault(done.output)]
    if void:
        print("the guest's kernel locked up during", *(section.name for section in void), "which a fresh guest runs again")
        again = boot(void)
    failed = 0
    for section in listed:
        output = again.output if section in void else done.output
        problem = section.problem(output)
        failed += problem is not None
        print(f"{'failed' if problem else 'ok':<7} {section.name}{section.seconds(output)}" + (f": {problem}" if problem else ""))
    print(*re.findall(r"^\d+ faults: .*", done.output, re.M), sep="\n")
    if LONG:
        problems, n = two_hosts(bed)
        for problem in problems:
            print("failed  two hosts:", problem)
        if n > 0:
            print(f"{'failed' if problems else 'ok':<7} two hosts: {n} sections")
        failed += len(problems)
        listed += [None] * n
    if not listed:
        raise SystemExit(f"no section is called {PATTERN}")
    if done.code != 0 and not failed:
        failed = 1
        print("failed: the guest\n", done.output[-3000:])
    print("all passed" if not failed else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
