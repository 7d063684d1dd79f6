#!/usr/bin/env python3
"""fresh.py - docs/configuration.md agrees with the schemas: section by section, for the modules that were built. With
MORTISE_REQUIRE_ALL each section must have been checked. The man page of the config has every key of the core."""
import os
import re
import sys

root = os.environ["MORTISE_SOURCE_DIR"]
build = os.environ["MORTISE_BUILD_DIR"]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(root, "docs"))
import configuration  # noqa: E402

os.environ["MORTISE_MODULE_PATH"] = os.path.join(build, "lib", "mortise")  # not those of the tests
mortise = os.environ["MORTISE_COMMAND"]
written = open(os.path.join(root, "docs", "configuration.md")).read()
parts = re.split(r"(?m)^(?=\n## \[)", written)
documented = {re.match(r"\n## \[([^]]+)\]", part).group(1): part for part in parts[1:]}
problems = []
if parts[0] != configuration.HEAD:
    problems.append("its head is another")

built = dict(configuration.sections(mortise))
for name, text in built.items():
    if documented.get(name) != text:
        problems.append(f"the section of {name} is not what the schema says")
for name in documented:
    if name not in built and os.environ.get("MORTISE_REQUIRE_ALL") == "1":
        problems.append(f"there is a section of {name}, which is not built")

page = open(os.path.join(root, "docs", "man", "mortise.conf.5")).read()
named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"(?m)^\.It Cm (.*)$", page))))
keys = set(re.findall(r"(?m)^\| `([a-z_]+)`", built["mortise"]))
if named != keys:
    problems.append(f"mortise.conf.5 and the core's schema differ in: {', '.join(sorted(named ^ keys))}")

for problem in problems:
    print(f"configuration.md: {problem}; make it anew: python3 docs/configuration.py {mortise} >docs/configuration.md",
          file=sys.stderr)
sys.exit(1 if problems else 0)
