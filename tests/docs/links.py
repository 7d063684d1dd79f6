#!/usr/bin/env python3
"""links.py - every file and heading that a text names is there: links in Markdown, `docs/NAME.md` and the like in any text, and each
page of docs/ is in docs/README.md, whose table has no two rows for the same pages."""
import os
import re
import sys

root = os.environ["MORTISE_SOURCE_DIR"]
FOLDERS = "core|drivers|plugins|tools|include|tests|examples|docs|bench|bindings|packaging|cmake"
NAMED = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*\w\.(?:md|c|h|py|sh|json|ini|conf|rules|yml))(?![\w*])")
problems = []


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def texts():
    """The Markdown files of the project, from the top."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        yield from (os.path.join(folder, name) for name in names if name.endswith(".md"))


def anchors(text):
    """As GitHub makes them of headings."""
    heads = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", text))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


for path in texts():
    text = read(path)
    prose = re.sub(r"(?ms)^```.*?^```$", "", text)
    here = os.path.relpath(path, root)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        other = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if not os.path.exists(other):
            problems.append(f"{here}: the link {target} leads nowhere")
        elif anchor and other.endswith(".md") and anchor not in anchors(read(other)):
            problems.append(f"{here}: {target}: there is no such heading")
    for named in NAMED.findall(prose):
        places = os.path.join(root, named), os.path.join(os.path.dirname(path), named)
        if "NAME" not in named and not any(map(os.path.exists, places)):
            problems.append(f"{here}: there is no {named}")

index = read(os.path.join(root, "docs", "README.md"))
for page in sorted(name for name in os.listdir(os.path.join(root, "docs")) if name.endswith(".md") and name != "README.md"):
    if f"({page})" not in index:
        problems.append(f"docs/README.md does not name {page}")

seen = {}
for row in re.findall(r"(?m)^\| (?!you want to |---).*$", index):
    named = frozenset(re.findall(r"\]\(([^)]+)\)", row))
    if not named or named in seen:
        problems.append(f"docs/README.md has two rows for the same pages, or one without a page: {row}")
    seen[named] = row
if len(seen) < 10:
    problems.append("docs/README.md: the table of tasks was not found")

print("\n".join(problems) or "all links, names of files and pages are there")
sys.exit(1 if problems else 0)
