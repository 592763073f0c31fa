#!/usr/bin/env python3
"""tutti-run, watched from outside with small shell programs: environment, output, signals, failures, and that nothing
outlives it. Usage: run_test.py PATH_OF_TUTTI_RUN"""
import os
import pathlib
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TUTTI_RUN = os.path.abspath(sys.argv[1])
MARK = f"TUTTI_RUN_TEST_{os.getpid()}"  # in the environment of everything started here

# Under nohup or in a background job signals arrive here ignored, and no shell can trap what it finds ignored.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)


def run(*arguments, timeout=30, variables={}, **more):
    return subprocess.run([TUTTI_RUN, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, MARK: "1", **variables}, **more)


def start(*arguments, **more):
    return subprocess.Popen([TUTTI_RUN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, MARK: "1"}, **more)


def on_a_terminal(*arguments, **variables):
    """What a terminal gets from tutti-run."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([TUTTI_RUN, *map(str, arguments)], stdout=follower, stderr=follower,
                               env={**os.environ, MARK: "1", **variables})
    os.close(follower)
    text = b""
    while select.select([leader], [], [], 10)[0]:
        try:
            text += os.read(leader, 4096)
        except OSError:
            break
    os.close(leader)
    assert process.wait(10) == 0, text
    return text.decode()


def leftovers():
    """Processes of these tests that are alive, found by a variable that every descendant inherits."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if MARK.encode() in (entry / "environ").read_bytes():
                found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            pass
    return found


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def supervisor_of(process):
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    return int(children.stdout.split()[0])


class LauncherTest(unittest.TestCase):
    def tearDown(self):
        gone = wait_until(lambda: not leftovers(), 5)
        left = leftovers()
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(gone, f"left running: {left}")


class Environment(LauncherTest):
    def test_each_rank_gets_what_torchrun_sets(self):
        got = run("-n", 3, "sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
                  "$MASTER_ADDR $MASTER_PORT ${#TUTTI_JOB_KEY}")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        lines = sorted(got.stdout.splitlines())
        port = lines[0].split()[7]
        self.assertEqual(lines, [f"[{r}] {r} {r} 3 3 0 127.0.0.1 {port} 64" for r in range(3)])
        self.assertTrue(1024 < int(port) < 65536 - 16)

    def test_the_key_is_the_same_for_all_ranks_and_fresh_for_each_job(self):
        keys = [run("-n", 2, "--no-prefix", "sh", "-c", "echo $TUTTI_JOB_KEY").stdout.split() for _ in range(2)]
        self.assertEqual(len(set(keys[0])), 1)
        self.assertRegex(keys[0][0], "^[0-9a-f]{64}$")
        self.assertNotEqual(keys[0][0], keys[1][0])

    def test_the_key_stands_in_no_command_line_and_in_no_message(self):
        got = run("-n", 2, "sh", "-c", "tr '\\0' ' ' < /proc/$PPID/cmdline; exit 3")
        self.assertNotRegex(got.stdout + got.stderr, "[0-9a-f]{64}")

    def test_arguments_of_the_program_pass_through(self):
        for dashes in ([], ["--"]):
            got = run("-n", 1, *dashes, "printf", "%s|", "-n", "5", "--timeout", "a b", "", "--", "-h")
            self.assertEqual(got.stdout, "[0] -n|5|--timeout|a b||--|-h|\n")

    def test_bind_gives_each_rank_its_share_of_the_cores(self):
        ours = sorted(os.sched_getaffinity(0))
        program = "import os; print(*sorted(os.sched_getaffinity(0)))"
        ranks = min(2, len(ours))
        got = run("-n", ranks, "--bind", "--no-prefix", sys.executable, "-c", program)
        shares = [set(map(int, line.split())) for line in got.stdout.splitlines()]
        self.assertEqual(len(shares), ranks)
        self.assertTrue(set.union(*shares) <= set(ours))
        self.assertEqual(sum(map(len, shares)), len(set.union(*shares)), "shares overlap")
        many = run("-n", len(ours) + 1, "--bind", "--no-prefix", sys.executable, "-c", program)
        self.assertEqual(many.returncode, 0)
        self.assertEqual(len(many.stdout.splitlines()), len(ours) + 1)

    def test_rank_0_reads_standard_input_and_the_others_find_it_empty(self):
        got = run("-n", 2, "cat", input="hello\n")
        self.assertEqual(got.stdout, "[0] hello\n")


