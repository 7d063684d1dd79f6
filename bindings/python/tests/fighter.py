"""A fighter of the torture in Python: the same part as tests/torture/torture.c, whose head says what it is told and what it
prints. It acquires in blocks, without them, with asyncio and with cancellation; the thread that hears the commands fights
too, so that waits of the main thread are among them.

    fighter.py WHERE FOLDER NAME,NAME… [KEY=NUMBER …]      of torture.c: threads, seed, ttl, calm_ttl, long, hold, modes

What it writes is for tests/torture/check.c: the counters (counter.c) and, whenever a holder looks, FOLDER/PID.N.held.jsonl."""
import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import random
import signal
import sys
import threading
import time

import mortise

PERMITS = 2
SETTINGS = {"threads": 3, "clients": 1, "seed": 1, "ttl": 1000, "calm_ttl": 20000, "long": 60, "hold": 0, "pause": 0, "plain": 0,
            "modes": 0}
MAY_END = {
    "acquire": {"OK", "BUSY", "TIMEDOUT", "CANCELED", "UNREACHABLE", "INDETERMINATE", "BACKEND"},
    "release": {"OK", "LOST", "UNREACHABLE", "INDETERMINATE", "BACKEND"},
    "nowait": {"OK", "LOST"},
    "close": {"OK", "UNREACHABLE"},
    "downgrade": {"OK", "LOST", "UNREACHABLE", "INDETERMINATE", "BACKEND"},
    "write": {"OK", "LOST"},
    "read": {"OK"},
}


def work(seconds):
    """What a holder does; nothing wakes it."""
    threading.Event().wait(seconds)


class Tally:
    """How often each call ended with each status."""

    def __init__(self):
        self.lock, self.counts, self.wrong, self.holding = threading.Lock(), {}, False, 0

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def ended(self, call, name, status, message=""):
        self.count(f"{call}.{status}")
        if status not in MAY_END[call]:
            self.complain(f"{call} of {name}: {status} {message}")

    def complain(self, text):
        self.wrong = True
        print(f"torture {os.getpid()}: {text}", file=sys.stderr, flush=True)

    def print(self, names):
        with self.lock:
            words = [f"{what}={times}" for what, times in self.counts.items()]
        words += [f"had.{name}=0" for name in names if f"had.{name}" not in self.counts]
        print(*words, *([f"holding={self.holding}"] if self.holding else []), flush=True)


