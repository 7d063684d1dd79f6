#!/usr/bin/env python3
"""Parts of a torture run, beside a server and a fighter that are made up: what the checker learns of a process that is stopped,
when a run is skipped, and the end of what has ended already. And what the plans of the rows in CMakeLists.txt have."""
import json
import os
import signal
import subprocess
import time
import types
import unittest
from unittest import mock

import arena
import nemesis
import strikes


class Stops(unittest.TestCase):
    def setUp(self):
        self.clock_ns, self.events, self.signals = 0, [], []
        self.slot = types.SimpleNamespace(number=0, stopped_until=0, stopped_ns=0, fighter=types.SimpleNamespace(pid=7),
                                          check_alive=lambda: None, signal=self.signals.append)
        server = types.SimpleNamespace(is_cluster=False)
        run = types.SimpleNamespace(server=server, settings={"ttl": 1000},
                                    write=lambda event, **more: self.events.append((event, more)))
        self.strikes = strikes.Strikes(run)
        for place in (mock.patch.object(strikes, "now_ns", lambda: self.clock_ns), mock.patch.object(strikes, "Tracer")):
            place.start()
            self.addCleanup(place.stop)

    def test_stop(self):
        """A second one that comes meanwhile makes it longer."""
        self.clock_ns = 5
        self.strikes.stop(self.slot, 0.5)
        self.clock_ns = 6
        self.strikes.stop(self.slot, 0.75)
        self.clock_ns = 9
        self.strikes.go_on(self.slot)
        self.strikes.go_on(self.slot)
        self.assertEqual(self.events, [("stopped", {"at_ns": 5, "until_ns": 9, "pid": 7})])
        self.assertEqual(self.signals, [signal.SIGSTOP, signal.SIGSTOP, signal.SIGCONT])

    def test_trace(self):
        self.clock_ns = 5
        self.strikes.trace(self.slot, 0.5)
        self.clock_ns = 9
        self.strikes.untrace(self.slot)
        self.assertEqual(self.events, [("stopped", {"at_ns": 5, "until_ns": 9, "pid": 7})])


class Clocks(unittest.TestCase):
    def test_just_set(self):
        """The fighter has read the file just before that, and reads it again soon."""
        answers = [str(int(time.time() + ahead_s)) for ahead_s in (2739, 2739, 847)]
        fighter = types.SimpleNamespace(say=lambda _: None, hear=lambda: answers.pop(0))
        run = types.SimpleNamespace(settings={"wall": "clock.so"})
        arena.Slot.check_clock(types.SimpleNamespace(run=run, number=0, ahead_s=847, fighter=fighter))
        self.assertEqual(answers, [])


class Skips(unittest.TestCase):
    def test_only_before_the_first_start(self):
        """Later it is a failure of that run: those before may have failed, too."""
        code = 77
        settings = {"server": "redis", "members": 1, "left": "", "clock": 0, "names": 1}
        with mock.patch.object(arena.Server, "can_start", False), mock.patch.object(
                arena.Server, "run", lambda *words: types.SimpleNamespace(returncode=code, stdout="")):
            with self.assertRaises(SystemExit) as skip:
                arena.Server(settings, "").do("start")
            self.assertEqual(skip.exception.code, 77)
            code = 0
            arena.Server(settings, "").do("start")
            code = 77
            for verb in ("values", "start"):
                with self.assertRaises(arena.Failure):
                    arena.Server(settings, "").do(verb)


class Plans(unittest.TestCase):
    """Of the rows that run by day, as CMake gives them to nemesis.py."""

    @staticmethod
    def rows():
        told = subprocess.run(["ctest", "--test-dir", os.environ["MORTISE_BUILD_DIR"], "--show-only=json-v1", "-R",
                               r"^torture\."], stdout=subprocess.PIPE, text=True, check=True)
        for test in json.loads(told.stdout)["tests"]:
            command = test.get("command", [""])
            nightly = any("nightly" in item["value"] for item in test["properties"] if item["name"] == "LABELS")
            if not nightly and any(word.endswith("/nemesis.py") for word in command):
                yield test["name"], command[4:]

    def test_each(self):
        """The fixed seeds and any fresh one. A row with fresh seeds has its fixed one under the sanitizers, which do not let the
        clock of a fighter be set."""
        servers = set()
        for name, keys in self.rows():
            with self.subTest(row=name):
                settings = nemesis.read_settings([key for key in keys if key not in ("seed=", "namespaces=1")])
                if settings["find"] or "server-kill" not in settings["faults"]:
                    continue
                servers.add(settings["server"])
                self.assertLessEqual({"kill", "stop", "hold-up", "hold-down", "server-kill"}, set(settings["each"]))
                self.assertEqual(nemesis.lacks(nemesis.fresh_seed(settings), settings), set())
                for key in ("each", "faults") if "seed=" in keys else ():
                    settings[key] = [word for word in settings[key] if word != "clock"]
                self.assertEqual(nemesis.lacks(settings["seed"], settings), set())
        self.assertTrue(servers)


class Ends(unittest.TestCase):
    def test_of_a_process_that_has_gone(self):
        """Its end must not be an error, or nothing that is ended after it would be: further fighters, the witness, the server."""
        process = arena.Process(["true"])
        process.child.wait()
        with self.assertRaisesRegex(arena.Failure, "has gone: exit code 0"):
            process.say("count")
        process.end()
        self.assertTrue(process.child.stdin.closed and process.child.stdout.closed)


unittest.main(verbosity=2)