class Output(LauncherTest):
    def test_stdout_goes_to_stdout_and_stderr_to_stderr(self):
        got = run("-n", 2, "sh", "-c", "echo out; echo err >&2")
        self.assertEqual(sorted(got.stdout.splitlines()), ["[0] out", "[1] out"])
        self.assertEqual(sorted(got.stderr.splitlines()), ["[0] err", "[1] err"])

    def test_prefixes_are_equally_wide(self):
        got = run("-n", 11, "echo", "x")
        self.assertEqual(sorted(got.stdout.splitlines()), sorted(f"[{r:2}] x" for r in range(11)))

    def test_an_unfinished_line_is_shown_and_ended(self):
        self.assertEqual(run("-n", 1, "printf", "a\\nb").stdout, "[0] a\n[0] b\n")

    def test_progress_bars_become_lines(self):
        self.assertEqual(run("-n", 1, "printf", "\\r10%%\\r20%%\\r\\ndone\\r\\n\\nend\\n").stdout,
                         "[0] 10%\n[0] 20%\n[0] done\n[0] \n[0] end\n")

    def test_no_prefix_passes_lines_through(self):
        self.assertEqual(run("-n", 2, "--no-prefix", "echo", "x").stdout, "x\nx\n")

    def test_without_prefixes_ranks_find_the_terminal_itself(self):
        program = ("-n", 2, "--no-prefix", "sh", "-c", "test -t 1 && test -t 2 && printf '10%%\\r20%%\\r\\n'")
        self.assertEqual(on_a_terminal(*program), "10%\r20%\r\r\n" * 2)
        self.assertEqual(run(*program).returncode, 1)

    def test_long_lines_of_many_ranks_on_both_streams_are_not_torn(self):
        program = ("import sys, os\nr = os.environ['RANK']\n"
                   "for i in range(200):\n"
                   "  for s in (sys.stdout, sys.stderr): s.write(r * (37 * i + 1) + '\\n'); s.flush()\n")
        got = subprocess.run([TUTTI_RUN, "-n", "4", sys.executable, "-c", program], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=60, env={**os.environ, MARK: "1"})
        lines = got.stdout.splitlines()
        self.assertEqual(len(lines), 4 * 200 * 2)
        for line in lines:
            self.assertRegex(line, r"^\[(\d)\] \1+$")

    def test_colours_are_for_terminals_unless_NO_COLOR_is_set(self):
        os.environ.pop("NO_COLOR", None)
        coloured = on_a_terminal("-n", 2, "echo", "x")
        self.assertEqual(len(set(re.findall(r"\x1b\[(\d+)m\[\d\]\x1b\[0m x", coloured))), 2, coloured)
        self.assertNotIn("\x1b", on_a_terminal("-n", 2, "echo", "x", NO_COLOR="1"))
        self.assertNotIn("\x1b", run("-n", 2, "echo", "x").stdout)

    def test_one_log_per_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            got = run("-n", 2, "--output-dir", folder + "/a/b", "sh", "-c", "echo out $RANK; echo err >&2")
            self.assertEqual(got.returncode, 0)
            for rank in range(2):
                text = pathlib.Path(f"{folder}/a/b/rank-{rank}.log").read_text()
                self.assertEqual(sorted(text.splitlines()), ["err", f"out {rank}"])
            self.assertIn("[1] out 1", got.stdout)
            pathlib.Path(folder + "/file").write_text("")
            got = run("-n", 2, "--output-dir", folder + "/file", "true")
            self.assertEqual(got.returncode, 2)
            self.assertIn(folder + "/file", got.stderr)

    def test_a_closed_reader_ends_the_job(self):
        process = start("-n", 2, "yes")
        self.assertRegex(process.stdout.readline(), r"^\[[01]\] y$")
        process.stdout.close()
        self.assertEqual(process.wait(10), 128 + signal.SIGPIPE)
        process.stderr.close()

    def test_a_slow_reader_holds_no_signal_back(self):
        process = start("-n", 2, "yes")
        time.sleep(0.3)  # the pipe is full now
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertIn("SIGTERM", errors)


