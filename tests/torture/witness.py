"""The witness of a torture run, and what is done to it and to the processes that it watches: see docs/crash.md."""
import os
import signal
import socket
import subprocess
import sys
import time

from arena import PATIENCE_S, Failure

TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
for thread in map(int, os.listdir(f"/proc/{sys.argv[1]}/task")):
    if libc.ptrace(16, thread, 0, 0) == 0:
        os.waitpid(thread, 0x40000000)
print("traced", flush=True)
sys.stdin.readline()
"""


class Witness:
    """It runs, is stopped, is doubled, or does not run."""

    def __init__(self, folder, command):
        """1: `mortise witness`; else the path of a program."""
        self.folder, self.path = folder, f"{folder}/witness/socket"
        os.mkdir(f"{folder}/witness", 0o700)
        self.command = os.environ["MORTISE_COMMAND"] if command == 1 else command
        self.processes = []

    def start(self):
        """Beside another one, if that runs: then clients that come from now on go to this one."""
        if self.processes:
            os.unlink(self.path)
            if os.path.exists(f"{self.path}.lock"):
                os.unlink(f"{self.path}.lock")
        with open(f"{self.folder}/witness.log", "a", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen([self.command, "witness", "--socket", self.path], stderr=log))
        give_up = time.monotonic() + PATIENCE_S
        while not self.listens():
            if self.processes[-1].poll() is not None or time.monotonic() > give_up:
                raise Failure(f"the witness does not start: {self.said()}")
            time.sleep(0.01)

    def listens(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            return peer.connect_ex(self.path) == 0

    def said(self):
        with open(f"{self.folder}/witness.log", encoding="utf-8") as file:
            return file.read()

    def signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes = []

    def check(self):
        for process in self.processes:
            if process.poll() is not None:
                raise Failure(f"the witness has ended by itself: exit code {process.poll()}: {self.said()[-2000:]}")


class Tracer:
    """A debugger that has stopped all threads of a process."""

    def __init__(self, pid):
        self.child = subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.works = self.child.stdout.readline() == "traced\n"

    def end(self):
        """What it traced goes on."""
        self.child.stdin.close()
        self.child.wait()
        self.child.stdout.close()


def stop_for_good(pid):
    """Stops it, and returns when it does nothing any more: from then on it holds nothing that it believes in. The witness
    learns of its death later, so that instant is the end of its holds."""
    os.kill(pid, signal.SIGSTOP)
    give_up = time.monotonic() + PATIENCE_S
    while not all(state_of(pid, thread) in "tTZX" for thread in os.listdir(f"/proc/{pid}/task")):
        if time.monotonic() > give_up:
            raise Failure(f"process {pid} does not stop")
        time.sleep(0.0005)


def state_of(pid, thread):
    try:
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
