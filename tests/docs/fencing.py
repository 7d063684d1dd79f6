#!/usr/bin/env python3
"""fencing.py [postgres|mysql] - the statements of docs/fencing.md, word by word, on SQLite, or on a private server of that kind: a
write of an earlier holder changes no row; on MySQL the read that follows tells that holder so."""
import os
import re
import sqlite3
import subprocess
import sys
import tempfile

SOURCE = os.environ["MORTISE_SOURCE_DIR"]
with open(os.path.join(SOURCE, "docs", "fencing.md"), encoding="utf-8") as file:
    page = file.read()
blocks = dict(re.findall(r"(?ms)^```sql (\w+)\n(.*?)^```$", page))
EARLIER, LATER = 1795536172614856, 2**63 - 1
problems = []


def check(expected, found, what):
    if found != expected:
        problems.append(f"{what}: {found}, not {expected}")


def fill(text, values):
    return re.sub(r":(\w+)", lambda match: repr(values[match.group(1)]), text).strip()


class Sqlite:
    def __init__(self):
        self.database = sqlite3.connect(":memory:")

    def ask(self, statement):
        return "|".join(map(str, self.database.execute(statement).fetchone() or ()))

    def changes(self, text, values):
        return self.database.execute(text, values).rowcount


class Server:
    """A private one, for as long as the block of `with` lasts."""

    def __init__(self, kind):
        self.kind, self.folder = kind, tempfile.TemporaryDirectory(prefix="mortise-fencing-")

    def run(self, verb, *words):
        return subprocess.run(["sh", f"{SOURCE}/tests/servers.sh", verb, self.kind, self.folder.name, *words],
                              stdout=subprocess.PIPE, text=True, check=False)

    def __enter__(self):
        os.chmod(self.folder.name, 0o711)  # the server may run as somebody else
        code = self.run("start", f"guard={os.getpid()}").returncode
        if code != 0:
            sys.exit(code)
        return self

    def __exit__(self, *_):
        self.run("end")
        self.folder.cleanup()

    def ask(self, *statements):
        done = self.run("ask", "-e" if self.kind == "mysql" else "-c", "; ".join(statements))
        check(0, done.returncode, "; ".join(statements))
        return done.stdout.strip()

    def changes(self, text, values):
        return int(self.ask(f"with changed as ({fill(text, values)} returning 1) select count(*) from changed"))


def on_conflict(database):
    """SQLite and PostgreSQL."""

    def changes(expected, block, what, **values):
        check(expected, database.changes(blocks[block], values), f"{block}: {what} changes")

    database.ask(blocks["table"])
    database.ask(blocks["tokens"])
    changes(1, "upsert", "the first holder", id=1, amount=10, token=EARLIER)
    changes(1, "update", "the same holder", id=1, amount=11, token=EARLIER)
    changes(1, "update", "a later holder", id=1, amount=12, token=LATER)
    changes(0, "update", "a late write of the first holder", id=1, amount=13, token=EARLIER)
    changes(0, "upsert", "a late upsert of the first holder", id=1, amount=14, token=EARLIER)
    check(f"12|{LATER}", database.ask("select amount, token from goods"), "goods")
    changes(1, "upsert", "the later holder again", id=1, amount=15, token=LATER)
    check(f"15|{LATER}", database.ask("select amount, token from goods"), "goods")

    changes(1, "fence", "the first holder", name="stock", token=EARLIER)
    changes(1, "fence", "the same holder", name="stock", token=EARLIER)
    changes(1, "fence", "a later holder", name="stock", token=LATER)
    changes(0, "fence", "a late transaction of the first holder", name="stock", token=EARLIER)
    changes(1, "fence", "the holder of another lock", name="other", token=EARLIER)


def on_duplicate(server):
    """MySQL. It counts only rows that get other values, and the read tells whether the write has succeeded."""

    def writes(expected, text, read, what, **values):
        rows, token = server.ask("begin", fill(text, values), "select row_count()", fill(read, values), "commit").split()
        check(expected, int(token), f"{what} reads")
        return int(rows)

    def goods(expected, block, what, **values):
        return writes(expected, blocks[block], "select token from goods where id = :id for update", what, id=1, **values)

    def fence(expected, name, what, token):
        end = re.search(r"`(on duplicate\s+key\s+update\s+token = [^`]*)`", page).group(1)
        text = blocks["fence"].partition("on conflict")[0] + end
        writes(expected, text, "select token from fence where name = :name for update", what, name=name, token=token)

    server.ask(blocks["table"])
    server.ask(blocks["mysqltokens"])
    goods(EARLIER, "mysql", "the first holder", amount=10, token=EARLIER)
    check(1, goods(EARLIER, "update", "the same holder", amount=11, token=EARLIER), "rows of the same holder")
    check(0, goods(EARLIER, "update", "the same amount", amount=11, token=EARLIER), "rows of the same amount")
    goods(LATER, "mysql", "a later holder", amount=12, token=LATER)
    check(0, goods(LATER, "update", "a late write of the first holder", amount=13, token=EARLIER), "rows of a late write")
    goods(LATER, "mysql", "a late upsert of the first holder", amount=14, token=EARLIER)
    check(f"12\t{LATER}", server.ask("select amount, token from goods"), "goods")
    goods(LATER, "mysql", "the later holder again", amount=15, token=LATER)
    check(f"15\t{LATER}", server.ask("select amount, token from goods"), "goods")

    fence(EARLIER, "stock", "the first holder", EARLIER)
    fence(EARLIER, "stock", "the same holder", EARLIER)
    fence(LATER, "stock", "a later holder", LATER)
    fence(LATER, "stock", "a late transaction of the first holder", EARLIER)
    fence(LATER, "Job", "a later holder of another lock", LATER)
    fence(EARLIER, "job", "an earlier holder", EARLIER)


# MySQL compares varchar without regard to case, and names of locks differ by case
check(blocks["tokens"].replace("varchar", "varbinary"), blocks["mysqltokens"], "the table of tokens with a binary name")
if sys.argv[1:] == []:
    on_conflict(Sqlite())
else:
    with Server(sys.argv[1]) as private:
        (on_duplicate if private.kind == "mysql" else on_conflict)(private)
print("\n".join(problems) or f"{len(blocks)} statements")
sys.exit(1 if problems else 0)
