#!/usr/bin/env python3
"""The drill: moves a fleet of workers (worker.c) from one backend to another and back while it works, with the steps of
docs/migrating.md, and verifies afterwards what happened.

    drill.py [KEY=VALUE …]

KEYs:
    from=redis      the backend that the fleet leaves: redis, cluster (a Redis Cluster of three masters), zookeeper or etcd
    to=zookeeper    the backend that it moves to; another one
    workers=12      the number of workers
    faults=no       yes: kill workers (SIGKILL), and kill or stop and restart servers, at random points
    seed=1          decides which fault happens where; the exact times depend on the machine
    observe=trace   the observer that records the events of every client. A killed process loses the end of its trace, so
                    with faults it is the tests' own `recorder`
    keep=no         yes: keep the directory, as after a failure

The steps: all workers in phase old; restart them one by one into both; the step that admits new; restart them one by one
into new; the step after which the old backend can be removed; stop it, and they work on; start it, and the same steps back.

The drill succeeds if the counter equals the number of additions that the store accepted, if the tests' checker finds no
two holders of the lock at one instant in the events of all clients, and if every token is larger than the one before. It
prints the number of additions, how many workers were restarted and killed, and the longest time without an addition, and
at which step that was.

Needs a build with tests, as `sh tests/run.sh` makes it: the servers and the checker are those of the tests.
Environment: MORTISE_BUILD_DIR, that build (build-test of the source), MORTISE_COMMAND and MORTISE_MODULE_PATH (those of the
build).
Exit code: 0, 1, or 77: a server is not installed."""
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("MORTISE_BUILD_DIR", f"{SOURCE}/build-test"))
WORKER, CHECKER = f"{BUILD}/examples/migration/worker", f"{BUILD}/tests/torture/check"
os.environ.setdefault("MORTISE_MODULE_PATH", f"{BUILD}/lib/mortise:{BUILD}/tests/modules")
COMMAND = os.environ.get("MORTISE_COMMAND", f"{BUILD}/bin/mortise")
PATIENCE_S = 120  # only a failure takes that long
ADDITIONS = 50  # after so many additions by all workers the fleet makes progress

CONFIG = """[mortise]
driver = migrate
namespace = drill:
ttl = {ttl}
observe = {observe}
[migrate]
from = {old}
to = {new}
phase = old
presence = {presence}
[{old}]
{old_server}
[{new}]
{new_server}
[{observe}]
{where}
"""
# ZooKeeper need not wait for the disk: processes are killed here, and what they have written stays with the system.
SERVER_KEYS = {"redis": ["aof=yes"], "cluster": ["cluster=3", "aof=yes"], "zookeeper": ["sync=no"], "etcd": []}
SERVER_KIND = {"cluster": "redis"}  # of tests/servers.sh; the others have its name
SECTION = {"cluster": "redis:cluster"}  # likewise
SERVER_CONFIG = {
    "redis": "servers = 127.0.0.1:{port}",
    "cluster": "servers = 127.0.0.1:{port},127.0.0.1:{port2}\ncluster = yes",
    "zookeeper": "servers = 127.0.0.1:{port}\nsession_timeout = {presence}",
    "etcd": "endpoints = 127.0.0.1:{port}",
}


tell = functools.partial(print, flush=True)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Failure(Exception):
    """Of the drill, or of what it verifies."""


