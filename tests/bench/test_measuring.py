#!/usr/bin/env python3
"""test_measuring.py BENCH - how mortise-bench measures, with subjects that the test makes up: in which order and how long, when holders
are killed, and what of it counts. BENCH is the folder bench/ of the tree."""

import collections
import itertools
import re
import socket
import sys
import threading
import unittest
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

BENCH = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

from mortise_bench import failures, figures, run, scale, servers, subjects, targets, workloads  # noqa: E402


class Made:
    """A case that notes when it is measured."""

    workload, shape, context = "cycle", "1 caller", SimpleNamespace(place="one", backend="redis", url="")

    def __init__(self, name, noted):
        self.name, self.noted, self.subject = name, noted, SimpleNamespace(label_in=lambda _: name)

    def open(self):
        pass

    warm_up = once = close = open

    def round(self, _seconds):
        self.noted.append(self.name)

    def result(self):
        return self.name


class Rounds(unittest.TestCase):
    def test_nobody_is_always_behind_the_same_one(self):
        noted, names = [], "abcd"
        cases = [Made(name, noted) for name in names]
        one = run.Run(run.QUICK, {}, [], [], [], False)
        self.addCleanup(one.clear_away)
        one.settings = replace(run.FULL, rounds={"cycle": 21})
        one.cost_s = lambda *_: 0
        with mock.patch.dict(run.ROUNDS, {"cycle": lambda _context: cases}):
            one.in_rounds("cycle", Made.context)
        self.assertEqual([sorted(noted[at : at + 4]) for at in range(0, len(noted), 4)], [list(names)] * 21)
        pairs = collections.Counter(zip(noted, noted[1:]))
        self.assertEqual({pair for pair in itertools.product(names, repeat=2) if pair[0] != pair[1]} - set(pairs), set())
        self.assertLess(max(pairs.values()), 14)
        self.assertEqual((one.cases, one.left_out), (list(names), []))

    def test_many_callers_at_once_have_more_time(self):
        """Each of them has a part of it, and the first turns of all end late."""
        context = SimpleNamespace(settings=run.FULL, place="one", subjects=lambda **_: [SimpleNamespace(can=subjects.MORTISE, where="")])
        found = {one.shape: one.lasts_s(0.25) for one in workloads.cycle(context)}
        self.assertEqual(found, {"1 caller": (0.05, 0.25), **dict.fromkeys(("8 threads", "64 threads", "64 in flight"), (0.25, 0.5))})

    def test_how_long_a_section_was(self):
        """It is the sleep of a language, and not asked to be short."""
        histogram = {"count": 0, "p50": 1_050_000}
        found = {"rate": 1, "refused": 0, "longest_wait_ns": 1, "jain": 1, "least_share": 1, "changes": 1, "overlaps": 0, "overtakes": 0}
        found.update({f"{name}_ns": {**histogram, "buckets": []} for name in ("handover", "pass")}, hold_ns={**histogram, "count": 1})
        subject = SimpleNamespace(name="mortise", where="")
        context = SimpleNamespace(backend="redis")
        for hold_us, held in ((1000, 1050), (0, None)):
            told = workloads.Contend("8 × 8", subject, context, 8, 8, hold_us).figures_of(found)
            self.assertEqual(told.get("hold_p50"), held)

    def test_one_bad_round_does_not_decide_a_cycle(self):
        good = run.FULL.rounds["cycle"] - 1
        self.assertEqual(targets.held([1] + [3] * good, 2, True), targets.MET)
        self.assertEqual(targets.held([3] + [1] * good, 2, True), targets.MISSED)


