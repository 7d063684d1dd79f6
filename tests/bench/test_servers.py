#!/usr/bin/env python3
"""test_servers.py BENCH MORTISE-BENCH - runs it briefly on a Redis server: what is measured once (wait, renew, fail), how it
grows (scale), and all but scale with each rival that is installed, also on five servers. Checks that nothing is left out and that each has
its figures; never how fast anything was. BENCH is the folder bench/ of the tree."""

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

VESSEL, RED_MUTEX = "redis-plus-plus RedLockMutexVessel", "redis-plus-plus RedMutex"
RIVALS = {
    "redis": {"redis-py Lock", "redis-semaphore", "node-redlock, one node", VESSEL, RED_MUTEX},
    "redlock": {"node-redlock", "redis-semaphore, Redlock", VESSEL, RED_MUTEX},
}
TUNED = {"redis-py Lock, sleep=0.01": "redis-py Lock", "node-redlock, retryDelay: 10": "node-redlock",
         f"{VESSEL}, retry_delay 10 ms": VESSEL}  # fmt: skip
# What rivals are measured at once, and by which figure. To fail on five servers takes long, and is the same for them.
ONCE = {
    "redis": {
        ("wait", "5 waiters", "requests"): {"redis-py Lock", "redis-semaphore", "node-redlock, one node", RED_MUTEX},
        ("renew", "50 held", "requests"): {"redis-semaphore", RED_MUTEX},
        ("fail", "holder killed", "to_grant"): {"redis-py Lock", "redis-semaphore", "node-redlock, one node", RED_MUTEX},
    },
    "redlock": {
        ("wait", "5 waiters", "requests"): {"node-redlock", RED_MUTEX},
        ("renew", "50 held", "requests"): {"redis-semaphore, Redlock", RED_MUTEX},
    },
}


def measured(*words, backend="redis"):
    """The result, and its cases by (workload, shape, label)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [PROGRAM, "--quick", "--backend", backend, "--place", "free", "--json", path, *words]
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
        for backend, rivals in RIVALS.items():
            with self.subTest(backend):
                self.assertEqual(set(subjects.known_rivals(backend)), rivals)
                self.each_is_there_or_told(backend, rivals)

    def each_is_there_or_told(self, backend, rivals):
        result, cases = measured("--workload", "cycle,contend", backend=backend)
        absent = subjects.absent_rivals(backend)
        self.assertEqual([entry["what"] for entry in result["left_out"]], [f"{backend}: {label}" for label in absent])
        self.assertEqual(result["method"]["rivals"], [backend])
        for label in ["mortise", *(rivals - set(absent))]:
            looking_more_often = [more for more, of in TUNED.items() if of == label]
            keys = [("contend", "2 × 2, empty", one) for one in (label, *looking_more_often)]
            for key in keys + ([("cycle", "1 caller", label)] if label != RED_MUTEX else []):
                self.assertIn("rate", cases[key]["figures"], key)
                self.assertTrue(cases[key]["version"], key)
                if key[0] == "contend" and label.startswith("redis-plus-plus"):  # it has no limit of time: each turn comes
                    self.assertEqual(cases[key]["figures"]["refused"]["most"], 0, key)
        compared = cases["contend", "2 × 2, empty", "mortise"]["of_rival"].get("rate")
        if compared:  # none, if no rival had a turn in so short a time
            self.assertLessEqual(rivals - set(absent), set(compared["among"]))

    def test_what_is_measured_once(self):
        """Of each that can do it; those that renew do so at least once in the interval."""
        for backend, wanted in ONCE.items():
            with self.subTest(backend):
                _, cases = measured("--workload", ",".join(workload for workload, *_ in wanted), backend=backend)
                absent = set(subjects.absent_rivals(backend))
                for (workload, shape, figure), labels in wanted.items():
                    found = {label for (of, in_shape, label), case in cases.items()
                             if (of, in_shape) == (workload, shape) and case["kind"] == "rival"}  # fmt: skip
                    self.assertEqual(found, labels - absent)
                    for label in found:
                        self.assertGreater(cases[workload, shape, label]["figures"][figure]["least"], 0, (shape, label))


unittest.main(verbosity=2)
