#!/usr/bin/env python3
"""promises.py - the tests that docs/promises.md names exist. A column "shown by" contains only references, separated by
semicolons: TEST, a test of ctest (`TEST…`: those whose names begin so); TEST: NAME; NAME, with names of its CUnit tests or
parts of them; FOLDER: NAME, likewise in all of tests/FOLDER; or "not tested", with the reason. In the table of faults by
driver every cell contains such a reference, or "not tested", or is one of a few texts that say that there is nothing to
test; "the same" needs a reference in the cell before it. Elsewhere everything that looks like a test must be one, with a
name in it after the colon. The paragraph that begins with NIGHTLY names the tests that run only at night: all that the page
names, and no other. The names of ctest are checked only if the build is complete."""
import glob
import json
import os
import re
import subprocess
import sys

root, build = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
NOT_TESTS = r"\.(?:c|h|md|py|sh|pml|conf)$"
REFERENCE = r"[a-z]+\.[a-z][a-z0-9_-]*…?"
NOTHING_TO_TEST = ("no connection", "no server", "no replica", "no ensemble", "one clock", "it has none")
DRIVERS = "| fault | sqlite | postgres | mysql | redis | redlock | zookeeper | etcd |"
NIGHTLY = "These tests run only at night"
problems, seen, used, at_night = [], [], set(), set()


def is_complete():
    """Whether nothing was left out of the build."""
    modules = [os.path.basename(os.path.dirname(path)) for path in glob.glob(f"{root}/*/*/module.c")]
    return (all(os.path.exists(f"{build}/lib/mortise/{name}.so") for name in modules) and
            all(any(test.startswith(name) for test in tests)
                for name in ("unit.", "torture.", "interop.redis_py", "plugins.metrics_processes")))


def ctest_labels():
    """Those of each test."""
    told = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, text=True, check=True)
    return {test["name"]: {label for item in test.get("properties", []) if item["name"] == "LABELS" for label in item["value"]}
            for test in json.loads(told.stdout)["tests"]}


def read(pattern):
    text = ""
    for path in glob.glob(f"{root}/{pattern}"):
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return text


def names_in(text):
    """What CUnit calls the tests there."""
    found = set()
    for literals in re.findall(r'(?:\{|CU_add_test\(\w+,)\s*((?:"(?:[^"\\]|\\.)*"\s*)+),\s*\w+', text):
        found.add("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"'))
    return found


def names_of(suite):
    """`redis.lost` has those of tests/redis/test_lost.c. `etcd.cuts` has those of the tables that tests/etcd/main.c names for
    the set "cuts". `python.suite` has the functions of pytest. Any other suite has those of its folder."""
    folder, _, name = suite.partition(".")
    if folder == "python":
        return set(re.findall(r"(?m)^def (test_\w+)\(", read("bindings/python/tests/test_*.py")))
    text = read(f"tests/{folder}/test_{name}.c") or read(f"tests/{folder}/*.c")
    one_set = re.search(rf'\{{"{name}",[^{{}}]*\{{([\w, ]+)\}}\}}', text)
    if one_set:
        tables = one_set.group(1).replace(", ", "|")
        text = "".join(re.findall(rf"(?ms)^const CU_TestInfo (?:{tables})\[\] = .*?^\}};", text))
    return names_in(text)


def tests_of(name):
    return {test for test in tests if test == name or (name.endswith("…") and test.startswith(name[:-1]))}


def check_test(name, where):
    used.add(name)
    if strict and not tests_of(name):
        problems.append(f"{where}: there is no test {name}")


def check_nights():
    """A name with "…" is nightly if all of its tests are."""
    nightly = {test for test, labels in tests.items() if "nightly" in labels}
    told = {test for name in at_night for test in tests_of(name)}
    for test in sorted(told - nightly):
        problems.append(f"promises.md: {test} does not run only at night")
    for name in sorted(used):
        if tests_of(name) <= nightly and tests_of(name) - told:
            problems.append(f"promises.md: {name} runs only at night, and the page does not say so")


def check_names(suite, text, where):
    known = names_of(suite)
    for name in [text] if any(text in whole for whole in known) else text.split(", "):
        name = name.strip()
        whole_name = name in known if name.startswith("test_") else any(name in whole for whole in known)
        if len(name) < 4 or not whole_name:
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
    is_shown = is_of_drivers = is_of_nights = False
    with open(f"{root}/docs/promises.md", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            where = f"promises.md:{number}"
            is_of_nights = line.startswith(NIGHTLY) or (is_of_nights and line.strip() != "")
            if is_of_nights:
                at_night.update(re.findall(rf"(?<![\w./-]){REFERENCE}", line))
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


tests = ctest_labels()
strict = is_complete() or os.environ.get("MORTISE_REQUIRE_ALL") == "1"
main()
if strict:
    check_nights()
for problem in problems:
    print(problem, file=sys.stderr)
sys.exit(1 if problems else 0)
