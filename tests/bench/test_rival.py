#!/usr/bin/env python3
"""test_rival.py RIVALS DIGEST - the adapter of rivals in Python, on fakes: a lock that grants everybody is noticed, even
if nothing is done while it is held; a caller that gives up is recorded. How long node-redlock tries, and which Curator that in Java is.
RIVALS is the folder bench/rivals of the tree."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

DIGEST = sys.argv.pop()
sys.dont_write_bytecode = True
RIVALS = Path(sys.argv.pop())
sys.path.insert(0, str(RIVALS))

import adapter  # noqa: E402

HOLDERS = 4
JARS = Path("/usr/share/java")


class GrantsEveryone:
    """All have it before one of them goes on."""

    def __init__(self):
        self.all_in = threading.Barrier(HOLDERS, timeout=60)

    def worker(self):
        return None

    def acquire(self, _worker, _name, _ttl_s, _wait_s):
        return self

    def release(self, _lock):
        pass


class GrantsNobody(GrantsEveryone):
    def acquire(self, _worker, _name, _ttl_s, wait_s):
        time.sleep(min(wait_s, 0.001))


class Rival(unittest.TestCase):
    def turns(self, rival, hold_us=0, sleep=None):
        """What the digest says of turns that all of HOLDERS threads make on one name."""
        with tempfile.TemporaryDirectory() as folder:
            out, begin = Path(folder) / "turns", time.monotonic_ns()
            order = {
                "name": "n", "own": "0", "threads": str(HOLDERS), "hold_us": str(hold_us), "from_ns": str(begin),
                "to_ns": str(begin + 1), "patience_ms": "1", "out": str(out),
            }  # fmt: skip
            before, adapter.time.sleep = adapter.time.sleep, sleep or adapter.time.sleep
            try:
                adapter.run_turns(rival, [], order)
            finally:
                adapter.time.sleep = before
            self.assertEqual(out.stat().st_size, HOLDERS * 32)
            command = [DIGEST, "--shared", "0", str(time.monotonic_ns()), out]
            return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def test_a_lock_that_grants_everyone(self):
        rival = GrantsEveryone()
        found = self.turns(rival, hold_us=1, sleep=lambda _: rival.all_in.wait())
        self.assertEqual((found["count"], found["overlaps"]), (HOLDERS, HOLDERS - 1))

    def test_an_empty_section_has_two_ends(self):
        records = []
        now = time.monotonic_ns()
        order = {"name": "n", "own": "0", "hold_us": "0", "from_ns": "0", "to_ns": str(now), "patience_ms": "1"}
        for _ in range(1000):
            adapter.turns(GrantsEveryone(), None, order, 0, records)
        self.assertTrue(any(releasing > granted for _, granted, releasing, _ in records))

    def test_who_gives_up_is_written_down(self):
        found = self.turns(GrantsNobody())
        self.assertEqual((found["count"], found["refused"]), (0, HOLDERS))
        self.assertGreater(found["longest_wait_ns"], 0)


FAKES = {
    "ioredis": "module.exports = class {};",
    # Tells the shortest time that so many tries take, and fails as if they were over.
    "redlock": """
      module.exports = class {
        constructor(_, { retryDelay, retryJitter }) { this.least = retryDelay - retryJitter; }
        on() {}
        async lockWithOptions(_name, _ttl, { retryCount }) {
          console.error(retryCount * this.least);
          throw new module.exports.LockError();
        }
      };
      module.exports.LockError = class extends Error {};""",
}


@unittest.skipUnless(shutil.which("node"), "there is no node")
class NodeRedlock(unittest.TestCase):
    def tried(self, **environment):
        """For how long it tries at least, and for how long it ought to, in milliseconds."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in FAKES.items():
                module = Path(folder) / name
                module.mkdir()
                (module / "index.js").write_text(text)
                (module / "package.json").write_text('{"version": "1"}')
            out, begin = Path(folder) / "turns", time.monotonic_ns()
            end = begin + 4 * 10**9
            order = f"turns name=n own=0 threads=1 from_ns={begin} to_ns={end} patience_ms=300 out={out}\nquit\n"
            done = subprocess.run(
                ["node", RIVALS / "redlock.js", "127.0.0.1:1"], input=order, env={**os.environ, "NODE_PATH": folder, **environment},
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            ((asked, granted, _, _),) = struct.iter_unpack("=4q", out.read_bytes())
            self.assertEqual(granted, 0)
            return float(done.stderr), (end - asked) / 1e6 + 300

    def test_it_does_not_give_up_before_its_time(self):
        for environment in ({}, {"REDLOCK_RETRY_MS": "10"}):
            least_ms, wanted_ms = self.tried(**environment)
            self.assertGreaterEqual(least_ms, wanted_ms)


@unittest.skipUnless(shutil.which("javac") and (JARS / "curator-recipes.jar").is_file(), "Curator is not installed")
class Curator(unittest.TestCase):
    def test_its_version_is_told(self):
        """Beside Debian's jar there is a link that is named by it."""
        links = [one.stem.removeprefix("curator-recipes-") for one in JARS.glob("curator-recipes-*.jar")]
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "Told.java"
            told.write_text("class Told { public static void main(String[] none) throws Exception { System.out.print(Curator.version()); } }")
            subprocess.run(["javac", "-d", folder, "-cp", f"{JARS}/*", RIVALS / "Curator.java", told], check=True)
            run = ["java", "-cp", f"{folder}:{JARS}/*", "Told"]
            version = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn(version, [f"Curator {link}" for link in links])


unittest.main(verbosity=2)
