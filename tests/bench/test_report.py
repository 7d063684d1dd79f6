#!/usr/bin/env python3
"""test_report.py BENCH - what is made from figures: the report, the page's tables, and the check, with figures that the test
makes up. BENCH is the folder bench/ of the tree."""

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

from mortise_bench import failures, figures, main, markdown, page, pictures, scale, tables, targets  # noqa: E402


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
        "quick": False, "rounds": {"cycle": 3}, "kills": 2, "seconds": {"cycle": 1}, "warm_up_s": 0.1, "places": {"one": [0]},
        "took_s": 60, "compiles": True, "rivals": ["redis"],
    }  # fmt: skip
    told = {
        "format": figures.FORMAT, "machine": machine, "method": method, "left_out": [], "cases": cases,
        "servers": {"redis": {"version": "7", "settings": "none"}},
    }  # fmt: skip
    return {**told, "targets": targets.rows(told)}


def sizes(name, values):
    """A curve of the clients' memory or requests, by size."""
    return [
        case("mortise", "driver", [1], f"held in one client: {count}", workload="scale", curve="hold", count=count,
             figures={name: figures.figure(name, [value])})
        for count, value in values.items()
    ]  # fmt: skip


class Curves(unittest.TestCase):
    def grown(self, name, values):
        curves = scale.curves(sizes(name, values))
        self.assertEqual(len(curves), 1)
        return curves[0]["figures"][0] if curves[0]["figures"] else None, targets.grown(curves[0])

    def test_linear(self):
        found, row = self.grown("requests", {100: 10, 1000: 100, 10000: 1000, 100000: 10000})
        self.assertEqual((found["slope"], found["bends"], found["hosts"]), (1, None, 1000))
        self.assertTrue(row["met"])

    def test_bend(self):
        found, row = self.grown("requests", {100: 10, 1000: 100, 10000: 10000})
        self.assertEqual((found["slope"], found["steps"], found["bends"]), (1.5, [1, 2], 1000))
        self.assertFalse(row["met"])

    def test_for_each_is_a_total(self):
        found, row = self.grown("memory", {10000: 2000, 100000: 20000})
        self.assertEqual((found["points"], found["slope"]), ([[10000, 2e7], [100000, 2e9]], 2))
        self.assertFalse(row["met"])

    def test_scatter_is_linear(self):
        self.assertTrue(self.grown("requests", {1000: 100, 2000: 280, 20000: 2900})[1]["met"])
        self.assertFalse(self.grown("requests", {1000: 100, 3000: 700})[1]["met"])

    def test_times_of_the_clock_are_told(self):
        found, row = self.grown("to_grant", {1000: 1, 10000: 100})
        self.assertEqual((found["bends"], row["met"]), (1000, True))

    def test_less_than_noise_is_no_point(self):
        self.assertIsNone(self.grown("requests", {100: 0.1, 1000: 3})[0])
        self.assertTrue(self.grown("requests", {100: 0.1, 1000: 10, 10000: 100})[1]["met"])

    def test_more_hosts_than_measured(self):
        found, _ = self.grown("requests", {100: 10, 1000: 100})
        self.assertEqual(found["hosts"], 1000)


class Ratios(unittest.TestCase):
    def test_median_of_the_rounds_ratios(self):
        ratio = result()["cases"][0]["ratios"]["rate"]
        self.assertEqual((ratio["median"], ratio["least"], ratio["most"]), (0.8, 0.5, 0.9))

    def test_no_floor_of_the_shape_no_ratio(self):
        for at in (1, 4):
            self.assertEqual(result()["cases"][at]["ratios"], {})

    def test_the_best_rival_of_each_round(self):
        cases = [
            case("mortise", "driver", [10, 20, 30]),
            case("a", "rival", [1, 10, 2]),
            case("b", "rival", [5, 2, 6]),
        ]
        figures.add_ratios(cases)
        ratio = cases[0]["of_rival"]["rate"]
        self.assertEqual((ratio["rounds"], ratio["to"]), ([2, 2, 5], "<b>"))

    def test_a_round_without_a_figure(self):
        found = figures.figure("p50", [None, 4, 2])
        self.assertEqual((found["rounds"], found["median"]), ([None, 4, 2], 3))
        self.assertEqual(figures.ratio([None, 4, 2], [1, 2, 0])["rounds"], [2])

    def test_a_tail_of_few_turns_is_not_told(self):
        self.assertIsNone(figures.sure_quantile([[5, 999]], 0.99))
        self.assertEqual(figures.sure_quantile([[5, 989], [7, 11]], 0.99), 7)


