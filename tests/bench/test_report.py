#!/usr/bin/env python3
"""test_report.py BENCH - what is made of figures: the report, the page's tables, and the check, on figures of the test's
own. BENCH is the folder bench/ of the tree."""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

BENCH = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

from mortise_bench import figures, markdown, page, pictures  # noqa: E402


def case(subject, kind, rates, shape="1 caller", **more):
    return {
        "workload": "cycle", "place": "one", "backend": "redis", "target": "", "shape": shape, "subject": subject, "kind": kind,
        "label": f"<{subject}>", "version": "1", "figures": {"rate": figures.figure("rate", rates)},
        "histograms": {"cycle": [[1000, 90], [2000, 9], [9000, 1]]}, **more,
    }  # fmt: skip


def result():
    cases = [
        case("mortise", "driver", [50, 90, 40]),
        case("mortise", "driver", [300, 300, 300], "4 threads"),
        case("floor", "floor", [100, 100, 50]),
        case("rival", "rival", [10, 20, 30]),
        case("mortise", "driver", [10, 11, 12], workload="fail", timeline=[[0, 1, 2, 0], [0.1, 5, 9, 1]], events=[[0.1, "killed"]]),
    ]
    figures.add_ratios(cases)
    machine = {
        "processor": "p", "cores": 2, "system": "s", "kernel": "k", "date": "d", "load": [0.5], "programs": {"redis": "7"},
    }  # fmt: skip
    method = {
        "quick": True, "rounds": 3, "seconds": {"cycle": 1}, "warm_up_s": 0.1, "places": {"one": [0]}, "took_s": 60,
    }  # fmt: skip
    return {"format": figures.FORMAT, "machine": machine, "method": method, "left_out": [], "cases": cases}


class Ratios(unittest.TestCase):
    def test_median_of_the_rounds_ratios(self):
        ratio = result()["cases"][0]["ratios"]["rate"]
        self.assertEqual((ratio["median"], ratio["least"], ratio["most"]), (0.8, 0.5, 0.9))

    def test_one_callers_floor_stands_in(self):
        ratio = result()["cases"][1]["ratios"]["rate"]
        self.assertEqual((ratio["median"], ratio["shape"]), (3, "1 caller"))

    def test_no_floor_no_ratio(self):
        self.assertEqual(result()["cases"][4]["ratios"], {})


class Check(unittest.TestCase):
    def check(self, change):
        with tempfile.TemporaryDirectory() as folder:
            base, new = result(), copy.deepcopy(result())
            change(new["cases"])
            figures.write(f"{folder}/base", base)
            figures.write(f"{folder}/new", new)
            self.assertEqual(figures.read(f"{folder}/base"), json.loads(json.dumps(base)))
            command = [sys.executable, BENCH / "check", f"{folder}/base", f"{folder}/new"]
            return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)

    def test_same_is_not_worse(self):
        self.assertEqual(self.check(lambda cases: None).returncode, 0)

    def test_a_worse_ratio_is_told(self):
        def slower(cases):
            cases[0] = case("mortise", "driver", [10, 11, 5])
            figures.add_ratios(cases)

        done = self.check(slower)
        self.assertEqual(done.returncode, 1)
        self.assertIn("worse: cycle, one, redis, 1 caller, mortise, rate: 0.8 of the floor before, 0.1 now", done.stdout)

    def test_a_slower_machine_is_not_worse(self):
        def all_slower(cases):
            for one in cases[:4]:
                one["figures"]["rate"] = figures.figure("rate", [rate / 10 for rate in one["figures"]["rate"]["rounds"]])
            figures.add_ratios(cases)

        self.assertEqual(self.check(all_slower).returncode, 0)

    def test_nothing_in_common(self):
        self.assertEqual(self.check(lambda cases: cases.clear()).returncode, 2)


class Page(unittest.TestCase):
    """The tables in Markdown."""

    def write(self, quick, page_before):
        with tempfile.TemporaryDirectory() as folder:
            path, told = Path(folder) / "page.md", result()
            told["method"]["quick"] = quick
            figures.write(f"{folder}/figures", told)
            path.write_text(page_before, encoding="utf-8")
            command = [sys.executable, BENCH / "page", f"{folder}/figures", path]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            return done, path.read_text(encoding="utf-8")

    def test_between_the_marks(self):
        before = f"a\n{markdown.FIRST}\nold\n{markdown.LAST}\nb\n"
        done, after = self.write(False, before)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(after.startswith("a\n") and after.endswith("\nb\n"))
        self.assertNotIn("old", after)
        self.assertIn("| **<mortise>** | 1 caller | 50.0 |  |  |  | 0.8 | 2.5 × <rival> |", after)
        self.assertIn("| 3 of one caller's |", after)

    def test_a_quick_run_is_refused(self):
        done, after = self.write(True, f"{markdown.FIRST}\n{markdown.LAST}\n")
        self.assertEqual((done.returncode, after), (1, f"{markdown.FIRST}\n{markdown.LAST}\n"))
        self.assertIn("quick", done.stderr)

    def test_a_page_without_marks_is_refused(self):
        done, after = self.write(False, "nothing\n")
        self.assertEqual((done.returncode, after), (1, "nothing\n"))


class Balance(HTMLParser):
    """Whether what is opened is closed, in order."""

    VOID = {"meta", "rect", "br", "hr", "circle", "use", "path"}

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID and tag not in ("fecomposite", "feflood"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


class Report(unittest.TestCase):
    def test_page(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            page.write(path, result())
            text = path.read_text(encoding="utf-8")
        balance = Balance()
        balance.feed(text)
        self.assertEqual((balance.wrong, [tag for tag in balance.open if tag != "li"]), ([], []))
        self.assertIn("<mortise>", "".join(balance.texts))  # a label is text, not a tag
        self.assertNotIn("http://", text.replace("http://www.w3.org/", ""))  # all is inside
        self.assertEqual("<svg" in text, pictures.available())


unittest.main(verbosity=2)
