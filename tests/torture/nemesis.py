#!/usr/bin/env python3
"""A torture run: starts a server, processes that fight for a few names (torture.c) and a fault proxy before each of
them; breaks what a plan from one seed says, counts it by kind; lets it heal, ends all in good order, and has the
checker (check.c) prove from what was written down that no promise was broken, or find that it was.

    nemesis.py NAME CONFIG [KEY=VALUE …]

CONFIG is a template, in which @DIR@, @HOST@ and the @PORT…@s are replaced; the latter are the proxies'. KEYs:
    server=KIND         of tests/servers.sh, with the KEY=VALUEs in $MORTISE_SERVER; none: there is no server
    faults=WORD,WORD…   which ones (see FAULTS); a word twice comes twice as often
    seconds=N           how long faults happen, rate=N of them a second, each for up to `longest` of the ttl (2.5)
    calm=N              for how many seconds more it goes on without
    processes=N threads=N clients=N names=N ttl=MS long=N         of the fighters
    observe=MODULE      who writes the history: recorder, which loses nothing where a process is killed, or trace
    seed=N              the plan's; without it a fresh one. It is printed
    find=KIND           this violation must be found, by the checker: up to `tries` runs are made until it is
    tries=N

Environment: MORTISE_TORTURE, MORTISE_CHECK, MORTISE_PROXY, MORTISE_COMMAND, MORTISE_SOURCE_DIR. Where
MORTISE_NIGHTLY is 1 the run takes 60 seconds (or $MORTISE_TORTURE_SECONDS), with the seed that is given and with
fresh ones ($MORTISE_TORTURE_SEEDS of them; 1).
Histories are kept where MORTISE_TORTURE_KEEP is 1.
Exits 0: all as it should be; 1: not: then the folder with the histories is kept, and named; 77: no server."""
import heapq
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ["MORTISE_SOURCE_DIR"]
PATIENCE_S = 60  # bounds failure only
GETTING_ON = 5  # acquisitions of a process

# Of each fault: who suffers (a fighter's process, its connections, the server).
FAULTS = {
    "kill": "process", "stop": "process",
    "delay": "link", "cut": "link", "hold": "link", "hold-up": "link", "hold-down": "link",
    "lose": "link", "cut-after-up": "link", "cut-after-down": "link", "cut-reply": "link",
    "refuse": "link",
    "server-kill": "server", "server-stop": "server", "server-restart": "server",
}
# What tells whether a holder knows its deadline: these often happen to one, and for longer than a ttl.
TO_LIVE_THROUGH = ("stop", "hold", "hold-up", "hold-down", "lose")


class Failure(Exception):
    pass


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def tell(text):
    print(text, flush=True)


class Process:
    """A child that is talked to by lines."""

    def __init__(self, arguments, stderr=None):
        self.child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=stderr, text=True, bufsize=1)
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
        self.child.stdin.close()
        self.child.stdout.close()


