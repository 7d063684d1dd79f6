"""rig.py - a real `mortise witness`, real holders and waiters, and peers that speak its protocol by hand."""
import array
import ctypes
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT, BUILD = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
COMMAND = os.environ["MORTISE_COMMAND"]
HOLDER = os.path.join(BUILD, "tests", "witness_holder")
PATIENCE_S = 60  # bounds failure only; every lock here has a longer ttl, so what is free sooner was released
TTL = "300s"

HEAD = struct.Struct("=IHHiIQqII")  # mortise_witness_message
AREA = struct.Struct("=IIII48x")
SLOT = struct.Struct("=IIIIqq16sII512s512sQ")
MAGIC, VERSION = 0x4D525457, 1
HELLO, WELCOME, REFUSE, BYE, ASK, TELL = 1, 2, 3, 4, 5, 6
FREE, ASKED, HELD = 0, 1, 2
assert (HEAD.size, AREA.size, SLOT.size) == (40, 64, 1088)


class Folder:
    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="mortise-witness.")
        os.chmod(self.path, 0o700)
        self.started = []
        self.witnesses = []
        self.servers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for kind, folder in self.servers:
            subprocess.run(["sh", f"{ROOT}/tests/servers.sh", "end", kind, folder], check=False)
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.path, name)

    def write(self, name, text):
        with open(self.file(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.file(name)

    def config(self, driver, section, extra=""):
        return self.write(f"{driver}.conf", f"[mortise]\ndriver = {driver}\nttl = {TTL}\nwitness = {self.file('w')}\n"
                                            f"log = stderr\n{extra}[{driver}]\n{section}\n")

    def sqlite(self, extra=""):
        return self.config("sqlite", f"path = {self.file('locks.db')}", extra)

    def server(self, kind, *settings):
        """The values of a server that is started here; None: it is not installed."""
        folder = self.file(f"server-{kind}")
        os.makedirs(folder, exist_ok=True)
        out = subprocess.run(["sh", f"{ROOT}/tests/servers.sh", "start", kind, folder, f"guard={os.getpid()}", *settings],
                             stdout=subprocess.PIPE, text=True, check=False)
        if out.returncode == 77:
            return None
        assert out.returncode == 0, out
        self.servers.append((kind, folder))
        return dict(line.split("=", 1) for line in out.stdout.splitlines())

    def serve(self, verb, kind):
        subprocess.run(["sh", f"{ROOT}/tests/servers.sh", verb, kind, self.file(f"server-{kind}")], check=True)

    def kill_server(self, kind):
        self.serve("kill", kind)

    def start(self, *words, **more):
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, **more)
        self.started.append(process)
        return process

    def witness(self, *options, command=COMMAND, **more):
        log = open(self.file("log"), "a", encoding="utf-8")
        process = subprocess.Popen([command, "witness", "--socket", self.file("w"), *options], stderr=log, **more)
        log.close()
        self.started.append(process)
        self.witnesses.append(process)
        until(lambda: self.can_connect() or process.poll() is not None, "the witness listens")
        return process

    def end_witnesses(self):
        """By TERM, so that a sanitizer has its last look. One that has ended was killed by the test, or refused to run."""
        for process in self.witnesses:
            process.terminate()
            until(lambda: process.poll() is not None, "TERM ends the witness")
            assert process.returncode in (0, -signal.SIGKILL, 75, 78), f"the witness ended with exit code {process.returncode}"

    def log(self):
        with open(self.file("log"), encoding="utf-8") as file:
            return file.read()

    def can_connect(self):
        try:
            Peer(self).close()
            return True
        except OSError:
            return False

    def holder(self, where, *names, **more):
        process = self.start(HOLDER, where, *names, **more)
        line = hear(process)
        assert line == "held", f"the holder did not get the lock: {line}"
        return process

    def waiter(self, where, name):
        """A process that waits for the name."""
        return self.start(HOLDER, where, name)


def until(ready, what):
    end = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.002)


def hear(process, limit_s=PATIENCE_S):
    """Its next line; None: none came in time."""
    if not select.select([process.stdout], [], [], limit_s)[0]:
        return None
    return process.stdout.readline().rstrip("\n")


