#!/usr/bin/env python3
"""pages.py - the man pages agree with the programs: a synopsis has exactly the options of its command; the pages have the
command's exit codes, those of tools/exit_code.h, and the environment variables that Mortise reads; also the keys and
defaults of the conformance suite, and the options of mortise-bench. Needs the build. And each driver has a page docs/NAME.md
with the same headings in the same order, answers to the same questions, and the keys and defaults of docs/configuration.md. And
each command with ctest in a page says which build it runs."""
import glob
import os
import re
import subprocess
import sys

root, build = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
problems = []
COMMON = {"-C", "--config", "--help", "--version"}  # said once, for all commands


def read(*path):
    with open(os.path.join(root, *path), encoding="utf-8") as file:
        return file.read()


def page(name):
    """{section: text}"""
    parts = re.split(r"(?m)^\.Sh (.*)\n", read("docs", "man", name))
    return dict(zip(parts[1::2], parts[2::2]))


def same(what, here, there, left, right):
    for word in sorted(set(left) - set(right)):
        problems.append(f"{what}: {word} stands in {here}, not in {there}")
    for word in sorted(set(right) - set(left)):
        problems.append(f"{what}: {word} stands in {there}, not in {here}")


def help_of(*words):
    return subprocess.run([*words, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120, check=True).stdout


def help_options(text):
    """The rows of its table: {-w, --wait}, …"""
    rows = re.findall(r"(?m)^  +(-\w)?(?:, )?((?<=  )--[a-z-]+|(?<=, )--[a-z-]+)?", text)
    return [frozenset(filter(None, row)) - COMMON for row in rows if any(row) and set(filter(None, row)) - COMMON]


def page_options(text):
    """`.Op Fl w Ar time`, `Fl -json`; not `Fl -`, which ends them."""
    return {f"-{word}" for word in re.findall(r"\bFl (-?[A-Za-z][a-z-]*)", text)}


def synopses(name):
    """{command: options of all its forms}"""
    found = {}
    for form in re.split(r"(?m)^\.Nm.*\n", page(name)["SYNOPSIS"])[1:]:
        command = re.search(r"(?m)^\.Cm (\w+)", form)
        if command:
            found.setdefault(command.group(1), set()).update(page_options(form) - COMMON)
    return found


def check_options(name, commands):
    told = synopses(name)
    same(name, "the synopsis", "`mortise --help`", told, commands)
    for command in set(commands) - {"bench"}:  # another program's, checked below
        rows = help_options(help_of("mortise", command))
        for row in rows:
            if not row & told.get(command, set()):
                problems.append(f"{name}: the synopsis of {command} lacks {' or '.join(sorted(row))}")
        for option in told.get(command, set()) - set().union(*rows):
            problems.append(f"{name}: {command} has no {option}")


def check_run_options():
    listed = {frozenset(page_options(line)) - COMMON
              for line in re.findall(r"(?m)^\.It Fl .*$", page("mortise-run.1")["DESCRIPTION"])}
    same("mortise-run.1", "the list", "`mortise run --help`", {" ".join(sorted(row)) for row in listed if row},
         {" ".join(sorted(row)) for row in help_options(help_of("mortise", "run"))})


def page_codes(name):
    return {code.replace(" Ns Ar n", "n")
            for code in re.findall(r"(?m)^\.It (\d.*)$", page(name)["EXIT STATUS"])}


def check_codes(commands):
    """Each of exit_code.h's, less what only `run` answers, or never does; and each that a command's help names."""
    table = dict(re.findall(r"(?m)^ +EXIT_(\w+) = (\d+)", read("tools", "exit_code.h")))
    table["SIGNAL_BASE"] += "+n"
    others = {table[name] for name in ("LOST", "NOT_EXECUTABLE", "NOT_FOUND")}
    same("mortise.1", "EXIT STATUS", "exit_code.h", page_codes("mortise.1"), set(table.values()) - others)
    run = page_codes("mortise-run.1")
    same("mortise-run.1", "EXIT STATUS", "exit_code.h", run, set(table.values()) - {table["DONE"], table["NOTHING_DONE"]})
    for command in commands:
        told = re.search(r"(?s)Exit code: (.*)", help_of("mortise", command)).group(1)
        codes = {code.lower() for code in re.findall(r"\b\d+(?:\+N)?", told)}
        if not codes or not codes <= (run if command == "run" else page_codes("mortise.1")):
            problems.append(f"the page of {command} lacks an exit code of its help: {sorted(codes)}")


def check_environment():
    named = set()
    for folder in ("core", "drivers", "plugins", "tools", "bench/mortise_bench"):
        for path in glob.glob(os.path.join(root, folder, "**", "*.[chp]*"), recursive=True):
            text = read(path)
            named.update(re.findall(r'(?:getenv|setenv|environ\.get)\("([A-Z_]+)"', text))
            named.update(re.findall(r'"(MORTISE_[A-Z_]+)"', text))
    told = {word for path in glob.glob(os.path.join(root, "docs", "man", "*"))
            for line in re.findall(r"(?m)^\.(?:It )?Ev (.*)$", read(path)) for word in re.findall(r"[A-Z_]+", line)}
    if len(named) < 10:
        problems.append(f"the variables were not found in the source: {named}")
    same("variables", "a page", "the source", told - {"NAME"}, named)


def check_conformance():
    program = os.path.join(build, "tests", "conformance", "mortise-conformance")
    if not os.path.exists(program):
        return
    text = read("docs", "man", "mortise-conformance.1")
    source = read("tests", "conformance", "subject.c")
    accepted = set(re.findall(r'strcmp\(key, "(\w+)"\)', source)) | {"only"}
    same("conformance", "its page", "its source", re.findall(r"Cm (\w+) Ns =", text), accepted)
    same("conformance", "its --help", "its source", re.findall(r"\b([a-z0-9]+)=(?:[A-Z]|no|yes)", help_of(program)), accepted)
    numbers = dict(re.findall(r"\.(\w+) = (\d+)", re.search(r"(?s)struct subject subject = \{(.*?)\}", source).group(1)))
    for key, number in numbers.items():
        if not re.search(rf"[( ]{number}[,)]", text):
            problems.append(f"mortise-conformance.1 does not say the default of {key}, {number}")
    if len(numbers) != 5:
        problems.append(f"the defaults were not found in subject.c: {numbers}")


def check_bench():
    if not os.path.exists(os.path.join(build, "bin", "mortise-bench")):
        if os.environ.get("MORTISE_REQUIRE_ALL") == "1":
            problems.append("mortise-bench was not built")
        return
    rows = help_options(help_of("mortise-bench"))
    told = page("mortise-bench.1")
    same("mortise-bench.1", "the synopsis", "its --help", page_options(told["SYNOPSIS"]) - COMMON, set().union(*rows) - {"-h"})
    same("mortise-bench.1", "the list", "its --help",
         page_options("\n".join(re.findall(r"(?m)^\.It Fl .*$", told["DESCRIPTION"]))) - COMMON, set().union(*rows))


HEADINGS = ["Set up", "Share with other clients", "Settings that matter", "What happens when …", "Limits"]
QUESTIONS = ["the server restarts", "there is a failover", "the network is cut", "a clock jumps", "the holder is stopped",
             "the holder crashes", "a waiter crashes or is stopped"]


def rows(text):
    """The first two cells of the rows of its first table, without the head."""
    table = re.search(r"(?m)(?:^\|.*\n)+", text)
    cells = [[cell.strip() for cell in row.split("|")[1:3]] for row in table.group(0).splitlines()] if table else []
    return cells[2:]


def configured():
    """{section: {key: default}} of docs/configuration.md"""
    parts = re.split(r"(?m)^## \[(\w+)\].*\n", read("docs", "configuration.md"))
    return {name: {key: default for keys, default in re.findall(r"(?m)^\| (`[^|]*) \| [^|]* \| .*? \| (`[^|]*`)? *\|", text)
                   for key in re.findall(r"`(\w+)`", keys)} for name, text in zip(parts[1::2], parts[2::2])}


def check_backend(driver, keys):
    name = f"docs/{driver}.md"
    parts = re.split(r"(?m)^## (.*)\n", re.sub(r"(?ms)^```.*?^```$", "", read("docs", f"{driver}.md")))
    if parts[1::2] != HEADINGS:
        problems.append(f"{name} has the headings {parts[1::2]}, not {HEADINGS}")
        return
    chapters = dict(zip(parts[1::2], parts[2::2]))
    answered = [row[0] for row in rows(chapters["What happens when …"])]
    if answered[:len(QUESTIONS)] != QUESTIONS:
        problems.append(f"{name}: the table of what happens begins with {answered[:len(QUESTIONS)]}, not {QUESTIONS}")
    settings = rows(chapters["Settings that matter"])
    if len(settings) < 5:
        problems.append(f"{name}: the table of the settings that matter was not found")
    for key, default in settings:
        if keys.get(key.strip("`")) != default:
            problems.append(f"{name}: the default of {key} is {keys.get(key.strip('`'))}, not {default}")


def check_backends():
    sections = configured()
    for driver in sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob(f"{root}/drivers/*/module.c")):
        if os.path.exists(os.path.join(root, "docs", f"{driver}.md")):
            check_backend(driver, {**sections["mortise"], **sections[driver]})
        else:
            problems.append(f"docs/{driver}.md is missing")


def check_ctest():
    """From the top of the tree, where the pages begin, ctest without --test-dir finds no test and exits with 0."""
    pages = ["CONTRIBUTING.md", *glob.glob("docs/**/*.md", root_dir=root, recursive=True)]
    commands = [(name, *found) for name in pages for found in re.findall(r"\bctest\s+(-[^\s`]+)(\s.*)", read(name))]
    for name, option, rest in commands:
        if option != "--test-dir":
            problems.append(f"{name}: ctest {option}{rest[:40].rstrip()}: --test-dir is missing")
    if len(commands) < 10:
        problems.append(f"only {len(commands)} commands with ctest were found in the pages")


commands = sorted(set(re.findall(r"(?m)^  mortise (\w+)", help_of("mortise"))))
if len(commands) < 9:
    problems.append(f"`mortise --help` names only {commands}")
check_options("mortise.1", commands)
check_options("mortise-run.1", ["run"])
check_run_options()
check_codes([command for command in commands if command != "bench"])
check_environment()
check_conformance()
check_bench()
check_backends()
check_ctest()
for problem in problems:
    print("pages:", problem, file=sys.stderr)
sys.exit(1 if problems else 0)
