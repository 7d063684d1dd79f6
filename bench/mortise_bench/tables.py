"""Tables of the report: what each case's figures were, and what they say together."""

import html

from .figures import KNOWN, TICKED
from .subjects import JAVA_S, V8_S
from .targets import MET, MISSED, NOT_DECIDED, NOT_JUDGED, SPAWNED, ordered, rated, strict, tokenless

BACKENDS = {
    "sqlite": "SQLite",
    "redis": "One Redis server",
    "redlock": "Five Redis servers",
    "postgres": "PostgreSQL",
    "mysql": "MySQL",
    "zookeeper": "ZooKeeper",
    "etcd": "etcd",
    "config": "As configured",
}


def number(value):
    """Three digits that mean something."""
    size = abs(value)
    digits = 0 if size >= 100 or value == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def shown(name, value):
    """A figure of this name. Processor time comes in ticks, some milliseconds of the spell each: less than one says nothing."""
    return f"{value:,.0f}" if name in TICKED else number(value)


def texts_table(heads, rows):
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    lines = "".join("<tr>" + "".join(f"<td class=text>{html.escape(str(text))}</td>" for text in row) + "</tr>" for row in rows)
    return f"<div class=table><table><tr>{head}</tr>{lines}</table></div>"


def spread(found):
    return "" if found["least"] == found["most"] else f"{number(found['least'])} to {number(found['most'])}"


def times(ratio):
    return f"× {ratio['median']:.3g}" if ratio else ""


def cell(case, name):
    """The median; below it, smaller, from the least to the most, and the ratios. Empty where the case has no such figure."""
    if name not in case["figures"]:
        return ""
    found = case["figures"][name]
    floor, rival = times(case["ratios"].get(name)), times(case["of_rival"].get(name))
    below = [spread(found), floor and f"{floor} of the floor", rival and f"{rival} of the best rival"]
    return html.escape(shown(name, found["median"])) + "".join(f"<small>{html.escape(text)}</small>" for text in below if text)


def columns(cases):
    """(head, cell of each case), without those that would be empty."""
    for name in (name for name in KNOWN if any(case["figures"].get(name, {}).get("most") for case in cases)):
        unit, _, words = KNOWN[name]
        yield f"{words}, {unit}" if unit and name != "rate" else words, [cell(case, name) for case in cases]


COLUMNS_MOST = 8  # more of them do not fit a window of 1,280 px


def columns_table(cases, shown):
    heads = "".join(f"<th>{html.escape(head)}</th>" for head, _ in shown)
    rows = "".join(
        f"<tr class={case['kind']}><td>{html.escape(case['label'])}</td><td class=text>{html.escape(case['shape'])}</td>"
        + "".join(f"<td>{cells[at]}</td>" for _, cells in shown)
        + "</tr>"
        for at, case in enumerate(cases)
    )
    return f"<div class=table><table><tr><th></th><th></th>{heads}</tr>{rows}</table></div>"


def cases_table(cases, title):
    """All figures of cases of one workload, backend and place. Those that are 0 in all of them are left out."""
    shown = list(columns(cases))
    tables = (columns_table(cases, shown[at : at + COLUMNS_MOST]) for at in range(0, max(len(shown), 1), COLUMNS_MOST))
    return f"<h3>{html.escape(title)}</h3>" + "".join(tables)


# ---- on what it was measured ----


def versions(result):
    """By what it is of: programs, servers, subjects."""
    found = dict(result["machine"]["programs"])
    found.update({f"servers: {name}": server["version"] for name, server in result["servers"].items()})
    found.update({f"{case['label']} ({case['backend']})": case["version"] for case in result["cases"]})
    return found


def warm_up(method):
    text = f"each is warmed up for {method['warm_up_s']:g} s"
    if method.get("compiles"):
        text += (
            f", before that one in Java by up to {JAVA_S:g} s of turns and one in JavaScript by up to {V8_S:g}, twice as long "
            "where all want one lock"
        )
    return text


# ---- what it says together ----


def named(ratio):
    """And of what."""
    return f"{times(ratio)} {ratio['to']}" if ratio else ""


