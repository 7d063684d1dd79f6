"""Tables of the report: what each case's figures were, and what they say together."""

import html

from .figures import KNOWN, group_of


def number(value):
    """Three digits that mean something."""
    size = abs(value)
    digits = 0 if size >= 100 or value == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def texts_table(heads, rows):
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    lines = "".join("<tr>" + "".join(f"<td class=text>{html.escape(str(text))}</td>" for text in row) + "</tr>" for row in rows)
    return f"<div class=table><table><tr>{head}</tr>{lines}</table></div>"


def spread(found):
    return "" if found["least"] == found["most"] else f"{number(found['least'])} to {number(found['most'])}"


def of_floor(case, name):
    """A star: the floor's is of another shape."""
    ratio = case["ratios"].get(name)
    if ratio is None:
        return ""
    return f"× {ratio['median']:.3g}" + ("" if ratio["shape"] == case["shape"] else " *")


def columns(cases):
    """(head, class, text of a case), without those that would be empty."""
    for name in (name for name in KNOWN if any(case["figures"].get(name, {}).get("most") for case in cases)):
        unit, _, words = KNOWN[name]

        def texts(text, name=name):
            return [text(case["figures"][name]) if name in case["figures"] else "" for case in cases]

        yield f"{words}, {unit}" if unit else words, "figure", texts(lambda found: number(found["median"]))
        yield "least to most", "least", texts(spread)
        yield "of the floor", "figure", [of_floor(case, name) for case in cases]


def cases_table(cases, title):
    """All figures of cases of one workload, backend and place. Those that are 0 in all of them are left out."""
    shown = [column for column in columns(cases) if any(column[2])]
    heads = "".join(f"<th>{html.escape(head)}</th>" for head, _, _ in shown)
    rows = ""
    for at, case in enumerate(cases):
        cells = "".join(f"<td class={kind}>{html.escape(texts[at])}</td>" for _, kind, texts in shown)
        rows += (
            f"<tr class={case['kind']}><td>{html.escape(case['label'])}</td>"
            f"<td class=text>{html.escape(case['shape'])}</td>{cells}</tr>"
        )
    note = "<p class=soft>* of the floor of one caller</p>" if "*</td>" in rows else ""
    return f"<h3>{html.escape(title)}</h3><div class=table><table><tr><th></th><th></th>{heads}</tr>{rows}</table></div>{note}"


# ---- what it says together ----


def best_rival(case, cases):
    """The rival of the same shape with the highest rate."""
    rivals = [
        other
        for other in cases
        if other["kind"] == "rival"
        and (group_of(other), other["shape"]) == (group_of(case), case["shape"])
        and other["figures"]["rate"]["median"] > 0
    ]
    return max(rivals, key=lambda other: other["figures"]["rate"]["median"], default=None)


def summary_rows(result):
    """Of each driver, one caller and contended: rate, of the floor, of the best rival."""
    for case in result["cases"]:
        told = case["workload"] == "contend" or (case["workload"] == "cycle" and case["shape"] == "1 caller")
        if case["kind"] != "driver" or not told:
            continue
        rate, ratio = case["figures"]["rate"]["median"], case["ratios"].get("rate")
        rival = best_rival(case, result["cases"])
        share, longest = case["figures"].get("least_share"), case["figures"].get("longest_wait")
        yield (
            f"{case['backend']}, {case['place']}",
            f"{case['workload']}, {case['shape']}{', strict order' if case['subject'].endswith('strict') else ''}",
            number(rate),
            f"× {ratio['median']:.3g}" if ratio else "",
            f"× {rate / rival['figures']['rate']['median']:.3g} {rival['label']}" if rival else "",
            f"{share['median']:.2f}" if share else "",
            f"{longest['median']:.1f}" if longest else "",
        )


SUMMARY = ("", "", "a second", "of the floor", "of the best rival", "least share", "longest wait, ms")


def summary_table(result):
    rows = list(summary_rows(result))
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in SUMMARY)
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=text' if at in (1, 4) else ''}>{html.escape(text)}</td>" for at, text in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        "<h2>What it says</h2><p class=soft>Rates, and what part they are of the floor's and of the best rival's on the same "
        "server in the same rounds. Least share: of the process that got least, of an even one.</p>"
        f"<div class=table><table><tr>{head}</tr>{lines}</table></div>"
    )