class Server:
    """A private one, or none; by the hooks that the conformance suite has."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.values = kind, folder, {}

    def do(self, verb, *arguments):
        if not self.kind:
            return ""
        done = subprocess.run(["sh", f"{SOURCE}/tests/servers.sh", verb, self.kind,
                               f"{self.folder}/server", *arguments],
                              stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 77:
            sys.exit(77)
        if done.returncode != 0:
            raise Failure(f"the server: {verb}: exit code {done.returncode}")
        return done.stdout

    def start(self):
        if not self.kind:
            return
        os.makedirs(f"{self.folder}/server", exist_ok=True)
        text = self.do("start", f"guard={os.getpid()}",
                       *os.environ.get("MORTISE_SERVER", "").split())
        with open(f"{self.folder}/values", "w", encoding="utf-8") as file:
            file.write(text)
        self.values = dict(line.split("=", 1) for line in text.splitlines())

    def left(self):
        """What clients left in it, once there are none."""
        if not self.kind:
            return []
        hooks = f"{SOURCE}/tests/conformance/{self.kind}.sh"
        done = subprocess.run(["sh", hooks, "left", self.folder], stdout=subprocess.PIPE, text=True,
                              check=False)
        return done.stdout.splitlines()


class Slot:
    """The place of one fighter: a process, which is made anew when it is killed, and its own ways to the server."""

    def __init__(self, run, number):
        self.run, self.number, self.fighter, self.stopped_until = run, number, None, 0
        self.proxies, self.started = [], 0
        values = dict(run.server.values)
        for name, port in run.server.values.items():
            if name.startswith("PORT"):
                values[name] = str(self.start_proxy(name, port))
        self.config = self.write_config(values)

    def start_proxy(self, name, port):
        control = f"{self.run.folder}/{self.number}{name}"
        proxy = Process([os.environ["MORTISE_PROXY"], control, "127.0.0.1", port])
        self.proxies.append((proxy, control))
        return int(proxy.hear().removeprefix("PORT="))

    def write_config(self, values):
        path, text = f"{self.run.folder}/{self.number}.conf", self.run.template
        for name, value in (values | {"DIR": self.run.folder, "TIMEOUT": "1s"}).items():
            text = text.replace(f"@{name}@", value)
        observer = self.run.settings["observe"]
        settings = f"[mortise]\nttl = {self.run.settings['ttl']}ms\nobserve = {observer}\n"
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
        self.fighter = Process(
            [os.environ["MORTISE_TORTURE"], self.config, f"{self.run.folder}/history",
             ",".join(f"name{i}" for i in range(settings["names"])),
             f"threads={settings['threads']}", f"clients={settings['clients']}",
             f"seed={self.run.seed * 1000 + self.number * 100 + self.started}",
             f"ttl={settings['ttl']}", f"long={settings['long']}"])

    def expect_ready(self):
        said = self.fighter.hear()
        if said != "ready":
            raise Failure(f"fighter {self.number}: {said or 'it has ended'}")

    def hear_counts(self):
        words = self.fighter.hear().split()
        return {status: int(times) for status, times in (word.split("=") for word in words)}

    def ask_counts(self):
        self.fighter.say("count")
        return self.hear_counts()

    def signal(self, number):
        os.kill(self.fighter.pid, number)

    def say_proxies(self, command):
        for _, control in self.proxies:
            done = subprocess.run([os.environ["MORTISE_PROXY"], "say", control, *command.split()],
                                  stdout=subprocess.DEVNULL, check=False)
            if done.returncode != 0:
                raise Failure(f"the proxy of fighter {self.number}: {command}")

    def check_alive(self):
        code = self.fighter.child.poll()
        if code is not None:
            raise Failure(f"fighter {self.number} ended by itself: exit code {code}")

    def end(self):
        for process in ([self.fighter] if self.fighter else []) + [proxy for proxy, _ in self.proxies]:
            process.end()


class Plan:
    """What happens when: all of it from the seed."""

    def __init__(self, seed, settings, slots):
        draw = random.Random(seed)
        ttl_s = settings["ttl"] / 1000
        self.entries, at, server_free_at = [], 0.2, 0.0
        while at < settings["seconds"]:
            fault = draw.choice(settings["faults"])
            entry = {"at": at, "fault": fault, "slot": draw.randrange(slots),
                     "holder": fault in TO_LIVE_THROUGH and draw.random() < 0.7,
                     "for": self.duration(draw, settings, fault),
                     "number": draw.choice([draw.randrange(40), draw.randrange(3000)])}
            if FAULTS[fault] == "server":
                at = max(at, server_free_at)
                entry["at"] = at
                server_free_at = at + entry["for"] + ttl_s  # it has to be there at times
            self.entries.append(entry)
            at += draw.expovariate(settings["rate"])

    @staticmethod
    def duration(draw, settings, fault):
        """Often just longer than a ttl, where the holder is to find that out."""
        if fault in TO_LIVE_THROUGH and draw.random() < 0.5:
            times = draw.uniform(1, 1.8)
        elif FAULTS[fault] == "server":
            times = draw.uniform(0, 0.3 * settings["longest"])  # nothing is learned while it is away
        else:
            times = draw.uniform(0, draw.choice([0.2, 1]) * settings["longest"])
        return times * settings["ttl"] / 1000


class Run:
    def __init__(self, name, template, settings, seed):
        self.name, self.template, self.settings, self.seed = name, template, settings, seed
        self.folder = tempfile.mkdtemp(prefix="mortise-torture-")
        os.chmod(self.folder, 0o711)  # a server may run as somebody else
        os.mkdir(f"{self.folder}/history")
        self.log = open(f"{self.folder}/history/nemesis.jsonl", "w", encoding="utf-8", buffering=1)
        self.server = Server(settings["server"], self.folder)
        self.slots, self.counts, self.statuses = [], {}, {}
        self.queue, self.order, self.server_busy, self.took = [], 0, False, []
        self.until = 0

    def write(self, event, **more):
        self.log.write(json.dumps({"event": event, "at_ns": now_ns()} | more) + "\n")

    # ---- faults: each begins, and most end later --------------------------------------------------

    def later(self, at, action):
        self.order += 1
        heapq.heappush(self.queue, (at, self.order, action))

    def kill(self, slot):
        slot.check_alive()
        slot.fighter.child.kill()
        slot.fighter.child.wait()
        self.write("killed", pid=slot.fighter.pid)
        slot.fighter.end()
        slot.start()
        slot.expect_ready()

    def stop(self, slot, until):
        slot.check_alive()
        slot.signal(signal.SIGSTOP)
        slot.stopped_until = max(slot.stopped_until, until)
        self.later(until, lambda: self.go_on(slot))

    def go_on(self, slot):
        if slot.stopped_until and slot.stopped_until <= time.monotonic():
            slot.stopped_until = 0
            slot.signal(signal.SIGCONT)

    def break_link(self, slot, entry, until):
        fault = entry["fault"]
        if fault == "delay":
            slot.say_proxies(f"delay {entry['number'] % 300} {'up down both'.split()[entry['number'] % 3]}")
        elif fault in ("cut-after-up", "cut-after-down"):
            slot.say_proxies(f"cut-after {fault[10:]} {entry['number']}")
        elif fault == "cut-reply":
            slot.say_proxies(f"cut-reply {entry['number'] % 20 + 1}")
        else:
            slot.say_proxies(fault)
        self.later(until, lambda: slot.say_proxies("pass"))

    def break_server(self, fault, until):
        begin, end = {"server-kill": ("kill", "start"), "server-restart": ("stop", "start"),
                      "server-stop": ("freeze", "thaw")}[fault]
        self.server.do(begin)
        self.write(fault)
        self.server_busy = True
        self.later(until, lambda: self.mend_server(end))

    def mend_server(self, verb):
        self.server.do(verb)
        self.write("server-" + verb)
        self.server_busy = False

    def victim(self, entry):
        """The one of the plan; or who holds something now, if anybody does."""
        for slot in self.slots if entry["holder"] else []:
            if not slot.stopped_until and slot.ask_counts().get("holding"):
                return slot
        return self.slots[entry["slot"]]

    def strike(self, entry):
        slot, until = self.victim(entry), time.monotonic() + entry["for"]
        fault = entry["fault"]
        if time.monotonic() > self.until or (FAULTS[fault] == "server" and self.server_busy):
            return
        self.counts[fault] = self.counts.get(fault, 0) + 1
        self.write("fault", text=fault, pid=slot.fighter.pid, value=int(entry["for"] * 1000))
        if fault == "kill":
            self.kill(slot)
        elif fault == "stop":
            self.stop(slot, until)
        elif FAULTS[fault] == "link":
            self.break_link(slot, entry, until)
        else:
            self.break_server(fault, until)

    # ---- the course of it --------------------------------------------------------------------------

    def fight(self):
        """Until the plan is done and all that was broken is mended."""
        begin = time.monotonic()
        for entry in Plan(self.seed, self.settings, len(self.slots)).entries:
            self.later(begin + entry["at"], lambda entry=entry: self.strike(entry))
        self.until = begin + self.settings["seconds"] + 1  # a server may be slow to start
        while self.queue:
            at, _, action = heapq.heappop(self.queue)
            time.sleep(max(0, at - time.monotonic()))
            action()

    def calm(self):
        """All have to get on again."""
        for slot in self.slots:
            slot.check_alive()
        self.write("calm")
        for slot in self.slots:
            slot.fighter.say("calm")
        before = [slot.ask_counts().get("acquire.OK", 0) for slot in self.slots]
        calm_at = time.monotonic()
        for slot, had in zip(self.slots, before):
            while slot.ask_counts().get("acquire.OK", 0) < had + GETTING_ON:
                if time.monotonic() > calm_at + PATIENCE_S:
                    raise Failure(f"fighter {slot.number} does not get on after the last fault")
                time.sleep(0.05)
        time.sleep(max(0, calm_at + self.settings["calm"] - time.monotonic()))

    def stop_all(self):
        for slot in self.slots:
            slot.fighter.say("stop")
        for slot in self.slots:
            for status, times in slot.hear_counts().items():
                self.statuses[status] = self.statuses.get(status, 0) + times
        for slot in self.slots:
            code = slot.fighter.child.wait(PATIENCE_S)
            if code != 0:
                raise Failure(f"fighter {slot.number}: exit code {code}")

    def look_for_left(self):
        """Claims of the dead end by themselves; nothing may be there after that."""
        until = time.monotonic() + 30
        while (left := self.left_by_list() + self.server.left()) and time.monotonic() < until:
            time.sleep(0.2)
        for text in left:
            self.write("left", text=text)

    def left_by_list(self):
        for slot in self.slots:
            slot.say_proxies("pass")
        done = subprocess.run([os.environ["MORTISE_COMMAND"], "-C", self.slots[0].config, "list"],
                              capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else [done.stderr]

    def check(self):
        history = f"{self.folder}/history"
        files = sorted(os.path.join(history, name) for name in os.listdir(history))
        done = subprocess.run([os.environ["MORTISE_CHECK"], f"patience={PATIENCE_S * 500}", *files],
                              capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise Failure(f"the checker: exit code {done.returncode}: {done.stderr}")
        return dict(word.split("=") for word in done.stdout.split()), done.stderr

    def go(self):
        settings = self.settings
        self.server.start()
        self.slots = [Slot(self, number) for number in range(settings["processes"])]
        for slot in self.slots:
            slot.start()
        for slot in self.slots:
            slot.expect_ready()
        for phase in (self.fight, self.calm, self.stop_all, self.look_for_left):
            begin = time.monotonic()
            phase()
            self.took.append(f"{phase.__name__} {time.monotonic() - begin:.1f} s")
        return self.check()

    def report(self, found):
        def line(counts):
            return " ".join(f"{word}={counts[word]}" for word in sorted(counts)) or "none"

        tell(f"  faults: {sum(self.counts.values())} {line(self.counts)}")
        tell(f"  calls: {line(self.statuses)}")
        tell(f"  check: {line(found)}")
        tell(f"  took: {', '.join(self.took)}")

    def end(self, keep):
        for slot in self.slots:
            slot.end()
        self.log.close()
        try:
            self.server.do("end")
        except Failure as failure:
            tell(f"  {failure}")
        if keep:
            tell(f"  kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


VIOLATIONS = "overlap order starved leftover unbalanced lost-update garbled".split()


def run_once(name, template, settings, seed):
    """The violations that were found, with their numbers; None: it did not come to an end."""
    tell(f"{name}: seed={seed}")
    run, found = Run(name, template, settings, seed), None
    good = False
    try:
        numbers, details = run.go()
        found = {word: int(numbers[word]) for word in VIOLATIONS if numbers[word] != "0"}
        good = not found or set(found) <= {settings["find"]}
        run.report(numbers)
        if found:
            tell(details)
        if int(numbers["holds"]) < 10:
            tell("  so few holds prove nothing")
            good, found = False, None
    except Failure as failure:
        tell(f"  failed: {failure}")
    finally:
        run.end(keep=not good or os.environ.get("MORTISE_TORTURE_KEEP") == "1")
    return found


def read_settings(arguments):
    settings = {"server": "", "faults": "kill,stop", "seconds": "8", "rate": "3", "processes": "4",
                "threads": "3", "clients": "1", "names": "3", "ttl": "1000", "seed": "", "find": "",
                "tries": "1", "calm": "1", "observe": "recorder",
                "longest": "2.5", "long": "60"}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key not in settings:
            sys.exit(f"nemesis.py: what is \"{argument}\"?")
        settings[key] = value
    for key, value in settings.items():
        if re.fullmatch(r"[0-9]+", value):
            settings[key] = int(value)
        elif re.fullmatch(r"[0-9]+\.[0-9]+", value):
            settings[key] = float(value)
    settings["faults"] = settings["faults"].split(",")
    if not set(settings["faults"]) <= set(FAULTS):
        sys.exit(f"nemesis.py: unknown faults: {set(settings['faults']) - set(FAULTS)}")
    return settings


def fresh_seed():
    return random.SystemRandom().randrange(1, 1_000_000)


def find_it(name, template, settings):
    for attempt in range(settings["tries"]):
        found = run_once(name, template, settings, settings["seed"] + attempt)
        if found is None or set(found) - {settings["find"]}:
            return False
        if found:
            tell(f"{name}: {settings['find']} was found, as it must be")
            return True
    tell(f"{name}: {settings['find']} was not found: is the checker blind?")
    return False


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    name, settings = sys.argv[1], read_settings(sys.argv[3:])
    with open(sys.argv[2], encoding="utf-8") as file:
        template = file.read()
    seeds = [settings["seed"] or fresh_seed()]
    if settings["find"]:
        settings["seed"] = seeds[0]
        return find_it(name, template, settings)
    if os.environ.get("MORTISE_NIGHTLY") == "1":
        settings["seconds"] = int(os.environ.get("MORTISE_TORTURE_SECONDS", "60"))
        seeds += [fresh_seed() for _ in range(int(os.environ.get("MORTISE_TORTURE_SEEDS", "1")))]
    # Every seed is tried, whatever the one before has shown.
    return all([run_once(name, template, settings, seed) == {} for seed in seeds])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