class Failure(LauncherTest):
    def test_success_is_0(self):
        self.assertEqual(run("-n", 4, "true").returncode, 0)

    def test_the_first_failing_rank_ends_all_and_is_named(self):
        begin = time.monotonic()
        got = run("-n", 3, "sh", "-c", "[ $RANK = 1 ] && exit 7; sleep 100")
        self.assertLess(time.monotonic() - begin, 4)
        self.assertEqual(got.returncode, 7)
        self.assertEqual(got.stderr, "tutti-run: rank 1 failed first: exit code 7; all others were ended\n")

    def test_a_signal_is_named(self):
        got = run("-n", 2, "sh", "-c", "[ $RANK = 0 ] && kill -SEGV $$; sleep 100", preexec_fn=lambda:
                  resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
        self.assertEqual(got.returncode, 128 + 11)
        self.assertEqual(got.stderr, "tutti-run: rank 0 failed first: killed by SIGSEGV (Segmentation fault); "
                                     "all others were ended\n")

    def test_a_core_dump_is_told(self):
        pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text()
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        if pattern.startswith(("|", "/")) or hard == 0:
            self.skipTest(f"core files do not go to the working directory here (core_pattern {pattern.strip()})")
        options = os.environ.get("ASAN_OPTIONS", "") + ":disable_coredump=0"  # a sanitized tutti-run forbids them otherwise
        with tempfile.TemporaryDirectory() as folder:
            got = run("-n", 1, "sh", "-c", "kill -ABRT $$", cwd=folder, variables={"ASAN_OPTIONS": options},
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, hard)))
        self.assertEqual(got.returncode, 128 + 6)
        self.assertEqual(got.stderr, "tutti-run: rank 0 failed first: killed by SIGABRT (Aborted), core dumped\n")

    def test_a_killed_rank_is_first_even_if_others_leave_because_of_it(self):
        got = run("-n", 4, "sh", "-c", "if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 0.1; exit 1")
        self.assertEqual(got.returncode, 128 + 9)
        self.assertIn("rank 2 failed first: killed by SIGKILL", got.stderr)

    def test_a_rank_that_ignores_SIGTERM_is_killed_after_the_grace_period(self):
        begin = time.monotonic()
        got = run("-n", 2, "--grace", 0.4, "sh", "-c",
                  "if [ $RANK = 0 ]; then sleep 0.2; exit 5; fi; trap '' TERM; while :; do sleep 0.05; done")
        self.assertEqual(got.returncode, 5)
        self.assertTrue(0.5 < time.monotonic() - begin < 5)

    def test_ranks_may_tidy_up_on_SIGTERM(self):
        got = run("-n", 2, "sh", "-c",
                  "if [ $RANK = 0 ]; then sleep 0.3; exit 5; fi; trap 'echo tidy; exit 0' TERM; sleep 100 & wait")
        self.assertEqual((got.returncode, got.stdout), (5, "[1] tidy\n"))

    def test_a_stopped_rank_is_ended_too(self):
        got = run("-n", 2, "--grace", 20, "sh", "-c", "if [ $RANK = 1 ]; then kill -STOP $$; fi; sleep 0.3; exit 6")
        self.assertEqual(got.returncode, 6)

    def test_the_timeout_ends_the_job(self):
        got = run("-n", 2, "--timeout", 0.3, "sleep", 100)
        self.assertEqual(got.returncode, 124)
        self.assertEqual(got.stderr, "tutti-run: the time of 0.3 s is over; all ranks were ended\n")

    def test_wrong_options_are_named(self):
        for arguments, words in [
                (["-n", "0", "true"], "-n 0"), (["-n", "-3", "true"], "-n -3"), (["-n", "x", "true"], "-n = x"),
                (["-n", "99999", "true"], "-n 99999"), (["true"], "-n is required"), (["-n", "2"], "no program"),
                (["-n", "2", "--bogus", "true"], "--bogus"), (["-n", "2", "--timeout", "-1", "true"], "--timeout -1"),
                (["-n", "2", "no-such-program-here"], "'no-such-program-here': No such file or directory"),
                (["-n", "2", "/"], "'/': Permission denied")]:
            got = run(*arguments)
            self.assertEqual((got.returncode, got.stdout), (2, ""), arguments)
            self.assertIn(words, got.stderr)
            self.assertEqual(len(got.stderr.splitlines()), 1, got.stderr)


