"""What the pages of docs/ tell of a run, in Markdown, each block between two marks: a summary for five minutes, and all tables."""

import re

from . import floors
from .figures import KNOWN, group_of, sure
from .tables import BACKENDS, TARGETS, number, shown, spread, target_cells, targets_note, versions, warm_up
from .targets import MET, MISSED, NOT_DECIDED, NOT_JUDGED, rated, strict, tokenless, witnessed


def marks(block):
    """The lines between which a block of a page lies."""
    return f"<!-- {block}: written by bench/page -->", f"<!-- end of {block} -->"


def row(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figure_text(case, name):
    found = case["figures"].get(name)
    return shown(name, found["median"]) if found else ""


def ratio_text(case, name):
    ratio = case["ratios"].get(name)
    return f"{ratio['median']:.3g}" if ratio else ""


def rival_text(case, name):
    ratio = case["of_rival"].get(name)
    return f"{ratio['median']:.3g} × {ratio['to']}" if ratio else ""


# By workload: title, then a head and what stands below it.
COLUMNS = {
    "cycle": ("Cycles", [("a second", "rate"), ("p50 µs", "p50"), ("p99 µs, closed loop", "p99"),
                         ("p99.9 µs, closed loop", "p999")]),
    "contend": (
        "One lock that all want",
        [("a second", "rate"), ("to another process p50 µs", "handover_p50"), ("p99 µs, closed loop", "handover_p99"),
         ("within one p50 µs", "pass_p50"), ("held p50 µs", "hold_p50"), ("Jain", "jain"), ("least share", "least_share"),
         ("longest wait ms", "longest_wait")],
    ),
    "wait": ("Waiting", [("requests a second", "requests"), ("server ms a second", "server_cpu")]),
    "renew": (
        "Holding",
        [("requests a second", "requests"), ("server ms a second", "server_cpu"), ("client ms a second", "client_cpu"),
         ("bytes each", "memory")],
    ),
    "fail": (
        "Failures",
        [("ms to the next grant", "to_grant"), ("before p50 ms", "before_p50"), ("during p50 ms", "during_p50"),
         ("during, longest ms", "during_max"), ("after p50 ms", "after_p50")],
    ),
    "state": ("A look at a lease", [("ns", "look")]),
}  # fmt: skip


def table(workload, cases):
    title, columns = COLUMNS[workload]
    main = columns[0][1]
    rated = any(case["of_rival"].get(main) for case in cases)
    heads = ["", "", columns[0][0], "least to most", *(head for head, _ in columns[1:]), "of the floor"]
    heads += ["of the best rival"] if rated else []
    lines = [f"**{title}: {cases[0]['backend']}, {cases[0]['place']}**", "", row(heads), "|---|---|" + "---:|" * (len(heads) - 2)]
    for case in cases:
        label = f"**{case['label']}**" if case["kind"] == "driver" else case["label"]
        figures = [figure_text(case, name) for _, name in columns]
        figures.insert(1, spread(case["figures"][main]) if main in case["figures"] else "")
        cells = [label, case["shape"], *figures, ratio_text(case, main)]
        lines.append(row([*cells, *([rival_text(case, main)] if rated else [])]))
    return "\n".join(lines)


def targets(result):
    rows = [row([met if met == "met" else f"**{met}**", *cells]) for met, *cells in map(target_cells, result["targets"])]
    return "\n".join([row(TARGETS), "|---|---|---|---|---|", *rows])


# ---- the summary -------------------------------------------------------------------------------------------------------


def machine_text(machine):
    return f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['kernel']}, {machine['date']}"


def found_of(cases, place, workload, accepts):
    """The driver's case of one backend that fits; None if there is none."""
    fitting = (
        case for case in cases
        if case["kind"] == "driver" and (case["workload"], case["place"]) == (workload, place) and accepts(case)
    )  # fmt: skip
    return next(fitting, None)


def both(cases, ratio_of, workload, accepts):
    """The ratios in each place in which there is such a case."""
    found = ((place, found_of(cases, place, workload, accepts)) for place in ("one", "free"))
    ratios = ((place, ratio_of(case)) for place, case in found if case)
    return [(place, ratio) for place, ratio in ratios if ratio]


def plain(ratios):
    return ", ".join(f"{ratio['median']:.3g} {place}" for place, ratio in ratios)


