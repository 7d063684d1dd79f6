"""The report: one HTML file with the pictures inside, for light and dark, that a phone can show."""

import html
from pathlib import Path

from . import floors, pictures
from .costs import HOLDERS_TIMES, LEASE_PERIODS_S, SESSION_PERIOD_S, SESSION_PERIODS
from .figures import KNOWN, MAIN, group_of
from .targets import MET, MISSED, NOT_DECIDED, NOT_JUDGED
from .tables import BACKENDS, cases_table, plain_table, summary_table, target_cells, targets_table, texts_table, versions, warm_up
from .workloads import CROWD, SETTLE_S

KIND_COLOUR = {"driver": 1, "floor": 2, "rival": 3}
LINE_COLOURS = {"driver": (1, 7), "floor": (2, 8), "rival": (3, 4, 5, 6)}
PLACES = {"one": "all on one processor", "free": "not pinned"}


def title_of(case, *more):
    return ", ".join([case["target"] or BACKENDS[case["backend"]], PLACES[case["place"]], *more])


def grouped(cases, *words):
    """Those that are compared with each other, and have these words in common."""
    groups = {}
    for case in cases:
        groups.setdefault((*group_of(case), *(case[word] for word in words)), []).append(case)
    return groups.values()


def figure(caption, svg):
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{svg}</figure>"


def colours(group):
    """By subject: the same for a kind in each picture, however many of the others there are."""
    found, used = {}, {"driver": 0, "floor": 0, "rival": 0}
    for case in group:
        if case["subject"] not in found:
            choice = LINE_COLOURS[case["kind"]]
            found[case["subject"]] = choice[used[case["kind"]] % len(choice)]
            used[case["kind"]] += 1
    return found


def caption_and_bars(caption, cases, name, unit):
    rows, cases = [], [case for case in cases if name in case["figures"]]
    for case in sorted(cases, key=lambda case: -case["figures"][name]["median"]):
        found = case["figures"][name]
        rows.append((case["label"][:30], KIND_COLOUR[case["kind"]], found["median"], found["least"], found["most"]))
    return figure(caption, pictures.bars(caption, rows, unit))


# ---- the pictures of each part ----


def cycle_pictures(cases):
    for group in grouped([case for case in cases if case["shape"] == "1 caller" and "rate" in case["figures"]]):
        yield caption_and_bars(title_of(group[0], "one caller"), group, "rate", "cycles a second")


def curve(histogram):
    """(1 / part above, µs): so that 99 %, 99.9 % … lie evenly apart."""
    total, below, found = sum(count for _, count in histogram), 0, []
    for upper, count in histogram:
        below += count
        above = max(total - below, 0.5) / total
        found.append((1 / above, upper / 1e3))
    return found


def curves(cases, key, y):
    """A picture for each backend and place."""
    with_curve = [case for case in cases if case["histograms"].get(key)]
    for group in grouped(with_curve, "shape"):
        colour = colours(group)
        series = [(case["label"], colour[case["subject"]], curve(case["histograms"][key])) for case in group]
        caption = title_of(group[0], group[0]["shape"])
        x = "one of so many took longer"
        yield figure(caption, pictures.lines(caption, series, x, y, "xy", points=False))


def latency_pictures(cases):
    return curves([case for case in cases if case["shape"] == "1 caller"], "cycle", "µs for a cycle")


def scaling_pictures(cases):
    threaded = [
        case
        for case in cases
        if (case["shape"] == "1 caller" or case["shape"].endswith(" threads")) and "rate" in case["figures"]
    ]
    for group in grouped(threaded):
        series, colour = [], colours(group)
        for same in grouped(group, "subject"):
            points = sorted((int(case["shape"].split()[0]), case["figures"]["rate"]["median"]) for case in same)
            if len(points) > 1:
                series.append((same[0]["label"], colour[same[0]["subject"]], points))
        if series:
            caption, counts = title_of(group[0]), sorted({count for _, _, points in series for count, _ in points})
            drawn = pictures.lines(caption, series, "threads", "cycles a second", "x", from_zero="y", marks=counts)
            yield figure(caption, drawn)


