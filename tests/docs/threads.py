#!/usr/bin/env python3
"""threads.py - docs/threading.md has every function of mortise.h and every thread that the source names, and the source names
all but a few. A client has its threads when the table says so: none after an open without observers, two from the first acquire
on. Needs the build, not sanitized."""
import ctypes
import glob
import os
import re
import shutil
import tempfile
import time

root, build = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
PATIENCE_S = 60


# Files whose threads have no name there, and what the table says of them.
UNNAMED = {"core/pump/resolve.c": "| look-ups |", "drivers/zookeeper/session.c": "a third one while a session is closed",
           "drivers/zookeeper/threads.c": "two for a moment before one is made",
           "plugins/lib/errand.c": "| `mortise-trace` |"}


def read(*path):
    with open(os.path.join(root, *path), encoding="utf-8") as file:
        return file.read()


def named_in_source():
    found = set()
    for folder in ("core", "drivers", "plugins"):
        for path in glob.glob(os.path.join(folder, "**", "*.c"), recursive=True, root_dir=root):
            text = read(path)
            names = re.findall(r'pthread_setname_np\(\w+\(\), "([a-z-]+)"', text)
            assert names or "pthread_create(" not in text or UNNAMED.get(path, "no row") in page, f"{path}: a thread without a name"
            found.update(names)
    return found


def look_at_functions():
    """A row begins with whole names, and with the ends of further ones: `mortise_release`, `_many`."""
    exported = re.findall(r"(?m)^    (mortise_\w+);", read("core", "libmortise.map"))
    header = read("include", "mortise", "mortise.h")
    wanted, rows = {name for name in exported if re.search(rf"\b{name}\(", header)}, set()
    for first in re.findall(r"(?m)^\| (`mortise_[^|]*) \|", page):
        names = re.findall(r"`(mortise_\w+|_\w+)`", first)
        for name in names:
            whole = {name, "mortise" + name, names[0] + name} & wanted
            assert len(whole) == 1, f"docs/threading.md: {name} is {whole or 'no function'}"
            rows |= whole
    assert rows == wanted != set(), f"docs/threading.md lacks {wanted - rows}"


def threads():
    names = []
    for path in glob.glob("/proc/self/task/*/comm"):
        with open(path, encoding="utf-8") as file:
            names.append(file.read().strip())
    return names


def expect(step, wanted):
    """As many threads as these beside our own at once; their names as soon as they have given themselves one."""
    count = len(threads()) - 1
    assert count == len(wanted), f"{step}: {count} threads, expected {wanted}"
    end = time.monotonic() + PATIENCE_S
    while not wanted <= set(threads()):
        assert time.monotonic() < end, f"{step}: {threads()}, expected {wanted}"
        time.sleep(0.01)


def look_at_a_client(where, from_open):
    mortise = ctypes.CDLL(os.path.join(build, "lib", "libmortise.so"))
    client, lease = ctypes.c_void_p(), ctypes.c_void_p()
    assert mortise.mortise_open(where.encode(), ctypes.byref(client), None) == 0
    expect("open", from_open)
    assert mortise.mortise_acquire(client, b"x", None, ctypes.byref(lease), None) == 0
    expect("acquire", from_open | {"mortise-watch", "mortise-pump"})
    assert mortise.mortise_close(client, None) == 0


page = read("docs", "threading.md")
look_at_functions()
rows = dict(re.findall(r"(?m)^\| `(mortise-[a-z]+)` \| ([^|]*) \|", page))
assert set(rows) == named_in_source() != set(), f"the table has {set(rows)}, the source {named_in_source()}"
for name in ("mortise-watch", "mortise-pump"):
    assert rows[name].startswith("from the first acquire"), rows[name]
observers = {name for name, exists in rows.items() if "`observe = " in exists}
work = tempfile.mkdtemp(prefix="mortise-threads.")
try:
    look_at_a_client(f"sqlite:{work}/locks.db", set())
    config = os.path.join(work, "mortise.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"[mortise]\ndriver = sqlite\nobserve = trace, metrics\n[sqlite]\npath = {work}/locks.db\n"
                   f"[trace]\npath = {work}/trace.json\n[metrics]\nfolder = {work}\n")
    look_at_a_client(config, observers)
finally:
    shutil.rmtree(work)