class Kills(unittest.TestCase):
    @staticmethod
    def in_source(file, pattern):
        """A number that the driver's source has."""
        return int(re.search(pattern, (BENCH.parent / file).read_text(encoding="utf-8"))[1])

    def period_s(self, name, backend, ttl_s):
        """Between two renewals, as whoever renews has it."""
        if name in ("redis_semaphore", "red_mutex"):
            return {"redis_semaphore": 0.8, "red_mutex": 0.5}[name] * ttl_s
        if name != "mortise" or backend == "redis":
            return ttl_s / self.in_source("core/lock/held.c", r"claim->span_ms / (\d+);")  # rivals: the same
        if backend == "zookeeper":
            return ttl_s / self.in_source("drivers/zookeeper/pace.c", r"short_ns\(int64_t timeout_ns\)\s*\{\s*return timeout_ns / (\d+);")
        self.assertIn("(ttl_ms + ttl_ms / 4 + 999) / 1000", (BENCH.parent / "drivers/etcd/session.c").read_text(encoding="utf-8"))
        return (1000 * ttl_s * 5 // 4 + 999) // 1000 / self.in_source("drivers/etcd/session.h", r"BEATS_PER_TTL (\d+)")

    def test_all_are_killed_after_the_same_part_of_a_period(self):
        """With what each of them renews after; a pair of kills has nothing in common otherwise."""
        renewing = [("mortise", "driver", "redis"), ("mortise", "driver", "zookeeper"), ("mortise", "driver", "etcd"),
                    ("redis_semaphore", "rival", "redis"), ("red_mutex", "rival", "redis"),
                    ("kazoo_lock", "rival", "zookeeper"), ("etcdctl_lock", "rival", "etcd")]
        for ttl_s, (name, kind, backend) in itertools.product((2, 4, 30), renewing):
            ages_s = self.ages_s(SimpleNamespace(name=name, kind=kind, renews=True), backend, ttl_s)
            self.assertGreaterEqual(min(ages_s), failures.SETTLE_S)
            passed = [round(age_s / self.period_s(name, backend, ttl_s) % 1, 6) for age_s in ages_s]
            self.assertEqual(passed, [0.1, 0.3, 0.5, 0.7, 0.9], (ttl_s, name, backend))

    def test_one_that_does_not_renew_is_killed_within_its_ttl(self):
        for ttl_s in (2, 4, 30):
            ages_s = self.ages_s(SimpleNamespace(name="redis_py", kind="rival", renews=False), "redis", ttl_s)
            self.assertGreaterEqual(min(ages_s), failures.SETTLE_S)
            self.assertLess(max(ages_s), 0.8 * ttl_s)

    @staticmethod
    def ages_s(subject, backend, ttl_s):
        context = SimpleNamespace(backend=backend)
        return failures.Killed.ages_s(SimpleNamespace(subject=subject, context=context, ttl_s=lambda: ttl_s), 5)

    def test_how_long_a_claim_lasts_that_is_not_renewed(self):
        for backend, short_s in (("redis", 2), ("zookeeper", 4)):
            context = SimpleNamespace(backend=backend)
            self.assertEqual(failures.Killed("fail", "holder killed", None, context, 1).ttl_s(), short_s)
            subject = subjects.mortise("")
            self.assertEqual(failures.KilledLongTtl(subject, context).ttl_s(), 30)


    def test_the_time_that_is_left_knows_when_they_are_killed(self):
        context = SimpleNamespace(backend="redis")
        one = run.Run(run.FULL, {}, [], [], [], False)
        self.addCleanup(one.clear_away)
        self.assertAlmostEqual(one.cost_s("fail", failures.Witnessed(subjects.mortise(""), context)), 9 + 3)  # 0.9 of 10 s
        self.assertEqual(one.cost_s("fail", failures.KilledLongTtl(subjects.mortise(""), context)), 30 + 10)


class Failures(unittest.TestCase):
    def test_a_refused_cycle_lasts_until_the_next_that_was_had(self):
        found = [(0, 1, 2, 3_000_000), (10_000_000, 0, 0, 11_000_000), (20_000_000, 25, 26, 30_000_000), (40_000_000, 0, 0, 41_000_000)]
        self.assertEqual([took for _, took in failures.lasting_ms(found)], [3, 20, 10, 1])

    def test_a_grant_before_the_holders_end_is_two_holders(self):
        self.assertEqual(failures.Killed.told([(0, 5, 6, 7)], 6)["overlaps"], 1)
        self.assertEqual(failures.Killed.told([(0, 2_000_000, 6, 7)], 1_000_000), {"to_grant": 1, "refused": 0, "overlaps": 0})
        self.assertEqual(failures.Killed.told([(0, 0, 0, 7)], 6), {"refused": 1})


class Requests(unittest.TestCase):
    """Those of the subject, without those by which the harness asks for their number."""

    @staticmethod
    def answer(listener, looks):
        """As a ZooKeeper server does: the question itself is a packet that it has received before it answers."""
        for number in range(1, looks + 1):
            asking, _ = listener.accept()
            with asking:
                asking.recv(4)
                asking.sendall(f"zk_packets_received\t{number}\n".encode())

    def test_a_look_at_zookeeper_is_none(self):
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        for listener in listeners:
            listener.settimeout(10)  # bounds failure only
            self.addCleanup(listener.close)
            thread = threading.Thread(target=self.answer, args=(listener, 2))
            thread.start()
            self.addCleanup(thread.join)
        group = servers.Servers.__new__(servers.Servers)
        group.kind = "zookeeper"
        group.values = {f"PORT{number}": listener.getsockname()[1] for number, listener in enumerate(listeners, 1)}
        counting = group.requests()
        self.assertEqual(counting.count() - counting.before - counting.own, 0)


class Sizes(unittest.TestCase):
    """That a curve ends somewhere is no failure; that a case fails is one."""

    def test_a_size_that_takes_too_long_is_not_left_out(self):
        one = run.Run(run.QUICK, {}, [], [], [], False)
        self.addCleanup(one.clear_away)
        limited = scale.Names(subjects.mortise(""), SimpleNamespace(settings=run.QUICK, place="one", backend="redis", url=""), 100, None)
        limited.before = SimpleNamespace(set_up_s=5, count=10)
        self.assertFalse(one.tried(limited, limited.check_time, "a size"))
        limited.before = SimpleNamespace(set_up_s=None, count=10)
        self.assertFalse(one.tried(limited, limited.check_time, "the next"))
        self.assertEqual(([entry["what"] for entry in one.not_reached], one.left_out), (["a size", "the next"], []))
        told, words = limited.result(), one.words_of(limited)  # bench/check knows it by these words
        self.assertEqual(words, figures.words_of(told["place"], told["target"] or told["backend"], "scale", told["shape"], told["label"]))
        self.assertFalse(one.tried(limited, lambda: 1 / 0, "a case"))
        self.assertEqual([entry["what"] for entry in one.left_out], ["a case"])

    def test_a_rival_that_is_never_measured_at_holding_many_is_not_asked(self):
        with mock.patch("shutil.which", lambda _: "/bin/etcdctl"):
            (found,) = subjects.known_rivals("etcd")["etcdctl lock"]
        self.assertNotIn("renew", found.can)
        self.assertTrue(found.renews)


unittest.main(verbosity=2)