def contend_pictures(cases):
    for group in grouped([case for case in cases if "rate" in case["figures"]], "shape"):
        caption = title_of(group[0], group[0]["shape"])
        yield caption_and_bars(caption, group, "rate", "acquisitions a second")


def handover_pictures(cases):
    return curves(cases, "handover", "µs from a release to the next process's grant")


def wait_pictures(cases):
    counted = [case for case in cases if "requests" in case["figures"]]
    for group in grouped(counted):
        series, colour = [], colours(group)
        for same in grouped(group, "subject"):
            points = sorted((int(case["shape"].split()[0]), case["figures"]["requests"]["median"]) for case in same)
            series.append((same[0]["label"], colour[same[0]["subject"]], points))
        caption = BACKENDS[group[0]["backend"]]
        yield figure(caption, pictures.lines(caption, series, "waiting clients", "requests a second", from_zero="xy"))


def fail_pictures(cases):
    for case in cases:
        if case.get("timeline"):
            half = [(at, max(median, 1e-3)) for at, median, *_ in case["timeline"]]
            longest = [(at, max(most, 1e-3)) for at, _, most, *_ in case["timeline"]]
            series = [("half of them within", 1, half), ("longest", 3, longest)]
            caption = f"{BACKENDS[case['backend']]}, {case['shape']}"
            svg = pictures.lines(
                caption, series, "s, when a cycle was due", "ms until it was done", "y", events=case["events"]
            )
            yield figure(caption, svg)


def scale_pictures(curves):
    """A picture for each figure of each curve, with a line for each backend."""
    groups = {}
    for told in curves:
        for found in told["figures"]:
            groups.setdefault((told["words"], found["figure"]), []).append((told["backend"], found["points"]))
    for (words, name), members in groups.items():
        unit, _, figure_words = KNOWN[name]
        series = [(BACKENDS[backend], number, points) for number, (backend, points) in enumerate(members, 1)]
        total = figure_words.removesuffix(" for each").removesuffix(", for each")
        caption = f"{words}: {total}"
        yield figure(caption, pictures.lines(caption, series, words, f"{total}, {unit}", "xy"))


def scale_part(result):
    """Curves belong to the whole run, not to one case."""
    drawn = drawn_of(scale_pictures, result.get("curves") or [])
    text = "One thing becomes many times as many. Both axes are logarithmic: a straight line that rises by one decade in a decade is linear."
    return f"<h2>Scale</h2><p class=soft>{text}</p><div class=pictures>{drawn}</div>" if drawn else ""


PARTS = (
    ("cycle", "A cycle: acquire and release, uncontended", cycle_pictures,
     "How many a second one caller makes. Blue: Mortise; grey: the floor, which is the same requests by the bare client "
     "library; orange: rivals. The thin line is from the least to the most of the rounds."),
    ("cycle", "How long a cycle takes", latency_pictures,
     "Read it as: one of so many cycles (below) took longer than that (left). A closed loop: each caller asks again when it was "
     "answered, so a stall is one slow cycle, and what would have been asked meanwhile is not there. “Failures” has cycles that "
     "are due at fixed times."),
    ("cycle", "Scaling with threads", scaling_pictures, "Each thread has its own name; all share one client."),
    ("contend", "One lock that all want", contend_pictures,
     "Processes × threads, and what is done in the critical section. A high rate alone says little: one process that takes "
     "its own lock again and again is fast, and the others starve. The table says how even the shares were. Grey: what the server "
     "or the system has itself (flock(2), an advisory lock, GET_LOCK), on Redis a token that is passed on, which is no lock."),
    ("contend", "From a release to the next grant in another process", handover_pictures,
     "Passes within a process are another thing: the table has them by themselves. A closed loop, too."),
    ("wait", "What waiting costs the server", wait_pictures,
     "A lock is held, so many clients wait for it, and nothing happens: requests a second, those of the holder included."),
    ("renew", "What holding costs", lambda cases: (), "So many locks are held and renewed; ttl 3 s."),
    ("fail", "Failures", fail_pictures,
     "A cycle is due every 20 ms, and its latency counts from when it was due: a caller who stood still is told by all the "
     "cycles that should have been; one that was refused lasts until the next that was not. “Until the next grant”: from the "
     "kill of the holder, or from when the start of the server was begun. The holder's ttl is 2 s, a ZooKeeper session 4 s; both are "
     "30 s where the shape says so. Holders are killed at fixed parts, evenly apart, of the time between two renewals. A rival that "
     "does not renew is killed at such parts of its only ttl, and has less of it left, so it is not compared; flock(1) has no ttl."),
    ("state", "A look at a lease", lambda cases: (), "mortise_state(): a clock compare, beside reading the clock."),
)  # fmt: skip