class Signals(LauncherTest):
    PROGRAM = "for s in INT TERM HUP; do trap \"echo got $s; exit 3\" $s; done; echo ready; while :; do sleep 0.02; done"

    def started(self, *options, program=PROGRAM, ranks=2):
        process = start("-n", ranks, *options, "sh", "-c", program)
        for _ in range(ranks):
            self.assertIn("ready", process.stdout.readline())
        return process

    def test_signals_are_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.started()
            process.send_signal(number)
            out, errors = process.communicate(timeout=10)
            self.assertEqual(process.returncode, 3)
            # The second rank may also have got the SIGTERM that ends it after the first one left.
            self.assertIn("got " + number.name[3:], out)
            self.assertRegex(errors, f"rank [01] failed first after {number.name} was passed on: exit code 3")

    def test_ranks_that_end_well_after_a_signal_make_a_success(self):
        process = self.started(program="trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
        self.assertNotIn("failed", errors)
        self.assertEqual(process.returncode, 0)

    def test_the_second_interrupt_kills(self):
        process = self.started(program="trap '' INT TERM; echo ready; while :; do sleep 0.02; done")
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
        self.assertEqual(process.returncode, 128 + 2)

    def test_stop_and_continue_reach_the_ranks(self):
        process = self.started(program="echo ready; i=0; while :; do echo $((i+=1)); sleep 0.02; done", ranks=1)
        def lines_within(seconds):
            readable = select.select([process.stdout.fileno()], [], [], seconds)[0]
            return os.read(process.stdout.fileno(), 1 << 20) if readable else b""

        self.assertTrue(lines_within(5))
        process.send_signal(signal.SIGTSTP)
        self.assertTrue(wait_until(lambda: not lines_within(0.5)), "still writes though stopped")
        process.send_signal(signal.SIGCONT)
        self.assertTrue(lines_within(5))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


class NothingOutlives(LauncherTest):
    # Each rank leaves a child in its process group and one in a session of its own, and waits.
    FAMILY = "sleep 300 & setsid sleep 300 & echo ready; wait"

    def family(self):
        process = start("-n", 2, "sh", "-c", self.FAMILY)
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        self.assertTrue(wait_until(lambda: len(leftovers()) >= 8))
        return process

    def test_after_the_launcher_is_killed(self):
        process = self.family()
        process.kill()
        process.communicate(timeout=10)
        self.assertTrue(wait_until(lambda: not leftovers(), 3), leftovers())

    def test_after_the_supervisor_is_killed(self):
        process = self.family()
        os.kill(supervisor_of(process), signal.SIGKILL)
        _, errors = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 128 + 9)
        self.assertIn("killed by SIGKILL", errors)
        self.assertEqual(leftovers(), [])

    def test_after_a_failure(self):
        got = run("-n", 2, "sh", "-c", "sleep 300 & setsid sleep 300 & sleep 0.2; [ $RANK = 1 ] && exit 4; wait")
        self.assertEqual(got.returncode, 4)
        self.assertEqual(leftovers(), [])

    def test_after_a_good_end(self):
        got = run("-n", 2, "sh", "-c", "sleep 300 & setsid sleep 300 & sleep 0.1; echo done")
        self.assertEqual((got.returncode, len(got.stdout.splitlines())), (0, 2))
        self.assertEqual(leftovers(), [])

    def test_after_a_program_that_cannot_be_run(self):
        self.assertEqual(run("-n", 2, "/etc/passwd").returncode, 2)
        self.assertEqual(leftovers(), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