def contended(subject, kind, rates, longest_ms=1, share=1, **more):
    one = case(subject, kind, rates, "8 × 8, empty", **more)
    one["workload"] = "contend"
    one["figures"]["longest_wait"] = figures.figure("longest_wait", [1, longest_ms, 1])
    one["figures"]["overtakes"] = figures.figure("overtakes", [0, 0.02, 0])
    if subject == "mortise":
        one["long"] = {"seconds": 10, "rate": 1, "least_share": share, "longest_wait": 1, "overlaps": 0}
    return one


class Targets(unittest.TestCase):
    """Ratios are held by the median, all else by the worst round."""

    def rows(self, *cases, rivals=()):
        cases = list(cases)
        figures.add_ratios(cases)
        return targets.rows({"cases": cases, "method": {"rivals": rivals}})

    def missed(self, *cases):
        return [row["bound"] for row in self.rows(*cases) if not row["met"]]

    def test_all_met(self):
        rival = contended("rival", "rival", [10, 10, 10])
        self.assertEqual(self.missed(contended("mortise", "driver", [100, 200, 300]), rival), [])

    def test_the_median_misses(self):
        rival = contended("rival", "rival", [10, 10, 10])
        self.assertEqual(self.missed(contended("mortise", "driver", [200, 9, 300]), rival), [])
        missed = self.missed(contended("mortise", "driver", [98, 99, 300]), rival)
        self.assertEqual(missed, ["at least 10 × the best rival's rate"])
        missed = self.missed(contended("mortise", "driver", [8, 9, 300]), rival)
        self.assertEqual(missed, ["at least 10 × the best rival's rate", "more than each rival, in all shapes"])

    def test_no_rival_is_not_judged(self):
        """Where there ought to be one: it is not installed, or failed. So it is where nobody was to be beside it."""
        one = contended("mortise", "driver", [100, 200, 300])
        told = {row["bound"]: row["met"] for row in self.rows(one, rivals=["redis"])}
        self.assertIsNone(told["at least 10 × the best rival's rate"])
        self.assertIsNone(told["more than each rival, in all shapes"])
        self.assertNotIn(None, [row["met"] for row in self.rows(one)])

    def test_a_program_that_is_started_is_no_measure_of_a_rate(self):
        cases = [contended("mortise", "driver", [100, 200, 300]), contended("flock", "rival", [90, 90, 90])]
        for one in cases:
            one["backend"] = "sqlite"
        told = {row["bound"]: row["met"] for row in self.rows(*cases, rivals=["sqlite"])}
        self.assertNotIn("at least 10 × the best rival's rate", told)
        self.assertTrue(told["more than each rival, in all shapes"])
        self.assertIn("flock(2)", tables.targets_note(self.rows(*cases)))

    def test_requests_where_a_rival_has_none(self):
        cases = [case("mortise", "driver", [1]), case("rival", "rival", [1])]
        for one, requests in zip(cases, (3, 0)):
            one.update(workload="wait", figures={"requests": figures.figure("requests", [requests])})
        self.assertEqual(self.missed(*cases), ["fewer requests than each rival, in all shapes"])

    def test_shares_and_waits(self):
        missed = self.missed(contended("mortise", "driver", [1, 1, 1], longest_ms=250, share=0.24))
        self.assertEqual(missed, ["no process under 0.25 of an even share in 10 s", "no wait of 250 ms"])

    def test_order_is_asked_of_those_that_promise_it(self):
        strict = contended("mortise_strict", "driver", [1, 1, 1])
        self.assertEqual(self.missed(strict), ["strict order: at most 1%"])
        strict["backend"] = "postgres"
        self.assertEqual(self.missed(strict), [])

    def test_two_holders(self):
        one = contended("mortise", "driver", [1, 1, 1])
        one["long"]["overlaps"] = 1
        self.assertEqual(self.missed(one), ["one holder at a time"])


class Well(unittest.TestCase):
    """What --check makes of it."""

    def test_missed_not_judged_left_out(self):
        rows = [{"met": True}, {"met": True}]
        self.assertTrue(main.all_well({"left_out": [], "targets": rows}))
        self.assertFalse(main.all_well({"left_out": [{"what": "a case", "why": "it failed"}], "targets": rows}))
        for met in (False, None):
            self.assertFalse(main.all_well({"left_out": [], "targets": [*rows, {"met": met}]}))


