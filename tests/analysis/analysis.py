#!/usr/bin/env python3
"""analysis.py CPPCHECK - static analysis of the library, its modules and the command: every C file that
compile_commands.json of $MORTISE_BUILD_DIR lists of them, with its own flags. There may be no finding, except every planted
mistake in planted.c. A false finding is suppressed in the source, with its id and the reason (cppcheck-suppress)."""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE, BUILD, COMPILER = (os.environ[name] for name in ("MORTISE_SOURCE_DIR", "MORTISE_BUILD_DIR", "MORTISE_CC"))
PARTS = ("core", "drivers", "plugins", "tools")
# It is not shown the system's headers; what they define, and sources ask for, is said here.
CPPCHECK = [sys.argv[1], "-q", "--std=c11", "--library=posix,gnu", "--enable=warning,performance", "--inline-suppr",
            "--template={file}:{line}: {message} [{id}]", "-DLIBPQ_HAS_PIPELINING=1",
            "-DSQLITE_VERSION_NUMBER=3037000"]


def sources():
    """(file, its -I and -D)"""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            part = os.path.relpath(entry["file"], SOURCE).split(os.sep)[0]
            if part in PARTS and entry["file"].endswith(".c"):
                yield entry["file"], [word for word in shlex.split(entry["command"]) if word[:2] in ("-I", "-D")]


def macros(folder):
    """uthash and utlist, and nothing else of the system's: without them the loops that they make are not understood."""
    for name in ("uthash.h", "utlist.h"):
        text = subprocess.run([COMPILER, "-E", "-x", "c", "-"], input=f"#include <{name}>\n", text=True, check=True,
                              capture_output=True).stdout
        os.symlink(re.search(rf'"([^"]*/{name})"', text).group(1), os.path.join(folder, name))


def look(files, flags):
    """What is found in them: lines."""
    done = subprocess.run([*CPPCHECK, *flags, *files], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, f"{files}: {done.returncode}: {done.stdout}"
    return done.stdout.splitlines()


def shares(files, most=8):
    """(files with the same flags, flags): cppcheck reads its own descriptions of the libraries once for each."""
    alike = {}
    for name, flags in sorted(files.items()):
        alike.setdefault(tuple(flags), []).append(name)
    for flags, names in alike.items():
        for at in range(0, len(names), most):
            yield names[at:at + most], flags


def planted():
    """{what: line}"""
    with open(os.path.join(HERE, "planted.c"), encoding="utf-8") as file:
        return {match[1]: number for number, line in enumerate(file, 1)
                if (match := re.search(r"/\* planted: (\w+)", line))}


with tempfile.TemporaryDirectory() as folder:
    macros(folder)
    files = dict(sources())
    assert len(files) > 100, f"compile_commands.json has {len(files)} files of {PARTS}"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        looks = [workers.submit(look, names, [*flags, f"-I{folder}"]) for names, flags in shares(files)]
        found = [line for each in looks for line in each.result()]
told = look([os.path.join(HERE, "planted.c")], [])
missed = [what for what, line in planted().items() if not any(f"planted.c:{line}: " in text for text in told)]
print("\n".join(found))
print(f"{len(files)} files, {len(found)} lines of findings; planted and not found: {missed or 'none'}")
sys.exit(1 if found or missed or len(planted()) != 5 else 0)
