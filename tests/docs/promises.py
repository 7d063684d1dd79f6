#!/usr/bin/env python3
"""promises.py - the tests that docs/promises.md names exist. A column "shown by" contains only references, separated by
semicolons: TEST, a test of ctest (`TEST…`: those whose names begin so); TEST: NAME; NAME, with names of its CUnit tests or
parts of them; FOLDER: NAME, likewise in all of tests/FOLDER; or "not tested", with the reason. In the table of faults by
driver every cell contains such a reference, or "not tested", or is one of a few texts that say that there is nothing to
test; "the same" needs a reference in the cell before it. Elsewhere everything that looks like a test must be one, with a
name in it after the colon. The names of ctest are checked only if the build is complete."""
import glob
import os
import re
import subprocess
import sys

root, build = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
NOT_TESTS = r"\.(?:c|h|md|py|sh|pml|conf)$"
REFERENCE = r"[a-z]+\.[a-z][a-z0-9_-]*…?"
NOTHING_TO_TEST = ("no connection", "no server", "no replica", "no ensemble", "one clock", "it has none")
DRIVERS = "| fault | sqlite | postgres | mysql | redis | redlock | zookeeper | etcd |"
problems, seen = [], []


def is_complete():
    """Whether nothing was left out of the build."""
    modules = [os.path.basename(os.path.dirname(path)) for path in glob.glob(f"{root}/*/*/module.c")]
    return (all(os.path.exists(f"{build}/lib/mortise/{name}.so") for name in modules) and
            all(any(test.startswith(name) for test in tests)
                for name in ("unit.", "torture.", "interop.redis_py", "plugins.metrics_processes")))


def ctest_names():
    told = subprocess.run(["ctest", "--test-dir", build, "-N"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return set(re.findall(r"(?m)^ *Test +#\d+: (\S+)", told))


def names_in(paths):
    """What CUnit calls the tests in these files."""
    found = set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for literals in re.findall(r'(?:\{|CU_add_test\(\w+,)\s*((?:"(?:[^"\\]|\\.)*"\s*)+),\s*\w+', text):
            found.add("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"'))
    return found


def names_of(suite):
    """`redis.lost` has those of tests/redis/test_lost.c; where no file is called so, those of the folder."""
    folder, _, name = suite.partition(".")
    one = f"{root}/tests/{folder}/test_{name}.c"
    return names_in([one] if name and os.path.exists(one) else glob.glob(f"{root}/tests/{folder}/*.c"))


def check_test(name, where):
    if not strict:
        return
    known = name in tests if not name.endswith("…") else any(test.startswith(name[:-1]) for test in tests)
    if not known:
        problems.append(f"{where}: there is no test {name}")


def check_names(suite, text, where):
    known = names_of(suite)
    for name in [text] if any(text in whole for whole in known) else text.split(", "):
        name = name.strip()
        if len(name) < 4 or not any(name in whole for whole in known):
            problems.append(f"{where}: {suite} has no test \"{name}\"")


def check_shown(cell, where):
    before = None
    for piece in re.split(r";\s*", cell):
        suite, colon, names = piece.partition(": ")
        if piece.startswith("not tested"):
            check_reason(piece, where)
            return
        if re.fullmatch(REFERENCE, suite):
            check_test(suite, where)
        elif before and not (colon and os.path.isdir(f"{root}/tests/{suite}")):
            suite, names = before, piece  # one more of them
        elif not (colon and os.path.isdir(f"{root}/tests/{suite}")):
            problems.append(f"{where}: \"{piece}\" is no reference to a test")
            continue
        before = suite if names else None
        if names:
            check_names(suite, names, where)


def check_reason(text, where):
    if len(text) < 20:
        problems.append(f"{where}: not tested, and why?")


def check_prose(line, where):
    """How many references to tests there are."""
    found = 0
    line = re.sub(r"`[^`]*`", "", line)
    for match in re.finditer(rf"(?<![\w./-])({REFERENCE})(?:: ([^;|]*[^;| ]))?", line):
        suite, names = match.groups()
        if re.search(NOT_TESTS, suite) or not os.path.isdir(f"{root}/tests/{suite.partition('.')[0]}"):
            continue
        found += 1
        check_test(suite, where)
        if names:
            check_names(suite, names, where)
    for names in re.findall(r"(?<![\w.])conformance: ([^;|]*[^;| ])", line):
        found += 1
        check_names("conformance", names, where)
    return found


def check_pieces(cell, where):
    """What follows a reference with a name, without one of its own, is another name of the same; no name stands alone."""
    before = None
    for piece in re.split(r";\s*", re.sub(r"`[^`]*`", "", cell)):
        references = re.findall(rf"(?<![\w./-])({REFERENCE}|conformance)(: )?", piece)
        if references:
            before = references[-1][0] if references[-1][1] else None
        elif before:
            check_names(before, piece, where)
        elif re.match(r"[A-Z]+-\d+|torture\b", piece):
            problems.append(f"{where}: \"{piece}\": of which test?")


def check_drivers(line, where):
    """A row of the table of faults by driver: each cell by itself."""
    fault, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if len(cells) != DRIVERS.count("|") - 2:
        problems.append(f"{where}: {len(cells)} cells")
    for number, cell in enumerate(cells):
        place = f"{where}: {fault}, cell {number + 1}"
        found, told, reason = check_prose(cell, place), *cell.partition("not tested")[1:]
        if told:
            check_reason(told + reason, place)
        elif found == 0 and cell not in NOTHING_TO_TEST:
            problems.append(f"{place}: which test shows it?")
        check_pieces(cell, place)
        if cell.startswith("the same") and (number == 0 or cells[number - 1] in NOTHING_TO_TEST):
            problems.append(f"{place}: the same as what?")


def main():
    is_shown = is_of_drivers = False
    with open(f"{root}/docs/promises.md", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            where = f"promises.md:{number}"
            if not line.startswith("|"):
                is_shown = is_of_drivers = False
                check_prose(line, where)
            elif line.startswith("|---"):
                pass
            elif line.startswith(DRIVERS):
                is_of_drivers = True
                seen.append(number)
            elif is_of_drivers:
                check_drivers(line, where)
            elif line.rstrip().endswith("| shown by |"):
                is_shown = True
            elif is_shown:
                check_shown(line.rstrip("|\n").rpartition(" | ")[2].strip(" |"), where)
            else:
                check_prose(line, where)
    if len(seen) != 1:
        problems.append(f"promises.md: {len(seen)} tables of drivers and faults")


tests = ctest_names()
strict = is_complete() or os.environ.get("MORTISE_REQUIRE_ALL") == "1"
main()
for problem in problems:
    print(problem, file=sys.stderr)
sys.exit(1 if problems else 0)
