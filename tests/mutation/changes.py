"""The mutants: which small changes of the code are tried, and which of them a run takes."""
import collections
import difflib
import glob
import hashlib
import os
import re

# One change of one line; `number` counts from 0, `new` is the line after it.
Mutant = collections.namedtuple("Mutant", "id path part number what new")

SWAPS = [("<=", "<"), (">=", ">"), ("==", "!="), ("!=", "=="), ("&&", "||"), ("||", "&&")]
STATEMENT = re.compile(r"^    (?:    )*(?:[a-z_]+(?:->|\.))*[a-z_0-9\[\]]+(?:\(.*\)| [-+|&]?= .*);$")
KEPT_STATEMENT = re.compile(r"\s+(?:return|const|struct|int|bool|free|pthread_|va_|explicit_bzero|text_wipe)")
CONSTANT = re.compile(r"(?<![\w.\"'])([1-9][0-9]*)(?![\w.\"'])")
# What a person reads, what is checked twice, and the size of a text's room: see mutants.py.
UNINTERESTING = re.compile(r"\b(?:log_line|log_flush|host_log|fprintf|assert|static_assert|_Static_assert)\("
                           r"|^\s*(?:static )?char \w+\[[^;]*;")


def strip(line):
    """The line without its comment and with its strings blanked, so that only code is changed."""
    line = re.sub(r"/\*.*?\*/", lambda match: " " * len(match.group()), line)
    line = re.sub(r'"(?:[^"\\]|\\.)*"', lambda match: '"' + " " * (len(match.group()) - 2) + '"', line)
    return line.split("//")[0].split("/*")[0]


def changes_of(line):
    """All changes of a line, as (what, new line)."""
    code = strip(line)
    if UNINTERESTING.search(code):
        return
    for old, new in SWAPS:
        for match in re.finditer(rf"(?<![<>=!-]){re.escape(old)}(?![<>=])", code):
            yield f"{old} to {new}", line[:match.start()] + new + line[match.end():]
    for match in re.finditer(r" ([<>]) ", code):
        yield f"{match[1]} to {match[1]}=", line[:match.start()] + f" {match[1]}= " + line[match.end():]
    for match in re.finditer(r"\b(true|false)\b", code):
        other = "false" if match[1] == "true" else "true"
        yield f"{match[1]} to {other}", line[:match.start()] + other + line[match.end():]
    for match in CONSTANT.finditer(re.sub(r"\bcalloc\(1,", "calloc( ,", code)):  # too much memory is no fault
        yield f"{match[1]} to {int(match[1]) + 1}", line[:match.start()] + str(int(match[1]) + 1) + line[match.end():]
    if STATEMENT.match(code) and not KEPT_STATEMENT.match(code):
        yield "statement dropped", re.match(r"\s*", line).group() + "(void)0;"


def mutants_of(path, part, lines):
    """The id depends on the text alone, not on where it stands; of the same text, on which it is in the file."""
    comment, same = False, collections.Counter()
    for number, line in enumerate(lines):
        inside, comment = comment, ("/*" in line or comment) and "*/" not in line[max(line.find("/*"), 0):]
        if inside or line.lstrip().startswith(("#", "*", "/*", "enum", "case")) or line.endswith("\\"):
            continue
        for what, new in changes_of(line):
            around = "\n".join([path, lines[number - 1], line, what, new])
            same[around] += 1
            around += "\n" * (same[around] - 1)
            yield Mutant(hashlib.sha256(around.encode()).hexdigest()[:10], path, part, number, what, new)


class Sources:
    """The files as they were when the run began: somebody may edit them meanwhile."""

    def __init__(self, root, parts, left_out):
        self.lines, self.mutants = {}, []
        for part in parts:
            for file in sorted(glob.glob(os.path.join(root, part.files))):
                path = os.path.relpath(file, root)
                if path in left_out:
                    continue
                with open(file, encoding="utf-8") as text:
                    self.lines[path] = text.read().split("\n")
                self.mutants += mutants_of(path, part, self.lines[path])

    def choose(self, count, seed):
        """A change of a file adds and removes mutants of its lines; the others that are chosen stay the same."""
        def lot(mutant):
            return hashlib.sha256(f"{seed} {mutant.id}".encode()).digest()
        return sorted(sorted(self.mutants, key=lot)[:count], key=lambda mutant: (mutant.path, mutant.number))

    def changed(self, mutant):
        lines = self.lines[mutant.path]
        return lines[:mutant.number] + [mutant.new] + lines[mutant.number + 1:]

    def diff(self, mutant):
        return "\n".join(difflib.unified_diff(self.lines[mutant.path], self.changed(mutant), mutant.path, mutant.path,
                                              n=4, lineterm=""))
