#!/usr/bin/env python3
"""metrics.py - the metrics observer among real processes, its files read by Prometheus's own parser: slots, files that
are whole at every instant, clients that are killed, a folder that is not there yet; and the dashboard names only
what is written. Needs $MORTISE_COMMAND, python3-prometheus-client."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from prometheus_client.parser import text_string_to_metric_families

MORTISE = os.environ["MORTISE_COMMAND"]
PATIENCE_S = 120
work = tempfile.mkdtemp(prefix="mortise-metrics.")
count = 0


class World:
    """A folder for files, locks of its own, a config."""

    def __init__(self, make=True, **settings):
        global count
        count += 1
        self.root = os.path.join(work, str(count))
        self.folder = os.path.join(self.root, "prom")
        os.mkdir(self.root)
        if make:
            os.mkdir(self.folder)
        settings = {"folder": self.folder, "every": "10ms", **settings}
        self.config = os.path.join(self.root, "mortise.conf")
        with open(self.config, "w") as file:
            file.write("[mortise]\ndriver = sqlite\nobserve = metrics\nnamespace = app:\nttl = 30s\n")
            file.write(f"[sqlite]\npath = {self.root}/locks.db\n[metrics]\n")
            file.writelines(f"{key} = {value}\n" for key, value in settings.items())

    def run(self, *words, check=True):
        return subprocess.run([MORTISE, "-C", self.config, *words], check=check, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def hold(self, name, *options):
        """A process that holds or waits for the name, until its stdin is closed."""
        return subprocess.Popen([MORTISE, "-C", self.config, "run", *options, name, "--", "cat"],
                                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def files(self):
        return sorted(name for name in os.listdir(self.folder) if name.endswith(".prom"))

    def samples(self, slot=0):
        with open(os.path.join(self.folder, f"mortise-mortise-{slot}.prom")) as file:
            return parse(file.read())

    def value(self, name, slot=0, **labels):
        try:
            samples = self.samples(slot)
        except FileNotFoundError:
            return None
        wanted = set(labels.items())
        found = [value for (sample, given), value in samples.items() if sample == name and wanted <= set(given)]
        assert len(found) == 1, f"{name}{labels}: {found}"
        return found[0]


def parse(text):
    """{(name, labels): value}; each series once."""
    samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, key
            samples[key] = sample.value
    return samples


def until(what, ready):
    end = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.01)


def finish(*processes):
    for process in processes:
        process.stdin.close()
        process.stderr.read()
        assert process.wait(PATIENCE_S) == 0
        process.stderr.close()


def test_counts():
    world = World(every="1h")  # written at the beginning and the end alone
    for _ in range(3):
        world.run("run", "nightly", "--", "true")
    assert world.files() == ["mortise-mortise-0.prom"]
    assert world.value("mortise_grants_total") == 3
    assert world.value("mortise_releases_total") == 3
    assert world.value("mortise_hold_seconds_count") == 3
    assert world.value("mortise_held") == 0
    labels = {frozenset(dict(given).items() - {("slot", "0")}) for name, given in world.samples()
              if name == "mortise_held"}
    assert labels == {frozenset({("driver", "sqlite"), ("namespace", "app:"), ("program", "mortise")})}, labels
    assert oct(os.stat(os.path.join(world.folder, "mortise-mortise-0.prom")).st_mode & 0o777) == "0o644"
    series = set(world.samples())
    world.run("run", "a name \N{SNOWMAN} of another kind", "--", "true")
    assert set(world.samples()) == series, "a name made a series"


def test_now_and_slots():
    world = World(slots=2)
    holder = world.hold("nightly")
    until("the holder", lambda: world.value("mortise_held") == 1)
    waiter = world.hold("nightly")
    until("the waiter", lambda: world.value("mortise_waiting", slot=1) == 1)
    assert world.value("mortise_held", slot=1) == 0
    third = world.hold("other")  # no slot is left: works, and is not shown
    while b"slots" not in third.stderr.readline():
        pass
    assert world.files() == ["mortise-mortise-0.prom", "mortise-mortise-1.prom"]
    finish(third, holder)
    until("its turn", lambda: world.value("mortise_held", slot=1) == 1)
    finish(waiter)
    assert world.value("mortise_held", slot=1) == 0
    assert world.value("mortise_wait_seconds_count", slot=1) == 1
    assert world.run("run", "-n", "nightly", "--", "true").returncode == 0
    assert world.value("mortise_grants_total") == 2, "the lowest slot is taken, and goes on"


def test_killed():
    world = World()
    holder = world.hold("nightly", "--ttl", "30s")
    until("the holder", lambda: world.value("mortise_held") == 1)
    holder.send_signal(signal.SIGKILL)
    holder.wait(PATIENCE_S)
    holder.stdin.close()
    holder.stderr.close()
    assert world.value("mortise_held") == 1  # what the file last said
    # the keeper, a child of the holder's, may have the slot for a moment more
    until("the slot", lambda: world.run("run", "other", "--", "true") and world.value("mortise_grants_total") >= 2)
    assert world.value("mortise_held") == 0


def test_loss_and_failures():
    world = World()
    holder = world.hold("nightly", "--ttl", "6s")
    until("the holder", lambda: world.value("mortise_held") == 1)
    assert world.run("run", "-n", "nightly", "--", "true", check=False).returncode == 75
    until("the failure", lambda: world.value("mortise_failures_total", slot=1, status="BUSY") == 1)
    status = json.loads(world.run("status", "--json", "nightly").stdout)[0]
    world.run("break", "nightly", "--token", status["token"])
    until("the loss", lambda: world.value("mortise_losses_total") == 1)
    assert holder.wait(PATIENCE_S) == 76
    holder.stdin.close()
    holder.stderr.close()
    assert world.value("mortise_held") == 0


def test_whole():
    """A reader at any instant sees a whole file."""
    world = World()
    done = threading.Event()
    looks, problems = [], []
    path = os.path.join(world.folder, "mortise-mortise-0.prom")

    def read():
        while not done.is_set():
            try:
                with open(path) as file:
                    text = file.read()
            except FileNotFoundError:
                continue
            last = text.rstrip("\n").rsplit("\n", 1)[-1]
            if not text.endswith("\n") or not last.startswith("mortise_hold_seconds_count{"):
                problems.append(text)
            looks.append(1)

    reader = threading.Thread(target=read)
    holder = world.hold("nightly")
    reader.start()
    begun = time.monotonic()
    while len(looks) < 300 and time.monotonic() < begun + PATIENCE_S:
        world.run("run", "-n", "nightly", "--", "true", check=False)
    done.set()
    reader.join()
    finish(holder)
    assert looks and not problems, problems
    left = [name for name in os.listdir(world.folder) if name.endswith(".new")]
    assert not left, left


def test_folder():
    world = World(make=False)
    holder = world.hold("nightly")
    assert b"cannot be written" in holder.stderr.readline()
    os.mkdir(world.folder)
    until("the file", lambda: world.value("mortise_held") == 1)
    finish(holder)
    world = World(folder="relative")
    assert world.run("run", "nightly", "--", "true", check=False).returncode == 78


def test_dashboard():
    """What the dashboard asks for is there."""
    world = World()
    world.run("run", "nightly", "--", "true")
    root = os.environ["MORTISE_SOURCE_DIR"]
    with open(os.path.join(root, "examples", "grafana-dashboard.json")) as file:
        board = json.load(file)
    asked = set(re.findall(r"\bmortise_[a-z_]+", json.dumps([panel["targets"] for panel in board["panels"]])))
    there = {name for name, _ in world.samples()}
    assert asked and asked <= there, asked - there


tests = [value for name, value in sorted(globals().items()) if name.startswith("test_")]
failures = 0
try:
    for test in tests:
        try:
            test()
            print("passed:", test.__name__)
        except Exception as problem:
            failures += 1
            print("FAILED:", test.__name__, type(problem).__name__, problem)
finally:
    shutil.rmtree(work)
sys.exit(1 if failures else 0)
