#!/usr/bin/env python3
"""readme.py - checks that README.md and docs/install.md are true of this build: the C program, shell lines and configs, with
other paths and a stand-in for backup.sh, the C++ program of docs/cxx.md and the C program of docs/states.md. commands.py repeats
the former word by word with an installed build.
Also compares the table of drivers with the drivers, checks that the named documents exist, and compares README.zh-CN.md:
section by section, row by row, everything but the words. Needs the build, $MORTISE_CC, $MORTISE_CXX."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

root, build = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
work = tempfile.mkdtemp(prefix="mortise-readme.")
environment = dict(os.environ, MORTISE_CONFIG=f"sqlite:{work}/locks.db", PATH=f"{work}:{os.environ['PATH']}",
                   LD_LIBRARY_PATH=f"{build}/lib", MORTISE_MODULE_PATH=f"{build}/lib/mortise")
problems = []


def check(condition, what):
    if not condition:
        problems.append(what)


def read(name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


def blocks(text, language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


def run(*words, **more):
    return subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, **more)


def write(name, text):
    path = os.path.join(work, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def compiled(compiler, name, text, *flags):
    """The program's file, or None."""
    out = os.path.join(work, name + ".out")
    made = run(compiler, *flags, "-Wall", "-Wextra", "-Werror", f"-I{root}/include", write(name, text), "-o", out,
               f"-L{build}/lib", "-lmortise")
    check(made.returncode == 0, f"{name} does not compile:\n{made.stdout}")
    return out if made.returncode == 0 else None


def check_program(program, text):
    if program:
        ran = run(program)
        check(ran.returncode == 0 and re.search(text, ran.stdout), f"{program} printed: {ran.stdout}")


def check_c(readme):
    block, = blocks(readme, "c")
    check_program(compiled(os.environ["MORTISE_CC"], "readme.c", block, "-std=c11"), r"^working, token [1-9]")


def check_states():
    block, = blocks(read("docs/states.md"), "c")
    check_program(compiled(os.environ["MORTISE_CC"], "states.c", block, "-std=gnu11"), r"^step 1, token [1-9]\d*\n(.*\n){2}$")


def check_cxx():
    block, = blocks(read("docs/cxx.md"), "cpp")
    check_program(compiled(os.environ["MORTISE_CXX"], "cxx.cpp", block, "-std=c++17"), r"^working, token [1-9]")


def check_shell(*pages):
    os.chmod(write("backup.sh", "#!/bin/sh\necho backed up\n"), 0o755)
    texts = [blocks(page, "sh") for page in pages]
    check(all(len(text) == 1 for text in texts), f"the pages have {[len(text) for text in texts]} blocks of shell lines")
    for line in "".join(block for text in texts for block in text).splitlines():
        ran = run("sh", "-c", line)
        check(ran.returncode == 0 and ran.stdout, f"{line}: {ran.returncode} {ran.stdout}")
        check("backup.sh" not in line or ran.stdout == "backed up\n", f"{line}: {ran.stdout}")


def changed(config, diff):
    """The config after the page's change: its removed line is replaced by the first added one, the others are added."""
    removed, = re.findall(r"(?m)^-(.*)$", diff)
    added = re.findall(r"(?m)^\+(.*)$", diff)
    assert re.search(rf"(?m)^{removed}(?= |$)", config), f"the config has no line {removed}"
    return re.sub(rf"(?m)^{removed}(?= |$)", added[0], config) + "".join(line + "\n" for line in added[1:])


def check_change(config, diff):
    """The driver opens; its servers do not exist."""
    name = re.search(r"(?m)^\+driver = (\w+)$", diff).group(1)
    ran = run("mortise", "-C", write("changed.conf", changed(config, diff)), "check")
    if os.path.exists(f"{build}/lib/mortise/{name}.so"):
        check(ran.returncode == 69 and re.search(rf"(?m)^driver +ok +{name} ", ran.stdout),
              f"the changed config is refused: {ran.stdout}")


