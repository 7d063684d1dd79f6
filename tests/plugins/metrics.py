#!/usr/bin/env python3
"""metrics.py - the metrics observer among real processes; Prometheus's own parser reads its files: slots, files that are
complete at every instant, killed clients, a directory that does not exist yet; and the dashboard names only series that
are written. Needs $MORTISE_COMMAND, python3-prometheus-client."""
import glob
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

    def __init__(self, make=True, namespace="app:", **settings):
        global count
        count += 1
        self.root = os.path.join(work, str(count))
        self.folder = os.path.join(self.root, "prom")
        os.mkdir(self.root)
        if make:
            os.mkdir(self.folder)
        # mortise run is called by the name of its command, unless the config says how
        settings = {"folder": self.folder, "every": "10ms", "program": "mortise", **settings}
        self.config = os.path.join(self.root, "mortise.conf")
        with open(self.config, "w") as file:
            file.write(f"[mortise]\ndriver = sqlite\nobserve = metrics\nnamespace = {namespace}\nttl = 30s\n")
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

    def path(self, slot=0):
        """Of a world whose clients all have the same driver and namespace."""
        found = glob.glob(os.path.join(glob.escape(self.folder), f"mortise-mortise-????????-{slot}.prom"))
        assert len(found) <= 1, found
        if not found:
            raise FileNotFoundError(slot)
        return found[0]

    def samples(self, slot=0):
        with open(self.path(slot)) as file:
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


def until_said(process, word):
    """Reads its stderr up to a line with the word; false if it ends before."""
    return any(word in line for line in iter(process.stderr.readline, b""))


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
    assert len(world.files()) == 1
    assert world.value("mortise_grants_total") == 3
    assert world.value("mortise_releases_total") == 3
    assert world.value("mortise_hold_seconds_count") == 3
    assert world.value("mortise_held") == 0
    labels = {frozenset(dict(given).items() - {("slot", "0")}) for name, given in world.samples()
              if name == "mortise_held"}
    assert labels == {frozenset({("driver", "sqlite"), ("namespace", "app:"), ("program", "mortise")})}, labels
    assert oct(os.stat(world.path()).st_mode & 0o777) == "0o644"
    series = set(world.samples())
    world.run("run", "a name \N{SNOWMAN} of another kind", "--", "true")
    assert set(world.samples()) == series, "a name made a series"


def test_two_configs():
    """One program with two namespaces, by turns: each goes on with its own counters, and no series is there twice."""
    one = World(every="1h")
    other = World(every="1h", namespace="other:", folder=one.folder)
    for _ in range(3):
        one.run("run", "nightly", "--", "true")
        other.run("run", "nightly", "--", "true")
    found = {}
    for name in one.files():
        with open(os.path.join(one.folder, name)) as file:
            samples = parse(file.read())
        assert not found.keys() & samples.keys()
        found.update(samples)
    counts = {dict(labels)["namespace"]: value for (name, labels), value in found.items() if name == "mortise_grants_total"}
    assert counts == {"app:": 3, "other:": 3}, counts


def test_now_and_slots():
    world = World(slots=2)
    holder = world.hold("nightly")
    until("the holder", lambda: world.value("mortise_held") == 1)
    waiter = world.hold("nightly")
    until("the waiter", lambda: world.value("mortise_waiting", slot=1) == 1)
    assert world.value("mortise_held", slot=1) == 0
    third = world.hold("other")  # no slot is left: works, and is not shown
    assert until_said(third, b"slots"), "the third client said nothing of slots, and closed its stderr"
    assert world.files() == [os.path.basename(world.path(slot)) for slot in (0, 1)]
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

    def read():
        while not done.is_set():
            try:
                with open(world.path()) as file:
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


def dashboard_asks(board):
    """Of each expression: {metric: labels that it is asked by}, the labels that it leaves, and those that are shown."""
    for target in (target for panel in board["panels"] for target in panel["targets"]):
        expression = target["expr"]
        metrics = {}
        for name, matchers in re.findall(r"\b((?:mortise|node_textfile)_\w+)(?:\{([^}]*)\})?", expression):
            metrics.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        left = [set(words.split(", ")) for words in re.findall(r"\bby \(([^)]*)\)", expression)]
        yield metrics, left, set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
            yield {name: {label}}, [], set()


def test_dashboard():
    """What the dashboard asks for is there: the metrics, and by the labels that it asks for and shows."""
    world = World()
    world.run("run", "nightly", "--", "true")
    with open(os.path.join(os.environ["MORTISE_SOURCE_DIR"], "examples", "grafana-dashboard.json")) as file:
        board = json.load(file)
    there = {"node_textfile_mtime_seconds": {"instance", "file"}}  # of the node exporter itself
    for name, labels in world.samples():
        there.setdefault(name, set()).update(label for label, _ in labels)
    asks = list(dashboard_asks(board))
    assert len(asks) > 10 and all(metrics for metrics, _, _ in asks), asks
    for metrics, left, shown in asks:
        for name, labels in metrics.items():
            wanted = labels.union(*left)
            assert wanted <= there.get(name, set()), f"{name} has {there.get(name)}, the dashboard asks for {wanted}"
        assert shown <= set().union(*left), f"{shown} is shown, {left} is left by the expression"
    defined = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(board["panels"])))
    assert used <= defined, f"variables that nothing defines: {used - defined}"


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