class Failures(unittest.TestCase):
    def test_a_refused_cycle_lasts_until_the_next_that_was_had(self):
        found = [(0, 1, 2, 3_000_000), (10_000_000, 0, 0, 11_000_000), (20_000_000, 25, 26, 30_000_000), (40_000_000, 0, 0, 41_000_000)]
        self.assertEqual([took for _, took in failures.lasting_ms(found)], [3, 20, 10, 1])

    def test_a_grant_before_the_holders_end_is_two_holders(self):
        self.assertEqual(failures.Killed.told([(0, 5, 6, 7)], 6)["overlaps"], 1)
        self.assertEqual(failures.Killed.told([(0, 2_000_000, 6, 7)], 1_000_000), {"to_grant": 1, "refused": 0, "overlaps": 0})
        self.assertEqual(failures.Killed.told([(0, 0, 0, 7)], 6), {"refused": 1})


class Check(unittest.TestCase):
    def check(self, change, *words, quick=False, before=lambda cases: None):
        """change, before: what is done to the cases of the new run, of the one before."""
        with tempfile.TemporaryDirectory() as folder:
            base, new = result(), copy.deepcopy(result())
            change(new["cases"])
            new["targets"] = targets.rows(new)
            before(base["cases"])
            base["targets"] = targets.rows(base)
            base["method"]["quick"] = quick
            figures.write(f"{folder}/base", base)
            figures.write(f"{folder}/new", new)
            self.assertEqual(figures.read(f"{folder}/base"), json.loads(json.dumps(base)))
            command = [sys.executable, BENCH / "check", *words, f"{folder}/base", f"{folder}/new"]
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def test_same_is_not_worse(self):
        self.assertEqual(self.check(lambda cases: None).returncode, 0)

    def test_a_worse_ratio_is_told(self):
        def slower(cases):
            cases[0] = case("mortise", "driver", [10, 11, 5])
            figures.add_ratios(cases)  # 0.5 0.9 0.8 of the floor before, 0.1 0.11 0.1 now

        done = self.check(slower)
        self.assertEqual(done.returncode, 1)
        self.assertIn("worse: cycle, one, redis, 1 caller, mortise, rate: 0.8 of the floor before, 0.1 now", done.stdout)
        self.assertIn("missed: redis, one, cycle, more than each rival, in all shapes", done.stdout)

    def test_a_slower_machine_is_not_worse(self):
        def all_slower(cases):
            for one in cases[:4]:
                one["figures"]["rate"] = figures.figure("rate", [rate / 10 for rate in one["figures"]["rate"]["rounds"]])
            figures.add_ratios(cases)

        self.assertEqual(self.check(all_slower).returncode, 0)

    def test_beside_the_best_rival_too(self):
        def rival_is_faster(cases):
            cases[3] = case("rival", "rival", [40, 80, 80])
            figures.add_ratios(cases)

        done = self.check(rival_is_faster)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rate: 4.5 of the best rival before, 1.12 now", done.stdout)

    def test_other_rivals_are_not_comparable(self):
        """One that is gone would make the best of the others better."""

        def another(cases):
            cases.append(case("another", "rival", [30, 60, 60]))
            figures.add_ratios(cases)

        for change in ({"change": lambda cases: None, "before": another}, {"change": another}):
            done = self.check(**change)
            self.assertEqual(done.returncode, 1)
            self.assertIn("not comparable: cycle, one, redis, 1 caller, mortise, rate: rivals <", done.stdout)
            self.assertNotIn("worse:", done.stdout)

    def test_tails_are_left_to_chance(self):
        """Two runs of the same: p99 and the like have one value each, or are of one turn."""

        def noisy(*values):
            def make(cases):
                for one, value in zip((cases[0], cases[2]), values):
                    for name in ("p99", "p999", "handover_p99", "longest_wait"):
                        one["figures"][name] = figures.figure(name, [value])
                figures.add_ratios(cases)

            return make

        for one, other in ((noisy(10, 10), noisy(30, 10)), (noisy(30, 10), noisy(10, 30))):
            done = self.check(other, before=one)
            self.assertEqual((done.returncode, done.stdout.count("\n")), (0, 1), done.stdout)

    def test_a_target_that_is_gone_is_told(self):
        def without_rival(cases):
            del cases[3]
            figures.add_ratios(cases)

        done = self.check(without_rival)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not judged: redis, one, cycle, more than each rival, in all shapes: in all before", done.stdout)

    def test_a_target_whose_row_is_gone_is_told(self):
        def row_of_sharing(cases):
            cases.append(contended("mortise", "driver", [1, 1, 1]))
            figures.add_ratios(cases)

        done = self.check(lambda cases: None, before=row_of_sharing)
        self.assertIn("not judged: redis, one, contend, one holder at a time: 0 overlaps before", done.stdout)

    def test_two_holders_are_worse_on_any_machine(self):
        def overlap(cases):
            cases[0]["figures"]["overlaps"] = figures.figure("overlaps", [0, 1, 0])

        done = self.check(overlap)
        self.assertEqual(done.returncode, 1)
        self.assertIn("overlaps: 0 before, 1 now", done.stdout)

    def test_a_missing_case_is_told(self):
        done = self.check(lambda cases: cases.pop(1))
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: cycle, one, redis, 4 threads, mortise", done.stdout)

    def test_quick_runs_only_if_told(self):
        self.assertEqual(self.check(lambda cases: None, quick=True).returncode, 2)
        self.assertEqual(self.check(lambda cases: None, "--quick", quick=True).returncode, 0)

    def test_nothing_in_common(self):
        self.assertEqual(self.check(lambda cases: cases.clear()).returncode, 2)


