#!/usr/bin/env python3
"""mutants.py [--count N] [--seed N] [--only ID] [--list] [--folder FOLDER] - breaks the code on purpose, one small change
at a time, and counts how many of these mutants the tests notice.

A mutant is one change in one line of the core or of a part that drivers share: a comparison is flipped, a call or an
assignment is dropped, a constant is changed, `true` becomes `false`. It is built in a copy of the tree. Then the unit tests
run, and the conformance of the drivers that the file is part of, until one fails: the mutant is killed. A mutant that no
test notices survives: a test is missing, or the change makes no difference. survivors.txt lists those that are known, each
with the reason.

--count   how many mutants (200), chosen evenly over the files by the seed
--seed    of the choice (1)
--only    one mutant, by the ID that a run printed; shows the change and the tests
--list    prints the mutants and runs none
--folder  where the copy and its build are kept (build-mutants beside the sources), so that the next run is faster

Prints a line for each mutant and the score. Exits 0 if every survivor is in survivors.txt, 1 if not, 2 if the tree does
not pass before any change."""
import argparse
import difflib
import glob
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Which sources, and the tests that must notice a change in them beside the unit tests.
PARTS = {
    "core/*.c": "conformance.(sim|sim-queue|sqlite)",
    "drivers/rowlease/*.c": "conformance.(sqlite|postgres)",
    "drivers/redislink/*.c": "(conformance.redis|conformance.redlock|redis.connect|redis.sentinel)",
}
# Files whose mistakes a person sees, not a lock: texts and files of configuration are checked by other means.
LEFT_OUT = {"core/api.c"}
BUILD_S, TEST_S = 600, 900

SWAPS = [("<=", "<"), (">=", ">"), ("==", "!="), ("!=", "=="), ("&&", "||"), ("||", "&&")]
STATEMENT = re.compile(r"^    (?:    )*(?:[a-z_]+(?:->|\.))*[a-z_0-9\[\]]+(?:\(.*\)| [-+|&]?= .*);$")
CONSTANT = re.compile(r"(?<![\w.\"'])([1-9][0-9]*)(?![\w.\"'])")


def strip(line):
    """The line without its comment and with its strings blanked, so that only code is changed."""
    line = re.sub(r"/\*.*?\*/", lambda match: " " * len(match.group()), line)
    line = re.sub(r'"(?:[^"\\]|\\.)*"', lambda match: '"' + " " * (len(match.group()) - 2) + '"', line)
    return line.split("//")[0].split("/*")[0]


def changes_of(line):
    """All mutants of a line, as (what, new line)."""
    code = strip(line)
    for old, new in SWAPS:
        for match in re.finditer(rf"(?<![<>=!-]){re.escape(old)}(?![<>=])", code):
            yield f"{old} to {new}", line[:match.start()] + new + line[match.end():]
    for match in re.finditer(r" ([<>]) ", code):
        yield f"{match[1]} to {match[1]}=", line[:match.start()] + f" {match[1]}= " + line[match.end():]
    for match in re.finditer(r"\b(true|false)\b", code):
        other = "false" if match[1] == "true" else "true"
        yield f"{match[1]} to {other}", line[:match.start()] + other + line[match.end():]
    for match in CONSTANT.finditer(code):
        yield f"{match[1]} to {int(match[1]) + 1}", line[:match.start()] + str(int(match[1]) + 1) + line[match.end():]
    if STATEMENT.match(code) and not re.match(r"\s+(?:return|const|struct|int|bool|free|pthread_)", code):
        yield "statement dropped", re.match(r"\s*", line).group() + "(void)0;"


def mutants_of(path, pattern):
    """(id, path, pattern, line number, what, new line); the id depends on the text alone, not on where it stands."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = file.read().split("\n")
    comment = False
    for number, line in enumerate(lines):
        inside, comment = comment, ("/*" in line or comment) and "*/" not in line[max(line.find("/*"), 0):]
        if inside or line.lstrip().startswith(("#", "*", "/*", "enum", "case")) or line.endswith("\\"):
            continue
        for what, changed in changes_of(line):
            around = "\n".join([path, lines[number - 1], line, what, changed])
            yield hashlib.sha256(around.encode()).hexdigest()[:10], path, pattern, number, what, changed


def choose(count, seed):
    """Evenly: a large file has more, a small one has some."""
    everything = []
    for places, pattern in PARTS.items():
        for path in sorted(glob.glob(os.path.join(ROOT, places))):
            relative = os.path.relpath(path, ROOT)
            if relative not in LEFT_OUT:
                everything += mutants_of(relative, pattern)
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    return everything, sorted(chosen, key=lambda mutant: (mutant[1], mutant[3]))


def known_survivors():
    with open(f"{HERE}/survivors.txt", encoding="utf-8") as file:
        return {line.split()[0] for line in file if line.strip() and not line.startswith("#")}


def run(command, folder, seconds):
    """The exit code; -1 after so long."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as process:
        try:
            output = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return -1, process.communicate()[0]
        return process.returncode, output


