"""tutti-doctor: its findings, its exit code, and that docs/environment.md is what it prints.

Usage: doctor_test.py TUTTI_DOCTOR ENVIRONMENT_MD TUTTI_RUN"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import unittest

DOCTOR, DOCUMENT, RUN = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}


def doctor(*arguments, before=None, wrapper=(), **variables):
    return subprocess.run([*wrapper, DOCTOR, *arguments], capture_output=True, text=True, timeout=60,
                          env=CLEAN | variables, preexec_fn=before)


def findings(**keywords):
    done = doctor("--json", **keywords)
    found = json.loads(done.stdout)
    problems = [f for f in found if f["severity"] == "problem"]
    assert done.returncode == (1 if problems else 0), done
    for finding in found:
        assert finding["severity"] == "ok" or finding["fix"], finding
    return {f["check"]: f for f in found}


class Doctor(unittest.TestCase):
    def test_finds_no_problem_where_the_tests_run(self):
        done = doctor()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("shared memory: memfd_create, mmap and Unix sockets work", done.stdout)

    def test_every_check_reports(self):
        self.assertEqual(list(findings()), ["shared memory", "CPU time", "open files", "network", "interface choice",
                                            "membarrier", "InfiniBand", "GPU", "devices", "environment"])

    def test_devices_are_those_that_were_asked_for(self):
        self.assertIn("simulated", findings(TUTTI_DEVICE="simulated:2")["devices"]["sentence"])
        wrong = findings(TUTTI_DEVICE="nosuch")["devices"]
        self.assertEqual(wrong["severity"], "problem")
        self.assertIn("nosuch", wrong["sentence"])

    def test_an_unknown_variable_is_a_problem_with_its_neighbour(self):
        found = findings(TUTTI_TIMEOUT="5")["environment"]
        self.assertEqual(found["severity"], "problem")
        self.assertIn("TUTTI_TIMEOUT is set", found["sentence"])
        self.assertEqual(found["fix"], "did you mean TUTTI_TIMEOUT_MS?")

    def test_a_malformed_value_is_a_problem(self):
        found = findings(TUTTI_TIMEOUT_MS="soon")["environment"]
        self.assertIn("TUTTI_TIMEOUT_MS=soon is not an integer", found["sentence"])

    def test_an_interface_that_does_not_exist_is_a_problem(self):
        found = findings(TUTTI_IFNAME="lo,nosuch0")["interface choice"]
        self.assertEqual(found["severity"], "problem")
        self.assertIn("names nosuch0,", found["sentence"])
        self.assertEqual(findings(TUTTI_IFNAME="lo")["interface choice"]["severity"], "ok")

    def test_few_open_files_are_a_problem(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        found = findings(before=limit)["open files"]
        self.assertEqual(found["severity"], "problem")
        self.assertIn("64 files", found["sentence"])
        self.assertIn("ulimit -n", found["fix"])

    def test_a_host_without_a_loopback_is_a_problem(self):
        wrapper = ("unshare", "--user", "--map-root-user", "--net")
        if subprocess.run([*wrapper, "true"], capture_output=True).returncode != 0:
            self.skipTest("network namespaces may not be made here (unshare --user --net is refused)")
        self.assertEqual(findings(wrapper=wrapper)["network"]["severity"], "problem")

    def test_the_document_of_variables_is_what_it_prints(self):
        printed = doctor("--environment").stdout
        self.assertIn("| `TUTTI_ALGO` |", printed)
        self.assertEqual(DOCUMENT.read_text(), printed,
                         "mend it with: tutti-doctor --environment > docs/environment.md")

    def test_pairs_of_ranks_are_measured_and_told_once(self):
        done = subprocess.run([RUN, "-n", "3", DOCTOR, "--pairs"], capture_output=True, text=True, timeout=60,
                              env=CLEAN | {"TUTTI_TRANSPORT": "shm"})
        self.assertEqual(done.returncode, 0, done)
        for pair in ("0-1", "0-2", "1-2"):
            self.assertEqual(done.stdout.count(f"pair {pair}: rank {pair[0]} (host "), 1, done.stdout)
        self.assertRegex(done.stdout, r"ok .*: shm, [0-9.]+ us, [0-9.e+]+ MiB/s")

    def test_what_was_asked_for_is_no_remark(self):
        done = subprocess.run([RUN, "-n", "2", DOCTOR, "--pairs"], capture_output=True, text=True, timeout=60,
                              env=CLEAN | {"TUTTI_TRANSPORT": "tcp"})
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"ok .*: tcp, .*\(TUTTI_TRANSPORT=tcp\)")

    def test_ranks_that_do_not_meet_are_a_problem(self):
        done = doctor("--pairs", "--json", RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29555",
                      TUTTI_TIMEOUT_MS="300")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("the ranks do not work together", json.loads(done.stdout)[0]["sentence"])

    def test_an_unknown_option_is_refused(self):
        done = doctor("--everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--everything", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