def say(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()


def quit_well(process):
    say(process, "quit")
    until(lambda: process.poll() is not None, "the process ends")
    assert process.returncode == 0, f"exit code {process.returncode}"


def kill(process, number=signal.SIGKILL):
    os.kill(process.pid, number)


# ---- the protocol by hand ----------------------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


def pidfd_open(pid):
    fd = libc.syscall(434, pid, 0)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


def memfd(size, seals=F_SEAL_SHRINK):
    fd = os.memfd_create("area", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        import fcntl
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def message(kind, text=b"", version=VERSION, magic=MAGIC, pid=0, print_=0, delay_ms=0, text_len=None):
    return HEAD.pack(magic, version, kind, pid, 0, print_, delay_ms, len(text) if text_len is None else text_len, 0) + text


def slot(name, grant, state=HELD, ttl_ms=300000, sequence=2, name_len=None, owner=b"", flags=0, ends_ns=2**63 - 1,
         owner_len=None):
    return SLOT.pack(sequence, state, flags, 0, ttl_ms, ends_ns, grant, len(name) if name_len is None else name_len,
                     len(owner) if owner_len is None else owner_len, name, owner, 0)


def area_of(*slots, used=None, size=None, magic=MAGIC, version=1, slot_size=SLOT.size):
    data = AREA.pack(magic, version, slot_size, len(slots) if used is None else used) + b"".join(slots)
    fd = memfd(size if size is not None else max(len(data), AREA.size + SLOT.size))
    os.pwrite(fd, data, 0)
    return fd


class Peer:
    """A connection to the witness, as no client would use it."""

    def __init__(self, folder):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(None)  # with a time-out, the default one too, a full backlog is an error
        self.socket.connect(folder.file("w"))
        self.socket.settimeout(PATIENCE_S)

    def send(self, data, fds=()):
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], extra)

    def hear(self):
        """(kind, count, text); None: the witness has closed the connection."""
        try:
            data = self.socket.recv(8192)
        except ConnectionResetError:
            return None
        if not data:
            return None
        head = HEAD.unpack(data[:HEAD.size])
        return head[2], head[4], data[HEAD.size:].decode()

    def ask(self, pid):
        self.send(message(ASK, pid=pid))
        kind, count, _ = self.hear()
        assert kind == TELL
        return count

    def hello(self, area, pid=None, pidfd=None, where="", print_=0, delay_ms=0):
        fd = pidfd if pidfd is not None else pidfd_open(pid or os.getpid())
        self.send(message(HELLO, where.encode(), print_=print_, delay_ms=delay_ms), [fd, area])
        if pidfd is None:
            os.close(fd)

    def close(self):
        self.socket.close()


class BadWitness:
    """Listens where a client looks for its witness, and is of no use. `greeted` counts the clients that said HELLO."""

    KINDS = ("hangs", "other-version", "nonsense", "goes-away")

    def __init__(self, folder, kind):
        self.kind, self.greeted = kind, 0
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(folder.file(kind))
        self.listener.listen(64)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        kept = []
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return  # end()
            try:
                self.answer(peer)
            except OSError:
                pass  # it was killed meanwhile
            if self.kind == "hangs":
                kept.append(peer)
            else:
                peer.close()

    def answer(self, peer):
        self.greeted += len(peer.recv(8192)) > 0
        if self.kind == "other-version":
            peer.send(message(REFUSE, b"speaks version 2", version=VERSION + 1))
        elif self.kind == "nonsense":
            peer.send(os.urandom(HEAD.size + 3))

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def watched(folder, process, times=1):
    """Waits until the witness watches the process."""
    peer = Peer(folder)
    until(lambda: peer.ask(process.pid) == times, f"{times} connections of the process are watched")
    peer.close()


def run(tests):
    """Runs the tests; their names on the command line select some. 1: one has failed."""
    failed = 0
    for test in tests:
        if len(sys.argv) > 1 and test.__name__ not in sys.argv[1:]:
            continue
        print(f"== {test.__name__}: {test.__doc__}", flush=True)
        with Folder() as folder:
            try:
                test(folder)
                folder.end_witnesses()
            except AssertionError as error:
                failed += 1
                import traceback
                traceback.print_exc(file=sys.stdout)
                print(f"FAILED {test.__name__}: {error}", flush=True)
                if os.path.exists(folder.file("log")):
                    print(folder.log())
    return 1 if failed else 0
