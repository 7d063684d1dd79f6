"""The form of the results: cases with figures, and ratios to the floor of the same run.

A *case* is one subject doing one workload in one place: {"workload", "place", "backend", "target", "shape", "subject",
"kind", "label", "figures", "ratios", …}; "target" is a config that the user gave. A *figure* is {"unit", "better",
"rounds", "median", "least", "most"}. A ratio is the median of the ratios of each round, not the ratio of the medians:
what else the machine did meets both alike."""

import json
import statistics

FORMAT = "mortise-bench/1"
GROUP = ("workload", "place", "backend", "target")  # those that are compared with each other
KEY = (*GROUP, "shape", "subject")

# Name: unit, which is better, words for people.
KNOWN = {
    "rate": ("/s", "more", "a second"),
    "p50": ("µs", "less", "half of them within"),
    "p99": ("µs", "less", "99 % within"),
    "p999": ("µs", "less", "99.9 % within"),
    "handover_p50": ("µs", "less", "hand-over, half within"),
    "handover_p99": ("µs", "less", "hand-over, 99 % within"),
    "jain": ("", "more", "Jain's index between processes"),
    "least_share": ("", "more", "least share of a process, of the even one"),
    "longest_wait": ("ms", "less", "longest wait"),
    "changes": ("", "none", "part of grants to another process"),
    "overlaps": ("", "less", "two holders at once"),
    "refused": ("", "less", "refused"),
    "look": ("ns", "less", "one look"),
    "requests": ("/s", "less", "requests of the server"),
    "server_cpu": ("ms/s", "less", "processor time of the server"),
    "client_cpu": ("ms/s", "less", "processor time of the client"),
    "memory": ("bytes", "less", "memory of the client for each"),
    "to_grant": ("ms", "less", "until the next grant"),
    "before_p50": ("ms", "less", "before: half within"),
    "during_p50": ("ms", "less", "during: half within"),
    "during_max": ("ms", "less", "during: longest"),
    "after_p50": ("ms", "less", "after: half within"),
}


def figure(name, rounds):
    unit, better, _ = KNOWN[name]
    return {
        "unit": unit,
        "better": better,
        "rounds": [float(f"{value:.6g}") for value in rounds],
        "median": float(f"{statistics.median(rounds):.6g}"),
        "least": float(f"{min(rounds):.6g}"),
        "most": float(f"{max(rounds):.6g}"),
    }


def key_of(case):
    return tuple(case[word] for word in KEY)


def group_of(case):
    return tuple(case[word] for word in GROUP)


def ratio(rounds, over):
    pairs = [(mine, floor) for mine, floor in zip(rounds, over) if floor > 0]
    if not pairs:
        return None
    ratios = [mine / floor for mine, floor in pairs]
    return {
        "median": float(f"{statistics.median(ratios):.4g}"),
        "least": float(f"{min(ratios):.4g}"),
        "most": float(f"{max(ratios):.4g}"),
    }


def floor_of(case, cases):
    """Of the same shape; else of one caller, where that is what there is."""
    floors = [other for other in cases if other["kind"] == "floor" and group_of(other) == group_of(case)]
    same = [other for other in floors if other["shape"] == case["shape"]]
    one = [other for other in floors if other["shape"] == "1 caller"]
    return (same or one or [None])[0]


def add_ratios(cases):
    for case in cases:
        floor = floor_of(case, cases)
        case["ratios"] = {}
        if floor is None or case["kind"] == "floor":
            continue
        for name, mine in case["figures"].items():
            theirs = floor["figures"].get(name)
            if theirs is None or mine["better"] == "none" or name in ("jain", "least_share", "overlaps", "refused"):
                continue
            if floor["shape"] != case["shape"] and name != "rate":
                continue  # a crowd's latency says nothing beside one caller's
            found = ratio(mine["rounds"], theirs["rounds"])
            if found is not None:
                case["ratios"][name] = {**found, "to": floor["label"], "shape": floor["shape"]}


def write(path, result):
    """One case per line: easy to read for other tools, and to compare."""
    head = {key: value for key, value in result.items() if key != "cases"}
    lines = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in result["cases"])
    with open(path, "w", encoding="utf-8") as file:
        text = json.dumps(head, ensure_ascii=False, indent=1)
        file.write(f'{text[:-2]},\n "cases": [\n  {lines}\n ]\n}}\n')


def read(path):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    if result.get("format") != FORMAT:
        raise ValueError(f"{path}: not of the form {FORMAT}")
    return result
