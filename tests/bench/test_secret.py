#!/usr/bin/env python3
"""test_secret.py BENCH MORTISE-BENCH - a URL with a password that `mortise -C URL bench` hands over is in the arguments of no
process, and in the environment of none that is started. BENCH is the folder bench/ of the tree."""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

PROGRAM = sys.argv.pop()
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop())

from mortise_bench import main, parts, subjects  # noqa: E402
from mortise_bench.adapter import Adapter  # noqa: E402

parts.programs = Path(PROGRAM).resolve().parent.parent / "bench"  # of the build

VARIABLE = "MORTISE_BENCH_CONFIG"


def configs(*words):
    with mock.patch.object(sys, "argv", ["mortise-bench", *words]):
        return main.arguments()[1].configs


class Secret(unittest.TestCase):
    def test_before_others(self):
        with mock.patch.dict(os.environ, {VARIABLE: "redis://:secret@a"}):
            self.assertEqual(configs("-C", "sqlite:b"), ["redis://:secret@a", "sqlite:b"])
            self.assertNotIn(VARIABLE, os.environ)
            self.assertEqual(configs(), [])

    def test_empty_is_none(self):
        with mock.patch.dict(os.environ, {VARIABLE: ""}):
            self.assertEqual(configs(), [])

    def test_what_is_started(self):
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.dict(os.environ, {VARIABLE: f"sqlite:{folder}/secret?ttl=20s"}):
                subject = subjects.mortise(*configs())
                adapter = Adapter(subject.command, subject.where)
            try:
                adapter.ready()
                for what in ("cmdline", "environ"):
                    self.assertNotIn(b"secret", Path(f"/proc/{adapter.pid}/{what}").read_bytes())
                self.assertTrue(Path(folder, "secret").exists())
            finally:
                adapter.quit()
                adapter.stop()


unittest.main(verbosity=2)
