#!/usr/bin/env python3
"""Plants known mistakes in the core and in the sim, one at a time, and lets the replay find each of them.

    planted.py --work FOLDER [NAME …]      the patches of tests/replay/planted/ with these names; all without one

Each patch begins with lines "What: …" (the mistake), "Finds: REGEX" (what a failing run prints), and "Seeds: N" (it must be
found with the seeds 1 to N), and "Driver: NAME" if it is not the sim. The core and the driver are built in FOLDER as the build folder has them, with -fsanitize=thread and without
the sanitizer's library, so that each atomic operation is a point of the scheduler (tests/replay/calls_atomic.c). First the
core without any patch must pass the same seeds.

Environment: MORTISE_SOURCE_DIR, MORTISE_BUILD_DIR. Exit code 0: all were found; 1: not."""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

SOURCE = os.environ.get("MORTISE_SOURCE_DIR") or os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ.get("MORTISE_BUILD_DIR") or os.path.join(SOURCE, "build-test")
SONAME = os.path.basename(os.path.realpath(os.path.join(BUILD, "lib", "libmortise.so")))

# What is built: its folders, and the objects' folder in the build folder. Drivers that speak Redis share one folder.
PARTS = {
    "core": (["core"], "core/CMakeFiles/mortise_core.dir/"),
    "sim": (["tests/sim"], "tests/sim/CMakeFiles/module_sim.dir/"),
    "redis": (["drivers/redis", "drivers/lib"], "drivers/redis/CMakeFiles/module_redis.dir/"),
    "redlock": (["drivers/redlock", "drivers/lib"], "drivers/redlock/CMakeFiles/module_redlock.dir/"),
    "sqlite": (["drivers/sqlite", "drivers/lib"], "drivers/sqlite/CMakeFiles/module_sqlite.dir/"),
}


PROCESSES = 4  # of a run; with sqlite each has a copy of the driver and of SQLite


def cached(name):
    """A variable of the build folder."""
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
        return re.search(rf"^{name}:\w+=(.*)$", file.read(), re.M)[1]


class Patch:
    """One planted mistake."""

    def __init__(self, path):
        self.path, self.name = path, os.path.basename(path)[:-len(".patch")]
        with open(path, encoding="utf-8") as file:
            text = file.read()
        fields = dict(re.findall(r"^(What|Finds|Seeds|Driver): (.*)$", text, re.M))
        self.what, self.finds, self.seeds = fields["What"], re.compile(fields["Finds"]), int(fields["Seeds"])
        self.files = re.findall(r"^\+\+\+ b/(\S+)", text, re.M)
        self.driver = fields.get("Driver", "sim")
        self.module = self.driver.split("-")[0]
        self.part = "core" if self.files[0].startswith("core/") else self.module


