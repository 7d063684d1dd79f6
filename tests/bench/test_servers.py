#!/usr/bin/env python3
"""test_servers.py BENCH MORTISE-BENCH - runs it briefly on a Redis server: what is measured once (wait, renew, fail), how it
grows (scale), and cycle and contend with each rival that is installed. Checks that nothing is left out and that each has its figures; never
how fast anything was. BENCH is the folder bench/ of the tree."""

import json
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

PROGRAM = sys.argv.pop()
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop())

from mortise_bench import parts, run, subjects  # noqa: E402

parts.programs = Path(PROGRAM).resolve().parent.parent / "bench"  # of the build
parts.servers = Path(__file__).resolve().parents[1] / "servers.sh"

RIVALS = ("redis-py Lock", "redis-semaphore", "node-redlock, one node", "redis-plus-plus RedLockMutexVessel")
TUNED = {"redis-py Lock, sleep=0.01": "redis-py Lock",
         "redis-plus-plus RedLockMutexVessel, retry_delay 10 ms": "redis-plus-plus RedLockMutexVessel"}  # fmt: skip


def measured(*words):
    """The result, and its cases by (workload, shape, label)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [PROGRAM, "--quick", "--backend", "redis", "--place", "free", "--json", path, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads(path.read_text(encoding="utf-8"))
    return result, {(case["workload"], case["shape"], case["label"]): case for case in result["cases"]}


class Once(unittest.TestCase):
    """wait, renew, fail."""

    def test_all_is_there(self):
        result, cases = measured("--no-rivals", "--workload", "wait,renew,fail")
        wanted = {
            ("wait", "5 waiters", "mortise"): {"requests", "server_cpu", "client_cpu"},
            ("renew", "50 held", "mortise"): {"requests", "server_cpu", "client_cpu", "memory"},
            ("fail", "holder killed", "mortise"): {"refused"},
            ("fail", "holder killed, ttl 30 s", "mortise, witness"): {"refused"},
            ("fail", "server restarted", "mortise"): {"refused", "before_p50"},
        }
        self.assertEqual(result["left_out"], [])
        self.assertEqual(result["method"]["rivals"], [])
        self.assertEqual(set(cases), set(wanted))
        for key, figures in wanted.items():
            self.assertLessEqual(figures, set(cases[key]["figures"]), key)
        restarted = cases["fail", "server restarted", "mortise"]
        self.assertEqual([what for _, what in restarted["events"]], ["killed", "server answers"])
        self.assertGreater(len(restarted["timeline"]), 1)

    def test_requests_of_waiters_are_counted_for_long_enough(self):
        """Each of them asks again when the holder's time is over, and not before."""
        whole = run.Run(replace(run.FULL, waiters=(20,)), {"free": None}, ["wait"], ["redis"], [], False).everything()
        self.assertEqual(whole["left_out"], [])
        (case,) = whole["cases"]
        self.assertGreaterEqual(case["figures"]["requests"]["median"], 20 / 10)


class Scale(unittest.TestCase):
    """The curves of scale, each of two small sizes."""

    def test_all_sizes_are_there(self):
        result, cases = measured("--no-rivals", "--workload", "scale")
        shapes = [
            f"{words}: {count}"
            for words, counts in (
                ("held in one client", (10, 40)),
                ("waiting in one client", (10, 40)),
                ("clients with a lock", (2, 4)),
                ("names in the server", (20, 80)),
            )
            for count in counts
        ]
        self.assertEqual(result["left_out"], [])
        self.assertEqual(list(cases), [("scale", shape, "mortise") for shape in shapes])
        for case in cases.values():
            wanted = {"requests", "server_cpu", "client_cpu", "memory", "server_memory", "set_up", "set_up_cpu", "to_grant"}
            self.assertLessEqual(wanted, set(case["figures"]))
            self.assertGreater(case["figures"]["to_grant"]["median"], 0)
        self.assertEqual([(curve["curve"], curve["largest"]) for curve in result["curves"]],
                         [("hold", 40), ("crowd", 40), ("clients", 4), ("touch", 80)])  # fmt: skip
        self.assertEqual(len(result["targets"]), 4)


class Rivals(unittest.TestCase):
    """One that is not installed is told; each that is has its cases."""

    def test_each_is_there_or_told(self):
        result, cases = measured("--workload", "cycle,contend")
        absent = subjects.absent_rivals("redis")
        self.assertEqual(set(subjects.known_rivals("redis")), set(RIVALS))
        self.assertEqual([entry["what"] for entry in result["left_out"]], [f"redis: {label}" for label in absent])
        self.assertEqual(result["method"]["rivals"], ["redis"])
        for label in ["mortise", *(label for label in RIVALS if label not in absent)]:
            looking_more_often = [more for more, of in TUNED.items() if of == label]
            for key in [("cycle", "1 caller", label), *(("contend", "2 × 2, empty", one) for one in (label, *looking_more_often))]:
                self.assertIn("rate", cases[key]["figures"], key)
                self.assertTrue(cases[key]["version"], key)
                if key[0] == "contend" and label.startswith("redis-plus-plus"):  # it has no limit of time: each turn comes
                    self.assertEqual(cases[key]["figures"]["refused"]["most"], 0, key)
        compared = cases["contend", "2 × 2, empty", "mortise"]["of_rival"].get("rate")
        if compared:  # none, if no rival had a turn in so short a time
            self.assertLessEqual(set(RIVALS) - set(absent), set(compared["among"]))


unittest.main(verbosity=2)
