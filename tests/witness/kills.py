#!/usr/bin/env python3
"""kills.py [DRIVER] - a witness frees the locks of holders that were really killed, and of nobody else: a holder that is
stopped, traced, forks, closes all descriptors, calls exec, or whose main thread ends is not dead. Every lock has a ttl of
five minutes, and nothing here waits for so long."""
import os
import signal
import sqlite3
import subprocess
import sys
import time

from rig import BUILD, COMMAND, HOLDER, Folder, Peer, hear, kill, quit_well, run, say, until, watched

driver = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in ("sqlite", "redis") else "sqlite"


def config(folder, extra=""):
    if driver == "sqlite":
        return folder.sqlite(extra)
    return folder.config("redis", f"servers = 127.0.0.1:{values['PORT']}", f"namespace = {folder.path}\n{extra}")


def still_held(folder, where, name, rounds=20):
    """The witness has seen all that has happened, and nobody else can get the lock."""
    trier = folder.start(os.path.join(BUILD, "tests", "taker"), where)
    assert hear(trier) == "ready"
    peer = Peer(folder)
    for _ in range(rounds):
        peer.ask(trier.pid)
        say(trier, f"acquire {name} 0 1000")
        answer = hear(trier)
        assert answer.startswith("BUSY"), f"the lock of a live process was free: {answer}"
    peer.close()
    quit_well(trier)


def test_killed_holder(folder):
    """kill -9 of a holder while another process waits"""
    where = config(folder)
    folder.witness()
    for _ in range(3):
        holder = folder.holder(where, "a", "b", "c")
        waiter = folder.waiter(where, "b")
        watched(folder, holder)
        watched(folder, waiter)
        kill(holder)
        assert hear(waiter) == "held"
        quit_well(waiter)
        for name in ("a", "c"):
            quit_well(folder.holder(where, name))
    until(lambda: folder.log().count("3 of its locks released") == 3, "a line for each of them")


def test_killed_waiter(folder):
    """kill -9 of a process that waits: those behind it get the lock"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    dead = folder.waiter(where, "a")
    watched(folder, dead)
    waiter = folder.waiter(where, "a")
    watched(folder, waiter)
    kill(dead)
    dead.wait()
    say(holder, "release")
    assert hear(waiter) == "held"


def test_other_ends(folder):
    """an abort, an exit without a release, and a normal end"""
    where = config(folder)
    folder.witness()
    for end in (signal.SIGABRT, signal.SIGXCPU, "exit", "quit"):
        holder = folder.holder(where, "a")
        watched(folder, holder)
        if isinstance(end, str):
            say(holder, end)
        else:
            kill(holder, end)
        next_one = folder.holder(where, "a")
        quit_well(next_one)


def test_zombie(folder):
    """nobody reaps the dead holder"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    kill(holder)
    quit_well(folder.holder(where, "a"))
    with open(f"/proc/{holder.pid}/stat", encoding="ascii") as file:
        assert file.read().split(")")[1].split()[0] == "Z"


def test_stopped(folder):
    """a stopped holder is not dead; when it is killed, it is"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    kill(holder, signal.SIGSTOP)
    still_held(folder, where, "a")
    kill(holder)
    quit_well(folder.holder(where, "a"))


def test_traced(folder):
    """a holder that a debugger has stopped is not dead"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    tracer = subprocess.Popen([sys.executable, "-c", f"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
assert libc.ptrace(16, {holder.pid}, 0, 0) == 0
os.waitpid({holder.pid}, 0x40000000)
print("traced", flush=True)
sys.stdin.readline()
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    folder.started.append(tracer)
    line = hear(tracer)
    if line != "traced":
        print("left out: this system does not allow ptrace")
        return
    still_held(folder, where, "a")
    kill(holder)
    tracer.communicate("\n")
    quit_well(folder.holder(where, "a"))


def test_forked(folder):
    """a child that lives on does not keep the lock of its dead parent, and its death is not the parent's"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    children = []
    for _ in range(2):
        say(holder, "fork")
        children.append(int(hear(holder).split()[1]))
    try:
        os.kill(children.pop(), signal.SIGKILL)
        still_held(folder, where, "a")
        kill(holder)
        quit_well(folder.holder(where, "a"))
        os.kill(children[0], 0)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_closed_descriptors(folder):
    """a holder that closes all descriptors is not dead, and its death is seen all the same"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    say(holder, "close")
    assert hear(holder) == "closed"
    still_held(folder, where, "a")
    kill(holder)
    quit_well(folder.holder(where, "a"))