def named(ratios):
    """And of what: once, where it is the same."""
    of = {ratio["to"] for _, ratio in ratios}
    if len(of) == 1:
        return f"{plain(ratios)} × {of.pop()}"
    return ", ".join(f"{ratio['median']:.3g} {place} × {ratio['to']}" for place, ratio in ratios)


def regained_text(cases):
    """Of killed holders with the ttl that those with a witness have: with one, without one, and all that was sooner than with one."""
    witness = found_of(cases, "free", "fail", witnessed)
    if not witness or "to_grant" not in witness["figures"]:
        return ""

    def took_ms(case):
        return case["figures"]["to_grant"]["median"]

    like = [case for case in cases if (group_of(case), case["shape"]) == (group_of(witness), witness["shape"]) and "to_grant" in case["figures"]]
    without = [f"without {number(took_ms(case))} ms" for case in like if case["kind"] == "driver" and not witnessed(case)]
    sooner = [f"{case['label']} {number(took_ms(case))} ms" for case in like if case["kind"] != "driver" and took_ms(case) < took_ms(witness)]
    return "; ".join([f"with {number(took_ms(witness))} ms", *without, *sooner])


def summary_row(cases):
    def of_floor(case):
        return case["ratios"].get("rate")

    def of_rival(case):
        return case["of_rival"].get("rate") if rated(case) else None

    def alone(case):
        return case["shape"] == "1 caller" and not tokenless(case)

    def one_by_one(case):
        return strict(case) and case["shape"].endswith(", empty")

    def working(case):
        return strict(case) and case["shape"].endswith(", 1 ms")

    def handed_over(case):
        return not strict(case) and case["shape"].endswith(", empty")

    return (
        BACKENDS[cases[0]["backend"]],
        plain(both(cases, of_floor, "cycle", alone)),
        named(both(cases, of_rival, "cycle", alone)),
        named(both(cases, of_rival, "contend", one_by_one)),
        named(both(cases, of_floor, "contend", one_by_one)),
        "; ".join(filter(None, (named(both(cases, of, "contend", working)) for of in (of_rival, of_floor)))),
        named(both(cases, of_rival, "contend", handed_over)),
        regained_text(cases),
    )


SUMMARY = (
    "", "one caller, of the floor's rate", "of the best rival's rate",
    "64 callers, empty section, `handover_max = 0`, of the best rival's",
    "the same, of what the server or the system has itself, with no lease and no token",
    "64 callers, a section of a millisecond, `handover_max = 0`, of the best rival's; of what the server or the system has itself",
    "64 callers, empty section, with hand-over in the process, which none of these rivals has, of the best rival's",
    "from a kill to the next grant, ttl 30 s, with a witness and without; what was sooner",
)  # fmt: skip


def rivals_note(cases):
    """Their versions; and which of them are missing where all want one lock."""
    rivals = [case for case in cases if case["kind"] == "rival"]
    if not rivals:
        return ""
    told = "; ".join(dict.fromkeys(case["version"] for case in rivals))
    contended = {(case["backend"], case["subject"]) for case in rivals if case["workload"] == "contend"}
    absent = dict.fromkeys(
        f"{case['label']} ({BACKENDS[case['backend']]})"
        for case in rivals
        if case["workload"] == "cycle" and (case["backend"], case["subject"]) not in contended
    )
    missing = f" Not measured where 64 callers want one lock: {', '.join(absent)}." if absent and contended else ""
    return f"Rivals: {told}; newer ones may be faster.{missing}"


def verdict_lines(rows):
    """What is missed, and what this run does not decide."""
    lines = []
    for verdict, title in ((MISSED, "Missed"), (NOT_DECIDED, "Not decided by this run"), (NOT_JUDGED, "Not judged")):
        of_it = [row for row in rows if row["verdict"] == verdict]
        lines += [f"\n**{title}:**\n"] if of_it else []
        lines += [f"- {where}, {what}: {bound}. Measured: {found}." for _, where, what, bound, found in map(target_cells, of_it)]
    return "\n".join(lines).strip()


def summary(result):
    by_backend = {}
    for case in result["cases"]:
        by_backend.setdefault(case["backend"], []).append(case)
    rows = result["targets"]
    counts = ", ".join(
        f"{sum(row['verdict'] == verdict for row in rows)} {verdict}" for verdict in (MET, MISSED, NOT_DECIDED, NOT_JUDGED)
    )
    table_lines = [row(SUMMARY), "|---|" + "---|" * (len(SUMMARY) - 1), *(row(summary_row(cases)) for cases in by_backend.values())]
    head = f"{machine_text(result['machine'])}. Of {len(rows)} targets, which the project has set itself: {counts}."
    parts = [head, "\n".join(table_lines), rivals_note(result["cases"]), verdict_lines(rows)]
    return "\n\n".join(filter(None, parts))


