#!/usr/bin/env python3
"""tutorial.py - does what docs/tutorial.md says, in its order and word by word, in one shell, and compares what is printed with the
boxes. It leaves out only the build (the block `sh build`); its port is replaced by a free one. In a box a number stands for any
number, and "…" for any text. A block `sh again` shows the state of something that was just started, so it is repeated until its box
fits. A box `text any order` is compared without regard to the order of lines. docs/tutorial.zh-CN.md must have the same blocks, and
as many headings."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

source, build = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
PATIENCE_S = 60
PORT = "6390"
END = "-- end of a block --"


def free_port(folder):
    """No other test takes it, and no outgoing connection has it."""
    words = ["sh", os.path.join(source, "tests", "servers.sh"), "port", "redis", folder]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def blocks(text):
    """[(kind, words behind it, text)]"""
    return [(kind, words.strip(), body) for kind, words, body in re.findall(r"(?ms)^```(\w+)([^\n]*)\n(.*?)^```$", text)]


def pattern(line):
    """A regular expression: numbers, the names of the reader's host and home, and … may be others."""
    parts = re.split(r"(\b[0-9a-f]{12}\b|\d+(?:\.\d+)*|…|/home/you|web3)", line)
    return "".join(re.escape(part) if index % 2 == 0 else r"\d+(?:\.\d+)*" if re.fullmatch(r"[\d.]+", part) else r".*?"
                   for index, part in enumerate(parts))


def fits(box, printed, any_order):
    """Durations have other units at other times."""
    wanted = [pattern(re.sub(r"\b(\d+(?:\.\d+)?) (?:ms|s)\b", "…", line)) for line in box.splitlines()]
    lines = printed.splitlines()
    if any_order:
        lines = [line for one in wanted for line in lines if re.fullmatch(one, line)] + lines[len(wanted):]
    return len(lines) == len(wanted) and all(re.fullmatch(one, line) for one, line in zip(wanted, lines))


class Shell:
    """One bash that runs block by block."""

    def __init__(self, home):
        environment = {**os.environ, "HOME": home, "LANG": "C.UTF-8"}
        environment.pop("MORTISE_CONFIG", None)
        self.bash = subprocess.Popen(["bash", "--norc"], cwd=os.path.join(home, "tree"), env=environment, text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     start_new_session=True)

    def run(self, commands):
        self.bash.stdin.write(f"{commands}\necho '{END}'\n")
        self.bash.stdin.flush()
        printed = []
        for line in self.bash.stdout:
            if line.endswith(END + "\n"):  # behind what had no newline
                return "".join(printed) + line[:-len(END) - 1]
            printed.append(line)
        raise AssertionError("the shell has ended:\n" + "".join(printed))

    def end(self):
        os.killpg(self.bash.pid, signal.SIGTERM)
        self.bash.stdin.close()
        self.bash.wait()


def prepare(home):
    """What section 1 builds."""
    os.mkdir(os.path.join(home, "tree"))
    os.symlink(build, os.path.join(home, "tree", "build-quickstart"))
    os.symlink(os.path.join(source, "include"), os.path.join(home, "tree", "include"))


def without_jobs(printed):
    """What bash says of jobs that ended, in the background."""
    return "".join(line for line in printed.splitlines(True)
                   if not re.match(r"bash: line \d+: +\d+ (Killed|Terminated)|\[\d+\]", line))


def repeat(shell, commands, box, any_order):
    begun = time.monotonic()
    while True:
        printed = without_jobs(shell.run(commands))
        if fits(box, printed, any_order) or time.monotonic() - begun > PATIENCE_S:
            return printed
        time.sleep(0.1)  # as a reader would look again


def read(name):
    with open(os.path.join(source, "docs", name), encoding="utf-8") as file:
        return file.read()


def check_translation(text, other):
    here, there = blocks(text), blocks(other)
    for one, two in zip(here, there):
        assert one == two, f"docs/tutorial.zh-CN.md has\n{two[2]}\nand docs/tutorial.md\n{one[2]}"
    assert len(here) == len(there), f"docs/tutorial.zh-CN.md has {len(there)} blocks, docs/tutorial.md {len(here)}"
    headings = [len(re.findall(r"(?m)^#+ ", re.sub(r"(?ms)^```.*?^```$", "", page))) for page in (text, other)]
    assert headings[0] == headings[1], f"docs/tutorial.zh-CN.md has {headings[1]} headings, docs/tutorial.md {headings[0]}"


def main():
    text = read("tutorial.md")
    check_translation(text, read("tutorial.zh-CN.md"))
    if not shutil.which("redis-server"):
        print("there is no redis-server")
        return 77
    home = tempfile.mkdtemp(prefix="mortise-tutorial.")
    text = text.replace(PORT, free_port(home))
    prepare(home)
    shell = Shell(home)
    done = 0
    try:
        todo = blocks(text)
        for index, (kind, words, body) in enumerate(todo):
            if kind == "c":
                with open(os.path.join(home, "mortise-tutorial", words), "w", encoding="utf-8") as file:
                    file.write(body)
            if kind != "sh" or words == "build":
                continue
            boxed = index + 1 < len(todo) and todo[index + 1][0] == "text"
            box = todo[index + 1][2] if boxed else ""
            any_order = boxed and todo[index + 1][1] == "any order"
            printed = repeat(shell, body, box, any_order) if words == "again" else without_jobs(shell.run(body))
            assert fits(box, printed, any_order), f"{body}\nprinted:\n{printed}\nand not:\n{box}"
            done += 1
    finally:
        shell.end()
        shutil.rmtree(home)
    print(f"{done} blocks of commands, each printed what the tutorial says")
    return 0 if done > 15 else 1


sys.exit(main())
