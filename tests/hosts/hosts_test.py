#!/usr/bin/env python3
"""Ranks on several hosts (network namespaces): TCP alone reaches them, slow, cut and IPv6-only networks included; ranks
of one host share its memory meanwhile. Usage: hosts_test.py HOSTS_WORKER WINDOW_WORKER [TUTTI_PERF]"""
import os
import re
import subprocess
import sys
import time
import unittest

import namespaces
from namespaces import Hosts

namespaces.become_root_of_a_user_namespace()
WORKER, WINDOW_WORKER = sys.argv.pop(1), sys.argv.pop(1)
PERF = sys.argv.pop(1) if sys.argv[1:] and not sys.argv[1].startswith("-") else None
PORT = 29617


class Ranks(unittest.TestCase):
    def slow_hosts(self, n, rate):
        try:
            hosts = Hosts(n, rate=rate)
            hosts.create()
        except namespaces.CannotShape as error:
            hosts.destroy()
            self.skipTest(f"this kernel cannot slow an interface: {error}")
        self.addCleanup(hosts.destroy)
        return hosts

    def start(self, hosts, count, rounds=1, channels=1, algorithm="ring"):
        return [hosts.start(rank, [WORKER, str(rank), str(hosts.n), hosts.address(0), str(PORT), str(count),
                                   str(rounds), str(channels), algorithm],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(hosts.n)]

    def milliseconds(self, workers):
        slowest = 0.0
        for rank, worker in enumerate(workers):
            said, _ = worker.communicate(timeout=60)
            self.assertEqual(worker.returncode, 0, f"rank {rank}: {said}")
            self.assertTrue(said.startswith("ok "), f"rank {rank}: {said}")
            slowest = max(slowest, float(said.split()[1]))
        return slowest

    def test_four_hosts_agree_on_every_algorithm(self):
        with Hosts(4) as hosts:
            for algorithm in ("ring", "double_tree", "recursive_doubling", "one_shot"):
                with self.subTest(algorithm):
                    self.milliseconds(self.start(hosts, 100_003, channels=2, algorithm=algorithm))

    def test_hosts_with_ipv6_alone(self):
        with Hosts(2, ipv4=False) as hosts:
            self.milliseconds(self.start(hosts, 50_000))

    def test_a_slow_network_is_used_to_its_limit(self):
        # Two ranks, 5 MB: each sends 5 MB. At 200 Mbit/s that is 200 ms.
        hosts = self.slow_hosts(2, "200mbit")
        took = self.milliseconds(self.start(hosts, 1_250_000, rounds=3))
        print(f"all_reduce of 5 MB between 2 hosts at 200 Mbit/s: {took:.0f} ms; the limit is 200 ms")
        self.assertGreater(took, 150)
        self.assertLess(took, 600)

    def test_a_cut_that_is_mended_loses_nothing(self):
        hosts = self.slow_hosts(2, "50mbit")
        workers = self.start(hosts, 2_500_000)
        time.sleep(0.7)
        hosts.cut(1)
        time.sleep(0.5)
        hosts.mend(1)
        self.milliseconds(workers)

    def test_a_dead_rank_ends_the_others(self):
        hosts = self.slow_hosts(3, "50mbit")
        workers = self.start(hosts, 25_000_000)
        time.sleep(1.0)
        workers[1].kill()
        start = time.monotonic()
        for rank in (0, 2):
            said, _ = workers[rank].communicate(timeout=30)
            self.assertEqual(workers[rank].returncode, 1, said)
            self.assertIn("rank 1", said)
        self.assertLess(time.monotonic() - start, 5)


def start_ranks(hosts, command, each=2, **variables):
    """`each` ranks on every host, as a launcher starts them."""
    ranks = hosts.n * each
    return [hosts.start(rank // each, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                        env=os.environ | variables | {
                            "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % each),
                            "MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(PORT)}) for rank in range(ranks)]


class Windows(unittest.TestCase):
    """Two ranks on each of three hosts: some reach a window's memory directly, the others by service."""

    def test_all_ranks_put_to_and_get_from_all(self):
        with Hosts(3) as hosts:
            for rank, process in enumerate(start_ranks(hosts, [WINDOW_WORKER])):
                out, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, f"rank {rank}: {out}{err}")


class Joining(unittest.TestCase):
    def test_says_why_what_is_allowed_does_not_reach_another_host(self):
        with Hosts(2) as hosts:
            for process in start_ranks(hosts, [WINDOW_WORKER], each=1, TUTTI_TRANSPORT="shm"):
                out, err = process.communicate(timeout=60)
                self.assertNotEqual(process.returncode, 0)
                self.assertRegex(out + err, r"no allowed transport \(shm\) reaches rank [01] \(.*\): "
                                            r"not shm, since it is on this host, but in another network namespace")


class Speeds(unittest.TestCase):
    def test_of_links_are_measured_when_ranks_join_and_not_again_for_a_duplicate(self):
        try:
            hosts = Hosts(2, rate="200mbit")
            hosts.create()
        except namespaces.CannotShape as error:
            hosts.destroy()
            self.skipTest(f"this kernel cannot slow an interface: {error}")
        self.addCleanup(hosts.destroy)
        for process in start_ranks(hosts, [WINDOW_WORKER], TUTTI_LOG="info"):
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, out + err)
            found = re.findall(r"2 networks; this one takes ([0-9.e+-]+) Gbit/s", out + err)
            self.assertEqual(len(found), 1, out + err)
            self.assertLess(float(found[0]), 0.3)
            self.assertEqual((out + err).count(" joined: "), 2, out + err)


@unittest.skipIf(PERF is None, "tutti-perf was not built")
class MixedCommunicators(unittest.TestCase):
    """Two ranks on each host, in one communicator: shared memory inside a host, TCP among hosts."""

    def start(self, hosts, *arguments, each=2, **variables):
        return start_ranks(hosts, [PERF, *arguments], each, **variables)

    def passes(self, hosts, *arguments, each=2, **variables):
        said = []
        for rank, process in enumerate(self.start(hosts, *arguments, each=each, **variables)):
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, f"rank {rank}: {out}{err}")
            said.append(out)
        self.assertIn("# Out of bounds values : 0 OK", said[0])
        for rank in range(hosts.n * each):
            self.assertRegex(said[0], rf"rank +{rank}: .* shm {each - 1}, tcp {(hosts.n - 1) * each}\n")

    def test_every_algorithm_of_all_reduce(self):
        with Hosts(2) as hosts:
            for algorithm in ("one_shot", "two_shot", "recursive_doubling", "ring", "tree", "double_tree", "hierarchical"):
                with self.subTest(algorithm):
                    self.passes(hosts, "all_reduce", "--sizes", "0,4,1000,1M", "-n", "2", "-w", "0",
                                TUTTI_ALGO=algorithm)

    def test_every_root_of_broadcast(self):
        with Hosts(2) as hosts:
            for algorithm in ("direct", "binomial", "chain", "double_tree"):
                with self.subTest(algorithm):
                    self.passes(hosts, "broadcast", "--sizes", "0,4,1000,1M", "-r", "all", "-n", "2", "-w", "0",
                                TUTTI_ALGO=algorithm)

    def test_three_hosts_with_ipv6_alone(self):
        with Hosts(3, ipv4=False) as hosts:
            self.passes(hosts, "all_reduce", "--sizes", "8,1M", "-n", "2")
            self.passes(hosts, "sendrecv", "--sizes", "8,1M", "-n", "2")

    def test_a_dead_rank_is_named_by_the_ranks_of_both_hosts(self):
        with Hosts(2) as hosts:
            ranks = self.start(hosts, "all_reduce", "--sizes", "64K", "-n", "1000000000")
            for line in ranks[0].stdout:
                if "(elements)" in line:
                    break
            time.sleep(0.5)
            ranks[3].kill()
            start = time.monotonic()
            for rank in (0, 1, 2):
                _, errors = ranks[rank].communicate(timeout=30)
                self.assertNotEqual(ranks[rank].returncode, 0)
                self.assertRegex(errors, "rank 3")
            self.assertLess(time.monotonic() - start, 5)


if __name__ == "__main__":
    reason = namespaces.why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
