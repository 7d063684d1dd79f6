#!/usr/bin/env python3
"""arrows.py on small builds of its own: what is a circle, what is not, and which circles are failures."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
COMPILER = os.environ.get("MORTISE_CC", "cc")


def build(folder, files, target):
    """files: {path: the paths that it needs}. Each defines a function and calls those of the others."""
    commands = []
    for path, needs in files.items():
        source, made = f"{folder}/{path}", f"CMakeFiles/{target(path)}.dir/{path}.o"
        os.makedirs(os.path.dirname(source), exist_ok=True)
        os.makedirs(os.path.dirname(f"{folder}/{made}"), exist_ok=True)
        name = {one: os.path.basename(one)[:-2] for one in (path, *needs)}
        with open(source, "w", encoding="utf-8") as file:
            file.write("".join(f"int {name[one]}(int);\n" for one in (path, *needs)))
            file.write(f"int {name[path]}(int n) {{ return n{''.join(f' + {name[one]}(n)' for one in needs)}; }}\n")
        command = [COMPILER, "-c", source, "-o", made]
        subprocess.run(command, cwd=folder, check=True)
        commands.append({"directory": folder, "file": source, "command": " ".join(command)})
    with open(f"{folder}/compile_commands.json", "w", encoding="utf-8") as file:
        json.dump(commands, file)


def check(what, files, code, *texts, target=lambda path: "all", larger=None):
    with tempfile.TemporaryDirectory() as folder:
        build(folder, files, target)
        run = f"import sys; sys.path.insert(0, {HERE!r}); import arrows; arrows.LARGER = {larger or {}}; sys.exit(arrows.main())"
        done = subprocess.run([sys.executable, "-B", "-c", run], capture_output=True, text=True, check=False,
                              env={**os.environ, "MORTISE_SOURCE_DIR": folder, "MORTISE_BUILD_DIR": folder})
        missing = [text for text in texts if text not in done.stdout]
        if done.returncode != code or missing:
            sys.exit(f"{what}: exit code {done.returncode}, wanted {code}; missing: {missing}; printed:\n{done.stdout}{done.stderr}")


def ring(folder, size):
    names = [f"{folder}/{'abcdefgh'[i]}.c" for i in range(size)]
    return {name: [names[(i + 1) % size]] for i, name in enumerate(names)}


check("a chain", {"core/a.c": ["core/b.c"], "core/b.c": ["core/c.c"], "core/c.c": ["core/d.c"], "core/d.c": []}, 0, "no circle")
check("three files", ring("tools", 3), 0, "the largest circle has 3")
check("four files", ring("tools", 4), 1, "tools: 4 files need each other", "tools/a.c -> b.c: b")
check("a permitted circle", ring("core", 5), 0, larger={"core": 5})
check("a circle that grew", ring("core", 6), 1, "core: 6 files need each other in a circle; 5 may", larger={"core": 5})
check("a circle that shrank", ring("core", 4), 1, "core: its largest circle has 4 files now", larger={"core": 5})
check("a folder that is not built", ring("core", 3), 0, larger={"drivers/redis": 5})
check("two folders", {"core/a.c": ["plugins/b.c"], "plugins/b.c": ["core/a.c"]}, 1, "core and plugins need each other: b; a")
check("a name with two meanings", {"plugins/one/a.c": [], "plugins/two/a.c": [], "plugins/two/b.c": ["plugins/two/a.c"],
                                   "plugins/one/c.c": ["plugins/one/a.c"]}, 0, target=lambda path: path.split("/")[1])
check("a build without objects", {}, 2)
