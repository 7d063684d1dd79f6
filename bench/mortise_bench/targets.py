"""The targets of mortise-bench, and whether a run met them. A ratio, and the time to a grant with a witness, is held to its
bound by the median of the rounds, and shown with their spread. If the bound lies where the true median may be
(figures.sure), the verdict is "not decided". The worst of all rounds decides waits, order and exclusion, one long round
the shares. A row is {"backend", "place", "what", "bound", "found", "verdict", "met", "once"}; met is true or false for
MET and MISSED, and None for the other two; once: of one value, not of rounds."""

from .figures import KNOWN, MAIN, beside_rivals, comparable, group_of, main_figure, sure

MET, MISSED, NOT_DECIDED, NOT_JUDGED = "met", "missed", "not decided", "not judged"

FAIR = ("redis", "zookeeper", "etcd")  # drivers that promise an order between processes: README.md, "Drivers"
RIVAL_RATE, STRICT_RATE = 10, {"redis": 1.8}
STRICT_RATE_ELSE = 1.5
SPAWNED = ("sqlite", "etcd")  # whose only rival is a program that is started for each lock: no measure of a rate
SHARE, WAIT_MS, OVERTAKES = 0.25, 250, 0.01
HANDED_OVER = "with hand-over within a process"  # where handover_max is not 0
LEAST_ROUNDS = 5  # with a ratio, of what is measured in rounds: fewer do not show that a bound is met. One that is meant has APART
APART = 1.25  # times its bound: what was measured once, or in one turn, is nowhere as sure as that
WITNESS_MS = 30  # from a kill to the next grant
# The fastest rival gives no token. So the driver without tokens is compared with that rival's rate, and the driver with tokens
# with the rate of its own floor, whose scripts make tokens, too. The tables also show the driver with tokens beside that rival.
TOKENLESS, TOKENLESS_RIVALS, OF_FLOOR = "mortise_tokenless", ("redis_plus_plus",), 0.95


def strict(case):
    return case["subject"].endswith("strict")


def tokenless(case):
    return case["subject"] == TOKENLESS


def ordered(case):
    """Whether a strict order is promised."""
    return strict(case) and case["backend"] in FAIR


def row(case, what, bound, found, verdict, once=False):
    """verdict: one of the four words, or whether it is met."""
    if not isinstance(verdict, str):
        verdict = MET if verdict else MISSED
    return {
        "backend": case["target"] or case["backend"], "place": case["place"], "what": what, "bound": bound, "found": found,
        "verdict": verdict, "met": {MET: True, MISSED: False}.get(verdict), "once": once,
    }  # fmt: skip


def held(rounds, bound, more, made=None):
    """The verdict on a median of which so many rounds are known. more: it has to be at least the bound, not at most. made: how many
    rounds there were; 1, where more than one is not meant."""
    known = [value for value in rounds if value is not None]
    low, high = sure(known)
    if made == 1:
        low, high = low / APART, high * APART
    if low >= bound if more else high <= bound:
        return NOT_DECIDED if made != 1 and len(known) < LEAST_ROUNDS else MET
    return MISSED if (high < bound if more else low > bound) else NOT_DECIDED


