"""One adapter that runs: a process that is told lines and answers with lines; see ../adapter/adapter.h for which."""

import os
import selectors
import subprocess
import sys
import tempfile
import time

START_S, PATIENCE_S = 120, 30  # bound failure only


running = set()  # all that were started and not ended


class Failed(Exception):
    """An adapter ended, or did not answer."""


class Adapter:
    def __init__(self, command, where, cpus=None, environment=None):
        """Starts it on these processors; it is there when ready() has returned."""
        self.name = os.path.basename(str(command[-1]))
        self.told = tempfile.TemporaryFile()  # what it writes to stderr  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [*map(str, command), where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.told,
            env={**os.environ, **(environment or {})},
            preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None,
            start_new_session=True,  # ^C is for us: we end them
        )
        running.add(self)
        self.buffer, self.version = b"", ""

    def ready(self):
        first = self.hear(START_S)
        if not first.startswith("ready"):
            raise Failed(f"{self.name}: it said \"{first}\"")
        self.version = first[len("ready") :].strip()

    @property
    def pid(self):
        return self.process.pid

    def say(self, verb, **words):
        line = " ".join([verb, *(f"{key}={value}" for key, value in words.items())]) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name}: it has ended") from None

    def hear(self, patience_s):
        """The next line."""
        until = time.monotonic() + patience_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(0, until - time.monotonic())):
                    raise Failed(f"{self.name}: no answer in {patience_s:g} s")
                some = os.read(self.process.stdout.fileno(), 65536)
                if not some:
                    raise Failed(f"{self.name}: it has ended with {self.process.wait()}{self.last_words()}")
                self.buffer += some
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def last_words(self):
        """The last line that it wrote to stderr."""
        self.told.seek(0)
        lines = self.told.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last[:300]}" if last else ""

    def done(self, within_s=0):
        """The numbers of a "done" line, of what may take so long; None if it cannot."""
        line = self.hear(PATIENCE_S + within_s)
        if line == "cannot":
            return None
        words = line.split()
        if not words or words[0] != "done":
            raise Failed(f"{self.name}: it said \"{line}\"")
        return {key: int(value) for key, value in (word.split("=") for word in words[1:])}

    def ask(self, verb, **words):
        self.say(verb, **words)
        return self.done()

    def kill(self):
        self.process.kill()
        self.reap()

    def quit(self):
        """It is to give back what it holds, and end; stop() waits for that."""
        try:
            self.say("quit")
            self.process.stdin.close()
        except (Failed, OSError):
            self.process.kill()

    def stop(self):
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.reap()

    def reap(self):
        self.process.wait()
        running.discard(self)
        if not self.told.closed:
            self.told.seek(0)
            sys.stderr.write(self.told.read().decode(errors="replace"))
            self.told.close()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except OSError:
            pass


def kill_all():
    """However far they are: for an end before the end."""
    for adapter in list(running):
        adapter.kill()
