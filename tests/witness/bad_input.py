#!/usr/bin/env python3
"""bad_input.py - what a witness gets from processes that are broken, hostile, or too many. It answers with REFUSE or closes
the connection, keeps watching the others, and no lock of a live process is ever released."""
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import rig
from rig import (ASK, ASKED, BYE, BUILD, FREE, HELLO, HELD, REFUSE, SLOT, TELL, VERSION, WELCOME, Peer, area_of, hear, kill, memfd,
                 message, pidfd_open, run, say, slot, until, watched)

GRANT = bytes(range(16))
with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as cache:
    SANITIZED = any(re.match("MORTISE_SANITIZE:[A-Z]*=.", line) for line in cache)  # then all needs more memory


def config(folder):
    return folder.sqlite()


def honest(folder):
    """A holder that must stay watched, and whose lock must stay held, whatever else happens."""
    where = config(folder)
    holder = folder.holder(where, "honest")
    watched(folder, holder)
    return where, holder


def still_honest(folder, where, holder):
    """Its lock is held; and the witness still does its work."""
    trier = folder.start(os.path.join(BUILD, "tests", "taker"), where)
    assert hear(trier) == "ready"
    say(trier, "acquire honest 0 1000")
    answer = hear(trier)
    assert answer.startswith("BUSY"), f"the lock of a live process was free: {answer}"
    kill(holder)
    say(trier, "acquire honest 50000 1000")
    answer = hear(trier)
    assert answer.startswith("OK"), answer


def the_grant(folder):
    """The grant id of the only claim of the database, as a liar can find it out: it may read the database."""
    import sqlite3
    with sqlite3.connect(folder.file("locks.db")) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for table in tables:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            if "grants" in columns:
                return database.execute(f"SELECT grants FROM {table} WHERE length(grants)=16").fetchone()[0]
    raise AssertionError(tables)


def refused(peer, why):
    answer = peer.hear()
    assert answer is not None and answer[0] == REFUSE and why in answer[2], (answer, why)
    assert peer.hear() is None
    peer.close()


def test_garbage(folder):
    """bytes, half messages, wrong lengths, unknown kinds, another version"""
    witness = folder.witness()
    where, holder = honest(folder)
    for data in (b"x", b"\0" * 39, os.urandom(40), os.urandom(8000), message(HELLO, b"abc", text_len=2),
                 message(HELLO, b"abc", text_len=2**32 - 1), message(99), message(0), message(TELL), message(WELCOME),
                 message(HELLO, magic=1)):
        peer = Peer(folder)
        peer.send(data)
        refused(peer, "makes no sense")
    for version in (0, VERSION + 1, 65535):
        peer = Peer(folder)
        peer.send(message(HELLO, version=version))
        refused(peer, "another version")
    peer = Peer(folder)
    peer.send(message(BYE))
    assert peer.hear() is None
    peer = Peer(folder)
    peer.send(message(HELLO, b"without descriptors"))
    refused(peer, "makes no sense")
    still_honest(folder, where, holder)
    assert witness.poll() is None


def test_descriptors(folder):
    """descriptors that are no pidfd and no area, too few, too many, of another process, of a thread"""
    folder.witness()
    where, holder = honest(folder)
    mine, other, area = pidfd_open(os.getpid()), pidfd_open(holder.pid), area_of(slot(b"a", GRANT))
    read, write = os.pipe()
    full = os.open("/dev/zero", os.O_RDONLY)
    unsealed = memfd(1 << 16, seals=0)
    for fds, why in (([mine], "makes no sense"), ([mine, area, area], "makes no sense"), ([area, area], "no pidfd"),
                     ([read, area], "no pidfd"), ([mine, read], "no sealed memfd"), ([mine, full], "no sealed memfd"),
                     ([mine, unsealed], "no sealed memfd"), ([mine, memfd(10)], "no sealed memfd"),
                     ([other, area], "of another process"), ([mine] * 200, "")):
        peer = Peer(folder)
        peer.send(message(HELLO), fds)
        refused(peer, why)
    for delay_ms in (-1, -(2**63), 2**63 - 1):
        peer = Peer(folder)
        peer.send(message(HELLO, delay_ms=delay_ms), [mine, area])
        refused(peer, "makes no sense")
    peer = Peer(folder)
    peer.send(message(ASK, pid=holder.pid), [mine, area, area, area])  # descriptors that nobody wants
    assert peer.hear()[:2] == (TELL, 1)
    peer.close()
    for fd in (mine, other, area, read, write, full, unsealed):
        os.close(fd)
    still_honest(folder, where, holder)


