#!/usr/bin/env python3
"""Adds up the faults of the runs below a directory, by kind and by run: report.py FOLDER [AT-LEAST [every]]. Exits 1 if there
were fewer; with "every", also if a kind of fault that the plan knows did not occur in any run."""
import os
import sys

from plan import FAULTS


def read(folder):
    """The counts of each run."""
    runs = {}
    for name in sorted(os.listdir(folder)):
        counts = runs.setdefault(name, {})
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            for word, number in (pair.split("=") for line in file for pair in line.split()):
                counts[word] = counts.get(word, 0) + int(number)
    return runs


def missing(words):
    """The kinds of faults that no run had. Of a group the share is counted: "majority-kill"."""
    shares = {f"{share}-{fault.removeprefix('server-')}": fault for fault in FAULTS for share in ("majority", "minority")
              if FAULTS[fault] in ("server", "link")}
    return sorted(set(FAULTS) - {shares.get(word, word) for word in words})


def main():
    runs = read(sys.argv[1])
    kinds = {}
    for counts in runs.values():
        for word, number in counts.items():
            kinds[word] = kinds.get(word, 0) + number
    for name, counts in runs.items():
        print(f"{sum(counts.values()):7} {name}")
    for word, number in sorted(kinds.items(), key=lambda pair: -pair[1]):
        print(f"{number:7} {word}")
    total, wanted = sum(kinds.values()), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(f"{total:7} faults in all" + (f": fewer than {wanted}" if total < wanted else ""))
    absent = missing(kinds) if sys.argv[3:] == ["every"] else []
    if absent:
        print(f"no run had these faults: {', '.join(absent)}")
    return total >= wanted and not absent


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
