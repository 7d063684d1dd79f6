#!/usr/bin/env python3
"""test_verdicts.py BENCH - ratios, curves, targets and the check of two runs, with figures that the test makes up. BENCH is the folder
bench/ of the tree."""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

from made_up import case, contended, result, sizes  # noqa: E402
from mortise_bench import figures, main, scale, tables, targets  # noqa: E402


class Curves(unittest.TestCase):
    def grown(self, name, values):
        curves = scale.curves(sizes(name, values))
        self.assertEqual(len(curves), 1)
        return curves[0]["figures"][0] if curves[0]["figures"] else None, targets.grown(curves[0])

    def test_linear(self):
        found, row = self.grown("requests", {100: 10, 1000: 100, 10000: 1000, 100000: 10000})
        self.assertEqual((found["slope"], found["bends"], found["hosts"]), (1, None, 1000))
        self.assertTrue(row["met"])

    def test_one_size_is_not_judged(self):
        """The next one took too long, so nobody knows what grows."""
        row = self.grown("requests", {100: 10})[1]
        self.assertEqual((row["verdict"], row["found"]), (targets.NOT_JUDGED, "there is one size only"))
        self.assertFalse(main.all_well({"left_out": [], "not_reached": [{"what": "1,000", "why": "slow"}], "targets": [row]}))
        self.assertTrue(self.grown("requests", {100: 0.1, 1000: 0.1})[1]["met"])  # both are noise

    def test_bend(self):
        found, row = self.grown("requests", {100: 10, 1000: 100, 10000: 10000})
        self.assertEqual((found["slope"], found["steps"], found["bends"]), (1.5, [1, 2], 1000))
        self.assertFalse(row["met"])

    def test_the_slope_from_there_on(self):
        """Not that of the steepest step, which may be one before."""
        found, row = self.grown("requests", {100: 10, 300: 150, 1000: 500, 3000: 1500})
        self.assertEqual((found["bends"], found["steps"][0]), (100, 2.46))
        self.assertEqual(row["found"], "requests: slope 1.47, from 100 on 1.47")

    def test_for_each_is_a_total(self):
        found, row = self.grown("memory", {10000: 2000, 100000: 20000})
        self.assertEqual((found["points"], found["slope"]), ([[10000, 2e7], [100000, 2e9]], 2))
        self.assertFalse(row["met"])

    def test_scatter_is_linear(self):
        self.assertTrue(self.grown("requests", {1000: 100, 2000: 280, 20000: 2900})[1]["met"])
        row = self.grown("requests", {1000: 100, 10000: 1900})[1]  # the bound says how far that goes
        self.assertEqual((row["met"], row["bound"]), (True, "at most twice linear, up to 10,000"))
        self.assertFalse(self.grown("requests", {1000: 100, 3000: 700})[1]["met"])

    def test_one_bad_spell_is_no_bend(self):
        self.assertTrue(self.grown("requests", {100: 20, 300: 380, 1000: 220, 3000: 660})[1]["met"])
        self.assertFalse(self.grown("requests", {100: 20, 300: 380, 1000: 2200, 3000: 6600})[1]["met"])

    def test_renewals_while_it_is_set_up(self):
        """As long as there are 10 for 1 s and then up to 30 for 2 s more, it is as if all 30 were there for 1.5 s."""
        few, many = (scale.Scale.__new__(scale.Scale) for _ in range(2))
        few.before, few.count, few.set_up_s = None, 10, 1
        many.before, many.count, many.set_up_s = few, 30, 3
        self.assertEqual(few.were_there_s(), 0.5)
        self.assertEqual(many.were_there_s(), (1 * 5 + 2 * 20) / 30)

    def test_times_of_the_clock_are_told(self):
        found, row = self.grown("to_grant", {1000: 1, 10000: 100})
        self.assertEqual((found["bends"], row["met"]), (1000, True))

    def test_less_than_noise_is_no_point(self):
        self.assertIsNone(self.grown("requests", {100: 0.1, 1000: 3})[0])
        self.assertTrue(self.grown("requests", {100: 0.1, 1000: 10, 10000: 100})[1]["met"])

    def test_more_hosts_than_measured(self):
        for sizes_, hosts in (({100: 10, 1000: 100}, 1000), ({100: 10, 1000: 100, 2000: 100}, 345), ({100: 10, 1000: 20, 2000: 40}, 200),
                              ({100: 40, 1000: 20}, 20), ({1000: 10, 10000: 70, 100000: 1000}, 70)):  # fmt: skip
            self.assertEqual(self.grown("requests", sizes_)[0]["hosts"], hosts)


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