def test_descriptors_do_not_leak(folder):
    """thousands of refused messages with descriptors leave none behind"""
    witness = folder.witness()
    fds = f"/proc/{witness.pid}/fd"
    mine, area = pidfd_open(os.getpid()), area_of()
    first = Peer(folder)  # its answer says that the witness has all descriptors of its own
    first.send(message(ASK, pid=1), [mine, area, area])
    first.hear()
    before = len(os.listdir(fds))
    first.close()
    for _ in range(500):
        peer = Peer(folder)
        peer.send(message(ASK, pid=1), [mine, area, area])
        peer.hear()
        peer.send(message(HELLO), [area, area])
        peer.hear()
        peer.close()
    until(lambda: len(os.listdir(fds)) <= before, "all descriptors are closed")


def test_silent_peers(folder):
    """clients without a connection, of a process that lives: only those that hold and acquire nothing are forgotten"""
    witness = folder.witness()
    where, holder = honest(folder)
    print_, now, hour, never = print_of(where), time.clock_gettime_ns(time.CLOCK_BOOTTIME), 3600 * 10**9, 2**63 - 1
    kept = (slot(b"renewed", GRANT, ends_ns=now + hour), slot(b"session", GRANT, ends_ns=now - hour // 2), slot(b"writing", GRANT, FREE, sequence=3),
            slot(b"waits", GRANT, ASKED, ends_ns=never), slot(b"asked", GRANT, ASKED, ends_ns=now + hour), slot(b"written", GRANT, FREE, sequence=2))
    ended = tuple(slot(**of, grant=GRANT, sequence=0) for of in (  # as if they had not been written since the last look
        dict(name=b"held", ends_ns=now - hour - 1), dict(name=b"held", ends_ns=-never),
        dict(name=b"asked", state=ASKED, ends_ns=now - 1), dict(name=b"free", state=FREE, ends_ns=never)))
    peers = []
    for last in (*kept, *ended):
        area = area_of(ended[0], last)
        peers.append(Peer(folder))
        peers[-1].hello(area, where=where, print_=print_)
        assert peers[-1].hear()[0] == WELCOME
        os.close(area)
    assert times_watched(folder, os.getpid()) == len(peers)
    kill(witness, signal.SIGSTOP)  # so it hears of all of them in one round, and sweeps once
    os.waitid(os.P_PID, witness.pid, os.WSTOPPED)
    for peer in peers:
        peer.close()
    kill(witness, signal.SIGCONT)
    until(lambda: times_watched(folder, os.getpid()) != len(peers), "it has swept")
    assert times_watched(folder, os.getpid()) == len(kept)
    still_honest(folder, where, holder)


def liar(folder, where, *slots, pidfd=None, **area):
    """A process that names claims in an area of its own, is watched, and dies. It knows the configuration by its name and
    print, from an honest client's HELLO."""
    program = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import rig
class Where:
    def file(self, name):
        return os.path.join({folder.path!r}, name)
peer = rig.Peer(Where())
area = int(sys.argv[1])
peer.hello(area, where={where!r}, print_=int(sys.argv[2]))
print(peer.hear()[0], flush=True)
sys.stdin.readline()
peer.close()
print("closed", flush=True)
sys.stdin.readline()
"""
    fd = area_of(*slots, **area)
    process = folder.start(sys.executable, "-c", program, str(fd), str(print_of(where)), pass_fds=[fd])
    os.close(fd)
    answer = hear(process)
    assert answer == str(WELCOME), answer
    return process


def test_kept_pidfd(folder):
    """a process that keeps the descriptors that it passed, says BYE, and dies later"""
    witness = folder.witness()
    where, holder = honest(folder)
    program = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import rig
class Where:
    def file(self, name):
        return os.path.join({folder.path!r}, name)
pidfd, area = rig.pidfd_open(os.getpid()), rig.area_of()
for _ in range(20):
    peer = rig.Peer(Where())
    peer.hello(area, pidfd=pidfd, where={where!r}, print_={print_of(where)})
    assert peer.hear()[0] == rig.WELCOME
    peer.send(rig.message(rig.BYE))
    assert peer.hear() is None
print("done", flush=True)
sys.stdin.readline()
"""
    process = folder.start(sys.executable, "-c", program)
    assert hear(process) == "done"
    kill(process)
    process.wait()
    still_honest(folder, where, holder)
    assert witness.poll() is None


def print_of(where):
    """mortise_config_print() of the configuration."""
    return int(subprocess.run([rig.HOLDER, "--print", where], stdout=subprocess.PIPE, text=True, check=True).stdout)


def test_liar_without_the_grant(folder):
    """a process that names another's lock under a grant id that it made up: nothing happens to the lock"""
    folder.witness()
    where, holder = honest(folder)
    process = liar(folder, where, *(slot(b"honest", os.urandom(16), state=state) for state in (1, 2) for _ in range(50)))
    kill(process)
    process.wait()
    until(lambda: times_watched(folder, process.pid) == 0, "the liar is buried")
    still_honest(folder, where, holder)


def times_watched(folder, pid):
    """How many of its clients are watched. A new peer asks: one that says no HELLO is ended after a while."""
    peer = Peer(folder)
    times = peer.ask(pid)
    peer.close()
    return times


def test_liar_with_the_grant(folder):
    """a process that knows a grant id and closes its connection: nothing is released while it lives; when it ends, what
    it could have released itself"""
    folder.witness()
    where, holder = honest(folder)
    process = liar(folder, where, slot(b"honest", the_grant(folder)))
    trier = folder.start(os.path.join(BUILD, "tests", "taker"), where)
    assert hear(trier) == "ready"
    say(process, "")
    assert hear(process) == "closed"
    peer = Peer(folder)
    for _ in range(20):
        peer.ask(process.pid)
        say(trier, "acquire honest 0 1000")
        assert hear(trier).startswith("BUSY")
    peer.close()
    say(process, "")
    process.wait()
    say(trier, "acquire honest 50000 1000")
    assert hear(trier).startswith("OK")
    kill(holder)


def test_hostile_slots(folder):
    """slots and heads of an area that make no sense, torn ones among them, next to an honest one"""
    witness = folder.witness()
    where, holder = honest(folder)
    mine = folder.holder(where, "mine", stderr=subprocess.DEVNULL)
    bad = [slot(b"honest", GRANT, name_len=513), slot(b"honest", GRANT, name_len=2**32 - 1), slot(b"", GRANT),
           slot(b"a\0b", GRANT), slot(b"honest", GRANT, owner_len=2**32 - 1), slot(b"honest", GRANT, ttl_ms=0),
           slot(b"honest", GRANT, ttl_ms=2**62), slot(b"honest", GRANT, ttl_ms=-1), slot(b"honest", GRANT, state=77),
           slot(b"honest", GRANT, flags=2**31), slot(b"honest", GRANT, sequence=3), os.urandom(SLOT.size)]
    for head in ({}, {"used": 2**32 - 1}, {"magic": 7}, {"version": 9}, {"slot_size": 0}, {"slot_size": 2**32 - 1},
                 {"used": 0}):
        process = liar(folder, where, *bad, **head)
        kill(process)
        process.wait()
    assert mine.poll() is None
    until(lambda: folder.log().count("makes no sense") >= 3, "lines in the log")
    assert witness.poll() is None
    still_honest(folder, where, holder)


def test_wrong_configuration(folder):
    """a configuration that the witness cannot open, or reads differently"""
    folder.witness()
    where, holder = honest(folder)
    area = area_of()
    for name, value, why in (("/nowhere/mortise.conf", 1, "cannot open its configuration"),
                             (where, 12345, "reads another configuration"), ("redis//:x@y", 1, "cannot open")):
        peer = Peer(folder)
        peer.hello(area, where=name, print_=value)
        refused(peer, why)
    os.close(area)
    still_honest(folder, where, holder)


def test_full_table(folder):
    """more processes than descriptors: those that are watched stay watched, and the witness recovers"""
    def few_descriptors():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    witness = folder.witness(preexec_fn=few_descriptors)
    where, holder = honest(folder)
    peers, area = [], area_of()
    for _ in range(60):
        peer = Peer(folder)
        peers.append(peer)
        mine = pidfd_open(os.getpid())
        peer.send(message(HELLO, where.encode(), print_=1), [mine, area])
        os.close(mine)
    until(lambda: "no further process" in folder.log() or "as many processes as it can" in folder.log(), "a line")
    for peer in peers:
        peer.close()
    watched(folder, holder)
    still_honest(folder, where, holder)
    assert witness.poll() is None


def test_no_descriptor_left(folder):
    """the process for which no descriptors are left is told so, however many are left, and its pidfd is not doubted"""
    def few_descriptors():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    folder.witness(preexec_fn=few_descriptors)
    where, holder = honest(folder)
    print_, area = print_of(where), area_of()
    for silent in range(3):  # each of the others takes three
        idle, peers, answer = [Peer(folder) for _ in range(silent)], [], (WELCOME, 0, "")
        while answer is not None and answer[0] == WELCOME:
            peers.append(Peer(folder))
            peers[-1].hello(area, where=where, print_=print_)
            answer = peers[-1].hear()
        assert answer is not None and answer[0] == REFUSE and "as many processes as it can" in answer[2], answer
        for peer in peers[:-1]:
            peer.send(message(BYE))
            assert peer.hear() is None
        for peer in (*idle, *peers):
            peer.close()
    os.close(area)
    still_honest(folder, where, holder)


def test_many_connections(folder):
    """ten thousand connections that say nothing are closed after a while, in little memory"""
    witness = folder.witness()
    where, holder = honest(folder)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    peers = [Peer(folder) for _ in range(min(10000, hard - 200))]
    watched(folder, holder)
    with open(f"/proc/{witness.pid}/status", encoding="ascii") as file:
        used_kb = int(next(line for line in file if line.startswith("VmRSS")).split()[1])
    assert used_kb < 20000 or SANITIZED, used_kb
    for peer in peers:
        assert peer.hear() is None
        peer.close()
    still_honest(folder, where, holder)


def test_open_folder(folder):
    """a directory that others may enter is refused"""
    os.chmod(folder.path, 0o755)
    witness = folder.witness()
    assert witness.wait() == 78
    assert "closed to all others" in folder.log()


def test_socket_of_systemd(folder):
    """a socket on which systemd listens for a witness that it has yet to start is not taken away"""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(folder.file("w"))
    listener.listen(8)
    before = os.stat(folder.file("w")).st_ino
    assert folder.witness().wait() == 75
    assert "systemd" in folder.log()
    assert os.stat(folder.file("w")).st_ino == before
    listener.close()
    folder.witness()  # nobody listens any more
    where, holder = honest(folder)
    still_honest(folder, where, holder)


def test_stuck_reader(folder):
    """stderr is a pipe that is full from the start: the witness works all the same, and a signal ends it"""
    pipe = folder.file("pipe")
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # not the one that the witness has: the flag is of this one alone
    for size in (4096, 1):
        try:
            while True:
                os.write(end, b"x" * size)
        except BlockingIOError:
            pass
    with open(pipe, "wb", buffering=0) as stderr:
        witness = folder.start(rig.COMMAND, "witness", "--socket", folder.file("w"), stderr=stderr)
    until(folder.can_connect, "it listens")
    where, holder = honest(folder)
    still_honest(folder, where, holder)
    witness.terminate()
    until(lambda: witness.poll() is not None, "TERM ends it")
    assert witness.returncode == 0
    assert set(os.read(end, 1 << 20)) == {ord("x")}
    os.close(end)


def test_umask(folder):
    """the socket is its user's alone, and the witness keeps its umask for what the drivers make"""
    witness = folder.witness(umask=0o022)
    with open(f"/proc/{witness.pid}/status", encoding="utf-8") as status:
        assert "\nUmask:\t0022\n" in status.read()
    assert os.stat(folder.file("w")).st_mode & 0o777 == 0o600


def test_passed_socket(folder):
    """a socket that systemd passes, and that is elsewhere: the log says where"""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(folder.file("elsewhere"))
    listener.listen(8)
    with open(folder.file("log"), "w", encoding="utf-8") as log:
        process = folder.start("bash", "-c", f'exec 3<&{listener.fileno()}; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "witness",
                               rig.COMMAND, "witness", "--socket", folder.file("w"), pass_fds=[listener.fileno()], stderr=log)
    until(lambda: "\n" in folder.log() or process.poll() is not None, "it says where")
    assert folder.log() == f'mortise: witness: listens on "{folder.file("elsewhere")}"\n', folder.log()
    process.terminate()
    assert process.wait() == 0
    listener.close()


def test_two_passed_sockets(folder):
    """two sockets from systemd are refused: nobody would listen on the second one"""
    listeners = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for i, listener in enumerate(listeners):
        listener.bind(folder.file(f"passed{i}"))
        listener.listen(8)
    numbers = [listener.fileno() for listener in listeners]
    with open(folder.file("log"), "w", encoding="utf-8") as log:
        process = folder.start("bash", "-c", f'exec 3<&{numbers[0]} 4<&{numbers[1]}; export LISTEN_PID=$$ LISTEN_FDS=2; exec "$@"',
                               "witness", rig.COMMAND, "witness", pass_fds=numbers, stderr=log)
    until(lambda: "\n" in folder.log() or process.poll() is not None, "it says so")
    process.terminate()
    assert process.wait() == 78 and "expected one listening socket" in folder.log(), folder.log()
    for listener in listeners:
        listener.close()


def test_passed_abstract_socket(folder):
    """a socket from systemd without a path is refused, and the log says so"""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{folder.path}")
    listener.listen(8)
    with open(folder.file("log"), "w", encoding="utf-8") as log:
        process = folder.start("bash", "-c", f'exec 3<&{listener.fileno()}; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "witness",
                               rig.COMMAND, "witness", pass_fds=[listener.fileno()], stderr=log)
    until(lambda: process.poll() is not None, "it ends")
    assert process.returncode == 78 and "expected a socket with a path" in folder.log(), (process.returncode, folder.log())
    listener.close()


def test_other_user(folder):
    """another user's connection is refused"""
    if os.geteuid() != 0:
        print("left out: only root can become another user")
        return
    witness = folder.witness()
    os.chmod(folder.path, 0o711)
    os.chmod(folder.file("w"), 0o777)
    child = os.fork()
    if child == 0:
        os.setresuid(65534, 65534, 65534)
        try:
            refused(Peer(folder), "another user")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert witness.poll() is None and "user 65534" in folder.log()


def test_other_namespace(folder):
    """a process whose pid the witness cannot see is refused: the witness is in a pid namespace below"""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("left out: no pid namespace can be made here")
        return
    process = folder.start(*unshare, rig.COMMAND, "witness", "--socket", folder.file("w"))
    until(lambda: folder.can_connect() or process.poll() is not None, "it listens")
    peer = Peer(folder)
    peer.hello(area_of())
    refused(peer, "another pid namespace")
    assert process.poll() is None


if __name__ == "__main__":
    socket.setdefaulttimeout(60)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(run([function for name, function in list(globals().items()) if name.startswith("test_")]))
