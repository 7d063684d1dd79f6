#!/usr/bin/env python3
"""drivers.py STACK… - on each driver: what a witness frees when holders and waiters are killed. With --time it only measures
the time from a kill to the next grant, five kills for each stack (not a test). Every lock has a ttl of five minutes, but
where the witness is no good."""
import contextlib
import os
import subprocess
import sys
import time

import rig
from rig import BadWitness, Folder, Peer, hear, kill, quit_well, run, say, until, watched

# stack: (server, its settings, what the section of the driver says; {} are the server's values, what it can)
REDIS = "servers = 127.0.0.1:{PORT}\n"
STACKS = {
    "sqlite": (None, [], "path = {FOLDER}/locks.db\n", "shared permits owner"),
    "redis": ("redis", [], REDIS, "shared permits"),
    "redis-hash": ("redis", [], REDIS + "mode = hash\n", "shared permits owner"),
    "redis-redisson": ("redis", [], REDIS + "mode = hash\ndialect = redisson\n", "owner"),
    "redis-noqueue": ("redis", [], REDIS + "queue = no\n", "shared permits"),
    "redis-watch": ("redis", [], REDIS + "queue = no\natomicity = watch\n", ""),
    "redis-plain": ("redis", [], REDIS + "queue = no\nfencing = off\n", ""),
    "redlock": ("redis", ["nodes=3", "aof=yes"], "nodes = 127.0.0.1:{PORT}, 127.0.0.1:{PORT2}, 127.0.0.1:{PORT3}\nmax_ttl = 10m\nnode_persistent = yes\n",
                "shared"),
    "zookeeper": ("zookeeper", ["tick=2000"], "servers = 127.0.0.1:{PORT}\n", "shared permits"),
    "migrate": ("redis", [], "from = sqlite\nto = redis\nphase = both\n[sqlite]\npath = {FOLDER}/locks.db\n[redis]\n"
                + REDIS, ""),
    "postgres": ("postgres", [], "conninfo = host=127.0.0.1 port={PORT} dbname=mortise user=mortise\n",
                 "shared permits owner"),
    "mysql": ("mysql", [], "host = 127.0.0.1:{PORT}\ndatabase = mortise\nuser = mortise\n", "shared permits owner"),
    "etcd": ("etcd", ["heartbeat=50", "election=500"], "endpoints = 127.0.0.1:{PORT}\n", "shared permits"),
}
SHORT = {"zookeeper": "session_timeout = 4s\n"}  # what says, beside the ttl, when the locks of the dead end


def driver_of(stack):
    return stack.split("-")[0]


class Stack:
    def __init__(self, name, servers):
        self.name = name
        kind, settings, self.section, self.can = STACKS[name]
        self.values = servers.get(kind, settings) if kind else {}

    def config(self, folder, extra="", ttl=rig.TTL, witness="w", more=""):
        values = dict(self.values, FOLDER=folder.path)
        driver = driver_of(self.name)
        return folder.write(f"mortise-{witness}.conf",
                            f"[mortise]\ndriver = {driver}\nttl = {ttl}\nwitness = {folder.file(witness)}\n"
                            f"namespace = t{os.path.basename(folder.path)[-6:]}\n{extra}[{driver}]\n"
                            + self.section.format(**values) + more)


class Servers:
    def __init__(self, folder):
        self.folder, self.known = folder, {}

    def get(self, kind, settings):
        key = (kind, *settings)
        if key not in self.known:
            values = self.folder.server(kind, *settings)
            if values is None:
                print(f"skip: {kind} is not installed")
                sys.exit(77)
            if kind == "postgres":
                prepare_postgres(values)
            self.known[key] = values
        return self.known[key]

    @contextlib.contextmanager
    def frozen(self, kind):
        self.folder.serve("freeze", kind)
        try:
            yield
        finally:
            self.folder.serve("thaw", kind)


def prepare_postgres(values):
    schema = subprocess.run([rig.COMMAND, "schema", "postgres"], stdout=subprocess.PIPE, text=True, check=True).stdout
    subprocess.run(["psql", "-q", "-h", "127.0.0.1", "-p", values["PORT"], "-U", "mortise", "mortise"], input=schema,
                   text=True, check=True)


stack = servers = None


def test_killed_holder(folder):
    """a killed holder, with others that wait"""
    where = stack.config(folder)
    folder.witness()
    waiters = []
    for _ in range(2):
        holder = folder.holder(where, "a", "other")
        watched(folder, holder)
        waiters = [folder.waiter(where, "a") for _ in range(2)]
        for waiter in waiters:
            watched(folder, waiter)
        kill(holder)
        while waiters:
            until(lambda: any(rig.select.select([w.stdout], [], [], 0)[0] for w in waiters), "the next one holds it")
            first = next(w for w in waiters if rig.select.select([w.stdout], [], [], 0)[0])
            assert hear(first) == "held"
            quit_well(first)
            waiters.remove(first)
        quit_well(folder.holder(where, "other"))


def test_killed_waiter(folder):
    """killed waiters do not hold up those behind them"""
    where = stack.config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    dead = [folder.waiter(where, "a") for _ in range(3)]
    for process in dead:
        watched(folder, process)
    waiter = folder.waiter(where, "a")
    watched(folder, waiter)
    for process in dead:
        kill(process)
        process.wait()
    say(holder, "release")
    assert hear(waiter) == "held"


def test_killed_together(folder):
    """a holder and the waiter behind it die at the same time"""
    where = stack.config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    dead = folder.waiter(where, "a")
    watched(folder, dead)
    waiter = folder.waiter(where, "a")
    watched(folder, waiter)
    kill(holder)
    kill(dead)
    assert hear(waiter) == "held"


