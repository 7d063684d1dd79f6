"""What docs/performance.md tells of a run: tables in Markdown, between two marks of the page."""

import re

from .figures import group_of
from .tables import TARGETS, number, spread, target_cells, targets_note, versions, warm_up

FIRST = "<!-- comparison: written by bench/page -->"
LAST = "<!-- end of comparison -->"


def row(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figure_text(case, name):
    found = case["figures"].get(name)
    return number(found["median"]) if found else ""


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
         ("within one p50 µs", "pass_p50"), ("Jain", "jain"), ("least share", "least_share"),
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


def text(result):
    machine, method = result["machine"], result["method"]
    parts = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['kernel']}, {machine['date']}; "
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
    parts += [f"Left out: {entry['what']}: {entry['why']}." for entry in result["left_out"]]
    parts.append("Versions: " + "; ".join(f"{what}: {version}" for what, version in versions(result).items()) + ".")
    return "\n\n".join(parts)


def write(path, result):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    between = re.compile(f"^{re.escape(FIRST)}$.*^{re.escape(LAST)}$", re.M | re.S)
    if not between.search(page):
        raise ValueError(f"{path} lacks the lines \"{FIRST}\" and \"{LAST}\"")
    with open(path, "w", encoding="utf-8") as file:
        file.write(between.sub(lambda _: f"{FIRST}\n\n{text(result)}\n\n{LAST}", page))