class Targets(unittest.TestCase):
    """Ratios are held by the median, waits and order by the worst round, shares by the long one."""

    def rows(self, *cases, rivals=()):
        cases = list(cases)
        figures.add_ratios(cases)
        return targets.rows({"cases": cases, "method": {"rivals": rivals}})

    def missed(self, *cases):
        return [row["bound"] for row in self.rows(*cases) if not row["met"]]

    def test_all_met(self):
        rival = contended("rival", "rival", [10] * 5)
        self.assertEqual(self.missed(contended("mortise", "driver", [100, 200, 300, 400, 500]), rival), [])

    def verdicts(self, rates, bound="at least 10 × the best rival's rate"):
        rows = self.rows(contended("mortise", "driver", rates), contended("rival", "rival", [10] * len(rates)))
        return next(row["verdict"] for row in rows if row["bound"] == bound)

    def test_the_median_misses(self):
        rival = contended("rival", "rival", [10] * 5)
        self.assertEqual(self.verdicts([100, 200, 300, 400, 500]), targets.MET)
        self.assertEqual(self.verdicts([95, 96, 97, 98, 99]), targets.MISSED)
        missed = self.missed(contended("mortise", "driver", [5, 6, 7, 8, 9]), rival)
        self.assertEqual(missed, ["at least 10 × the best rival's rate", "more than each rival, in all shapes"])

    def test_a_bound_within_the_spread_is_not_decided(self):
        self.assertEqual(self.verdicts([99, 200, 300, 400, 500]), targets.NOT_DECIDED)
        self.assertEqual(self.verdicts([99, 50, 60, 70, 101]), targets.NOT_DECIDED)
        self.assertEqual(self.verdicts([9, 50, 60, 70, 101], "more than each rival, in all shapes"), targets.NOT_DECIDED)
        told = self.rows(contended("mortise", "driver", [99, 200, 300]), contended("rival", "rival", [10, 10, 10]))
        self.assertFalse(main.all_well({"left_out": [], "targets": told}))

    def test_few_rounds_show_no_target_as_met(self):
        self.assertEqual(self.verdicts([300] * 4), targets.NOT_DECIDED)
        self.assertEqual(self.verdicts([10] * 4), targets.MISSED)

    def test_a_rival_that_ended_no_turn_is_no_measure(self):
        """A round is shorter than its turn, or one such turn is all that it did."""
        for rates, verdict in (([0] * 5, targets.NOT_JUDGED), ([0, 0, 0, 0, 4], targets.NOT_DECIDED), ([4] * 5, targets.MET)):
            told = self.rows(case("mortise", "driver", [90] * 5), case("rival", "rival", rates), rivals=["redis"])
            self.assertEqual([(row["bound"], row["verdict"]) for row in told], [("more than each rival, in all shapes", verdict)])
        told = self.rows(case("mortise", "driver", [90] * 5), case("rival", "rival", [4] * 5), case("mortise", "driver", [9] * 5, "8 threads"),
                         case("rival", "rival", [0] * 5, "8 threads"))  # fmt: skip
        self.assertEqual((told[0]["verdict"], told[0]["found"]), (targets.NOT_JUDGED, "8 threads: no rival has ended a turn"))

    def test_one_bad_round_of_many_decides_nothing(self):
        """Of eight rounds the median lies between the second and the seventh in more than nine cases of ten."""
        self.assertEqual([figures.sure_rank(count) for count in (1, 3, 5, 7, 8, 10, 11, 15)], [1, 1, 1, 1, 2, 2, 3, 4])
        self.assertEqual(self.verdicts([1] + [200] * 7), targets.MET)
        self.assertEqual(self.verdicts([1] + [200] * 6), targets.NOT_DECIDED)
        self.assertEqual(self.verdicts([500] + [20] * 7), targets.MISSED)

    def test_strict_order_stands_first(self):
        rows = self.rows(contended("mortise", "driver", [1]), contended("mortise_strict", "driver", [1]), contended("a", "rival", [1]))
        self.assertEqual([row["bound"] for row in rows if "the best rival's rate" in row["bound"]],
                         ["at least 1.8 × the best rival's rate", "at least 10 × the best rival's rate"])  # fmt: skip

    def test_what_they_are_of(self):
        """With an empty section only; and beside each rival with hand-over, which makes it easier."""
        rows = self.rows(contended("mortise", "driver", [1]), contended("mortise_strict", "driver", [1]), contended("a", "rival", [1]))
        handed_over = "with hand-over within a process"
        self.assertEqual({row["bound"]: row["what"] for row in rows if "rival" in row["bound"]},
                         {"at least 1.8 × the best rival's rate": "contend, 8 × 8, empty section, handover_max = 0",
                          "at least 10 × the best rival's rate": f"contend, 8 × 8, empty section, {handed_over}, which none of these rivals has",
                          "more than each rival, in all shapes": f"contend, {handed_over}"})  # fmt: skip

    def test_who_the_best_is_of(self):
        rows = self.rows(contended("mortise", "driver", [1]), contended("a", "rival", [1]), contended("b", "rival", [2]))
        self.assertEqual(rows[0]["found"], "0.5 (0.5 to 0.5) × <b> (of <a>, <b>)")

    def test_no_rival_is_not_judged(self):
        """Where there ought to be one: it is not installed, or failed. So it is where nobody was to be beside it."""
        one = contended("mortise", "driver", [100, 200, 300])
        told = {row["bound"]: row["met"] for row in self.rows(one, rivals=["redis"])}
        self.assertIsNone(told["at least 10 × the best rival's rate"])
        self.assertIsNone(told["more than each rival, in all shapes"])
        self.assertNotIn(None, [row["met"] for row in self.rows(one)])

    def test_a_rival_without_tokens_is_beside_the_driver_without_them(self):
        cases = [
            case("mortise", "driver", [90] * 5), case("mortise_tokenless", "driver", [130] * 5), case("floor", "floor", [100] * 5),
            case("redis_plus_plus", "rival", [120] * 5), case("other", "rival", [80] * 5),
        ]  # fmt: skip
        told = {row["bound"]: row["met"] for row in self.rows(*cases)}
        self.assertEqual(told, {"more than each rival but redis-plus-plus, in all shapes": True, "at least the rate of redis-plus-plus, in all shapes": True,
                                "at least 0.95 × the floor's rate": False})  # fmt: skip
        self.assertEqual(cases[0]["of_rival"]["rate"]["to"], "<redis_plus_plus>")
        told = {row["bound"]: row["met"] for row in self.rows(cases[0], *cases[2:])}
        self.assertEqual(told, {"more than each rival, in all shapes": False})
        told = {row["bound"]: row["met"] for row in self.rows(*cases[:3])}
        self.assertEqual(told, {"at least 0.95 × the floor's rate": False})  # it needs no rival
        told = {row["bound"]: row["verdict"] for row in self.rows(*cases[:2], *cases[3:])}
        self.assertEqual(told["at least 0.95 × the floor's rate"], targets.NOT_JUDGED)

    def test_a_program_that_is_started_is_no_measure_of_a_rate(self):
        cases = [contended("mortise", "driver", [100, 200, 300, 400, 500]), contended("flock", "rival", [90] * 5)]
        cases += [case("mortise", "driver", [100] * 5), case("flock", "rival", [90] * 5)]
        for backend in ("sqlite", "etcd"):
            for one in cases:
                one["backend"] = backend
            for rows in (self.rows(*cases, rivals=[backend]), self.rows(cases[0], cases[2], rivals=[backend])):
                self.assertEqual([row["bound"] for row in rows if "rival" in row["bound"]], [])
            self.assertIn("flock(1) and etcdctl", tables.targets_note(rows))
        cases[1]["backend"] = "redis"
        self.assertEqual(tables.targets_note(self.rows(cases[1])), tables.HELD)

    def test_when_a_lock_is_had_again_is_comparable_with_a_program(self):
        cases = [case("mortise", "driver", [1]), case("etcdctl", "rival", [1], renews=True)]
        for one, took_ms in zip(cases, (30, 10)):
            one.update(workload="fail", backend="etcd", shape="holder killed", figures={"to_grant": figures.figure("to_grant", [took_ms] * 5)})
        self.assertEqual(self.missed(*cases), ["acquired sooner than each rival, in all shapes"])
        for subject, missed in (("flock", 1), ("redis_py", 0)):  # neither renews, but the lock of the first has no ttl
            cases[1].update(subject=subject, renews=False)
            self.assertEqual(len(self.missed(*cases)), missed)

    def test_requests_where_a_rival_has_none(self):
        cases = [case("mortise", "driver", [1]), case("rival", "rival", [1])]
        for one, requests in zip(cases, (3, 0)):
            one.update(workload="wait", figures={"requests": figures.figure("requests", [requests])})
        self.assertEqual(self.missed(*cases), ["fewer requests than each rival, in all shapes"])

    def test_one_figure_near_its_bound_decides_nothing(self):
        """A wait is that of one turn; requests are counted once."""
        for longest_ms, verdict in ((199, targets.MET), (201, targets.NOT_DECIDED), (312, targets.NOT_DECIDED), (313, targets.MISSED)):
            rows = self.rows(contended("mortise", "driver", [1] * 5, longest_ms=longest_ms))
            self.assertEqual([row["verdict"] for row in rows if row["bound"] == "no wait of 250 ms"], [verdict])
        for requests, verdict in ((79, targets.MET), (81, targets.NOT_DECIDED), (124, targets.NOT_DECIDED), (126, targets.MISSED)):
            cases = [case("mortise", "driver", [1]), case("rival", "rival", [1])]
            for one, found in zip(cases, (requests, 100)):
                one.update(workload="wait", figures={"requests": figures.figure("requests", [found])})
            self.assertEqual([row["verdict"] for row in self.rows(*cases)], [verdict])

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