def check_config(page):
    block, = blocks(page, "ini")
    diff, = blocks(page, "diff")
    check_change(block, diff)
    config = block.replace("/srv/mortise/", work + "/")
    ran = run("mortise", "-C", write("mortise.conf", config), "check")
    check(config != block and ran.returncode == 0, f"the config is refused: {ran.stdout}")
    told = re.search(r"`mortise\.conf:(\d+: \[sqlite\] unknown key \"pth\".*?)`", page).group(1)
    ran = run("mortise", "-C", write("mortise.conf", config.replace("path =", "pth =")), "check")
    check(ran.returncode != 0 and f"mortise.conf:{told}" in ran.stdout, f"a mistake is told as: {ran.stdout}")
    ran = run("mortise", "-C", f"sqlite:{work}/other.db?ttl=10s", "run", "x", "--", "true")
    check(ran.returncode == 0, f"the URL is refused: {ran.stdout}")


def table(readme):
    """{driver: {word: cell}}"""
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")]
            for line in readme.splitlines() if line.startswith("|")]
    return {row[0].strip("`"): dict(zip(rows[0][2:], row[2:])) for row in rows[2:]}


def check_drivers(readme, yes, no):
    drivers = {module["name"]: set(module["capabilities"].split(","))
               for module in json.loads(run("mortise", "drivers", "--json").stdout) if module["kind"] == "driver"}
    told = table(readme)
    check(set(drivers) <= set(told), f"drivers that the table does not have: {set(drivers) - set(told)}")
    for name, capabilities in drivers.items():
        for word, cell in told.get(name, {}).items():
            promised = word in capabilities or (word == "lease" and "session" in capabilities)
            check(cell == no if not promised else cell != no, f"{name}, {word}: the table says {cell}")
            check(cell in (yes, no) or "hash" in cell or word == "lease", f"{name}, {word}: what is {cell}?")


def documents(text):
    return set(re.findall(r"\b(?:docs|examples|tests|include)/[A-Za-z0-9_./-]*[a-z]", text))


CELLS = {"yes": "是", "no": "否", "by session": "按会话", "with `mode = hash`": "需 `mode = hash`"}


def language_free(section):
    """What stands in it that no translation may change. Of a table's row the cells, of a command its comment not."""
    fences = re.findall(r"(?ms)^```.*?^```$", section)
    prose = re.sub(r"(?ms)^```.*?^```$", "", section)
    rows = [line.strip("|").split("|") for line in prose.splitlines() if line.startswith("|")]
    return {
        "blocks": fences,
        "commands": [line.partition("  #")[0].rstrip() for line in re.findall(r"(?m)^    .*$", prose)],
        "rows": [[CELLS.get(cell.strip(), cell.strip()) for at, cell in enumerate(row) if at != 1 and at + number]
                 for number, row in enumerate(rows)],
        "items": len(re.findall(r"(?m)^- ", prose)),
        "code": sorted(re.findall(r"`([^`\n]+)`", prose)),
        "links": sorted(re.findall(r"\]\(([^)]+)\)", prose)),
        "documents": sorted(set(documents(prose))),
        "numbers": sorted(re.findall(r"\d+", prose)),
    }


def check_chinese(readme, chinese):
    sections = [re.split(r"(?m)^## .*$", text) for text in (readme, chinese)]
    check(len(sections[0]) == len(sections[1]), "README.zh-CN.md has another number of sections")
    for number, (here, there) in enumerate(zip(*sections)):
        here, there = language_free(here), language_free(re.sub(r"(?<!/)README\.md", "README.zh-CN.md", there))
        for what in here:
            check(here[what] == there[what], f"{what} of section {number}: README.md has {here[what]}, "
                                             f"README.zh-CN.md {there[what]}")


def main():
    readme, chinese, install = read("README.md"), read("README.zh-CN.md"), read("docs/install.md")
    check_c(readme)
    check_states()
    check_cxx()
    check_shell(readme, install)
    check_config(install)
    check_drivers(readme, "yes", "no")
    check_drivers(chinese, "是", "否")
    for name in documents(readme):
        check(os.path.exists(os.path.join(root, name)), f"README.md names {name}, which is not there")
    check_chinese(readme, chinese)


try:
    main()
finally:
    shutil.rmtree(work)
for problem in problems:
    print("readme:", problem, file=sys.stderr)
sys.exit(1 if problems else 0)
