"""parties.py - what the tests with other clients share, whatever the server is: a private server, tests/taker.c as a
second process that uses this project's library, a number in a file that is correct only under a lock, and contenders for
it. Knows no client. No test takes a sleep for an event: they poll until the expected state is reached, or fail."""

import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
TAKER = os.environ["MORTISE_TAKER"]
PATIENCE = 30  # seconds; bounds failure
ROUNDS = 25  # of each contender, at least
CONTEST = 5  # seconds; so long those who are told contend with those who poll


def until(what, said):
    """Looks until what() is true; its value."""
    end = time.monotonic() + PATIENCE
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("never came: " + said)
        select.select([], [], [], 0.002)


def pause():
    """Between two looks at what has to last: a busy loop would take a whole processor and see no more."""
    select.select([], [], [], 0.02)


class Server:
    """A server of this test's own; settings are the KEYs of servers/KIND.sh."""

    def __init__(self, kind, *settings):
        self.kind = kind
        self.folder = tempfile.mkdtemp(prefix="mortise-interop.")
        done = self.run("start", "guard=%d" % os.getpid(), *settings)
        if done.returncode == 77:
            print(done.stderr)
            sys.exit(77)
        assert done.returncode == 0, done.stderr
        self.values = dict(line.split("=", 1) for line in done.stdout.split())
        self.port = int(self.values["PORT"])

    def run(self, verb, *words):
        return subprocess.run(
            ["sh", os.path.join(TESTS, "servers.sh"), verb, self.kind, self.folder, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words):
        """By the server's own command, as one who may do all; what it prints."""
        done = self.run("ask", *words)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def end(self):
        self.run("end")
        shutil.rmtree(self.folder, True)


class Taker:
    """A process that does what lines tell it: see taker.c."""

    def __init__(self, config):
        self.process = subprocess.Popen([TAKER, config], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.got = b""
        first = self.answer()
        assert first == "ready", first

    def begin(self, *words):
        os.write(self.process.stdin.fileno(), (" ".join(map(str, words)) + "\n").encode())

    def answer(self):
        end = time.monotonic() + PATIENCE
        while b"\n" not in self.got:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError("the taker does not answer")
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                raise AssertionError("the taker has ended with code %s" % self.process.wait())
            self.got += more
        line, self.got = self.got.split(b"\n", 1)
        return line.decode()

    def has_answered(self):
        return b"\n" in self.got or bool(select.select([self.process.stdout], [], [], 0)[0])

    def say(self, *words):
        self.begin(*words)
        return self.answer()

    def word(self, *words):
        """The first word of the answer: OK, BUSY, LOST, …"""
        return self.say(*words).split()[0]

    def numbers(self, *words):
        answer = self.say(*words).split()
        assert answer[0] == "OK", answer
        return [int(number) for number in answer[1:]]

    def renewals(self):
        return self.numbers("stats")[1]

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
            self.process.stdout.close()


class TakerContender:
    """What `contend` wants, by a taker."""

    def __init__(self, taker, name, *more):
        self.taker, self.words = taker, ("acquire", name, PATIENCE * 1000, 5000, *more)

    def lock(self):
        return self.taker.word(*self.words) == "OK"

    def unlock(self):
        return self.taker.word("release") == "OK"


class Counter:
    """A number in a file, to which is added without care."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "counter")
        with open(self.path, "w", encoding="ascii") as file:
            file.write("0\n")

    def value(self):
        with open(self.path, encoding="ascii") as file:
            return int(file.read())

    def add(self):
        number = self.value()
        os.sched_yield()
        with open(self.path, "w", encoding="ascii") as file:
            file.write("%d\n" % (number + 1))


def contend(counter, contenders, pollers=(), rounds=ROUNDS):
    """All add under the lock, until each has had so many turns: nobody leaves, so that who starves is seen.
    `pollers` ask again and again, which promises nothing beside contenders who are told: these have their turns
    first, then contend with them for CONTEST seconds at most, and leave. How many turns each had."""
    contenders = [*contenders, *pollers]
    turns, wrong, told = [0] * len(contenders), [], len(contenders) - len(pollers)
    contest, end = threading.Event(), None

    def goes_on():
        nonlocal end
        if min(turns[:told]) < rounds:
            return True
        end = end or time.monotonic() + CONTEST
        contest.set()
        return min(turns) < rounds and time.monotonic() < end

    def run(i):
        try:
            if i >= told:
                contest.wait(PATIENCE)
            while (goes_on() if i < told else turns[i] < rounds) and not wrong:
                assert contenders[i].lock(), "contender %d never got the lock; turns: %s" % (i, turns)
                counter.add()
                turns[i] += 1
                assert contenders[i].unlock(), "contender %d was not the holder any more" % i
        except BaseException as problem:  # pylint: disable=broad-except
            wrong.append(problem)
            contest.set()

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(contenders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * PATIENCE)
    if wrong:
        raise wrong[0]
    assert not any(thread.is_alive() for thread in threads), turns
    return turns


class InThread:
    """A call that waits, in a thread of its own."""

    def __init__(self, what, *args):
        self.value, self.what, self.args = None, what, args
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        self.value = self.what(*self.args)

    def result(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "it still waits"
        return self.value


def main():
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