def share_and_wait(case):
    """The worst of the rounds, and of the long one."""
    share, longest = case["figures"].get("least_share"), case["figures"].get("longest_wait")
    if not share or not longest:
        return "", ""
    long = case.get("long") or {"least_share": share["least"], "longest_wait": 0}
    return f"{min(share['least'], long['least_share']):.2f}", f"{max(longest['most'], long['longest_wait']):.1f}"


def summary_rows(result):
    """Of each driver, one caller and contended: rate, of the floor, of the best rival."""
    for case in result["cases"]:
        is_told = case["workload"] == "contend" or (case["workload"] == "cycle" and case["shape"] == "1 caller")
        if case["kind"] != "driver" or not is_told or "rate" not in case["figures"]:
            continue
        order = ", handover_max = 0" if strict(case) else ", fencing = off" if tokenless(case) else ""
        yield (
            f"{case['target'] or case['backend']}, {case['place']}",
            f"{case['workload']}, {case['shape']}{order}{', strict order' if ordered(case) else ''}",
            number(case["figures"]["rate"]["median"]),
            named(case["ratios"].get("rate")),
            named(case["of_rival"].get("rate")) if rated(case) else "",
            *share_and_wait(case),
        )


def plain_table(heads, rows, texts):
    """texts: the columns that are read, not compared."""
    head = "".join(f"<th{' class=text' if at in texts else ''}>{html.escape(text)}</th>" for at, text in enumerate(heads))
    lines = "".join(
        "<tr>"
        + "".join(f"<td{' class=text' if at in texts else ''}>{html.escape(text)}</td>" for at, text in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<div class=table><table><tr>{head}</tr>{lines}</table></div>"


SUMMARY = ("", "", "a second", "of the floor", "of the best rival", "least share, worst", "longest wait, worst, ms")


def summary_table(result):
    rows = list(summary_rows(result))
    if not rows:
        return ""
    return (
        "<h2>What it says</h2><p class=soft>Rates, and what part they are of the floor's and of the best rival's on the same "
        "server in the same rounds. Least share: of the process that got least, of an even one. Shares and waits are those of "
        "the worst round; the target of shares is of one round of ten seconds.</p>" + plain_table(SUMMARY, rows, (1, 3, 4))
    )


def target_cells(row):
    where = ", ".join(filter(None, (row["backend"], row["place"])))
    return (row["verdict"], where, row["what"], row["bound"], row["found"])


HELD = (
    "The median of the rounds (least to most) decides a ratio to a rival or a floor, and the time to a grant with a witness. Not "
    "decided: the bound lies where the median of more rounds of this run may be (nine of ten times it lies between the ranks of the "
    "rounds that say so), or it is met, but by fewer than five rounds. Holders are killed at five fixed parts of the time between two "
    "renewals: there, it means that some of the five are on either side of the bound, and more of the same kills would not decide it. "
    "The longest wait, and the requests of wait and renew, are one value each, which is not decided within a quarter of its bound. "
    "Shares are those of one round of ten seconds; order, refusals and two holders at once are those of the worst round. Curves and "
    "the programs of bench/ have rules of their own. Another run starts its processes anew, and may differ by more."
)


def targets_note(rows):
    """Why some have no row for a rate beside the best rival's."""
    if not any(row["backend"] in SPAWNED for row in rows):
        return HELD
    return (
        f"{HELD} SQLite and etcd are held to no rival's rate: their only rivals, flock(1) and etcdctl, are programs that are started "
        "for each lock. What the system call costs, flock(2), is a floor of SQLite."
    )


TARGETS = ("", "", "", "target", "found")


def targets_table(result):
    rows = result.get("targets")
    if not rows:
        return ""
    met = sum(row["verdict"] == MET for row in rows)
    table = plain_table(TARGETS, map(target_cells, rows), (1, 2, 3, 4))
    for word in (MISSED, NOT_DECIDED, NOT_JUDGED):
        table = table.replace(f"<td>{word}<", f"<td class=missed>{word}<")
    note = html.escape(targets_note(rows))
    return f"<h2>Targets</h2><p class=soft>{met} of {len(rows)} met. {note}</p>{table}"
