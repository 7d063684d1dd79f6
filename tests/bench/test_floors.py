#!/usr/bin/env python3
"""test_floors.py BENCH PROGRAMS - that mortise-bench runs the programs of bench/ and reads what they write; never how fast anything
was. BENCH is the folder bench/ of the tree, PROGRAMS that of the build."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = Path(sys.argv.pop())
BENCH = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

from mortise_bench import floors, parts  # noqa: E402
from mortise_bench.servers import NotHere  # noqa: E402

NO_SERVER = 77  # what a program ends with that cannot start its server


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def planted(self, script):
        """A program `state` that does this."""
        parts.programs = self.folder
        path = self.folder / "state"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def test_one_that_is_there(self):
        parts.programs = PROGRAMS
        self.assertIn("state", floors.there())
        told = floors.measure("state", True, self.folder, 0)
        self.assertEqual((told["program"], told["quick"]), ("state", True))
        rows = {row["what"]: row for row in floors.target_rows([told])}
        proof = rows["mortise_state, _remaining_ms, _token make no system call"]
        self.assertEqual((proof["backend"], proof["bound"], proof["verdict"], proof["met"]), ("bench/state", "must hold", "met", True))
        ratio = next(check for check in told["checks"] if check["check"] == "state_over_clock")
        self.assertLessEqual(ratio["least"], ratio["median"])
        missed = ratio["least"] > ratio["target"]  # of two rounds both decide, and are too few to show that a target is met
        self.assertEqual((ratio["verdict"], ratio["once"]), ("missed" if missed else "not decided", False))
        self.assertEqual(len(list(floors.table_rows(told))), len(told["series"]) + len(told["checks"]))

    @unittest.skipUnless((PROGRAMS / "mysql").exists(), "no libmariadb in this build")
    def test_the_floor_of_mysql_is_set_as_the_driver(self):
        """Otherwise it is slower than the driver, whose sessions read committed rows only."""
        path = self.folder / "figures"
        command = [PROGRAMS / "mysql", "--quick", "--only", "bare_mysql_cycle", "--folder", self.folder, "--json", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == NO_SERVER:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        checks = {check["check"]: check["verdict"] for check in json.loads(path.read_text(encoding="utf-8"))["checks"]}
        self.assertEqual(checks["mysql_set_alike"], "met")

    def test_one_that_fails_says_why(self):
        self.planted("echo 'the clock stands still' >&2; exit 3")
        with self.assertRaisesRegex(floors.Failed, "it ended with 3: the clock stands still"):
            floors.measure("state", False, self.folder, 0)

    def test_one_without_a_server_is_left_out(self):
        self.planted("echo 'there is no redis-server' >&2; exit 77")
        with self.assertRaisesRegex(NotHere, "there is no redis-server"):
            floors.measure("state", False, self.folder, 0)

    def test_quick_is_passed_on(self):
        self.planted('echo "$@" >&2; exit 3')
        with self.assertRaisesRegex(floors.Failed, "--quick --json"):
            floors.measure("state", True, self.folder, 0)

    def test_what_a_build_lacks_is_told(self):
        self.planted("exit 0")
        self.assertEqual(floors.there(), ["state"])
        self.assertIn("redis", floors.absent())
        (self.folder / "state").unlink()
        self.assertEqual((floors.there(), floors.absent()), ([], []))  # installed: it has none of them


unittest.main(verbosity=2)
