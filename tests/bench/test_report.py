#!/usr/bin/env python3
"""test_report.py BENCH - what is made from figures: the report, its pictures, and the tables of the pages, with figures that the test
makes up. BENCH is the folder bench/ of the tree."""

import contextlib
import io
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

from made_up import case, contended, program, result, sizes  # noqa: E402
from mortise_bench import figures, floors, judging, main, markdown, page, pictures, scale, tables, targets  # noqa: E402


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

    def write(self, quick, page_before, change=lambda told: None):
        """change: what is done to the run before it is written."""
        with tempfile.TemporaryDirectory() as folder:
            path, told = Path(folder) / "page.md", result()
            told["method"]["quick"] = quick
            change(told)
            figures.write(f"{folder}/figures", told)
            path.write_text(page_before, encoding="utf-8")
            command = [sys.executable, BENCH / "page", f"{folder}/figures", path]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            return done, path.read_text(encoding="utf-8")

    def test_between_the_marks(self):
        first, last = markdown.marks("comparison")
        before = f"a\n{first}\nwhat was there\n{last}\nb\n"
        done, after = self.write(False, before)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(after.startswith("a\n") and after.endswith("\nb\n"))
        self.assertNotIn("what was there", after)
        self.assertIn("| **<mortise>** | 1 caller | 80.0 | 40.0 to 90.0 |  |  |  | 0.8 | 4.5 × <rival> |", after)
        self.assertIn("p99 µs, closed loop", after)
        self.assertIn("each is warmed up for 0.1 s, before that one in Java by up to 5 s of turns and one in JavaScript by up to 1, twice as long", after)
        self.assertIn("Versions: redis: 7; servers: redis: 7; <mortise> (redis): 1; <floor> (redis): 1;", after)
        self.assertIn("| met | redis, one | cycle | more than each rival, in all shapes | in all |", after)

    def test_a_quick_run_is_refused(self):
        before = "\n".join(markdown.marks("summary")) + "\n"
        done, after = self.write(True, before)
        self.assertEqual((done.returncode, after), (1, before))
        self.assertIn("quick", done.stderr)

    def test_a_run_is_judged_by_the_rules_of_now(self):
        """But a program of bench/ as it has judged itself."""
        def judged_by_others(told):
            for one in told["cases"]:
                one.update(ratios={}, of_rival={})
            told.update(floors=[program()], targets=[{**told["targets"][0], "what": "an old rule", "verdict": "missed", "met": False}])

        before = "\n".join(markdown.marks("comparison")) + "\n"
        done, after = self.write(False, before, judged_by_others)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("an old rule", after)
        self.assertIn("| met | redis, one | cycle | more than each rival, in all shapes | in all |", after)
        self.assertIn("| 80.0 | 40.0 to 90.0 |  |  |  | 0.8 | 4.5 × <rival> |", after)
        self.assertIn("| **not decided** | bench/redis | cycle / bare | at most 1.1 | 1.20 (1.00 to 1.30) |", after)

    def test_a_run_is_not_judged_without_what_the_rules_need(self):
        before = "\n".join(markdown.marks("comparison")) + "\n"
        for lacks, change in (("method.rivals", lambda told: told["method"].pop("rivals")), ("floors", lambda told: told.pop("floors")),
                              ("renews of a case", lambda told: [one.pop("renews") for one in told["cases"]]),
                              ("'rounds'", lambda told: told["cases"][0]["figures"]["rate"].pop("rounds"))):  # fmt: skip
            done, after = self.write(False, before, change)
            self.assertEqual((done.returncode, after), (1, before))
            self.assertIn(f"an older mortise-bench wrote it, without {lacks}: this one cannot judge it", done.stderr)

    def test_judged_again_it_is_the_same(self):
        told = {**result(), "floors": [program()]}
        told["cases"] += [contended("mortise", "driver", [4] * 5), *sizes("memory", {100: 200000, 10000: 2000})]
        judging.judge(told)
        self.assertEqual(len(told["curves"]), 1)
        with tempfile.TemporaryDirectory() as folder:
            figures.write(f"{folder}/figures", told)
            self.assertEqual(judging.read(f"{folder}/figures"), json.loads(json.dumps(told)))

    def test_summary(self):
        told = result()
        mortise, rival = contended("mortise_strict", "driver", [4] * 5), contended("rival", "rival", [2] * 5)
        told["cases"] += [mortise, rival]
        figures.add_ratios(told["cases"])
        text = markdown.summary({**told, "targets": targets.rows(told)})
        self.assertIn("| One Redis server | 0.8 one | 4.5 one × <rival> | 2 one × <rival> |  |  |  |", text)
        self.assertEqual([cells[4] for cells in tables.summary_rows(told)], ["× 4.5 <rival>", "× 2 <rival>"])
        self.assertIn("Of 5 targets, which the project has set itself: 3 met, 1 missed, 0 not decided, 1 not judged.", text)
        for one in told["cases"]:
            one["backend"] = "etcd"
        self.assertIn("| etcd | 0.8 one |  |  |  |  |", markdown.summary(told))
        self.assertEqual({cells[4] for cells in tables.summary_rows(told)}, {""})
        self.assertIn("**Missed:**\n\n- redis, one, contend, 8 × 8, empty section, handover_max = 0: strict order: at most 1%. Measured:", text)

    def test_the_worst_share_is_of_all_rounds(self):
        for share, worst in ((0.9, "0.50"), (0.4, "0.40")):
            one = contended("mortise", "driver", [1] * 3, longest_ms=7, share=share)
            one["figures"]["least_share"] = figures.figure("least_share", [0.8, 0.5, 0.7])
            self.assertEqual(tables.share_and_wait(one), (worst, "7.0"))

    def test_what_is_faster_stands_in_the_summary(self):
        """Where there is no rival, and what the server has itself is faster: by rate, and after a kill."""
        def killed(subject, kind, took_ms, label):
            return case(subject, kind, [1], "holder killed, ttl 30 s", workload="fail", place="free", label=label,
                        figures={"to_grant": figures.figure("to_grant", [took_ms] * 5)})  # fmt: skip

        cases = [
            contended("mortise", "driver", [700] * 5), contended("mortise_strict", "driver", [13] * 5),
            contended("floor", "floor", [100] * 5, label="advisory lock"),
            killed("mortise_witness", "driver", 8.6, "with"), killed("mortise", "driver", 28818, "without"),
            killed("floor", "floor", 2.24, "advisory lock"), killed("rival", "rival", 9, "slower"),
        ]  # fmt: skip
        other = contended("mortise_strict", "driver", [15] * 5), contended("floor", "floor", [100] * 5, label="advisory lock")
        for one in other:
            one["place"] = "free"
        for one in (*cases, *other):
            one["backend"] = "postgres"
        cases += other
        figures.add_ratios(cases)
        text = markdown.summary({**result(), "cases": cases})
        self.assertIn("|  | 0.13 one, 0.15 free × advisory lock |  |  | with 8.60 ms; without 28,818 ms; advisory lock 2.24 ms |", text)
        self.assertEqual([cells[3] for cells in tables.summary_rows({"cases": cases})], [f"× {part} advisory lock" for part in (7, 0.13, 0.15)])
        other[1]["label"] = "another"
        figures.add_ratios(cases)
        self.assertIn("| 0.13 one × advisory lock, 0.15 free × another |", markdown.summary({**result(), "cases": cases}))

    def test_a_section_of_a_millisecond_stands_in_the_summary(self):
        """Beside the empty one: ratios are much nearer to 1 there."""
        def held(subject, kind, rate, **more):
            return {**contended(subject, kind, [rate] * 5, place="free", **more), "shape": "8 × 8, 1 ms"}

        cases = [contended("mortise_strict", "driver", [9] * 5, place="free"), contended("rival", "rival", [3] * 5, place="free"),
                 held("mortise_strict", "driver", 600), held("rival", "rival", 500), held("floor", "floor", 800)]  # fmt: skip
        figures.add_ratios(cases)
        told = "|  |  | 3 free × <rival> |  | 1.2 free × <rival>; 0.75 free × <floor> |  |  |"
        self.assertIn(told, markdown.summary({**result(), "cases": cases}))
        figures.add_ratios(cases[:4])
        self.assertIn("| 1.2 free × <rival> |  |  |", markdown.summary({**result(), "cases": cases[:4]}))

    def test_versions_of_rivals_and_where_one_is_missing(self):
        told = result()
        self.assertIn("\n\nRivals: 1; newer ones may be faster.", markdown.summary(told))
        told["cases"] += [case("other", "rival", [1], version="other 2"), contended("rival", "rival", [1])]
        figures.add_ratios(told["cases"])
        missing = "Not measured where 64 callers want one lock: <other> (One Redis server)."
        self.assertIn(f"Rivals: 1; other 2; newer ones may be faster. {missing}", markdown.summary(told))
        self.assertNotIn("Rivals", markdown.summary({**told, "cases": told["cases"][:3]}))

    def test_a_floor_that_is_slower_is_told(self):
        faster = [110] * 5
        for subject, rates, told in (("mortise", faster, True), ("mortise", [110, 110, 110, 110, 90], False), ("mortise", [90] * 5, False),
                                     ("mortise_tokenless", faster, False)):  # fmt: skip
            cases = [case(subject, "driver", rates), case("floor", "floor", [100] * 5)]
            figures.add_ratios(cases)
            text = markdown.comparison({**result(), "cases": cases})
            self.assertEqual("Floors that are slower than the driver" in text, told)
            self.assertEqual("or were placed otherwise in this run: redis, one, <mortise>: 1.1 of the rate of <floor>." in text, told)

    def test_processor_time_has_no_digits_below_its_ticks(self):
        one = case("mortise", "driver", [1], workload="renew", figures={"server_cpu": figures.figure("server_cpu", [3.33])})
        figures.add_ratios([one])
        self.assertIn("|  | 3 |", markdown.table("renew", [one]))
        self.assertIn("<td>3</td>", tables.cases_table([one], "all"))
        curve = scale.curves(sizes("client_cpu", {1000: 33.31, 10000: 333.1}))
        self.assertIn("| 33 at 1,000 | 333 at 10,000 |", markdown.scale_table({**result(), "curves": curve}))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            main.print_cases({"cases": [one]})
            main.print_curves({"curves": curve})
        self.assertRegex(printed.getvalue(), r" 3 ms/s  processor time of the server(?s:.*) 33 at 1,000 to 333 ms/s at 10,000;")

    def test_scale(self):
        told = {**result(), "curves": scale.curves(sizes("memory", {100: 200000, 10000: 2000, 100000: 20000}))}
        text = markdown.scale_table(told)
        self.assertIn("| One Redis server, held in one client | memory of the client, bytes | 20,000,000 at 100 | 2,000,000,000 at 100,000 |", text)
        self.assertIn("| 0.667 | 10,000 |", text)

    def test_floors(self):
        told = {**result(), "floors": [program()]}
        text = markdown.floor_tables(told)
        self.assertIn("**`bench/redis`**: a title; median of 5 rounds, all on processor 0.", text)
        self.assertIn("| a cycle | 1,234 ns | 1,000 to 2,000 |  |  |", text)
        self.assertIn("| **cycle / bare** | 1.20 | 1.00 to 1.30 | at most 1.1 | **not decided** |", text)
        self.assertIn("| told | 0.500 | 0.400 to 0.600 |  |  |", text)
        self.assertIn("| **no system call** |  |  | must hold | met |", text)
        self.assertIn("| **bytes** | 7.00 bytes | once | at most 9 bytes | met |", text)
        rows = list(floors.target_rows(told["floors"]))
        self.assertEqual([(row["backend"], row["what"], row["found"], row["met"], row["once"]) for row in rows],
                         [("bench/redis", "cycle / bare", "1.20 (1.00 to 1.30)", None, False),
                          ("bench/redis", "no system call", "it holds", True, False),
                          ("bench/redis", "bytes", "7.00 bytes (once)", True, True),
                          ("bench/redis", "longest", "2.00 ms (1.00 to 8.00)", True, True)])  # fmt: skip

    def test_a_page_without_marks_is_refused(self):
        done, after = self.write(False, "nothing\n")
        self.assertEqual((done.returncode, after), (1, "nothing\n"))


