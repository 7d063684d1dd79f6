#!/usr/bin/env python3
"""Parts of a torture run, beside a server and a fighter that are made up: what the checker learns of a process that is stopped,
when a run is skipped, and the end of what has ended already."""
import signal
import types
import unittest
from unittest import mock

import arena
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