def test_shared(folder):
    """a killed reader lets the writer in, and a killed one of several readers does not"""
    if "shared" not in stack.can:
        return
    where = stack.config(folder)
    folder.witness()
    one, two = folder.holder(where, "shared:a"), folder.holder(where, "shared:a")
    watched(folder, one)
    watched(folder, two)
    writer = folder.waiter(where, "a")
    watched(folder, writer)
    kill(one)
    until(lambda: folder.log().count("1 of its locks released") == 1, "the first is buried")
    assert hear(writer, 0.05) is None
    kill(two)
    assert hear(writer) == "held"


def test_permits(folder):
    """the permit of a killed holder comes back"""
    if "permits" not in stack.can:
        return
    where = stack.config(folder)
    folder.witness()
    holders = [folder.holder(where, "permits=2:a") for _ in range(2)]
    waiter = folder.waiter(where, "permits=2:a")
    for process in (*holders, waiter):
        watched(folder, process)
    kill(holders[0])
    assert hear(waiter) == "held"


def test_owner(folder):
    """two processes of one owner: the lock stays with the one that lives"""
    if "owner" not in stack.can:
        return
    where = stack.config(folder)
    folder.witness()
    one, two = folder.holder(where, "owner=me:a"), folder.holder(where, "owner=me:a")
    watched(folder, one)
    watched(folder, two)
    waiter = folder.waiter(where, "a")
    watched(folder, waiter)
    kill(one)
    until(lambda: folder.log().count("1 of its locks released") == 1, "the first is buried")
    assert hear(waiter, 0.05) is None
    kill(two)
    assert hear(waiter) == "held"


def test_longer_than_the_ttl(folder):
    """a claim that outlives its holder by more than twice the ttl is released, although the witness acts later than that"""
    if stack.name != "zookeeper":  # the session decides there
        return
    where = stack.config(folder, "crash_delay = 3s\n", ttl="1s", more="session_timeout = 40s\n")  # the most, at this tick
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    waiter = folder.waiter(where, "a")
    watched(folder, waiter)
    kill(holder)
    assert hear(waiter, 20) == "held"


def test_silent_backend(folder):
    """a server that does not answer: a new witness watches all the same, and ends soon"""
    if stack.name != "redis":
        return
    where = stack.config(folder, "unreachable_timeout = 60s\nclose_timeout = 60s\n",
                         more="connect_timeout = 30s\ncommand_timeout = 30s\n")
    print_ = int(subprocess.run([rig.HOLDER, "--print", where], stdout=subprocess.PIPE, text=True, check=True).stdout)
    with servers.frozen("redis"):
        folder.witness()
        peer, area = Peer(folder), rig.area_of()
        begin = time.monotonic()
        peer.hello(area, where=where, print_=print_)
        answer = peer.hear()
        took = time.monotonic() - begin
        assert answer is not None and answer[0] == rig.WELCOME, answer
        assert took < 5, f"WELCOME took {took} s, and a client waits for five"
        peer.close()
        os.close(area)
        begin = time.monotonic()
        folder.end_witnesses()
        took = time.monotonic() - begin
        assert took < 20, f"the end took {took} s"


def test_no_good_witness(folder):
    """a witness that hangs, has another version, talks nonsense or goes away again and again: as without one, and one line"""
    crowd = []
    for kind in BadWitness.KINDS:
        witness = BadWitness(folder, kind)
        where = stack.config(folder, "log = stderr\n", ttl="2s", witness=kind, more=SHORT.get(driver_of(stack.name), ""))
        log = folder.file(f"{kind}.log")
        with open(log, "w", encoding="utf-8") as file:
            holder = folder.holder(where, kind, stderr=file)
            waiter = folder.start(rig.HOLDER, where, kind, stderr=file)
        crowd.append((kind, witness, log, holder, waiter))
    for kind, witness, log, _, _ in crowd:
        until(lambda w=witness: w.greeted > (0 if w.kind == "hangs" else 1) or w.kind == "other-version",
              f"{kind}: the client has tried")
        if kind != "hangs":
            until(lambda path=log: lines_about_witness(path) > 0, f"{kind}: it is reported")
    for _, _, _, holder, _ in crowd:
        kill(holder)
    for kind, witness, log, _, waiter in crowd:
        assert hear(waiter) == "held"
        quit_well(waiter)
        assert lines_about_witness(log) <= 2, "more than a line for each process"
        witness.end()


def lines_about_witness(path):
    with open(path, encoding="utf-8") as file:
        return file.read().count("mortise: witness ")


def measure(folder):
    """the time from a kill to the next grant"""
    where = stack.config(folder, ttl="30s")
    folder.witness()
    holder, took = folder.holder(where, "a"), []
    for i in range(5):
        watched(folder, holder)
        waiter = folder.waiter(where, "a")
        watched(folder, waiter)
        time.sleep((0.05, 0.21, 0.34, 0.4, 0.13)[i])
        begin = time.monotonic()
        kill(holder)
        assert hear(waiter) == "held"
        took.append(round(1000 * (time.monotonic() - begin), 1))
        holder = waiter
    print(f"{stack.name}: kill to grant in ms, five kills: {took}, median {sorted(took)[2]}", flush=True)


def main():
    global stack, servers
    failed = 0
    words = [word for word in sys.argv[1:] if word in STACKS or word == "--time"]
    for word in words:
        sys.argv.remove(word)
    with Folder() as folder:
        servers = Servers(folder)
        for name in [word for word in words if word != "--time"]:
            stack = Stack(name, servers)
            print(f"---- {name}", flush=True)
            tests = [measure] if "--time" in words else [
                function for key, function in list(globals().items()) if key.startswith("test_")]
            failed += run(tests)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
