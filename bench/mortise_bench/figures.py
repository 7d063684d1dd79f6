"""The form of the results: cases with figures, and ratios to the floor and the best rival of the same rounds.

A *case* is one subject doing one workload in one place: {"workload", "place", "backend", "target", "shape", "subject",
"kind", "label", "figures", "ratios", "of_rival", …}; "target" is a config that the user gave. A *figure* is {"unit",
"better", "rounds", "median", "least", "most"}; a round that has none is null. A ratio is made in each round, and its
median, quartiles, least and most are told: what else the machine did meets both alike."""

import json
import math
import statistics

FORMAT = "mortise-bench/1"
GROUP = ("workload", "place", "backend", "target")  # those that are compared with each other
KEY = (*GROUP, "shape", "subject")

# Name: unit, which is better, words for people.
KNOWN = {
    "rate": ("/s", "more", "a second"),
    "p50": ("µs", "less", "half of them within"),
    "p99": ("µs", "less", "99 % within (closed loop)"),
    "p999": ("µs", "less", "99.9 % within (closed loop)"),
    "acquire_p50": ("µs", "less", "the acquire alone, half within"),
    "handover_p50": ("µs", "less", "to another process, half within"),
    "handover_p99": ("µs", "less", "to another process, 99 % within (closed loop)"),
    "pass_p50": ("µs", "less", "within a process, half within"),
    "hold_p50": ("µs", "none", "held, half within"),
    "jain": ("", "more", "Jain's index between processes"),
    "least_share": ("", "more", "least share of a process, of the even one"),
    "longest_wait": ("ms", "less", "longest wait"),
    "changes": ("", "none", "part of grants to another process"),
    "overtakes": ("", "less", "part of grants that passed by a process"),
    "overlaps": ("", "less", "two holders at once"),
    "refused": ("", "less", "refused"),
    "look": ("ns", "less", "one look"),
    "requests": ("/s", "less", "requests of the server"),
    "server_cpu": ("ms/s", "less", "processor time of the server"),
    "client_cpu": ("ms/s", "less", "processor time of the client"),
    "memory": ("bytes", "less", "memory of the client for each"),
    "server_memory": ("bytes", "less", "memory of the server for each"),
    "set_up": ("µs", "less", "to set up, for each"),
    "set_up_cpu": ("µs", "less", "processor time of the client to set up, for each"),
    "to_grant": ("ms", "less", "until the next grant"),
    "before_p50": ("ms", "less", "before: half within"),
    "during_p50": ("ms", "less", "during: half within"),
    "during_max": ("ms", "less", "during: longest"),
    "after_p50": ("ms", "less", "after: half within"),
}
# The figure by which subjects are compared.
MAIN = {"cycle": "rate", "contend": "rate", "state": "look", "wait": "requests", "renew": "requests", "fail": "to_grant",
        "scale": "set_up"}
TAILS = ("p99", "p999", "handover_p99", "longest_wait")  # chance has its hand in them: of all rounds together, or of one turn
TICKED = ("server_cpu", "client_cpu")
NO_RATIO = ("hold_p50", "jain", "least_share", "overlaps", "overtakes", "changes", "refused")


def rounded(value, digits):
    return float(f"{value:.{digits}g}")


def figure(name, rounds):
    """rounds: None where a round has no such figure; at least one has."""
    unit, better, _ = KNOWN[name]
    there = [value for value in rounds if value is not None]
    return {
        "unit": unit,
        "better": better,
        "rounds": [None if value is None else rounded(value, 6) for value in rounds],
        "median": rounded(statistics.median(there), 6),
        "least": rounded(min(there), 6),
        "most": rounded(max(there), 6),
    }


def quantile(histogram, part):
    """Of [upper end, count] in order: the least value that so large a part is not above."""
    total, below = sum(count for _, count in histogram), 0
    for upper, count in histogram:
        below += count
        if below >= part * total:
            return upper
    return None


def sure_quantile(histogram, part):
    """None if fewer than ten turns are above it: then it is chance."""
    total = sum(count for _, count in histogram)
    return quantile(histogram, part) if total * (1 - part) >= 9.999 else None


def key_of(case):
    return tuple(case[word] for word in KEY)


def group_of(case):
    return tuple(case[word] for word in GROUP)