class Server:
    """A private server, which keeps its data over a restart."""

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, f"{folder}/{kind}"
        os.mkdir(self.folder)
        self.section = SECTION.get(kind, kind)
        values = self.do("start", f"guard={os.getpid()}", *SERVER_KEYS[kind])
        self.values = dict(line.split("=", 1) for line in values.splitlines())
        self.up = True

    def do(self, verb, *words):
        done = subprocess.run(["sh", f"{SOURCE}/tests/servers.sh", verb, SERVER_KIND.get(self.kind, self.kind), self.folder,
                               *words], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 77:
            sys.exit(77)
        if done.returncode != 0:
            raise Failure(f"{self.kind}: {verb}: exit code {done.returncode}")
        return done.stdout

    def config(self, presence, **_):
        return SERVER_CONFIG[self.kind].format(port=self.values["PORT"], port2=self.values.get("PORT2"), presence=presence)

    def stop(self, verb="stop"):
        self.do(verb)
        self.up = False

    def start(self):
        self.do("start")
        self.up = True


class Worker:
    """One worker of the fleet: its number, and its current process."""

    def __init__(self, drill, number):
        self.drill, self.number = drill, number
        self.start()

    def start(self):
        self.child = subprocess.Popen(
            [WORKER, self.drill.config, self.drill.store],
            stdout=subprocess.PIPE, stderr=self.drill.log, text=True)

    def has_added(self):
        if self.child.poll() is not None:
            raise Failure(f"worker {self.number} ended by itself: exit code {self.child.returncode}")
        self.drill.additions()
        return self.child.pid in self.drill.who_added

    def end(self):
        """Ends it with SIGTERM. Returns how often it added. Waits for its first addition, because before that it may not
        handle the signal yet."""
        self.drill.wait_for(f"worker {self.number} adds", self.has_added)
        self.child.send_signal(signal.SIGTERM)
        try:
            said, _ = self.child.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"worker {self.number} does not end") from None
        if self.child.returncode != 0:
            raise Failure(f"worker {self.number}: exit code {self.child.returncode}")
        return int(said.split()[-1])

    def kill(self):
        self.child.kill()
        self.child.communicate()
        self.drill.write("killed", pid=self.child.pid)


