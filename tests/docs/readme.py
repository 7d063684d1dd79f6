#!/usr/bin/env python3
"""readme.py - what README.md shows is true: its C, its C++, its shell lines and its config are run as they are printed
(with other paths and a stand-in for backup.sh), its table of drivers is compared with the drivers, its documents exist;
README.zh-CN.md says the same; and the program in docs/cxx.md runs. Needs the build, $MORTISE_CC, $MORTISE_CXX."""
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


def check_cxx(readme):
    block, = blocks(readme, "cpp")
    program = ("#include <mortise/mortise.hpp>\n#include <iostream>\nusing namespace std::chrono_literals;\n"
               'static void work(std::uint64_t token) { std::cout << "working, token " << token << std::endl; }\n'
               "int main()\n{\n" + block + "}\n")
    check_program(compiled(os.environ["MORTISE_CXX"], "readme.cpp", program, "-std=c++17"), r"^working, token [1-9]")
    block, = blocks(read("docs/cxx.md"), "cpp")
    check_program(compiled(os.environ["MORTISE_CXX"], "cxx.cpp", block, "-std=c++17"), r"^working, token [1-9]")


def check_shell(readme):
    os.chmod(write("backup.sh", "#!/bin/sh\necho backed up\n"), 0o755)
    block, = blocks(readme, "sh")
    for line in block.splitlines():
        ran = run("sh", "-c", line)
        check(ran.returncode == 0 and ran.stdout, f"{line}: {ran.returncode} {ran.stdout}")
        check("backup.sh" not in line or ran.stdout == "backed up\n", f"{line}: {ran.stdout}")


def check_config(readme):
    block, = blocks(readme, "ini")
    config = block.replace("/var/lib/mortise/", work + "/")
    ran = run("mortise", "-C", write("mortise.conf", config), "check")
    check(config != block and ran.returncode == 0, f"the config is refused: {ran.stdout}")
    told = re.search(r"`mortise\.conf:(\d+: \[sqlite\] unknown key \"pth\".*?)`", readme).group(1)
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


def main():
    readme, chinese = read("README.md"), read("README.zh-CN.md")
    check_c(readme)
    check_cxx(readme)
    check_shell(readme)
    check_config(readme)
    check_drivers(readme, "yes", "no")
    check_drivers(chinese, "是", "否")
    for name in documents(readme):
        check(os.path.exists(os.path.join(root, name)), f"README.md names {name}, which is not there")
    check(documents(readme) == documents(chinese), f"other documents: {documents(readme) ^ documents(chinese)}")
    for language in ("c", "cpp", "sh", "ini"):
        check(blocks(readme, language) == blocks(chinese, language), f"README.zh-CN.md has another {language} block")
    for what, pattern in (("sections", r"(?m)^## "), ("limits", r"(?m)^- "), ("commands", r"(?m)^    [a-z(]")):
        counts = [len(re.findall(pattern, text)) for text in (readme, chinese)]
        check(counts[0] == counts[1], f"README.zh-CN.md has another number of {what}: {counts}")
    words = [set(re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))) for text in (readme, chinese)]
    check(words[0] == words[1], f"what stands as code differs: {words[0] ^ words[1]}")


try:
    main()
finally:
    shutil.rmtree(work)
for problem in problems:
    print("readme:", problem, file=sys.stderr)
sys.exit(1 if problems else 0)
