#!/usr/bin/env python3
"""layout.py COMPILER INCLUDE RECORD [--record] - the binary interface of the public headers: size and members of every
struct, every enumerator, every constant, from the compiler's debug information, so none can be forgotten here. Compared
with RECORD, for LP64. If something was added at the end of a struct that begins with its size, at
the end of mortise_op, mortise_info or the module's table, or to an enum, record it anew; every other change breaks programs
and modules that were built before."""
import difflib
import os
import re
import subprocess
import sys
import tempfile

SOURCE = "#include <mortise/driver.h>\n"


def compiled(compiler, include):
    """The debug information as lines, and the macros."""
    common = [compiler, "-std=gnu11", "-I", include, "-x", "c", "-"]
    with tempfile.TemporaryDirectory(prefix="mortise-layout.") as work:
        file = os.path.join(work, "layout.o")
        subprocess.run([*common, "-g", "-fno-eliminate-unused-debug-types", "-c", "-o", file], input=SOURCE, text=True,
                       check=True)
        info = subprocess.run(["readelf", "--debug-dump=info", file], check=True, stdout=subprocess.PIPE, text=True)
    macros = subprocess.run([*common, "-E", "-dM"], input=SOURCE, text=True, check=True, stdout=subprocess.PIPE)
    return info.stdout.splitlines(), macros.stdout


def entries(lines):
    """(depth, tag, {attribute: text}) of each entry."""
    found = []
    for line in lines:
        entry = re.match(r"\s*<(\d+)><[0-9a-f]+>: .*\((DW_TAG_\w+)\)", line)
        attribute = re.match(r"\s*<[0-9a-f]+>\s+DW_AT_(\w+)\s*:\s*(?:\([^)]*\):?\s*)?(\S*)", line)
        if entry:
            found.append((int(entry.group(1)), entry.group(2)[7:], {}))
        elif attribute and found:
            found[-1][2][attribute.group(1)] = attribute.group(2)
    return found


def layout(lines):
    """{name: [line, …]} of the structs and enums that are Mortise's."""
    kinds = {"structure_type": ("member", "data_member_location"), "enumeration_type": ("enumerator", "const_value")}
    found, inside, wanted = {}, None, None
    for depth, tag, attributes in entries(lines):
        name = attributes.get("name", "")
        if depth == 1:
            inside = None
            if tag in kinds and "byte_size" in attributes and (name == "" or name.startswith("mortise_")):
                wanted = kinds[tag]
                inside = [f"{name or 'enum'} {int(attributes['byte_size'], 0)}"]
        elif inside is not None and depth == 2 and tag == wanted[0]:
            if len(inside) == 1 and (inside[0].startswith("mortise_") or name.startswith("MORTISE_")):
                found[inside[0] if inside[0].startswith("mortise_") else name] = inside
            inside.append(f"    {name} {int(attributes[wanted[1]], 0)}")
    return found


def constants(macros):
    """Those that are numbers or text; what the version is, and macros for sources alone, are no interface."""
    found = re.findall(r"(?m)^#define (MORTISE_(?!VERSION_)[A-Z_]+) (.+)$", macros)
    return sorted(f"{name} {value}" for name, value in found if not re.match(r"__attribute__|\.", value))


compiler, include, record = sys.argv[1:4]
lines, macros = compiled(compiler, include)
types = layout(lines)
if "mortise_op" not in "".join(types) or len(types) < 15:
    sys.exit(f"layout: only {sorted(types)} were found")
text = "".join(line + "\n" for name in sorted(types) for line in types[name])
text += "".join(line + "\n" for line in constants(macros))
if sys.argv[4:] == ["--record"]:
    with open(record, "w") as file:
        file.write(text)
with open(record) as file:
    recorded = file.read()
if text != recorded:
    sys.stdout.writelines(difflib.unified_diff(recorded.splitlines(True), text.splitlines(True), "recorded", "now"))
    sys.exit("layout: the binary interface is another. What was only added at an end: layout.py … --record; "
             "all else breaks what was built before")