class Drill:
    def __init__(self, settings):
        self.settings = settings
        self.faults = settings["faults"] == "yes"
        self.random = random.Random(int(settings["seed"]))
        self.folder = tempfile.mkdtemp(prefix="mortise-drill-")
        os.mkdir(f"{self.folder}/history")
        self.store, self.config = f"{self.folder}/counter.jsonl", f"{self.folder}/mortise.conf"
        self.log = open(f"{self.folder}/workers.log", "w", encoding="utf-8")
        self.marks = open(f"{self.folder}/history/drill.jsonl", "w", encoding="utf-8", buffering=1)
        self.workers, self.places, self.begun = [], [], time.monotonic()
        self.added, self.restarts, self.kills, self.server_restarts = 0, 0, 0, 0
        self.read_to, self.lines, self.who_added = 0, [], set()

    def write(self, event, **more):
        self.marks.write(json.dumps({"event": event, "at_ns": now_ns()} | more) + "\n")

    def say(self, text):
        tell(f"{time.monotonic() - self.begun:6.1f} s  {text}")

    def at(self, place):
        """Sets the name of the current step."""
        self.places.append((now_ns(), place))
        self.say(place)

    # ---- the store --------------------------------------------------------------------------------

    def additions(self):
        """Returns all lines so far."""
        with open(self.store, "rb") as file:
            file.seek(self.read_to)
            text = file.read()
        whole = text[:text.rfind(b"\n") + 1]
        self.read_to += len(whole)
        more = [json.loads(line) for line in whole.splitlines()]
        self.who_added.update(line["pid"] for line in more)
        self.lines += more
        return self.lines

    def wait_for(self, what, condition):
        until = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until:
                raise Failure(f"{what}: not in {PATIENCE_S} s")
            time.sleep(0.02)

    def get_on(self, how_often=ADDITIONS):
        """Waits until the fleet has added so often."""
        goal = len(self.additions()) + how_often
        self.wait_for("getting on", lambda: len(self.additions()) >= goal)

    # ---- the fleet --------------------------------------------------------------------------------

    def restart(self, worker):
        """Restarts a worker, which then has the phase of the file. With faults, some are killed instead."""
        if self.faults and self.random.random() < 0.1:
            worker.kill()
            self.kills += 1
        else:
            self.added += worker.end()
        self.restarts += 1
        worker.start()
        self.wait_for(f"worker {worker.number} adds", worker.has_added)

    def restart_all(self):
        order = list(self.workers)
        if self.faults:
            self.random.shuffle(order)
        for worker in order:
            if self.faults and self.random.random() < 0.07:
                self.hit_server()
            self.restart(worker)

    def hit_server(self):
        """Kills or stops a server, and starts it again at once."""
        server = self.random.choice([server for server in (self.old, self.new) if server.up])
        verb = self.random.choice(["kill", "stop"])
        self.say(f"{server.kind}: {verb}, and started again")
        server.stop(verb)
        server.start()
        self.server_restarts += 1

    def hit_something(self):
        if self.random.random() < 0.5:
            self.hit_server()
            return
        worker = self.random.choice(self.workers)
        self.say(f"worker {worker.number} is killed")
        worker.kill()
        self.kills += 1
        worker.start()

    # ---- steps ------------------------------------------------------------------------------------

    def mortise(self, *words):
        return subprocess.run([COMMAND, "-C", self.config, "migrate", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def advance(self, *words):
        """Does what an operator would do: tries again if a server was unreachable or something else came between."""
        self.at("mortise migrate " + " ".join(["advance", *words]))
        hits = self.random.randint(0, 2) if self.faults else 0
        done = []
        thread = threading.Thread(target=self.advance_until_done, args=(words, done))
        thread.start()
        for _ in range(hits):
            self.hit_something()
        thread.join()
        if done[-1].returncode != 0:
            raise Failure(f"migrate advance: exit code {done[-1].returncode}: {done[-1].stdout}")
        for line in done[-1].stdout.splitlines():
            tell(f"          {line}")

    def advance_until_done(self, words, done):
        until = time.monotonic() + PATIENCE_S
        while not done or (self.faults and done[-1].returncode in (69, 75) and time.monotonic() < until):
            done.append(self.mortise("advance", "--wait", f"{PATIENCE_S}s", *words))

    # ---- the way ----------------------------------------------------------------------------------

    def begin(self):
        self.old = Server(self.settings["from"], self.folder)
        self.new = Server(self.settings["to"], self.folder)
        observe = self.settings["observe"]
        where = {"recorder": f"folder = {self.folder}/history",
                 "trace": f"path = {self.folder}/history/trace.jsonl"}[observe]
        # short with faults: a killed worker blocks the others, and the step, for this long
        times = {"ttl": "6s", "presence": "6s"} if self.faults else {"ttl": "10s", "presence": "10s"}
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(observe=observe, where=where, old=self.old.section, new=self.new.section,
                                     old_server=self.old.config(**times), new_server=self.new.config(**times), **times))
        os.chmod(self.config, 0o600)
        open(self.store, "w", encoding="utf-8").close()
        self.at(f"all in phase old, on {self.old.kind}")
        self.workers = [Worker(self, number) for number in range(int(self.settings["workers"]))]
        for worker in self.workers:
            self.wait_for(f"worker {worker.number} adds", worker.has_added)

    def there(self):
        self.advance()
        self.at("one by one into phase both")
        self.restart_all()
        self.advance()
        self.at("one by one into phase new")
        self.restart_all()
        self.advance()

    def without_old(self):
        self.old.stop()
        self.at(f"{self.old.kind} is gone")
        self.get_on()
        self.old.start()

    def back(self):
        self.advance("--back")
        self.at("one by one back into phase both")
        self.restart_all()
        self.advance("--back")
        self.at("one by one back into phase old")
        self.restart_all()
        self.get_on()

    def walk(self):
        self.there()
        self.without_old()
        self.back()

    def end(self):
        for worker in self.workers:
            self.added += worker.end()
        self.workers = []
        self.places.append((now_ns(), "the end"))

    def clean_up(self):
        for worker in self.workers:
            worker.child.kill()
            worker.child.communicate()
        for kind in (self.settings["from"], self.settings["to"]):
            subprocess.run(["sh", f"{SOURCE}/tests/servers.sh", "end", SERVER_KIND.get(kind, kind), f"{self.folder}/{kind}"],
                           check=False)
        self.log.close()
        self.marks.close()

    # ---- what happened ----------------------------------------------------------------------------

    def check_counter(self):
        fence, value, taken = 0, 0, 0
        for line in self.additions():
            if line["token"] < fence:
                continue
            if line["token"] == fence:
                raise Failure(f"token {fence} was given twice")
            if line["value"] != value + 1:
                raise Failure(f"{line['value']} was written over {value}, with token {line['token']}")
            fence, value, taken = line["token"], line["value"], taken + 1
        if not self.kills and taken != self.added:
            raise Failure(f"the workers added {self.added} times, the store took {taken}")
        refused = len(self.lines) - taken
        tell(f"counter: {value}, exact ({taken} additions, {refused} refused for their token); tokens grew throughout")

    def histories(self):
        """Leaves out the operator's own locks, of which each side has its own."""
        os.mkdir(f"{self.folder}/checked")
        files = []
        for name in sorted(os.listdir(f"{self.folder}/history")):
            files.append(f"{self.folder}/checked/{name}")
            with open(f"{self.folder}/history/{name}", "rb") as full, open(files[-1], "wb") as part:
                part.writelines(line for line in full if b".mortise-migrate/" not in line)
        return files

    def check_holders(self):
        """Runs the tests' checker on the events of every client, and on the store."""
        done = subprocess.run([CHECKER, f"patience={PATIENCE_S * 1000}", self.store, *self.histories()],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"the checker found:\n{done.stderr}FINDING: {done.stdout}")
        numbers = dict(word.split("=") for word in done.stdout.split())
        if int(numbers["holds"]) < len(self.lines):
            raise Failure(f"{len(self.lines)} additions, but only {numbers['holds']} holds were seen")
        tell(f"holders: {numbers['holds']} holds by {numbers['clients']} clients, never two at one instant")

    def tell_longest(self):
        instants = [line["at_ns"] for line in self.lines]
        gap, begin = max((after - before, before) for before, after in zip(instants, instants[1:]))
        place = [text for at_ns, text in self.places if at_ns <= begin + gap][-1]
        tell(f"longest time in which nothing was added: {gap / 1e6:.0f} ms ({place})")

    def verdict(self):
        self.check_counter()
        self.check_holders()
        self.tell_longest()
        tell(f"{self.restarts} workers restarted, {self.kills} killed, servers restarted "
             f"{self.server_restarts} times, seed {self.settings['seed']}")


def read_settings(arguments):
    settings = {"from": "redis", "to": "zookeeper", "workers": "12", "faults": "no", "seed": "1", "observe": "", "keep": "no"}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in settings or not equals:
            sys.exit(f"drill: not understood: {argument}")
        settings[key] = value
    sides = {settings["from"], settings["to"]}
    if len(sides) != 2 or not sides <= SERVER_KEYS.keys():
        sys.exit(f"drill: from and to must be two of {', '.join(SERVER_KEYS)}")
    if not settings["observe"]:
        settings["observe"] = "recorder" if settings["faults"] == "yes" else "trace"
    return settings


def main():
    settings = read_settings(sys.argv[1:])
    for program in (COMMAND, WORKER, CHECKER):
        if not os.path.exists(program):
            sys.exit(f"drill: there is no {program}; MORTISE_BUILD_DIR must name a build with tests, as tests/run.sh makes it")
    drill = Drill(settings)
    keep = settings["keep"] == "yes"
    try:
        drill.begin()
        drill.walk()
        drill.end()
        drill.verdict()
    except Failure as failure:
        tell(f"drill: {failure}\ndrill: seed {settings['seed']}; what was written is in {drill.folder}")
        keep = True
        return 1
    except Exception:  # of the drill itself, or of a line that nobody expected
        tell(f"drill: what was written is in {drill.folder}")
        keep = True
        raise
    finally:
        drill.clean_up()
        if not keep:
            shutil.rmtree(drill.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
