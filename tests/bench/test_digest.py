#!/usr/bin/env python3
"""test_digest.py DIGEST - what is computed from recorded turns, on turns that are known exactly: rates, latencies, shares,
hand-overs, and above all that two holders at the same time are noticed."""

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

    def test_how_long_it_was_held(self):
        """A sleep of a millisecond lasts longer in one language than in another."""
        found = digest(0, 100, files=[[(0, 10, 17, 30), (30, 30, 30, 30)]])
        self.assertEqual(found["hold_ns"]["buckets"], [[7, 1]])

    def test_refused_turns_are_told_apart(self):
        found = digest(0, 100, files=[[(1, 0, 0, 5), (6, 8, 9, 10)]])
        self.assertEqual((found["count"], found["refused"]), (1, 1))

    def test_nothing_is_nothing(self):
        found = digest("--shared", 0, 100, files=[[], []])
        self.assertEqual((found["count"], found["jain"], found["overlaps"]), (0, 0, 0))

    def test_an_acquire_that_is_not_known_is_not_told(self):
        found = digest(0, 100, files=[[(1, 10, 10, 10), (10, 15, 16, 20)]])
        self.assertEqual((found["acquire_ns"]["count"], found["acquire_ns"]["p50"]), (1, 5))


class Shared(unittest.TestCase):
    def test_hand_overs(self):
        one, other = [(0, 10, 20, 25), (25, 60, 70, 75)], [(5, 35, 40, 45)]
        found = digest("--shared", 0, 100, files=[one, other])
        self.assertEqual(found["handover_ns"]["buckets"], [[15, 1], [20, 1]])  # 20 to 35, 40 to 60
        self.assertEqual((found["overlaps"], found["changes"]), (0, 1))
        self.assertEqual(found["longest_wait_ns"], 35)

    def test_passes_within_a_process_are_another_thing(self):
        one, other = [(0, 10, 20, 25), (1, 23, 30, 35)], [(5, 80, 81, 82)]
        found = digest("--shared", 0, 100, files=[one, other])
        self.assertEqual(found["pass_ns"]["buckets"], [[3, 1]])
        self.assertEqual(found["handover_ns"]["buckets"], [[50, 1]])
        self.assertEqual(found["changes"], 0.5)

    def test_two_holders_are_seen(self):
        found = digest("--shared", 0, 100, files=[[(0, 10, 50, 55)], [(5, 49, 60, 65)]])
        self.assertEqual(found["overlaps"], 1)

    def test_a_lock_that_grants_everyone_is_seen_in_an_empty_section(self):
        turns = [[(at, at + 5, at + 6, at + 9) for at in range(0, 100, 10)] for _ in range(4)]
        self.assertEqual(digest("--shared", 0, 200, files=turns)["overlaps"], 30)

    def test_all_that_one_holds_for_long_is_seen(self):
        short = [(at, at + 1, at + 2, at + 3) for at in range(20, 80, 10)]
        found = digest("--shared", 0, 200, files=[[(0, 10, 90, 95)], short])
        self.assertEqual(found["overlaps"], len(short))

    def test_overlaps_outside_of_the_window_are_seen(self):
        found = digest("--shared", 500, 600, files=[[(0, 10, 50, 55)], [(5, 49, 60, 65)]])
        self.assertEqual((found["count"], found["overlaps"]), (0, 1))

    def test_who_starves_is_told(self):
        """Its wait counts to the end, however it ended: granted afterwards, or given up."""
        busy = [(at, at + 1, at + 2, at + 3) for at in range(0, 1000, 10)]
        for starving in ((20, 2000, 2001, 2002), (20, 0, 0, 1500)):
            found = digest("--shared", 100, 1000, files=[busy, [starving]])
            self.assertEqual((found["longest_wait_ns"], found["least_share"]), (980, 0), starving)

    def test_a_wait_before_the_window_is_not_told(self):
        found = digest("--shared", 100, 200, files=[[(0, 90, 91, 92)], [(0, 110, 111, 112)]])
        self.assertEqual(found["longest_wait_ns"], 110)

    def test_in_turn_nobody_is_overtaken(self):
        """Each asks again when it has released, and each waits for the others' one turn."""
        files = [[(round_ * 30 + at - 27, round_ * 30 + at, round_ * 30 + at + 1, round_ * 30 + at + 2)
                  for round_ in range(1, 20)] for at in (0, 10, 20)]  # fmt: skip
        self.assertEqual(digest("--shared", 0, 1000, files=files)["overtakes"], 0)

    def test_who_is_passed_by_is_told(self):
        """One has ten turns while the other waits: two may have been before it, or at the same time."""
        greedy = [(at, at + 1, at + 2, at + 3) for at in range(10, 110, 10)]
        found = digest("--shared", 0, 1000, files=[greedy, [(5, 200, 201, 202)]])
        self.assertEqual(found["overtakes"], round(8 / 11, 4))

    def test_who_gets_nothing_is_passed_by(self):
        """It waits to the end, or gives up; after its last turn, if it had some."""
        greedy = [(at, at + 1, at + 2, at + 3) for at in range(10, 1010, 10)]
        found = digest("--shared", 0, 2000, files=[greedy, [(5, 0, 0, 3000)]])
        self.assertEqual((found["overtakes"], found["count"]), (98 / 100, 100))
        found = digest("--shared", 0, 2000, files=[greedy, [(5, 0, 0, 505)]])
        self.assertEqual(found["overtakes"], 48 / 100)
        found = digest("--shared", 0, 2000, files=[greedy, [(905, 906, 907, 908), (908, 0, 0, 3000)]])
        self.assertEqual(found["overtakes"], round(8 / 101, 4))  # of ten turns

    def test_who_asks_last_is_not_passed_by(self):
        found = digest("--shared", 0, 1000, files=[[(at, at + 1, at + 2, at + 3) for at in range(10, 900, 10)], [(885, 0, 0, 3000)]])
        self.assertEqual(found["overtakes"], 0)

    def test_shares(self):
        turn = (1, 2, 3, 4)
        found = digest(0, 100, files=[[turn] * 3, [turn]])
        self.assertEqual((found["shares"], found["least_share"]), ([3, 1], 0.5))
        self.assertAlmostEqual(found["jain"], 16 / 20, places=4)


unittest.main(verbosity=2)
