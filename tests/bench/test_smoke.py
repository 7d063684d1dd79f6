#!/usr/bin/env python3
"""test_smoke.py MORTISE-BENCH - runs it briefly on SQLite, and checks the form of its output: each case exists, figures are
computed from rounds, ratios are those of the rounds, and there never were two holders. Never how fast anything was."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop()
COMMAND = [PROGRAM, "--quick", "--backend", "sqlite", "--no-rivals"]


class Form(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "figures.json"
            subprocess.run(
                [*COMMAND, "--place", "free", "--workload", "cycle,contend,state", "--json", path], check=True
            )
            cls.result = json.loads(path.read_text(encoding="utf-8"))
        cls.cases = {(case["workload"], case["shape"], case["subject"]): case for case in cls.result["cases"]}

    def test_head(self):
        self.assertEqual(self.result["format"], "mortise-bench/1")
        self.assertEqual(self.result["left_out"], [])
        self.assertTrue(self.result["method"]["quick"])
        self.assertGreaterEqual(self.result["machine"]["cores"], 1)

    def test_all_cases_are_there(self):
        wanted = {
            ("cycle", "1 caller", "mortise"),
            ("cycle", "1 caller", "floor_local"),
            ("cycle", "4 threads", "mortise"),
            ("cycle", "64 in flight", "mortise"),
            ("contend", "2 × 2, empty", "mortise"),
            ("contend", "2 × 2, empty", "mortise_strict"),
            ("contend", "2 × 2, empty", "floor_local"),
            ("state", "1 caller", "mortise"),
            ("state", "1 caller", "floor_local"),
        }
        self.assertEqual(set(self.cases), wanted)

    def test_figures(self):
        for case in self.cases.values():
            self.assertEqual((case["place"], case["backend"]), ("free", "sqlite"))
            for name, figure in case["figures"].items():
                rounds = 1 if name.endswith(("p99", "p999")) else self.result["method"]["rounds"][case["workload"]]
                self.assertEqual(len(figure["rounds"]), rounds, name)
                self.assertLessEqual(figure["least"], figure["median"])
                self.assertLessEqual(figure["median"], figure["most"])

    def test_histogram_counts_what_the_rate_counts(self):
        case = self.cases["cycle", "1 caller", "mortise"]
        seconds = self.result["method"]["seconds"]["cycle"]
        counted = sum(count for _, count in case["histograms"]["cycle"])
        self.assertAlmostEqual(counted, seconds * sum(case["figures"]["rate"]["rounds"]), delta=1 + counted / 1000)

    def test_ratios_are_of_the_rounds(self):
        mine, floor = (self.cases["cycle", "1 caller", name] for name in ("mortise", "floor_local"))
        if not any(floor["figures"]["rate"]["rounds"]):
            self.assertNotIn("rate", mine["ratios"])  # the machine stood still
            return
        ratio = mine["ratios"]["rate"]
        self.assertEqual((ratio["to"], floor["ratios"]), (floor["label"], {}))
        of_rounds = [
            a / b for a, b in zip(mine["figures"]["rate"]["rounds"], floor["figures"]["rate"]["rounds"]) if b > 0
        ]
        self.assertAlmostEqual(ratio["most"], max(of_rounds), delta=max(of_rounds) / 100)

    def test_one_holder_at_a_time(self):
        for name in ("mortise", "mortise_strict", "floor_local"):
            figures = self.cases["contend", "2 × 2, empty", name]["figures"]
            self.assertEqual(figures["overlaps"]["most"], 0)

    def test_targets(self):
        told = {(row["what"], row["bound"]): row["met"] for row in self.result["targets"]}
        self.assertTrue(told["contend", "one holder at a time"])
        self.assertIn(("contend, 2 × 2, empty section", "no wait of 250 ms"), told)
        self.assertGreater(self.cases["contend", "2 × 2, empty", "mortise"]["long"]["seconds"], 0)


class Arguments(unittest.TestCase):
    def test_unknown_workload_is_told(self):
        done = subprocess.run([PROGRAM, "--workload", "sleep"], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no sleep; there are: cycle", done.stderr)


unittest.main(verbosity=2)