class Kills(unittest.TestCase):
    """The rounds as Killed tells them."""

    GRANTED, OVERLAP, REFUSED = {"to_grant": 10, "refused": 0, "overlaps": 0}, {"refused": 0, "overlaps": 1}, {"refused": 1}

    def verdicts(self, *rounds, subject="mortise"):
        one = case(subject, "driver", [1], "holder killed, ttl 30 s")
        names = sorted({name for told in rounds for name in told})
        one.update(workload="fail", figures={name: figures.figure(name, [told.get(name) for told in rounds]) for name in names})
        figures.add_ratios([one])
        return {row["bound"]: row["verdict"] for row in targets.rows({"cases": [one], "method": {"rivals": []}})}

    def test_all_is_well(self):
        found = self.verdicts(*[self.GRANTED] * 5, subject="mortise_witness")
        self.assertEqual(found, {"one holder at a time": targets.MET, "granted again after each kill": targets.MET,
                                 "median of at most 30 ms": targets.MET})  # fmt: skip

    def test_two_holders(self):
        for subject in ("mortise", "mortise_witness"):
            found = self.verdicts(*[self.GRANTED] * 4, self.OVERLAP, subject=subject)
            self.assertEqual(found["one holder at a time"], targets.MISSED)

    def test_no_holder(self):
        for rounds in ([self.REFUSED] * 5, [self.GRANTED] * 4 + [self.REFUSED]):
            self.assertEqual(self.verdicts(*rounds)["granted again after each kill"], targets.MISSED)

    def test_a_witness_is_not_judged_by_its_good_rounds(self):
        for others in ([self.REFUSED] * 4, [self.OVERLAP] * 4, [self.REFUSED]):
            found = self.verdicts(self.GRANTED, *others, subject="mortise_witness")
            self.assertEqual(found["median of at most 30 ms"], targets.MISSED)
        found = self.verdicts(*[self.REFUSED] * 5, subject="mortise_witness")
        self.assertEqual(found["median of at most 30 ms"], targets.MISSED)


