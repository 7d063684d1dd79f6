"""The targets of mortise-bench, and whether a run met them. The bound of each is held against the worst round, not the
median. A row is {"backend", "place", "what", "bound", "found", "met"}."""

from .figures import KNOWN, group_of, like, main_figure

FAIR = ("redis", "zookeeper")  # drivers that promise an order between processes: README.md, "Drivers"
RIVAL_RATE, STRICT_RATE = 10, 1.5
SHARE, WAIT_MS, OVERTAKES = 0.25, 250, 0.01


def strict(case):
    return case["subject"].endswith("strict")


def ordered(case):
    """Whether a strict order is promised."""
    return strict(case) and case["backend"] in FAIR


def row(case, what, bound, found, met):
    return {
        "backend": case["target"] or case["backend"], "place": case["place"], "what": what, "bound": bound, "found": found,
        "met": bool(met),
    }  # fmt: skip


def told(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def rate_row(case, bound, words):
    found = case["of_rival"].get("rate")
    if found is None:
        return []
    text = f"{told(found['least'])} to {told(found['most'])} × {found['to']}"
    return [row(case, words, f"at least {bound:g} × the best rival's rate", text, found["least"] >= bound)]


def contended(case):
    """Of one driver, all on one name, nothing done in between."""
    shape, figures = case["shape"].partition(",")[0], case["figures"]
    words = f"contend, {shape}"
    if strict(case):
        rows = rate_row(case, STRICT_RATE, f"{words}, handover_max = 0")
        if ordered(case) and "overtakes" in figures:
            worst = figures["overtakes"]["most"]
            found = f"at most {100 * worst:.3g} % of the grants passed by a process that waited"
            rows.append(row(case, f"{words}, handover_max = 0", f"strict order: at most {OVERTAKES:.0%}", found, worst <= OVERTAKES))
        return rows
    rows = rate_row(case, RIVAL_RATE, words)
    seconds = case["long"]["seconds"] if case.get("long") else None
    if seconds is not None:
        share, wait_ms = case["long"]["least_share"], max(case["long"]["longest_wait"], figures["longest_wait"]["most"])
        bound = f"no process under {SHARE:g} of an even share in {seconds:g} s"
        rows.append(row(case, words, bound, told(share), share >= SHARE))
        rows.append(row(case, words, f"no wait of {WAIT_MS} ms", f"{told(wait_ms)} ms", wait_ms < WAIT_MS))
    return rows


def alone(cases):
    overlaps = sum(case["figures"].get("overlaps", {}).get("most", 0) for case in cases)
    long = sum(case["long"]["overlaps"] for case in cases if case.get("long"))
    return row(cases[0], "contend", "one holder at a time", f"{overlaps + long:g} overlaps", overlaps + long == 0)


def first_in(cases):
    """Whether the driver is before all rivals, in the worst round of each shape."""
    late, seen = [], 0
    for case in cases:
        name = main_figure(case)
        if strict(case) or not like(case, cases, "rival"):
            continue
        found = case["of_rival"].get(name)
        if found is None:  # nothing to divide by: first only where there is nothing of it here either
            continue
        seen += 1
        worst = found["least"] if KNOWN[name][1] == "more" else 1 / max(found["most"], 1e-9)
        if worst < 1:
            ratio = found["least"] if KNOWN[name][1] == "more" else found["most"]
            late.append(f"{case['shape']}: {told(ratio)} × {found['to']}'s")
    return seen, late


def of_group(cases):
    drivers = [case for case in cases if case["kind"] == "driver"]
    workload = cases[0]["workload"]
    if workload == "contend":
        for case in drivers:
            if case["shape"].endswith(", empty"):
                yield from contended(case)
        if drivers:
            yield alone(drivers)
    seen, late = first_in(cases)
    if seen:
        words = {"rate": "more", "requests": "fewer requests", "to_grant": "sooner had"}[main_figure(drivers[0])]
        yield row(drivers[0], workload, f"{words} than each rival, in all shapes", "; ".join(late) or "in all", not late)


def rows(result):
    groups = {}
    for case in result["cases"]:
        groups.setdefault(group_of(case), []).append(case)
    return [found for cases in groups.values() for found in of_group(cases)]