class Width(unittest.TestCase):
    """A window of 1,280 px shows each table as a whole: few columns, and none that cannot be narrow."""

    def test_many_figures_are_several_tables(self):
        told = result()["cases"][0]
        told["figures"] = {name: figures.figure(name, [1000, 2000, 3000]) for name in figures.KNOWN}
        made = tables.cases_table([told], "all")
        self.assertEqual(made.count("<h3>"), 1)
        found = [one.split("</tr>")[0].count("<th") for one in made.split("<table>")[1:]]
        self.assertEqual(sum(found) - 2 * len(found), len(figures.KNOWN))
        self.assertLessEqual(max(found), 10)

    def test_no_column_is_kept_from_wrapping(self):
        style = (BENCH / "mortise_bench" / "style.css").read_text(encoding="utf-8")
        self.assertNotIn("nowrap", style)


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
        before = f"a\n{markdown.FIRST}\nwhat was there\n{markdown.LAST}\nb\n"
        done, after = self.write(False, before)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(after.startswith("a\n") and after.endswith("\nb\n"))
        self.assertNotIn("what was there", after)
        self.assertIn("| **<mortise>** | 1 caller | 50.0 | 40.0 to 90.0 |  |  |  | 0.8 | 4.5 × <rival> |", after)
        self.assertIn("p99 µs, closed loop", after)
        self.assertIn("each is warmed up for 0.1 s, before that one in Java by up to 5 s of turns and one in JavaScript by up to 1, twice as long", after)
        self.assertIn("Versions: redis: 7; servers: redis: 7; <mortise> (redis): 1; <floor> (redis): 1;", after)
        self.assertIn("| met | redis, one | cycle | more than each rival, in all shapes | in all |", after)

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

    def test_hostile_words(self):
        """What others wrote (a version, a label, the machine) can neither become markup nor reorder a line."""
        word = "x\"'></td><script>alert(1)</script>\n\u202e\u2028\u2066end"
        told = result()
        for one in told["cases"]:
            one.update(label=word, version=word)
        told["machine"].update(processor=word, kernel=word, programs={word: word})
        told["left_out"] = [{"what": word, "why": word}]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            page.write(path, told)
            text = path.read_text(encoding="utf-8")
        balance = Balance()
        balance.feed(text)
        self.assertEqual((balance.wrong, [tag for tag in balance.open if tag != "li"]), ([], []))
        self.assertNotIn("<script", text)
        self.assertFalse({"\u202e", "\u2028", "\u2066"} & set(text))
        self.assertIn("\\u202e", text)

    def test_no_html_without_gnuplot(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", "from mortise_bench import main; main.main()", "--html", f"{folder}/report.html"],
                cwd=BENCH, env={"PATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        self.assertEqual(done.returncode, 2)
        self.assertIn("apt-get install gnuplot-nox", done.stderr)

    def test_a_case_without_figures_does_not_end_it(self):
        told = result()
        for one in told["cases"]:
            one.update(figures={}, ratios={}, of_rival={}, histograms={})
        with tempfile.TemporaryDirectory() as folder:
            page.write(Path(folder) / "report.html", told)


unittest.main(verbosity=2)