def floors_part(result):
    """What the programs of bench/ measured."""
    tables = ""
    for told in result.get("floors", ()):
        name, title = floors.title_of(told)
        rows = list(floors.table_rows(told))
        tables += f"<h3>{html.escape(name)}</h3><p class=soft>{html.escape(title)}</p>"
        tables += plain_table(("", "median", "least to most", "target", ""), rows, (3, 4))
    text = "Parts of the drivers, beside the same requests by the bare client library in the same program."
    return f"<h2>What the library adds</h2><p class=soft>{text}</p><details><summary>All programs</summary>{tables}</details>" if tables else ""


def drawn_of(draw, cases):
    """What cannot be drawn is told, and the rest stands."""
    try:
        return "".join(draw(cases))
    except (ValueError, KeyError, IndexError) as error:
        return f"<p class=warning>Not drawn: {html.escape(str(error))}</p>"


def part(result, workload, title, draw, text):
    cases = [case for case in result["cases"] if case["workload"] == workload]
    if not cases:
        return ""
    drawn = drawn_of(draw, cases)
    if not drawn and draw in (scaling_pictures, latency_pictures, handover_pictures):
        return ""
    first = next(known for known in PARTS if known[0] == workload)[1] == title
    table = ""
    if first:
        rows = "".join(cases_table(group, title_of(group[0])) for group in grouped(cases))
        table = f"<details{'' if drawn else ' open'}><summary>All figures</summary>{rows}</details>"
    return (
        f"<h2>{html.escape(title)}</h2><p class=soft>{html.escape(text)}</p>"
        f'<div class=pictures>{drawn}</div>{table}'
    )


# ---- head and foot ----


def head(result):
    machine, method = result["machine"], result["method"]
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['kernel']}"
    text = f"<h1>Mortise beside floors and rivals</h1><p>{html.escape(where)}; {html.escape(machine['date'])}</p>"
    if method["quick"]:
        text += (
            "<p class=warning>A quick run: it shows that everything runs, but its figures are too rough to use. For figures "
            "that you can use, run <code>mortise-bench --full</code>.</p>"
        )
    return text


def spells_text(seconds):
    """Where a spell is longer than that, in a run that is not quick: see costs.py and scale.py."""
    if seconds.get("wait", 0) <= 1:
        return ""
    session_s = f"{SESSION_PERIODS * SESSION_PERIOD_S:.2g} s on ZooKeeper"
    return (
        f"; but wait takes {LEASE_PERIODS_S} s on etcd, {session_s}, and {HOLDERS_TIMES} ttls of 5 s of Mortise on Redis, PostgreSQL and "
        f"MySQL; renew takes whole periods, {session_s}; scale 4 to 6 s"
    )


