#!/usr/bin/env python3
"""api.py DOXYGEN - makes the reference of the public headers in a temporary folder. Each warning of doxygen is a mistake, except for a
field without a comment: its name may say it all. Each function that the library exports is in the reference with a text, and the
text names its parameters, except for the usual ones."""
import glob
import html
import os
import re
import subprocess
import sys
import tempfile

source = os.environ["MORTISE_SOURCE_DIR"]
# Explained once: at the beginning of mortise.h, or at the function that another one is like.
USUAL = {"client", "lease", "error", "user_data", "size", "buffer", "callback", "where", "name", "options", "request", "status"}
problems = []


def make(folder):
    with open(os.path.join(source, "docs", "api", "Doxyfile.in"), encoding="utf-8") as file:
        text = file.read()
    for key, value in {"PROJECT_SOURCE_DIR": source, "PROJECT_BINARY_DIR": folder, "PROJECT_VERSION": "0"}.items():
        text = text.replace(f"@{key}@", value)
    os.mkdir(os.path.join(folder, "api"))
    subprocess.run([sys.argv[1], "-"], input=text, text=True, check=True, timeout=120)
    with open(os.path.join(folder, "api", "warnings"), encoding="utf-8") as file:
        problems.extend(line.strip() for line in file if line.strip() and "(variable)" not in line)


def described(folder):
    """{function: the HTML of its description}"""
    found = {}
    for path in glob.glob(os.path.join(folder, "api", "html", "*_8h.html")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for item in re.split(r'<h2 class="memtitle">', text)[1:]:
            name = re.match(r".*?</a></span>(\w+)\(\)", item)
            if name:
                found[name.group(1)] = item
    return found


def check(name, item):
    prototype, _, text = item.partition('<div class="memdoc">')
    text = html.unescape(re.sub(r"<[^>]*>", " ", text))
    if len(text.split()) < 5:
        problems.append(f"{name} has no text")
    for parameter in re.findall(r'<td class="paramname"><em>(\w+)</em>', prototype):
        if parameter not in USUAL and not re.search(rf"\b{parameter}\b", text):
            problems.append(f"{name}: its comment does not name {parameter}")


with tempfile.TemporaryDirectory() as work:
    make(work)
    functions = described(work)
    with open(os.path.join(source, "packaging", "debian", "symbols"), encoding="utf-8") as symbols:
        exported = re.findall(r"(?m)^ (mortise_\w+)@", symbols.read())
    for function in exported:
        if function in functions:
            check(function, functions[function])
        else:
            problems.append(f"{function} is not in the reference")
print("\n".join(problems) or f"the reference describes {len(exported)} functions")
sys.exit(1 if problems else 0)
