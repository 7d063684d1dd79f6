#!/usr/bin/env python3
"""fencing.py - the statements of docs/fencing.md, word by word, on SQLite: a write of an earlier holder changes no row."""
import os
import re
import sqlite3
import sys

with open(os.path.join(os.environ["MORTISE_SOURCE_DIR"], "docs", "fencing.md"), encoding="utf-8") as file:
    blocks = dict(re.findall(r"(?ms)^```sql (\w+)\n(.*?)^```$", file.read()))
EARLIER, LATER = 1795536172614856, 2**63 - 1
problems = []
database = sqlite3.connect(":memory:")
database.execute(blocks["table"])
database.execute(blocks["tokens"])


def changes(expected, block, what, **values):
    found = database.execute(blocks[block], values).rowcount
    if found != expected:
        problems.append(f"{block}: {what} changes {found} rows, not {expected}")


def row(expected, statement):
    found = database.execute(statement).fetchone()
    if found != expected:
        problems.append(f"{statement}: {found}, not {expected}")


changes(1, "upsert", "the first holder", id=1, amount=10, token=EARLIER)
changes(1, "update", "the same holder", id=1, amount=11, token=EARLIER)
changes(1, "update", "a later holder", id=1, amount=12, token=LATER)
changes(0, "update", "a late write of the first holder", id=1, amount=13, token=EARLIER)
changes(0, "upsert", "a late upsert of the first holder", id=1, amount=14, token=EARLIER)
row((12, LATER), "select amount, token from goods")
changes(1, "upsert", "the later holder again", id=1, amount=15, token=LATER)
row((15, LATER), "select amount, token from goods")

changes(1, "fence", "the first holder", name="stock", token=EARLIER)
changes(1, "fence", "the same holder", name="stock", token=EARLIER)
changes(1, "fence", "a later holder", name="stock", token=LATER)
changes(0, "fence", "a late transaction of the first holder", name="stock", token=EARLIER)
changes(1, "fence", "the holder of another lock", name="other", token=EARLIER)

# MySQL compares varchar without regard to case, and names of locks differ by case
if blocks["mysqltokens"] != blocks["tokens"].replace("varchar", "varbinary"):
    problems.append("mysqltokens: not the table of tokens with a binary name")
database.execute("drop table fence")
database.execute(blocks["mysqltokens"])
changes(1, "fence", "a later holder of another lock", name="Job", token=LATER)
changes(1, "fence", "an earlier holder", name="job", token=EARLIER)
print("\n".join(problems) or f"{len(blocks)} statements")
sys.exit(1 if problems else 0)