def method_text(result):
    machine, method = result["machine"], result["method"]
    places = "; ".join(
        f"{name}: client and server " + (f"on processor {cpus[0]}" if isinstance(cpus, list) else "placed by the system")
        for name, cpus in method["places"].items()
    )
    rounds = ", ".join(f"{name} {count}" for name, count in method["rounds"].items())
    lengths = ", ".join(f"{name} {seconds:g} s" for name, seconds in method["seconds"].items())
    once = ", ".join(name for name in MAIN if name not in method["rounds"])
    lines = [
        f"Rounds: {rounds}; {warm_up(method)}; in turn, in another order in each round: what else the machine does meets "
        f"all alike. A figure is the median of the rounds; beside it the least and the most. {once} "
        f"are measured one time; of holders {method['kills']} are killed.",
        f"A measurement takes: {lengths}, {CROWD} times that in cycles of many callers at once{spells_text(method['seconds'])}; before "
        f"those in rounds, a fifth as much, and {SETTLE_S:g} s at least with many callers, does not count.",
        f"Places: {places}.",
        "Percentiles are from a log-linear histogram of all turns (1.6 % wide), p99 and above of all rounds together and only "
        "where at least ten turns are above. Those of cycles and of one lock that all want are of a closed loop; where turns are due "
        "at fixed times (“Failures”) their latency counts from then.",
        "A ratio is made in each round, to the floor or to the best rival of that round, and its median told. A floor sends the "
        "same requests by the server's client library alone, in the same shape; where all want one lock, and where holders are killed, "
        "it is what the server or the system has itself. Where there is none, there is no ratio.",
        "All subjects, in whatever language, write down the same four instants of each turn; one program computes all "
        "figures from them. A wait counts up to the end of a round also if it was not over.",
        "The five Redis nodes have no disk; Mortise waits for the longest ttl before a started node votes (5 s here, max_ttl), "
        "which had passed before anything was measured. The rivals do not wait for that.",
        f"The machine's load before: {', '.join(f'{load:g}' for load in machine['load'])}. It took "
        f"{method['took_s'] / 60:.1f} minutes.",
    ]
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    settings = {name: found["settings"] for name, found in result["servers"].items()}
    return (
        f"<h2>Method</h2><ul>{items}</ul><details><summary>Versions</summary>"
        f"{texts_table(('what', 'version'), versions(result).items())}</details>"
        "<details><summary>Settings of the servers</summary>"
        f"{texts_table(('what', 'settings'), settings.items())}</details>"
    )


def left_out(result):
    """And the sizes that a curve has not reached."""
    titles = (("Left out", result["left_out"]), ("Not reached", result.get("not_reached", ())))
    return "".join(
        f"<h2>{title}</h2>{texts_table(('what', 'why'), ((entry['what'], entry['why']) for entry in entries))}"
        for title, entries in titles
        if entries
    )


# A foreign word could reorder or break the line that it stands in.
REORDERING = {
    point: f"\\u{point:04x}" for point in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}


def verdict(result):
    """The answer first; then the two words that the tables use without a word."""
    rows = result["targets"]
    counts = {word: sum(row["verdict"] == word for row in rows) for word in (MET, MISSED, NOT_DECIDED, NOT_JUDGED)}
    missed = dict.fromkeys(f"{where}, {what}" for met, where, what, *_ in map(target_cells, rows) if met == MISSED)
    lines = [
        f"{counts[MET]} of {len(rows)} targets, which the project has set itself, are met, {counts[MISSED]} are missed, "
        f"{counts[NOT_DECIDED]} are not decided by this run, {counts[NOT_JUDGED]} could not be judged.",
        *([f"Missed: {'; '.join(missed)}."] if missed else []),
        "Place: \"one\" means that client and server share one processor, \"free\" that the system chooses.",
        "Shape: \"8 × 8, empty\" means 8 processes of 8 threads that take one lock and do nothing under it.",
    ]
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def write(path, result):
    style = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    parts = "".join(part(result, *words) for words in PARTS) + scale_part(result) + floors_part(result)
    body = head(result) + verdict(result) + summary_table(result) + targets_table(result) + parts + method_text(result) + left_out(result)
    Path(path).write_text(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>Mortise beside floors and rivals</title><style>\n{style}</style></head>\n"
        f"<body>{body.translate(REORDERING)}</body></html>\n",
        encoding="utf-8",
    )