def commands_of(part):
    """The compiler's arguments for each source file of the part, by its path in the tree."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        path = os.path.relpath(os.path.realpath(os.path.join(entry["directory"], entry["file"])), SOURCE)
        if PARTS[part][1] in entry["command"] and not path.startswith(".."):
            found[path] = (shlex.split(entry["command"]), entry["directory"])
    return found


class Tree:
    """A copy of the parts, with their objects."""

    def __init__(self, folder, parts, flags=("-O1", "-fsanitize=thread"), link_flags=()):
        self.folder, self.flags, self.link_flags = folder, flags, link_flags
        self.commands = {part: commands_of(part) for part in parts}

    def copy(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in sorted({name for part in self.commands for name in PARTS[part][0]}):
            shutil.copytree(os.path.join(SOURCE, name), os.path.join(self.folder, name))
        shutil.copytree(os.path.join(BUILD, "tests", "modules"), os.path.join(self.folder, "modules"))
        os.makedirs(os.path.join(self.folder, "lib"))

    def object_of(self, part, path):
        return os.path.join(self.folder, "objects", part, path[:-2] + ".o")

    def compile(self, part, path):
        arguments, directory = self.commands[part][path]
        kept, skip = [], False
        for argument in arguments:
            if skip or argument in ("-c", "-o", "-MF", "-MT", "-MD", "-Werror") or argument.endswith(path):
                skip = argument in ("-o", "-MF", "-MT") and not skip
                continue
            kept.append(argument)
        here = os.path.join(self.folder, PARTS[part][0][0])
        os.makedirs(os.path.dirname(self.object_of(part, path)), exist_ok=True)
        extra = ["-w", *self.flags, "-c", os.path.join(self.folder, path), "-o", self.object_of(part, path)]
        includes = [f"-I{here}"] if part == "core" else []
        at = next(i for i, argument in enumerate(kept) if argument.startswith("-"))
        subprocess.run(kept[:at] + includes + kept[at:] + extra, cwd=directory, check=True)

    def compile_all(self, part, paths):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda path: self.compile(part, path), paths))

    def link(self, part):
        objects = [self.object_of(part, path) for path in self.commands[part]]
        compiler = next(a for a in next(iter(self.commands[part].values()))[0] if "ccache" not in a)
        if part == "core":
            script = os.path.join(SOURCE, "core", "libmortise.map")
            target = [os.path.join(self.folder, "lib", SONAME), f"-Wl,-soname,{SONAME}",
                      f"-Wl,--version-script={script}", "-linih", "-lpthread", "-ldl"]
        elif part == "sqlite":
            target = [os.path.join(self.folder, "modules", "p0", "sqlite.so"), cached("REPLAY_SQLITE_ARCHIVE"), "-lm",
                      "-lpthread", "-ldl", "-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL"]
        else:
            target = [os.path.join(self.folder, "modules", part + ".so")]
            if part != "sim":
                target += ["-lhiredis"]
            if any("MORTISE_REDIS_TLS" in argument for argument in next(iter(self.commands[part].values()))[0]):
                target += ["-lhiredis_ssl", "-lssl", "-lcrypto"]
        os.makedirs(os.path.dirname(target[0]), exist_ok=True)
        subprocess.run([compiler, "-shared", "-fPIC", *self.link_flags, *objects, "-o", *target], check=True)
        if part == "sqlite":
            for process in range(1, PROCESSES):
                copy = os.path.join(self.folder, "modules", f"p{process}", "sqlite.so")
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                shutil.copy(target[0], copy)

    def build(self):
        self.copy()
        for part, commands in self.commands.items():
            self.compile_all(part, commands)
            self.link(part)

    def affected(self, patch):
        """The files to compile again: all, if a header changed."""
        sources = [path for path in patch.files if path.endswith(".c")]
        return sources if len(sources) == len(patch.files) else list(self.commands[patch.part])

    def plant(self, patch, back=False):
        subprocess.run(["patch", "-s", "-p1", *(["-R"] if back else []), "-i", patch.path], cwd=self.folder, check=True)
        self.compile_all(patch.part, self.affected(patch))
        self.link(patch.part)

    def replay(self, driver, *arguments):
        environment = dict(os.environ, LD_PRELOAD=os.path.join(self.folder, "lib", SONAME))
        program = os.path.join(BUILD, "tests", "replay", "replay")
        run = subprocess.run([program, "--modules", os.path.join(self.folder, "modules"), "--driver", driver,
                              *arguments], env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return run.returncode, run.stdout.decode("utf-8", "replace")


def first_seed(output):
    match = re.search(r"^seed (\d+) fails", output, re.M)
    return int(match[1]) if match else 0


def shortest(tree, patch, seed):
    """What --shrink makes of it."""
    _, output = tree.replay(patch.driver, "--seed", str(seed), "--shrink")
    steps = re.search(r"^.*: (\d+ of \d+ steps) are left", output, re.M)
    events = len(re.findall(r"^ *\d+\.\d+ ms  p", output, re.M))
    command = re.search(r"^replay --.*", output, re.M)
    return f"  {steps[1] if steps else output[-300:]}, {events} events: {command[0] if command else ''}"


def look_for(tree, patch, shrink):
    began = time.monotonic()
    tree.plant(patch)
    try:
        code, output = tree.replay(patch.driver, "--seeds", f"1-{patch.seeds}", "--first", "--jobs", "2")
        short = shortest(tree, patch, first_seed(output)) if code and shrink else ""
    finally:
        tree.plant(patch, back=True)
    finding = re.search(r".*(?:FINDING|: [a-z-]+: ).*|.*fails \((?!1\)).*", output)
    found = finding is not None and patch.finds.search(finding[0]) is not None
    print(f"{patch.name}: {patch.what}: " + (f"seed {first_seed(output)}: {finding[0][:200] if finding else ''}" if code else
                                             "NOT FOUND") + ("" if found or not code else ": NOT WHAT WAS EXPECTED") +
          f" ({time.monotonic() - began:.0f} s)" + ("\n" + short if short else ""), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--trust", action="store_true", help="leave out the run without a patch")
    parser.add_argument("--shrink", action="store_true", help="print the shortest plan that fails, too")
    parser.add_argument("names", nargs="*")
    settings = parser.parse_args()
    folder = os.path.join(SOURCE, "tests", "replay", "planted")
    names = settings.names or sorted(name[:-len(".patch")] for name in os.listdir(folder) if name.endswith(".patch"))
    patches = [Patch(os.path.join(folder, name + ".patch")) for name in names]
    drivers = sorted({patch.driver for patch in patches})
    tree = Tree(os.path.realpath(settings.work), ["core", *sorted({patch.module for patch in patches})])
    tree.build()
    sound = True
    for driver in [] if settings.trust else drivers:
        most = max(patch.seeds for patch in patches if patch.driver == driver)
        code, output = tree.replay(driver, "--seeds", f"1-{most}", "--jobs", "2")
        if code != 0:
            print(f"{driver}, without a patch:\n" + output)
            sound = False
    return all([look_for(tree, patch, settings.shrink) for patch in patches]) and sound


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