class Pictures(unittest.TestCase):
    """Where things are drawn."""

    def drawn(self, svg, tag):
        found = []

        class Elements(HTMLParser):
            def handle_startendtag(self, name, attrs):
                if name == tag:
                    found.append(dict(attrs))

        Elements().feed(svg)
        return found

    def test_bars_are_as_long_as_their_values(self):
        svg = pictures.bars("t", [("a", 1, 100, 90, 110), ("b", 2, 50, 40, 60)], "unit")
        first, second = self.drawn(svg, "rect")
        self.assertAlmostEqual(float(first["width"]), 2 * float(second["width"]), delta=0.2)
        self.assertEqual((first["style"], second["style"]), ("fill:var(--c1)", "fill:var(--c2)"))

    def test_a_logarithmic_axis(self):
        axis = pictures.Axis([3, 800], 0, 300, logarithmic=True)
        self.assertEqual([axis.pixel(value) for value in (1, 10, 1000)], [0, 100, 300])
        self.assertEqual(axis.marks, [1, 10, 100, 1000])

    def test_axes_contain_their_values(self):
        for values in ([0.1, 0.7], [5], [0], [3, 1e6], [-3, 4]):
            axis = pictures.Axis(values, 10, 400)
            for value in values:
                self.assertTrue(10 <= axis.pixel(value) <= 400, values)
            self.assertLessEqual(len(axis.marks), pictures.TICKS_MOST + 3)

    def test_points_and_events(self):
        svg = pictures.lines("t", [("a", 1, [(0, 1), (2, 9)])], "x", "y", "y", events=[(1, "<killed>")])
        self.assertEqual(len(self.drawn(svg, "circle")), 2)
        self.assertIn("&lt;killed&gt;", svg)
        self.assertNotIn("nan", svg)

    def test_marks_are_short(self):
        self.assertEqual([pictures.mark_text(value) for value in (0, 0.2, 1500, 1e6, 1e8, 0.1 + 0.2)], ["0", "0.2", "1,500", "1M", "100M", "0.3"])


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
        self.assertEqual((text.count("<svg"), text.count("Not drawn")), (4, 0))
        self.assertEqual(text.count("<svg"), text.count("</svg>"))

    def test_all_that_is_missed_stands_at_the_head(self):
        """And where it is missed."""
        rows = [{"backend": backend, "place": "one", "what": "cycle", "bound": "at least 1", "found": "0.5", "verdict": "missed"}
                for backend in ("redis", "mysql", "etcd")]  # fmt: skip
        self.assertIn("<p>Missed: redis, one, cycle; mysql, one, cycle; etcd, one, cycle.</p>", page.verdict({"targets": rows}))
        self.assertNotIn("Missed", page.verdict({"targets": []}))

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

    def test_how_long_it_is_measured(self):
        told = result()
        for wait_s, longer in ((0.5, False), (1.5, True)):
            told["method"]["seconds"] = {"cycle": 0.25, "wait": wait_s}
            self.assertEqual("but wait takes 20 s on etcd, 9.3 s on ZooKeeper, and 2 ttls of 5 s of Mortise on" in page.method_text(told), longer)

    def test_a_case_without_figures_does_not_end_it(self):
        told = result()
        for one in told["cases"]:
            one.update(figures={}, ratios={}, of_rival={}, histograms={})
        with tempfile.TemporaryDirectory() as folder:
            page.write(Path(folder) / "report.html", told)


unittest.main(verbosity=2)