def test_exec(folder):
    """after exec the process lives; its claim is released when the new program ends"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    say(holder, "exec")
    assert hear(holder) == "execed"
    still_held(folder, where, "a")
    kill(holder)
    quit_well(folder.holder(where, "a"))


def test_namespace(folder):
    """a holder in a pid namespace that the witness can see into"""
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("left out: no pid namespace can be made here")
        return
    where = config(folder)
    folder.witness()
    holder = folder.start(*unshare, HOLDER, where, "a")
    assert hear(holder) == "held"
    with open(f"/proc/{holder.pid}/task/{holder.pid}/children", encoding="ascii") as file:
        inside = int(file.read())
    peer = Peer(folder)
    until(lambda: peer.ask(inside) == 1, "the process is watched under the number that the witness sees")
    peer.close()
    os.kill(inside, signal.SIGKILL)
    quit_well(folder.holder(where, "a"))


def test_main_thread(folder):
    """the main thread has ended, another goes on"""
    where = config(folder)
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    say(holder, "thread")
    assert hear(holder) == "threaded"
    still_held(folder, where, "a")
    kill(holder)
    quit_well(folder.holder(where, "a"))


def test_witness_comes_back(folder):
    """the witness is killed and started again: the holders that live are watched again"""
    where = config(folder)
    witness = folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    kill(witness)
    witness.wait()
    still = folder.start(os.path.join(BUILD, "tests", "taker"), where)
    assert hear(still) == "ready"
    folder.witness()
    watched(folder, holder)
    kill(holder)
    quit_well(folder.holder(where, "a"))


def test_stopped_witness(folder):
    """a witness that is stopped for a while acts when it runs again, and harms no successor"""
    where = config(folder)
    witness = folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    kill(witness, signal.SIGSTOP)
    kill(holder)
    holder.wait()
    waiter = folder.waiter(where, "a")
    kill(witness, signal.SIGCONT)
    assert hear(waiter) == "held"
    still_held(folder, where, "a")


def test_crash_delay(folder):
    """crash_delay: the lock is held for that long after the death"""
    where = config(folder, "crash_delay = 700ms\n")
    folder.witness()
    holder = folder.holder(where, "a")
    waiter = folder.waiter(where, "a")
    watched(folder, holder)
    watched(folder, waiter)
    begin = time.monotonic()
    kill(holder)
    assert hear(waiter) == "held"
    assert time.monotonic() - begin >= 0.7, "too early"


def test_dead_backend(folder):
    """a backend that does not answer, with more claims than are released at a time, keeps nobody from another backend"""
    if driver != "redis":
        return
    alive = folder.sqlite()
    dead = folder.config("redis", f"servers = 127.0.0.1:{folder.server('redis')['PORT']}")
    witness = folder.witness()
    holders = [folder.holder(alive, "before"), folder.holder(dead, *map(str, range(2500))), folder.holder(alive, "after")]
    for holder in holders:
        watched(folder, holder)
    kill(witness, signal.SIGSTOP)
    folder.kill_server("redis")
    for holder in holders:
        kill(holder)
        holder.wait()
    kill(witness, signal.SIGCONT)
    for name in ("before", "after"):
        quit_well(folder.holder(alive, name))


def test_status(folder):
    """`mortise status` shows whether a holder is watched; `mortise run` is watched by its keeper"""
    def column(name):
        line = subprocess.run([COMMAND, "-C", where, "status", name], stdout=subprocess.PIPE, text=True, check=True).stdout
        return line.rstrip("\n").split("\t")[12]

    where = config(folder)
    alone = folder.holder(where, "alone")
    assert column("alone") == "no"
    kept = folder.start(COMMAND, "-C", where, "run", "kept", "--", "sh", "-c", "echo runs; read line")
    assert hear(kept) == "runs"
    assert column("kept") == "yes"
    folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    assert (column("a"), column("alone"), column("kept"), column("free")) == ("yes", "no", "yes", "-")
    out = subprocess.run([COMMAND, "-C", where, "status", "--json", "a"], stdout=subprocess.PIPE, text=True, check=True)
    assert '"witnessed": true' in out.stdout.replace('":true', '": true'), out.stdout
    kill(alone)
    say(kept, "")
    assert kept.wait() == 0


def test_second_witness(folder):
    """one witness for a path"""
    config(folder)
    folder.witness()
    second = folder.witness()
    assert second.wait() == 75, second.returncode
    assert folder.can_connect()


def test_ends_by_term(folder):
    """TERM ends it with 0, and its socket is gone; locks are not touched"""
    where = config(folder)
    witness = folder.witness()
    holder = folder.holder(where, "a")
    watched(folder, holder)
    kill(witness, signal.SIGTERM)
    assert witness.wait() == 0
    assert not os.path.exists(folder.file("w"))
    say(holder, "release")
    assert hear(holder) == "OK"


def test_second_signal(folder):
    """the release of a dead process hangs: the first TERM waits for it, the second does not"""
    if driver != "sqlite":
        return
    where = config(folder, "close_timeout = 60s\n")
    witness = folder.witness()
    folder.witnesses.remove(witness)  # it ends by the signal
    holder = folder.holder(where, "a")
    watched(folder, holder)
    other = sqlite3.connect(folder.file("locks.db"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    kill(holder)
    holder.wait()
    peer = Peer(folder)
    until(lambda: peer.ask(holder.pid) == 0, "the witness has seen the death")
    peer.close()
    kill(witness, signal.SIGTERM)
    until(lambda: not os.path.exists(folder.file("w")) or witness.poll() is not None, "it does not listen any more")
    kill(witness, signal.SIGTERM)
    begin = time.monotonic()
    until(lambda: witness.poll() is not None, "the second one ends it")
    assert time.monotonic() - begin < 20 and witness.returncode == -signal.SIGTERM, witness.returncode
    other.execute("ROLLBACK")
    other.close()


if __name__ == "__main__":
    with Folder() as servers:
        values = servers.server(driver) if driver != "sqlite" else {}
        if values is None:
            print(f"skip: {driver} is not installed")
            sys.exit(77)
        failed = run([function for name, function in list(globals().items()) if name.startswith("test_")])
    sys.exit(failed)
