"""The parts of a torture run: a private server or a group of them, the fighters (torture.c), a fault proxy on each of
their connections to it, and the directory that contains everything. Knows neither the plan nor when something breaks:
strikes.py does."""
import contextlib
import os
import re
import select
import subprocess
import sys
import time

from plan import COUNTED

SOURCE = os.environ["MORTISE_SOURCE_DIR"]
PATIENCE_S = 120  # bounds failure only
# glibc keeps for each thread up to seven freed pieces of each size, 230 KiB in all. What one thread frees that another
# made fills that up for as long as sizes come that are new to it: for minutes, where answers are as long as a queue. It
# has an end, and looks like a leak until then.
KEEP_NOTHING = "glibc.malloc.tcache_count=0"
CHANGED = "it changed while it was read"  # torture.c
# What a fighter says of itself (torture.c), or a sanitizer of it. The library's log stands beside it.
COMPLAINT = r"^torture \d+: |Sanitizer|: runtime error: |Assertion"


ENCLOSED = ("unshare", "--pid", "--fork", "--kill-child")  # a command in a pid namespace of its own


class Failure(Exception):
    pass


class Finding(Failure):
    """Two holders or a lost update: no busy machine and no stopped process causes it, so it is no reason to run once more."""


def can_enclose():
    return subprocess.run([*ENCLOSED, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def only_child(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read())


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def tell(text):
    print(text, flush=True)


def put(path, text):
    """For somebody who reads it while we write, whoever they run as."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(f"{path}.new", 0o644)
    os.replace(f"{path}.new", path)


class Process:
    """A child that is talked to by lines."""

    def __init__(self, arguments, stderr=None, environment=None):
        self.child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=stderr, text=True, bufsize=1, env=environment)
        self.pid = self.child.pid

    def say(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise Failure(f"process {self.pid} has gone: exit code {self.child.wait()}") from None

    def hear(self):
        ready, _, _ = select.select([self.child.stdout], [], [], PATIENCE_S)
        if not ready:
            raise Failure(f"process {self.pid} says nothing for {PATIENCE_S} s")
        return self.child.stdout.readline().rstrip("\n")

    def end(self):
        """However."""
        self.child.kill()
        self.child.wait()
        with contextlib.suppress(BrokenPipeError):  # what say() could not write is written once more
            self.child.stdin.close()
        self.child.stdout.close()


class Server:
    """A private one, a group, or none; by the hooks that the conformance suite has."""

    can_start = False  # as soon as one did, in this run or in one before

    def __init__(self, settings, folder):
        self.kind, self.count, self.left_by = settings["server"], settings["members"], settings["left"]
        self.folder, self.values = folder, {}
        self.place = f"{folder}/server"
        self.clock, self.names = settings["clock"], settings["names"]
        self.is_cluster = "cluster=" in os.environ.get("MORTISE_SERVER", "")

    def run(self, verb, *arguments):
        return subprocess.run(["sh", f"{SOURCE}/tests/servers.sh", verb, self.kind, self.place, *arguments],
                              stdout=subprocess.PIPE, text=True, check=False)

    def do(self, verb, *arguments):
        if not self.kind:
            return ""
        done = self.run(verb, *arguments)
        if done.returncode == 77 and not Server.can_start:
            sys.exit(77)
        if done.returncode != 0:
            raise Failure(f"the server: {verb}: exit code {done.returncode}")
        Server.can_start = True
        return done.stdout

    def each(self, verb, members):
        for member in members:
            self.do(verb, *([f"only={member}"] if self.count > 1 else []))

    def ask(self, member, *words):
        return self.do("ask", f"only={member}", *words)

    def leader(self):
        """The number of the member that leads."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            values = dict(line.split("=", 1) for line in self.do("values").splitlines())
            for member in range(1, self.count + 1):
                if values.get(f"ROLE{member if member > 1 else ''}") == "leader":
                    return member
        raise Failure("nobody leads")

    def set_clock(self, ahead_s):
        """For libfaketime, or for clock.c."""
        put(f"{self.place}/faketime", f"+{ahead_s} x{self.clock or 1}\n")
        put(f"{self.place}/clock", f"{ahead_s}\n")

    def start(self):
        if not self.kind:
            return
        os.makedirs(self.place, exist_ok=True)
        if self.clock:
            self.set_clock(0)
        text = self.do("start", f"guard={os.getpid()}",
                       *os.environ.get("MORTISE_SERVER", "").split())
        with open(f"{self.folder}/values", "w", encoding="utf-8") as file:
            file.write(text)
        self.values = dict(line.split("=", 1) for line in text.splitlines())

    def left(self):
        """(why it cannot say that, or "", and what clients left in it)"""
        if not self.kind or self.left_by == "list":
            return "", []
        hooks = f"{SOURCE}/tests/conformance/{self.left_by or self.kind}.sh"
        done = subprocess.run(["sh", hooks, "left", self.folder], stdout=subprocess.PIPE, text=True, check=False,
                              env={**os.environ, "MORTISE_LEFT_PATIENCE_S": "0"})  # one look; the caller looks again
        if done.returncode != 0:
            return f"the server: exit code {done.returncode}", []
        return "", done.stdout.splitlines()


class Slot:
    """The place of one fighter: a process, which is made anew when it is killed, and its own ways to the server."""

    def __init__(self, run, number):
        self.run, self.number, self.fighter = run, number, None
        self.stopped_until, self.stopped_ns = 0, 0  # the first is of time.monotonic()
        self.proxies, self.broken_until, self.started, self.ahead_s = [], 0, 0, 0
        self.without_fds = None  # the fighter that has closed all descriptors
        self.ordered, self.cuts = [], {}  # cuts: how many of each kind have been counted
        self.complaints, self.clock = f"{run.folder}/{number}.err", f"{run.folder}/{number}.clock"
        values = dict(run.server.values)
        for name, port in run.server.values.items():
            if name.startswith("PORT") and run.settings["proxies"]:
                values[name] = str(self.start_proxy(name, port))
        if "CLUSTER" in values:  # its nodes lead clients to each other
            for name, port in run.server.values.items():
                if values[name] != port:
                    self.say_proxies(f"map {port} {values[name]}")
        self.config = self.write_config(values)

    def start_proxy(self, name, port):
        control = f"{self.run.folder}/{self.number}{name}"
        proxy = Process([os.environ["MORTISE_PROXY"], control, "127.0.0.1", port])
        self.proxies.append((proxy, control))
        return int(proxy.hear().removeprefix("PORT="))

    def write_config(self, values):
        path, text = f"{self.run.folder}/{self.number}.conf", self.run.template
        phases = self.run.settings["phases"]
        values |= {"DIR": self.run.folder, "SEED": str(self.run.seed * 100 + self.number), "TIMEOUT": "1s",
                   "PHASE": phases[self.number % len(phases)]}
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        observer = self.run.settings["observe"]
        settings = f"[mortise]\nttl = {self.run.settings['ttl']}ms\nobserve = {observer}\n"
        settings += f"witness = {self.run.witness.path}\n" if self.run.witness else "witness = off\n"
        text = text.replace("[mortise]\n", settings, 1)
        if observer == "trace":
            text += f"[trace]\npath = {self.run.folder}/history/{self.number}.jsonl\n"
        else:
            text += f"[recorder]\nfolder = {self.run.folder}/history\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o600)
        return path

    def start(self):
        settings = self.run.settings
        self.started += 1
        self.stopped_until = 0
        environment = dict(os.environ)
        if settings["wall"]:
            environment |= {"LD_PRELOAD": settings["wall"], "MORTISE_CLOCK": self.clock}
        if settings["load"]:
            environment["GLIBC_TUNABLES"] = KEEP_NOTHING
        program = [os.environ["MORTISE_TORTURE"]]
        more = ["broken=1"] if settings["find"] else []
        if self.number < settings["python"]:
            program = os.environ["MORTISE_TORTURE_PYTHON"].split()
        self.enclosed = settings["namespaces"] and self.number % 2 == 1
        if self.enclosed:
            program = [*ENCLOSED, *program]
        with open(self.complaints, "a", encoding="utf-8") as stderr:
            self.fighter = Process(
                [*program, self.config, f"{self.run.folder}/history",
                 ",".join(f"name{i}" for i in range(settings["names"])),
                 f"seed={self.run.seed * 1000 + self.number * 100 + self.started}",
                 *(f"{key}={settings[key]}" for key in ("threads", "clients", "ttl", "calm_ttl", "long", "hold", "pause",
                                                        "plain", "modes")), *more], stderr, environment)

    def set_clock(self, ahead_s):
        """The time of day that the process sees; whoever comes after it sees that too."""
        self.ahead_s = ahead_s
        put(self.clock, f"{ahead_s}\n")

    def check_clock(self):
        """That it sees it: it looks for a new one once in ten milliseconds."""
        give_up = time.monotonic() + PATIENCE_S
        while self.run.settings["wall"]:
            self.fighter.say("clock")
            wrong_s = int(self.fighter.hear()) - time.time() - self.ahead_s
            if abs(wrong_s) <= 30:
                return
            if time.monotonic() > give_up:
                raise Failure(f"fighter {self.number}: its clock should be {self.ahead_s} s ahead; {wrong_s:.0f} more")
            time.sleep(0.01)

    def check_complaints(self):
        """Of all who have been here, those that were killed too."""
        with open(self.complaints, encoding="utf-8", errors="replace") as file:
            bad = [line.strip() for line in file if re.search(COMPLAINT, line)]
        if bad:
            # A load has no tokens: whoever stands still and writes when his lease was lost does that, and tells.
            stood = self.run.settings["load"] and "write.LOST" in self.run.statuses
            how = Finding if not stood and any(CHANGED in line for line in bad) else Failure
            raise how(f"fighter {self.number}: {len(bad)} complaints: {'; '.join(bad[:3])}")

    def expect_ready(self):
        said = self.fighter.hear()
        if said != "ready":
            raise Failure(f"fighter {self.number}: {said or 'it has ended'}\n{self.last_words()}")
        if self.enclosed:
            self.fighter.pid = only_child(self.fighter.pid)

    def hear_counts(self):
        words = self.fighter.hear().split()
        return {status: int(times) for status, times in (word.split("=") for word in words)}

    def ask_counts(self):
        self.fighter.say("count")
        return self.hear_counts()

    def signal(self, number):
        os.kill(self.fighter.pid, number)

    def say_proxies(self, command, members=()):
        """To those before the members; to all, if none is named."""
        for number, (_, control) in enumerate(self.proxies, 1):
            if members and number not in members:
                continue
            done = subprocess.run([os.environ["MORTISE_PROXY"], "say", control, *command.split()],
                                  stdout=subprocess.DEVNULL, check=False)
            if done.returncode != 0:
                raise Failure(f"the proxy of fighter {self.number}: {command}")

    def ask_cuts(self):
        """How often something of the kind was cut since this was asked last."""
        now = {fault: 0 for fault in COUNTED}
        for _, control in self.proxies:
            done = subprocess.run([os.environ["MORTISE_PROXY"], "say", control, "count"], stdout=subprocess.PIPE,
                                  text=True, check=False)
            said = dict(word.split("=") for word in done.stdout.split())
            if not set(COUNTED) <= set(said):
                raise Failure(f"the proxy of fighter {self.number} counts nothing: {done.stdout}")
            for fault in now:
                now[fault] += int(said[fault])
        before, self.cuts = self.cuts, now
        return {fault: now[fault] - before.get(fault, 0) for fault in now}

    def check_alive(self):
        code = self.fighter.child.poll()
        if code is not None:
            raise Failure(f"fighter {self.number} ended by itself: exit code {code}\n{self.last_words()}")

    def last_words(self):
        with open(self.complaints, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-40:])

    def end(self):
        for process in ([self.fighter] if self.fighter else []) + [proxy for proxy, _ in self.proxies]:
            process.end()