class Well(unittest.TestCase):
    """What --check makes of it."""

    def test_missed_not_judged_left_out(self):
        rows = [{"met": True}, {"met": True}]
        self.assertTrue(main.all_well({"left_out": [], "targets": rows}))
        self.assertFalse(main.all_well({"left_out": [{"what": "a case", "why": "it failed"}], "targets": rows}))
        ended = [{"what": "a size", "why": "it would take too long"}]
        self.assertTrue(main.all_well({"left_out": [], "not_reached": ended, "targets": rows}))
        for met in (False, None):
            self.assertFalse(main.all_well({"left_out": [], "targets": [*rows, {"met": met}]}))


class Check(unittest.TestCase):
    def check(self, change, *words, quick=False, before=lambda cases: None, was=lambda run: None, not_reached=()):
        """change, before: what is done to the cases of the new run, of the one before. was: what is done to that one when it is judged.
        not_reached: sizes of the new run."""
        with tempfile.TemporaryDirectory() as folder:
            base, new = result(), copy.deepcopy(result())
            change(new["cases"])
            new["targets"] = targets.rows(new)
            before(base["cases"])
            base["targets"] = targets.rows(base)
            was(base)
            new["not_reached"] = list(not_reached)
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
            cases[0] = case("mortise", "driver", [8, 11, 5, 10, 10])
            figures.add_ratios(cases)  # 0.5 0.9 0.8 of the floor before, 0.08 0.11 0.1 now

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
            cases[3] = case("rival", "rival", [40, 80, 80, 72, 70])
            figures.add_ratios(cases)

        done = self.check(rival_is_faster)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rate: 4.5 of the best rival before, 1.12 now", done.stdout)

    def test_other_rivals_are_not_comparable(self):
        """One that is gone would make the best of the others better."""

        def another(cases):
            cases.append(case("another", "rival", [30, 60, 60, 60, 60]))
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

    @staticmethod
    def curve(values):
        return lambda cases: (cases.extend(sizes("requests", values)), figures.add_ratios(cases))

    def test_both_are_judged_by_the_same_rules(self):
        """Those of now, or each as it was judged if one lacks what they need."""
        def by_others(run):
            run["targets"][0].update(what="an old rule")

        done = self.check(lambda cases: None, was=by_others)
        self.assertEqual((done.returncode, done.stdout.count("\n")), (0, 1), done.stdout)
        done = self.check(lambda cases: None, was=lambda run: (by_others(run), run.pop("floors")))
        self.assertIn("not judged: redis, one, an old rule", done.stdout)

    def test_how_far_a_curve_goes_is_the_machines(self):
        few, many = (self.curve({count: count for count in counts}) for counts in ((10, 100), (10, 100, 1000)))
        ended = [{"what": "one, redis: scale, held in one client: 1000, <mortise>", "why": "it would take 30 s to set up"}]
        done = self.check(few, before=many, not_reached=ended)
        self.assertEqual((done.returncode, done.stdout.count("\n")), (0, 1), done.stdout)
        done = self.check(few, before=many)  # it failed
        self.assertEqual(done.returncode, 1)
        self.assertIn("not measured: scale, one, redis, held in one client: 1000, mortise", done.stdout)
        steep = self.curve({10: 10, 100: 100, 1000: 100000})
        self.assertIn("missed: redis, one, scale, held", self.check(steep, before=few).stdout)

    def test_a_curve_of_one_size_is_told(self):
        done = self.check(self.curve({10: 10}), before=self.curve({10: 10, 100: 10}))
        self.assertIn("not judged: redis, one, scale, held in one client: all before", done.stdout)

    def test_one_value_near_its_bound_is_no_pass(self):
        """It is compared by nothing else; a ratio of rounds is."""

        def waits(longest_ms):
            return lambda cases: (cases.append(contended("mortise", "driver", [1] * 5, longest_ms=longest_ms)), figures.add_ratios(cases))

        def requests(mine):
            def make(cases):
                for subject, kind, found in (("mortise", "driver", mine), ("rival", "rival", 100)):
                    cases.append(case(subject, kind, [1], workload="wait", figures={"requests": figures.figure("requests", [found])}))
                figures.add_ratios(cases)

            return make

        for make, before, now, told in (
            (waits, 14, 300, "not met: redis, one, contend, 8 × 8, empty section, no wait of 250 ms: 14 ms before, 300 ms now"),
            (requests, 79, 90, "not met: redis, one, wait, fewer requests than each rival, in all shapes: in all before, 1 caller: 0.9"),
        ):
            done = self.check(make(now), before=make(before))
            self.assertEqual(done.returncode, 1)
            self.assertIn(told, done.stdout)
            self.assertEqual(self.check(make(now), before=make(now)).returncode, 0)

        def slower(cases):  # than its rival in one of the rounds
            cases[0] = case("mortise", "driver", [50, 90, 40, 80, 15])
            figures.add_ratios(cases)

        self.assertEqual(self.check(slower).returncode, 0)

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


unittest.main(verbosity=2)
