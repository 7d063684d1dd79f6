#!/usr/bin/env python3
"""arrows.py - which source files need each other in a circle, by the object files of a build.

A file has an arrow to another file if it uses a function or a variable that the other one defines. In a circle every file
reaches every other one over arrows: nobody can understand, test or replace one of them alone. A folder may have circles of
MOST files; the folders of LARGER had larger ones when this check was made. A circle that grows is a failure, and so is a
number in LARGER that is larger than the circle, so that circles can only shrink. Two folders must not need each other.

Reads compile_commands.json of $MORTISE_BUILD_DIR and the symbol tables of the objects that it names (nm).
`arrows.py FOLDER` prints the circles of that folder and the symbols behind each arrow.

Exits 0 if all is well, 1 if not, 2 if the build cannot be read. test_arrows.py shows that it can fail."""
import collections
import json
import os
import re
import shlex
import subprocess
import sys

SOURCE, BUILD = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
PARTS = ("core", "drivers", "plugins", "tools")
MOST = 3
LARGER = {}


def objects():
    """(source file, target, object file) of every C file of PARTS; tests compile some of them once more."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            source = os.path.relpath(entry["file"], SOURCE)
            words = shlex.split(entry["command"])
            made = os.path.join(entry["directory"], words[words.index("-o") + 1])
            if source.endswith(".c") and source.split(os.sep)[0] in PARTS:
                yield source, re.search(r"CMakeFiles/([^/]+)\.dir/", made).group(1), made


def symbols(files):
    """{object file: (defined, used)}, of symbols that other files can see"""
    found = {file: (set(), set()) for file in files}
    done = subprocess.run(["nm", "-A", "-P", *files], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.strip())
    for line in done.stdout.splitlines():
        file, name, kind = re.match(r"(.*): (\S+) (\S)", line).groups()
        if kind in "Uwv":
            found[file][1].add(name)
        elif kind.isupper():
            found[file][0].add(name)
    return found


def arrows_of(made):
    """{source file: {source file: symbols}}. A name may have several meanings, but one target has it once."""
    known = symbols([file for _, _, file in made])
    within, anywhere = collections.defaultdict(set), collections.defaultdict(set)
    for source, target, file in made:
        for name in known[file][0]:
            within[target, name].add(source)
            anywhere[name].add(source)
    arrows = {source: collections.defaultdict(set) for source, _, _ in made}
    for source, target, file in made:
        for name in known[file][1]:
            for other in (within[target, name] or anywhere[name]) - {source}:
                arrows[source][other].add(name)
    return arrows


def reachable(start, arrows):
    seen, left = set(), [start]
    while left:
        fresh = set(arrows[left.pop()]) - seen
        seen |= fresh
        left += fresh
    return seen


def circles(files, arrows):
    """Sets of files that reach each other without leaving `files`, the largest first."""
    inside = {file: set(arrows[file]) & files for file in files}
    reach = {file: reachable(file, inside) for file in files}
    found = {frozenset(other for other in reach[file] if file in reach[other]) for file in files}
    return sorted((circle for circle in found if circle), key=len, reverse=True)


def print_circle(circle, arrows):
    for file in sorted(circle):
        for other in sorted(circle & set(arrows[file])):
            print(f"    {file} -> {os.path.basename(other)}: {', '.join(sorted(arrows[file][other]))}")


def both_ways(arrows):
    """{(folder, folder): symbols} that need each other"""
    between = collections.defaultdict(set)
    for file, others in arrows.items():
        for other, names in others.items():
            between[os.path.dirname(file), os.path.dirname(other)] |= names
    return {(one, other): (names, between[other, one]) for (one, other), names in between.items()
            if one < other and (other, one) in between}


def check(arrows, folders):
    """What is wrong, as lines."""
    for folder, files in sorted(folders.items()):
        found = circles(files, arrows)
        size, most = len(found[0]) if found else 0, LARGER.get(folder, MOST)
        print(f"{folder}: {len(files)} files, " + (f"the largest circle has {size}" if found else "no circle"))
        if size > most:
            print_circle(found[0], arrows)
            yield f"{folder}: {size} files need each other in a circle; {most} may"
        elif size < most and folder in LARGER:
            yield f"{folder}: its largest circle has {size} files now: write that in LARGER, or remove its line if {MOST} are enough"
    for (one, other), (there, back) in both_ways(arrows).items():
        yield f"{one} and {other} need each other: {', '.join(sorted(there))}; {', '.join(sorted(back))}"


def main():
    try:
        arrows = arrows_of(list(objects()))
    except OSError as error:
        print(f"arrows.py: {BUILD} cannot be read: {error}", file=sys.stderr)
        return 2
    folders = collections.defaultdict(set)
    for file in arrows:
        folders[os.path.dirname(file)].add(file)
    if len(sys.argv) > 1:
        for circle in circles(folders[sys.argv[1]], arrows):
            print(f"a circle of {len(circle)}")
            print_circle(circle, arrows)
        return 0
    wrong = list(check(arrows, folders))
    for line in wrong:
        print(f"arrows.py: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
