#!/usr/bin/env python3
"""test_ending.py MORTISE-BENCH - if a signal ends it at any moment, it leaves nothing behind: no process, no directory. The
signal comes while servers start, while they run, and while adapters run."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop()
PATIENCE_S = 200  # bounds failure only


def is_below(process, name):
    """By its TMPDIR, or by where it works: a Redis server writes its title over its environment."""
    try:
        return f"{name}/" in os.readlink(process / "cwd") or name.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def below(folder):
    return [process.name for process in Path("/proc").glob("[0-9]*") if is_below(process, folder)]


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError("it has not happened")
        time.sleep(0.005)
    return found


class Ending(unittest.TestCase):
    def end(self, number, stage, *words):
        """stage: true of its folder when the signal is to come."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o711)
            command = [PROGRAM, "--full", "--no-rivals", "--place", "free", *words]
            process = subprocess.Popen(command, env={**os.environ, "TMPDIR": folder}, stderr=subprocess.DEVNULL)
            try:
                until(lambda: stage(Path(folder)))
                process.send_signal(number)
                self.assertEqual(process.wait(PATIENCE_S), 128 + number)
                until(lambda: not below(folder))
                self.assertEqual(list(Path(folder).iterdir()), [])
            finally:
                process.kill()
                process.wait()

    def test_while_a_server_starts(self):
        self.end(signal.SIGINT, lambda folder: list(folder.glob("*/*/servers/settings")), *REDIS)

    def test_while_a_server_is_launched(self):
        self.end(signal.SIGTERM, lambda folder: list(folder.glob("*/*/servers/*.pid")), *REDIS)

    def test_while_adapters_run(self):
        def turns(folder):
            return list(folder.glob("*/*/turns-7"))

        self.end(signal.SIGHUP, turns, "--backend", "sqlite", "--workload", "contend")


REDIS = ("--backend", "redlock", "--workload", "cycle")
unittest.main(verbosity=2)
