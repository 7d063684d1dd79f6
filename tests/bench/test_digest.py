#!/usr/bin/env python3
"""test_digest.py DIGEST - what is computed from recorded turns, on turns of which all is known: rates, latencies, shares,
hand-overs, and above all that two holders at once are seen."""

import json
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DIGEST = sys.argv.pop()


def digest(*words, files):
    """Of files, each a list of (asked, granted, releasing, done)."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, turns in enumerate(files):
            paths.append(Path(folder) / str(number))
            paths[-1].write_bytes(b"".join(struct.pack("=4q", *turn) for turn in turns))
        command = [DIGEST, *map(str, words), *paths]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


class Alone(unittest.TestCase):
    def test_rate_is_of_the_window(self):
        turns = [(at, at + 10, at + 20, at + 30) for at in range(0, 1000, 100)]
        found = digest(200, 700, files=[turns])  # those done at 230, 330, … 630
        self.assertEqual((found["count"], found["rate"]), (5, 5 * 1e9 / 500))
        self.assertEqual((found["acquire_ns"]["p50"], found["cycle_ns"]["p50"]), (10, 30))

    def test_refused_turns_are_told_apart(self):
        found = digest(0, 100, files=[[(1, 0, 0, 5), (6, 8, 9, 10)]])
        self.assertEqual((found["count"], found["refused"]), (1, 1))

    def test_nothing_is_nothing(self):
        found = digest("--shared", 0, 100, files=[[], []])
        self.assertEqual((found["count"], found["jain"], found["overlaps"]), (0, 0, 0))


class Shared(unittest.TestCase):
    def test_hand_overs(self):
        one, other = [(0, 10, 20, 25), (25, 60, 70, 75)], [(5, 35, 40, 45)]
        found = digest("--shared", 0, 100, files=[one, other])
        self.assertEqual(found["handover_ns"]["buckets"], [[15, 1], [20, 1]])  # 20 to 35, 40 to 60
        self.assertEqual((found["overlaps"], found["changes"]), (0, 1))
        self.assertEqual(found["longest_wait_ns"], 35)

    def test_two_holders_are_seen(self):
        found = digest("--shared", 0, 100, files=[[(0, 10, 50, 55)], [(5, 49, 60, 65)]])
        self.assertEqual(found["overlaps"], 1)

    def test_shares(self):
        turn = (1, 2, 3, 4)
        found = digest(0, 100, files=[[turn] * 3, [turn]])
        self.assertEqual((found["shares"], found["least_share"]), ([3, 1], 0.5))
        self.assertAlmostEqual(found["jain"], 16 / 20, places=4)


unittest.main(verbosity=2)
