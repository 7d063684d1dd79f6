#!/usr/bin/env python3
"""configuration.py MORTISE - prints configuration.md: every key of the core and of each module that this mortise
finds, from the schemas that also parse them. A ctest compares (tests/docs/fresh.py)."""
import json
import subprocess
import sys

HEAD = """# Configuration: every key

Made by `docs/configuration.py` from the schemas that the library itself reads; do not edit. What a file looks like, where it
is looked for, and how a URL sets the same keys: mortise.conf(5). `mortise drivers NAME --options` prints the same on a
terminal, of the version that is installed.
"""


def sections(mortise):
    """(name, text) of the core and of each module."""
    listing = json.loads(subprocess.run([mortise, "drivers", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    listing.sort(key=lambda module: (module["kind"] != "core", module["kind"], module["name"]))
    return [(module["name"], section(module)) for module in listing]


def code(text):
    return "" if text in (None, "") else "`" + text.replace("|", "\\|") + "`"


def escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def section(module):
    lines = ["", f"## [{module['name']}]: {module['kind']}", "", escaped(module["summary"]) + ".", ""]
    if module["capabilities"]:
        lines += ["At best: " + ", ".join(module["capabilities"].split(",")) + ".", ""]
    lines += ["| key | type | range | default | |", "|---|---|---|---|---|"]
    for option in module["options"]:
        key = code(option["key"])
        if option["secret"]:
            key += f", `{option['key']}_file`"
        lines.append(f"| {key} | {option['type']} | {escaped(option['range'] or '')} | {code(option['default'])} "
                     f"| {escaped(option['help'])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(HEAD + "".join(text for _, text in sections(sys.argv[1])), end="")
