#!/usr/bin/env python3
"""choosing.py - each order of magnitude in docs/choosing.md contains the figure that docs/performance-tables.md has, and
each one is checked."""
import os
import re
import sys

# Behind what the page says it, and the medians that it is of: (bench, case).
SAID = {
    "| `sqlite` | ": [("cycle", "SQLite driver")],
    "| `redis` | ": [("redis", "acquire + release")],
    "| `redis` | 20 to 140 µs; ": [("redis", "acquire + release_nowait")],
    "as the server is set | ": [("redis_queue", "a release, to the lock in another process")],
    "| `redlock`, five nodes, all on one processor | ": [("redlock", "acquire + release, with tokens")],
    "| `redlock`, five nodes, all on one processor | 150 to 700 µs; ": [("redlock", "acquire + release, fencing = off")],
    "| `postgres` | ": [("postgres", "PostgreSQL driver, one processor"), ("postgres", "PostgreSQL driver, free")],
    "each acquire | ": [("postgres", "driver, hand-over, free")],
    "| `zookeeper`, one server | ": [("zookeeper", "acquire + release")],
    "| `zookeeper`, one server | 700 to 2,300 µs; ": [("zookeeper_unforced", "acquire + release")],
    "each change | ": [("zookeeper", "release_nowait and the next one's acquire")],
    "takes on average\n": [("postgres", "driver, 64 threads on 64 names, free")],
    "on `postgres`, and ": [("redis", "64 threads, on one processor")],
    "the server at all, ": [("handover", "hand-over, free")],
}
UNITS = {"ns": 1e-3, "us": 1, "µs": 1, "ms": 1e3, "/s": 1, "times": 1}
RANGE = r"([\d,]+) to ([\d,]+) (µs|times)"


def read(name):
    with open(os.path.join(os.environ["MORTISE_SOURCE_DIR"], "docs", name), encoding="utf-8") as file:
        return file.read()


def number(text):
    return float(text.replace(",", ""))


medians = {}
for bench, table in re.findall(r"(?ms)^\*\*`bench/(\w+)`\*\*(.*?)(?=^\*\*`bench/|^#|\Z)", read("performance-tables.md")):
    for case, median, unit in re.findall(r"(?m)^\| ([^|*]+) \| ([\d,.]+) (\S+) \|", table):
        medians[bench, case] = number(median) * UNITS.get(unit, 0)
page = read("choosing.md")
problems = []
for before, cases in SAID.items():
    found = re.search(re.escape(before) + RANGE, page)
    if not found:
        problems.append(f"there is no order of magnitude behind \"{before}\"")
        continue
    least, most = number(found.group(1)), number(found.group(2))
    for case in cases:
        if not least <= medians.get(case, -1) <= most:
            problems.append(f"{found.group(0)}: {case} was measured as {medians.get(case)}")
figures = len(re.findall(r"\d (?:µs|ns|ms|times a second)", page))
if figures != len(SAID):
    problems.append(f"{figures} figures are there, {len(SAID)} are looked at")
for problem in problems:
    print("choosing.md:", problem, file=sys.stderr)
sys.exit(1 if problems else 0)