class Copy:
    def __init__(self, folder):
        self.folder, self.build = folder, f"{folder}/build"
        os.makedirs(folder, exist_ok=True)
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            self.restore(name)
        run(["cmake", "--preset", "debug", "-B", self.build, "-G", "Ninja", "-DMORTISE_WERROR=OFF", "-DMORTISE_BENCH=OFF"],
            folder, BUILD_S)

    def restore(self, name):
        """Copies what differs, so that nothing is built in vain."""
        source, target = os.path.join(ROOT, name), os.path.join(self.folder, name)
        if not os.path.isfile(source):
            return
        with open(source, "rb") as file:
            wanted = file.read()
        if os.path.exists(target):
            with open(target, "rb") as file:
                if file.read() == wanted:
                    return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(source, target)
        os.utime(target)

    def put(self, path, number, line):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            lines = file.read().split("\n")
        lines[number] = line
        with open(os.path.join(self.folder, path), "w", encoding="utf-8") as file:
            file.write("\n".join(lines))

    def verdict(self, pattern):
        """"killed by …", "does not build" or "survived"."""
        code, output = run(["cmake", "--build", self.build], self.folder, BUILD_S)
        if code != 0:
            return "does not build", output
        for tests in ("^unit\\.", f"^{pattern}$"):
            code, output = run(["ctest", "--test-dir", self.build, "-R", tests, "-j", str(4 * os.cpu_count()), "--timeout", "60",
                                "--stop-on-failure", "--output-on-failure"], self.folder, TEST_S)
            if code != 0:
                failed = re.search(r"(?m)^\s+[0-9]+ - (\S+) \(", output)
                return f"killed by {failed[1] if failed else 'a hang'}", output
        return "survived", ""


def show(mutant):
    _, path, _, number, _, changed = mutant
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = file.read().split("\n")
    new = lines[:number] + [changed] + lines[number + 1:]
    print("\n".join(difflib.unified_diff(lines, new, path, path, n=4, lineterm="")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--folder", default=f"{ROOT}/build-mutants")
    options = parser.parse_args()
    everything, chosen = choose(options.count, options.seed)
    if options.only:
        chosen = [mutant for mutant in everything if mutant[0] == options.only]
    if options.list:
        for name, path, _, number, what, _ in chosen:
            print(f"{name} {path}:{number + 1}: {what}")
        print(f"{len(chosen)} of {len(everything)} mutants")
        return 0
    copy, known, survivors, counts = Copy(options.folder), known_survivors(), [], {"killed": 0, "survived": 0, "other": 0}
    for pattern in sorted({mutant[2] for mutant in chosen}):
        verdict, output = copy.verdict(pattern)
        if verdict != "survived":
            print(f"the tree itself: {verdict}\n{output[-3000:]}")
            return 2
    for mutant in chosen:
        name, path, pattern, number, what, changed = mutant
        began = time.monotonic()
        copy.put(path, number, changed)
        verdict, output = copy.verdict(pattern)
        copy.restore(path)
        counts["killed" if verdict.startswith("killed") else verdict if verdict == "survived" else "other"] += 1
        print(f"{name} {path}:{number + 1}: {what}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
        if verdict == "survived" and name not in known:
            survivors.append(mutant)
        if options.only:
            show(mutant)
            print(output[-5000:])
    for mutant in survivors:
        print(f"\nSURVIVED {mutant[0]}: {mutant[4]}")
        show(mutant)
    tried = counts["killed"] + counts["survived"]
    print(f"\n{counts['killed']} of {tried} mutants killed, {counts['survived']} survived, {len(survivors)} of them unknown; "
          f"{counts['other']} do not build. Seed {options.seed}.")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