def told(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def spread(found):
    return f"{told(found['median'])} ({told(found['least'])} to {told(found['most'])})"


def rate_row(case, bound, words, rivaled):
    if case["backend"] in SPAWNED:
        return []
    text, found = f"at least {bound:g} × the best rival's rate", case["of_rival"].get("rate")
    if found is None:
        return [row(case, words, text, "there is no rival's rate", NOT_JUDGED)] if rivaled else []
    of = f" (of {', '.join(found['among'])})" if len(found["among"]) > 1 else ""
    return [row(case, words, text, f"{spread(found)} × {found['to']}{of}", held(found["rounds"], bound, True))]


def contended(case, rivaled):
    """Of one driver, all on one name, nothing done in between. rivaled: rivals have to be there."""
    shape, figures = case["shape"].partition(",")[0], case["figures"]
    words = f"contend, {shape}, empty section"
    if strict(case):
        rows = rate_row(case, STRICT_RATE.get(case["backend"], STRICT_RATE_ELSE), f"{words}, handover_max = 0", rivaled)
        if ordered(case) and "overtakes" in figures:
            worst = figures["overtakes"]["most"]
            found = f"at most {100 * worst:.3g} % of the grants passed by a process that waited"
            rows.append(row(case, f"{words}, handover_max = 0", f"strict order: at most {OVERTAKES:.0%}", found, worst <= OVERTAKES))
        return rows
    rows = rate_row(case, RIVAL_RATE, f"{words}, {HANDED_OVER}, which none of these rivals has", rivaled)
    seconds = case["long"]["seconds"] if case.get("long") else None
    if seconds is not None:
        share, wait_ms = case["long"]["least_share"], max(case["long"]["longest_wait"], figures["longest_wait"]["most"])
        bound = f"no process under {SHARE:g} of an even share in {seconds:g} s"
        rows.append(row(case, words, bound, told(share), share >= SHARE))
        verdict = held([wait_ms], WAIT_MS, False, 1)
        rows.append(row(case, words, f"no wait of {WAIT_MS} ms", f"{told(wait_ms)} ms", verdict, once=True))
    return rows


def witnessed(case):
    """Of a killed holder whose lock a witness frees."""
    return case["subject"].endswith("witness")


def freed(case):
    """Not that of the rounds which went well."""
    words, bound = "fail, holder killed, with a witness", f"median of at most {WITNESS_MS} ms"
    found = case["figures"].get("to_grant")
    if found is None:
        return row(case, words, bound, "in no round", MISSED)
    text = f"{told(found['median'])} ms ({told(found['least'])} to {told(found['most'])})"
    if None in found["rounds"]:
        return row(case, words, bound, f"{text}, and not in {found['rounds'].count(None)} of {len(found['rounds'])} rounds", MISSED)
    return row(case, words, bound, text, held(found["rounds"], WITNESS_MS, False))


def regained(cases):
    """Of killed holders: whoever waits for such a lock has it some day."""
    refused = sum(value or 0 for case in cases for value in case["figures"]["refused"]["rounds"])
    return row(cases[0], "fail, holder killed", "granted again after each kill", f"{refused:g} refused", refused == 0)


def alone(cases):
    overlaps = sum(case["figures"].get("overlaps", {}).get("most", 0) for case in cases)
    long = sum(case["long"]["overlaps"] for case in cases if case.get("long"))
    return row(cases[0], cases[0]["workload"], "one holder at a time", f"{overlaps + long:g} overlaps", overlaps + long == 0)


def beside(case, name, rivals):
    """(verdict, what there is to say of a shape in which the driver is not surely before all of them)."""
    more, found = KNOWN[name][1] == "more", beside_rivals(case, rivals, name)
    if found is None and more:
        return NOT_JUDGED, f"{case['shape']}: no rival has ended a turn"
    if found is None:  # the best rival has nothing of it: no ratio
        words = f"{case['shape']}: {told(case['figures'][name]['most'])}, where {rivals[0]['label']} has none"
        return (MISSED, words) if case["figures"][name]["most"] > 0 else (MET, "")
    verdict = held(found["rounds"], 1, more, len(case["figures"][name]["rounds"]))
    return verdict, "" if verdict == MET else f"{case['shape']}: {spread(found)} × {found['to']}'s"


def held_to(case, cases, name):
    """The rivals whose figures a driver has to reach."""
    rivals = comparable(case, cases, name)
    if not any(tokenless(other) and other["shape"] == case["shape"] for other in cases):
        return rivals
    return [rival for rival in rivals if (rival["subject"] in TOKENLESS_RIVALS) == tokenless(case)]


def rated(case):
    """Whether its rivals' rate is a measure of it, if it is a rate that it is compared by."""
    return MAIN[case["workload"]] != "rate" or case["backend"] not in SPAWNED


def first_in(cases, accepts):
    """Of all shapes in which there are rivals: the verdict, words, and whether it is of one value."""
    found = []
    for case in filter(rated, cases):
        name = main_figure(case)
        rivals = held_to(case, cases, name)
        if case["kind"] == "driver" and accepts(case) and rivals:
            found.append((*beside(case, name, rivals), len(case["figures"][name]["rounds"]) == 1))
    return found


def of_floor(case):
    """With tokens, one caller: beside the floor, which makes them too."""
    words, bound, found = f"cycle, {case['shape']}", f"at least {OF_FLOOR:g} × the floor's rate", case["ratios"].get("rate")
    if found is None:
        return row(case, words, bound, "there is no floor's rate", NOT_JUDGED)
    return row(case, words, bound, spread(found), held(found["rounds"], OF_FLOOR, True))


def worst(verdicts):
    return next((verdict for verdict in (MISSED, NOT_DECIDED, NOT_JUDGED) if verdict in verdicts), MET)


def shapes_row(case, what, bound, seen):
    late = "; ".join(words for _, words, _ in seen if words)
    return row(case, what, bound, late or "in all", worst([verdict for verdict, *_ in seen]), any(once for *_, once in seen))


def of_group(cases, rivaled):
    drivers = [case for case in cases if case["kind"] == "driver"]
    workload = cases[0]["workload"]
    if workload == "contend":
        for case in sorted(drivers, key=lambda case: not strict(case)):  # an order first: rivals know only that work
            if case["shape"].endswith(", empty"):
                yield from contended(case, rivaled)
    if drivers and (workload == "contend" or any("overlaps" in case["figures"] for case in drivers)):
        yield alone(drivers)
    killed = [case for case in drivers if case["shape"].startswith("holder killed") and "refused" in case["figures"]]
    if killed:
        yield regained(killed)
    for case in killed:
        if witnessed(case):
            yield freed(case)
    cases = [case for case in cases if not witnessed(case)]
    drivers = [case for case in drivers if not witnessed(case)]
    seen = first_in(cases, lambda case: not strict(case) and not tokenless(case))
    without = first_in(cases, tokenless)
    words = {"rate": "more", "requests": "fewer requests", "to_grant": "acquired sooner"}.get(MAIN[workload])
    others = "each rival but redis-plus-plus" if without else "each rival"
    what = f"contend, {HANDED_OVER}" if workload == "contend" else workload
    if seen:
        yield shapes_row(drivers[0], what, f"{words} than {others}, in all shapes", seen)
    if without:
        yield shapes_row(drivers[0], f"{workload}, fencing = off", "at least the rate of redis-plus-plus, in all shapes", without)
    if any(tokenless(case) for case in drivers):  # whether or not that rival was measured
        for case in drivers:
            if case["shape"] == "1 caller" and not tokenless(case):
                yield of_floor(case)
    if seen or without:
        return
    if rivaled and drivers and MAIN[workload] == "rate" and rated(drivers[0]):  # there, each rival has something to say
        yield row(drivers[0], what, f"{words} than each rival, in all shapes", "there is no rival", NOT_JUDGED)


WALL = ("set_up", "to_grant")  # what else the machine did is in it; their processor time is held to the bound


def grown(curve):
    """Of one curve: nothing of it grows faster than the thing that is many. One size alone does not grow."""
    late = [
        f"{found['figure']}: slope {found['slope']:.3g}, from {found['bends']:,} on {found['slope_on']:.3g}"
        for found in curve["figures"]
        if found["bends"] is not None and found["figure"] not in WALL
    ]
    case = {"target": "", "backend": curve["backend"], "place": curve["place"]}
    words, bound = f"scale, {curve['words']}", f"at most twice linear, up to {curve['largest']:,}"
    if curve["sizes"] < 2:
        return row(case, words, bound, "there is one size only", NOT_JUDGED)
    return row(case, words, bound, "; ".join(late) or "all", not late)


def rows(result):
    """method.rivals: the backends with rivals that have to be there."""
    groups, rivaled = {}, result.get("method", {}).get("rivals", ())
    for case in result["cases"]:
        groups.setdefault(group_of(case), []).append(case)
    found = [found for cases in groups.values() for found in of_group(cases, cases[0]["backend"] in rivaled)]
    return found + [grown(curve) for curve in result.get("curves", ())]
