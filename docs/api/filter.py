#!/usr/bin/env python3
"""filter.py HEADER - prints a public header as doxygen wants it: comments become doxygen's, sections become groups, lists of statuses
become lists, and the tables of names (X macros) become enumerators. So the headers are free of a tool's marks."""
import re
import sys

STATUS = re.compile(r"^( \* ?)((?:[A-Z]{2,}(?: \([^)]*\))?(?:, )?)+[:.] )")
ROW = re.compile(r'X\((\w+), (-?\w+), "([^"]*)"(?:, "([^"]*)")?\)')


def escaped(text):
    """What doxygen would take for a command or a tag."""
    return re.sub(r"([\\@<>])", r"\\\1", text)


def tables(text):
    """{macro of a row: (form of an enumerator, rows)}"""
    rows = {name: ROW.findall(body) for name, body in re.findall(r"#define (MORTISE_\w+_MAP)\(X\)((?:.*\\\n)+.*\n)", text)}
    forms = dict(re.findall(r"#define (MORTISE_\w+_ENUM)\(name, [^)]*\) (.*),\n", text))
    return {form: (forms[form], rows[name]) for name, form in re.findall(r"(?m)^ +(MORTISE_\w+_MAP)\((MORTISE_\w+_ENUM)\)$", text)}


def enumerators(form, rows):
    for name, number, word, meaning in rows:
        value = re.sub(r"\b(code|bit|number)\b", number, form.replace("##name", name))
        yield f"{value} /**< {escaped(meaning or word)} */"


def document(line, comment, first):
    """The line, and whether it ends inside a comment."""
    at = line.find("/* ")
    if not comment and at >= 0:
        line = re.sub(r"^/\* (\w+\.h) - ", r"/* ", line) if first else line
        mark = "/** @file\n * " if first else "/** " if line[:at].strip() == "" else "/**< "
        line = line[:at] + mark + escaped(line[at + 3:])
        comment = True
    elif comment:
        line = STATUS.sub(r"\1- \2", escaped(line))
    return line, comment and "*/" not in line


def main(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    enums = tables(text)
    text = re.sub(r"(?m)^#(define|undef) MORTISE_\w+_ENUM\b.*\n", "", text)
    text = re.sub(r"\s*__attribute__\(\(format\([^)]*\)\)\)", "", text)
    comment = group = items = False
    lines = text.splitlines()
    for number, line in enumerate(lines):
        section = re.match(r"/\* -{4} (.*?) -{3,} \*/$", line)
        row = re.match(r" +MORTISE_\w+_MAP\((MORTISE_\w+_ENUM)\)$", line)
        if section:
            print("/** @} */" if group else "", f"\n/** @name {section.group(1)}\n * @{{ */")
            group = True
        elif row:
            print(",\n".join(enumerators(*enums[row.group(1)])))
        else:
            if group and line == "#ifdef __cplusplus" and "}" in lines[number + 1]:
                print("/** @} */")
            plain = line
            line, comment = document(line, comment, number == 0)
            if items and re.match(r" \* \S", plain) and line == escaped(plain):
                print(" *") # the list has ended
            items = comment and (line != escaped(plain) or (items and plain.startswith(" *  ")))
            print(line)


main(sys.argv[1])