# ---- all of it ---------------------------------------------------------------------------------------------------------


def floor_tables(result):
    """Of the programs of bench/."""
    parts = [f"{machine_text(result['machine'])}."]
    for told in result.get("floors", ()):
        name, title = floors.title_of(told)
        lines = [f"**`{name}`**: {title}.", "", row(("", "median", "least to most", "target", "")), "|---|---|---|---|---|"]
        for label, median, between, target, verdict in floors.table_rows(told):
            bold = f"**{label}**" if target else label
            lines.append(row((bold, median, between, target, verdict if verdict in ("", MET) else f"**{verdict}**")))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def beaten_floors(result):
    """A floor of one caller sends what the driver sends: where the driver is surely faster, the two are not comparable. The floor makes
    tokens, so that the driver without them may be faster."""
    for case in result["cases"]:
        ratio = case["ratios"].get("rate")
        if case["kind"] != "driver" or case["workload"] != "cycle" or case["shape"] != "1 caller" or ratio is None:
            continue
        if not tokenless(case) and sure(ratio["rounds"])[0] > 1:
            yield f"{case['backend']}, {case['place']}, {case['label']}: {ratio['median']:.3g} of the rate of {ratio['to']}"


def comparison(result):
    machine, method = result["machine"], result["method"]
    parts = [
        f"{machine_text(machine)}; "
        f"median of the rounds ({', '.join(f'{name} {count}' for name, count in method['rounds'].items())}; of holders "
        f"{method['kills']} are killed, the rest is measured once), beside it the least and the most of them; "
        f"{warm_up(method)}. *one*: client and server on one processor; *free*: not pinned. *Closed loop*: each caller asks again "
        "when it was answered, so a stall is one slow turn.",
        targets_note(result["targets"]),
        targets(result),
    ]
    for workload in COLUMNS:
        groups = {}
        for case in result["cases"]:
            if case["workload"] == workload:
                groups.setdefault(group_of(case), []).append(case)
        parts += [table(workload, group) for group in groups.values()]
    beaten = "; ".join(beaten_floors(result))
    words = "Floors that are slower than the driver: they do other work, or were placed otherwise in this run"
    parts += [f"{words}: {beaten}."] if beaten else []
    parts += [f"Left out: {entry['what']}: {entry['why']}." for entry in result["left_out"]]
    parts += [f"Not reached: {entry['what']}: {entry['why']}." for entry in result.get("not_reached", ())]
    parts.append("Versions: " + "; ".join(f"{what}: {version}" for what, version in versions(result).items()) + ".")
    return "\n\n".join(parts)


def scale_table(result):
    """How each curve begins and ends, its slope, and what it comes to for many hosts."""
    lines = [row(("", "", "least size", "largest size", "slope", "more than twice linear from", "for 10,000")), "|---|---|---|---|---|---|---|"]
    for told in result.get("curves", ()):
        for found in told["figures"]:
            unit, _, words = KNOWN[found["figure"]]
            (few, less), (many, more) = found["points"][0], found["points"][-1]
            what = f"{words.removesuffix(', for each').removesuffix(' for each')}, {unit}"
            bends = "" if found["bends"] is None else f"{found['bends']:,}"
            less, more, hosts = (shown(found["figure"], value) for value in (less, more, found["hosts"]))
            ends = (f"{less} at {few:,}", f"{more} at {many:,}", f"{found['slope']:.3g}", bends, hosts)
            lines.append(row((f"{BACKENDS[told['backend']]}, {told['words']}", what, *ends)))
    return f"{machine_text(result['machine'])}.\n\n" + "\n".join(lines)


BLOCKS = {"summary": summary, "comparison": comparison, "floors": floor_tables, "scale": scale_table}


def write(path, result):
    """Each block that the page has; an error if it has none."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    written = 0
    for block, text in BLOCKS.items():
        first, last = marks(block)
        between = re.compile(f"^{re.escape(first)}$.*^{re.escape(last)}$", re.M | re.S)
        page, count = between.subn(lambda _, lines=(first, text(result), last): "\n\n".join(lines), page)
        written += count
    if not written:
        raise ValueError(f"{path} has no block between lines like \"{marks('summary')[0]}\" and \"{marks('summary')[1]}\"")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