def words_of(place, where, workload, shape, label):
    """A case as what was left out, or not reached, names it."""
    return f"{place}, {where}: {workload}, {shape}, {label}"


def main_figure(case):
    """Its name; None if the case has none of those it could be told by."""
    names = (MAIN[case["workload"]], "during_max", "server_cpu", "client_cpu", *case["figures"])
    return next((name for name in names if name in case["figures"]), None)


SURE = 0.9  # how sure it is that the median of all rounds that there could be lies between "low_sure" and "high_sure"


def sure_rank(count):
    """The largest k for which the median lies between the k-th least and the k-th most of `count` rounds with a probability of
    SURE (order statistics: a round is below the median like a coin falls on tails). 1, if there are too few rounds."""
    outside, rank = 2 * 0.5**count, 1
    while 1 - outside - 2 * math.comb(count, rank) * 0.5**count >= SURE and 2 * (rank + 1) <= count:
        outside += 2 * math.comb(count, rank) * 0.5**count
        rank += 1
    return rank


def sure(rounds):
    """[low, high] of the median."""
    values = sorted(rounds)
    rank = sure_rank(len(values))
    return [values[rank - 1], values[-rank]]


def ratio(rounds, over):
    """Of each round; None where neither round can be compared."""
    ratios = [mine / other for mine, other in zip(rounds, over) if mine is not None and other]
    if not ratios:
        return None
    quarters = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {
        "median": rounded(statistics.median(ratios), 4),
        "low": rounded(quarters[0], 4),
        "high": rounded(quarters[2], 4),
        "least": rounded(min(ratios), 4),
        "most": rounded(max(ratios), 4),
        "rounds": [rounded(value, 4) for value in ratios],
    }


def like(case, cases, kind):
    """Those of a kind that do the same beside it."""
    same = (group_of(case), case["shape"])
    return [other for other in cases if other["kind"] == kind and (group_of(other), other["shape"]) == same]


def floor_ratios(case, cases):
    floors = like(case, cases, "floor")
    if not floors or case["kind"] == "floor":
        return {}
    found = {}
    for name, mine in case["figures"].items():
        theirs = floors[0]["figures"].get(name)
        compared = ratio(mine["rounds"], theirs["rounds"]) if theirs and name not in NO_RATIO else None
        if compared is not None:
            found[name] = {**compared, "to": floors[0]["label"]}
    return found


def best_of_rounds(rivals, name):
    """The best of them in each round."""
    best = max if KNOWN[name][1] == "more" else min
    rounds = zip(*(rival["figures"][name]["rounds"] for rival in rivals))
    return [best((value for value in of_round if value is not None), default=None) for of_round in rounds]


WITHOUT_TTL = ("flock",)  # rivals whose lock ends with its holder


def comparable(case, cases, name):
    """The rivals in its shape that have such a figure. In `fail`, a rival that does not renew its ttl is left out, because
    less of the ttl is left when its holder is killed."""
    return [
        other
        for other in like(case, cases, "rival")
        if name in other["figures"] and (case["workload"] != "fail" or other.get("renews") or other["subject"] in WITHOUT_TTL)
    ]


def beside_rivals(case, rivals, name):
    """The ratio of a driver's figure to the best of these in each round; "among": who they were. None if no round has both."""
    compared = ratio(case["figures"][name]["rounds"], best_of_rounds(rivals, name)) if rivals else None
    if compared is None:
        return None
    best = max if KNOWN[name][1] == "more" else min
    to = best(rivals, key=lambda rival: rival["figures"][name]["median"])["label"]
    return {**compared, "to": to, "among": sorted(rival["label"] for rival in rivals)}


def rival_ratios(case, cases):
    """Of a driver's main figure, to the best rival in each round."""
    name = main_figure(case)
    compared = beside_rivals(case, comparable(case, cases, name), name) if case["kind"] == "driver" else None
    return {name: compared} if compared else {}


def add_ratios(cases):
    for case in cases:
        case["ratios"] = floor_ratios(case, cases)
        case["of_rival"] = rival_ratios(case, cases)


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
    for row in result.get("targets", ()):  # written before there were four verdicts
        row.setdefault("verdict", {True: "met", False: "missed", None: "not judged"}[row["met"]])
    return result
