#!/usr/bin/env python3
"""Adds up the faults of the runs below a directory, by kind and by run: report.py FOLDER [AT-LEAST]. Exits 1 if there were
fewer."""
import os
import sys


def read(folder):
    """The counts of each run."""
    runs = {}
    for name in sorted(os.listdir(folder)):
        counts = runs.setdefault(name, {})
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            for word, number in (pair.split("=") for line in file for pair in line.split()):
                counts[word] = counts.get(word, 0) + int(number)
    return runs


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
    return total >= wanted


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