class Counter:
    """counter.c: a file that only grows; the order of its lines is the order of the decisions."""

    def __init__(self, folder, name):
        self.fd = os.open(f"{folder}/{name}.counter.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.name, self.decided, self.fence, self.value = name, 0, 0, 0

    def ask(self, event, token, value):
        """Returns whether the storage let a write pass."""
        line = (f'{{"event":"{event}"'.ljust(16) + f',"token":{token:20},"value":{value:20},"thread":'
                f'{threading.get_native_id():10},"name":"{self.name}"}}').ljust(127).encode() + b"\n"
        assert os.write(self.fd, line) == len(line)
        while True:
            seen = os.pread(self.fd, len(line), self.decided)
            assert len(seen) == len(line) and seen.endswith(b"\n")
            self.decided += len(line)
            said = json.loads(seen)
            taken = said["event"] == "write" and said["token"] >= self.fence
            self.fence = max(self.fence, said["token"])
            if taken:
                self.value = said["value"]
            if seen == line:
                return taken


class Fighter:
    """One thread."""

    def __init__(self, run, client, number):
        self.run, self.client = run, client
        self.random = random.Random(run.settings["seed"] * 1000 + number)
        self.counters = [Counter(run.folder, name) for name in run.names]

    def look(self, lease, number):
        """Whether it is ours still; the checker is told what we are told."""
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if not lease.held:
            return False
        self.run.tell({"event": "held", "at_ns": now, "name": self.run.names[number], "token": lease.token})
        return True

    def add_one(self, lease, number, think_s):
        token, counter = lease.token, self.counters[number]
        if not self.look(lease, number):
            return
        counter.ask("read", token, 0)
        value = counter.value
        work(think_s)
        if self.look(lease, number):
            self.run.tally.ended("write", self.run.names[number], "OK" if counter.ask("write", token, value + 1) else "LOST")

    def read_twice(self, lease, number, think_s):
        for _ in range(2):
            if not self.look(lease, number):
                return
            self.counters[number].ask("read", lease.token, 0)
            work(think_s / 2)
        self.run.tally.ended("read", self.run.names[number], "OK")

    def use(self, lease, number, visit):
        """Mostly for an instant, sometimes for longer than the ttl."""
        run = self.run
        if self.random.randrange(100) < (run.settings["long"] if number == 0 else 1) and not run.calm:
            run.tally.holding += 1
            until = time.monotonic() + self.random.random() * run.settings["hold"] / 1000
            while time.monotonic() < until and not run.calm:
                visit(lease, number, 0.025)
            run.tally.holding -= 1
        else:
            visit(lease, number, self.random.choice([0, 0, self.random.random() * 0.008]))

    def has_permits(self, number):
        return self.run.settings["modes"] > 1 and number % 3 == 2

    def choose(self, number):
        run, found = self.run, {}
        if run.calm:
            found |= {"timeout": float("inf"), "ttl": run.settings["calm_ttl"] / 1000}
        else:
            found |= {"timeout": self.random.choice([0, 0, 0.1, 0.2, 0.3, 0.4, 3, 3, 3, 3]), "ttl": run.settings["ttl"] / 1000}
        found["renew"] = self.random.randrange(16) != 0
        if run.settings["modes"] and self.random.randrange(16) >= (1 if self.has_permits(number) else 5):
            found |= {"permits": PERMITS} if self.has_permits(number) else {"shared": True}
        if self.random.randrange(4) == 0:
            found["on_loss"] = lambda lease: None
        return found

    def hold(self, lease, number, arguments):
        name, writes = self.run.names[number], not (arguments.get("shared") or arguments.get("permits"))
        self.run.tally.count(f"had.{name}")
        self.use(lease, number, self.add_one if writes else self.read_twice)
        if (writes and self.run.settings["modes"] and not self.has_permits(number) and self.random.randrange(4) == 0
                and isinstance(lease, mortise.Lease) and self.look(lease, number)):
            self.ending("downgrade", name, lease.downgrade)
            self.use(lease, number, self.read_twice)

    def ending(self, call, name, function):
        try:
            function()
        except mortise.Error as failure:
            self.run.tally.ended(call, name, failure.status, str(failure))
        else:
            self.run.tally.ended(call, name, "OK")

    def plainly(self, number, arguments):
        name = self.run.names[number]
        lease = self.client.acquire(name, **arguments)
        self.run.tally.ended("acquire", name, "OK")
        self.hold(lease, number, arguments)
        if self.random.randrange(2):
            self.ending("release", name, lease.release)
        else:
            self.ending("nowait", name, lease.release_nowait)

    async def in_loop(self, number, arguments):
        """Now and then it is canceled, at any moment."""
        name = self.run.names[number]
        task = asyncio.create_task(self.client.alock(name, **arguments).acquire())
        if self.random.randrange(3) == 0:
            await asyncio.sleep(self.random.random() * 0.004)
            task.cancel()
        try:
            lease = await task
        except asyncio.CancelledError:
            self.run.tally.ended("acquire", name, "CANCELED")
            return
        self.run.tally.ended("acquire", name, "OK")
        self.hold(lease, number, arguments)  # it blocks the loop: renewals and states do not need it
        try:
            await lease.release()
        except mortise.Error as failure:
            self.run.tally.ended("release", name, failure.status, str(failure))
        else:
            self.run.tally.ended("release", name, "OK")

    def once(self):
        number = self.random.randrange(len(self.run.names))
        arguments = self.choose(number)
        try:
            if self.random.randrange(4) == 0:
                asyncio.run(self.in_loop(number, arguments))
            else:
                self.plainly(number, arguments)
        except mortise.Error as failure:
            self.run.tally.ended("acquire", self.run.names[number], failure.status, str(failure))
            if not isinstance(failure, mortise.NotAcquired):
                work(0.02)  # a backend that is away is not asked all the time

    def fight(self):
        try:
            while not self.run.stopping:
                self.once()
        except BaseException as failure:
            self.run.tally.complain(f"a thread: {failure!r}")
            raise


class Run:
    """The process."""

    def __init__(self, folder, names, settings):
        self.folder, self.names, self.settings = folder, names, settings
        self.tally, self.calm, self.stopping = Tally(), False, False
        self.told = self.make_file()
        self.tell({"event": "process", "at_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "pid": os.getpid()})

    def make_file(self):
        """A new one, also if an earlier process had this number."""
        for times in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                return os.open(f"{self.folder}/{os.getpid()}.{times}.held.jsonl",
                               os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def tell(self, what):
        """By one write(2) each, so that nothing is lost with the process."""
        line = (json.dumps(what, separators=(",", ":")) + "\n").encode()
        assert os.write(self.told, line) == len(line)

    def obey(self):
        """Until "stop", or the end of stdin."""
        for line in sys.stdin:
            command = line.strip()
            if command == "calm":
                self.calm = True
            elif command == "count":
                self.tally.print(self.names)
            elif command == "clock":
                print(int(time.time()), flush=True)
            elif command == "stop":
                break
        self.stopping = True


def main():
    where, folder, names, *more = sys.argv[1:]
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    settings = SETTINGS | {key: int(value) for key, value in (word.split("=") for word in more)}
    settings["hold"] = settings["hold"] or settings["ttl"] * 3
    run = Run(folder, names.split(","), settings)
    try:
        client = mortise.open(where)
    except mortise.Error as failure:
        print(failure.status, failure, flush=True)
        return 1
    fighters = [Fighter(run, client, number) for number in range(max(1, settings["threads"]))]
    threads = [threading.Thread(target=fighter.fight) for fighter in fighters[1:]] + [threading.Thread(target=run.obey)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    fighters[0].fight()  # in the main thread
    for thread in threads:
        thread.join()
    fighters[0].ending("close", "the client", client.close)
    run.tally.print(run.names)
    return 1 if run.tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
