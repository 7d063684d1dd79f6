"""What is measured in rounds: cycle, contend, state. Each makes cases of the subjects of one backend in one place; a
case is asked for its figures round after round, in turn with the others."""

import json
import subprocess
import time

from . import parts
from .adapter import Adapter
from .figures import figure, rounded, sure_quantile
from .targets import ordered

LEAD_S = 0.03, 0.1  # until the process, or all of several, have understood
PATIENCE_MS = 300  # who still waits when it is over does not hold up the others
SETTLE = 0.2  # of the time, before what counts,
SETTLE_S = 0.25  # but at least so long where many begin together: the first turns of a slow one end late
CROWD = 2  # times as long measures a cycle of many at once: each of them has a part of the time
# Work that makes a virtual machine compile: so many turns, or as many as fit into the subject's time, in
# bursts.
COMPILE_TURNS, COMPILE_THREADS, BURST_S = 20000, 64, 0.25


class Case:
    """One subject in one shape; the processes that do it live from the first round to the last."""

    processes, threads, hold_us, shared, crowd = 1, 1, 0, False, False

    def __init__(self, workload, shape, subject, context):
        self.workload, self.shape, self.subject, self.context = workload, shape, subject, context
        self.adapters, self.rounds, self.buckets = [], [], {}
        self.version = ""

    def where(self):
        return self.subject.where

    def start(self, count=1):
        """Further processes, which begin at once. The last of them."""
        where, cpus, environment = self.where(), self.context.cpus, self.subject.environment
        begun = []
        for _ in range(count):
            begun.append(Adapter(self.subject.command, where, cpus, environment))
            self.adapters.append(begun[-1])
        for adapter in begun:
            adapter.ready()
        self.version = begun[-1].version
        return begun[-1]

    def open(self):
        self.start(self.processes)

    def close(self):
        for adapter in self.adapters:
            adapter.quit()
        for adapter in self.adapters:
            adapter.stop()
        self.adapters = []

    def measure(self, seconds):
        """The figures of one round."""
        raise NotImplementedError

    def round(self, seconds, counts=True):
        found = self.measure(seconds)
        if counts:
            self.rounds.append(found)
        else:
            self.buckets = {}

    def warm_up(self):
        self.round(self.context.settings.warm_s, False)

    def compile_s(self):
        """How long a virtual machine has, at the most, to compile what it runs."""
        return 0

    def lead_s(self):
        return LEAD_S[self.processes > 1]

    def lasts_s(self, seconds):
        """How long the turns before those that count take, and those that count."""
        settle_s = SETTLE * seconds
        return (max(SETTLE_S, settle_s), CROWD * seconds) if self.crowd else (settle_s, seconds)

    def window(self, seconds):
        """From when the turns begin, from when they count, and until when."""
        settle_s, counted_s = self.lasts_s(seconds)
        begin = time.monotonic_ns() + int(self.lead_s() * 1e9)
        return begin, begin + int(settle_s * 1e9), begin + int((settle_s + counted_s) * 1e9)

    def once(self):
        """What is measured one time after the rounds, if anything."""

    def name(self):
        return f"bench-{self.subject.name}-{self.workload}"

    def merge(self, key, buckets):
        mine = self.buckets.setdefault(key, {})
        for upper, count in buckets:
            mine[upper] = mine.get(upper, 0) + count

    def tails(self):
        """Figures of all rounds together: what is rare is not there in each."""
        cycles = sorted(self.buckets.get("cycle", {}).items())
        handovers = sorted(self.buckets.get("handover", {}).items())
        found = {
            "p99": sure_quantile(cycles, 0.99),
            "p999": sure_quantile(cycles, 0.999),
            "handover_p99": sure_quantile(handovers, 0.99),
        }
        return {name: value / 1e3 for name, value in found.items() if value is not None}

    def all_figures(self):
        names = dict.fromkeys(name for found in self.rounds for name in found)
        rounds = {name: [found.get(name) for found in self.rounds] for name in names}
        rounds.update({name: [value] for name, value in self.tails().items()})
        return {
            name: figure(name, values)
            for name, values in rounds.items()
            if any(value is not None for value in values)
        }

    def result(self):
        return {
            "workload": self.workload,
            "place": self.context.place,
            "backend": self.context.backend,
            "target": self.context.url and self.context.label,
            "shape": self.shape,
            "subject": self.subject.name,
            "kind": self.subject.kind,
            "label": self.subject.label_in(self.workload),
            "version": self.version,
            "renews": self.subject.renews,
            "figures": self.all_figures(),
            "histograms": {key: sorted(found.items()) for key, found in self.buckets.items()},
        }


class Turns(Case):
    """Turns that the adapter records: alone on one's name, or all on one."""

    def measure(self, seconds):
        found = self.digested(seconds)
        self.merge("cycle", found["cycle_ns"]["buckets"])
        return self.figures_of(found)

    def digested(self, seconds):
        name = self.name() if self.shared else f"{self.name()}-{self.threads}"
        return self.digest_of(seconds, [name] * len(self.adapters), self.shared, self.threads)

    def digest_of(self, seconds, names, shared, threads):
        """A name for each process; shared: its threads, too, have no names of their own."""
        begin, from_ns, to_ns = self.window(seconds)
        files = []
        for number, (adapter, name) in enumerate(zip(self.adapters, names)):
            files.append(self.context.folder / f"turns-{number}")
            adapter.say(
                "turns", name=name, own=0 if shared else 1, threads=threads, hold_us=self.hold_us,
                from_ns=begin, to_ns=to_ns, patience_ms=PATIENCE_MS, out=files[-1],
            )  # fmt: skip
        for adapter in self.adapters:
            adapter.done(2 * CROWD * seconds)
        digest = [parts.digest(), *(["--shared"] if shared else []), str(from_ns), str(to_ns), *files]
        return json.loads(subprocess.run(digest, check=True, stdout=subprocess.PIPE).stdout)

    def warm_up(self):
        if self.context.settings.compiles and self.compile_s():
            self.compile()
        super().warm_up()

    def compile_s(self):
        """Several processes have a part of the processors each."""
        return self.subject.compile_s * (2 if self.processes > 1 else 1)

    def compile(self):
        """Turns of many threads, which all have names of their own: they are soonest made."""
        names = [f"{self.name()}-compile-{number}" for number in range(self.processes)]
        until, turns = time.monotonic() + self.compile_s(), 0
        while turns < COMPILE_TURNS * self.processes and time.monotonic() < until:
            turns += self.digest_of(BURST_S, names, False, COMPILE_THREADS // self.processes)["count"]

    def figures_of(self, found):
        figures = {"rate": found["rate"], "refused": found["refused"]}
        for name, key in (("p50", "cycle_ns"), ("acquire_p50", "acquire_ns")):
            if found[key]["count"] > 0:
                figures[name] = found[key]["p50"] / 1e3
        return figures


class Contend(Turns):
    """P processes of T threads on one name."""

    shared = True

    def __init__(self, shape, subject, context, processes, threads, hold_us):
        super().__init__("contend", shape, subject, context)
        self.processes, self.threads, self.hold_us = processes, threads, hold_us
        self.long = None

    def name(self):
        return f"{super().name()}-{self.hold_us}"

    def figures_of(self, found):
        figures = {"rate": found["rate"], "refused": found["refused"], "longest_wait": found["longest_wait_ns"] / 1e6}
        figures.update({name: found[name] for name in ("jain", "least_share", "changes", "overlaps")})
        if self.hold_us > 0 and found["hold_ns"]["count"] > 0:  # one is as long as the language's clock can sleep
            figures["hold_p50"] = found["hold_ns"]["p50"] / 1e3
        if self.in_order():
            figures["overtakes"] = found["overtakes"]
        for name in ("handover", "pass"):
            self.merge(name, found[f"{name}_ns"]["buckets"])
            if found[f"{name}_ns"]["count"] > 0:
                figures[f"{name}_p50"] = found[f"{name}_ns"]["p50"] / 1e3
        return figures

    def in_order(self):
        """Whether a strict order is promised, so that it is looked for."""
        return ordered({"subject": self.subject.name, "backend": self.context.backend})

    def once(self):
        """Of a driver: shares over a time that starving takes."""
        seconds = self.context.settings.long_s
        if self.subject.name != "mortise" or self.hold_us > 0 or not seconds:
            return
        found = self.digested(seconds)
        self.long = {
            "seconds": seconds,
            "rate": rounded(found["rate"], 6),
            "least_share": found["least_share"],
            "longest_wait": rounded(found["longest_wait_ns"] / 1e6, 6),
            "overlaps": found["overlaps"],
        }

    def result(self):
        return {**super().result(), "long": self.long}


class Batches(Case):
    """What can only be counted: many in flight, or a loop."""

    def __init__(self, verb, workload, shape, subject, context):
        super().__init__(workload, shape, subject, context)
        self.verb = verb

    def measure(self, seconds):
        _, from_ns, to_ns = self.window(seconds)
        found = self.adapters[0].ask(self.verb, name=f"{self.name()}-{self.verb}", from_ns=from_ns, to_ns=to_ns)
        if self.verb == "state":
            return {"look": found["ns"] / found["count"]}
        return {"rate": found["count"] * 1e9 / found["ns"]}


# ---- which there are ----


def cycle(context):
    cases = []
    for subject in context.subjects(tokenless=True):
        if "turns" in subject.can:
            cases.append(Turns("cycle", "1 caller", subject, context))
        if "loop" in subject.can:
            cases.append(Batches("loop", "cycle", "1 caller", subject, context))
        if "threads" in subject.can:
            for threads in context.settings.thread_counts:
                cases.append(Turns("cycle", f"{threads} threads", subject, context))
                cases[-1].threads, cases[-1].crowd = threads, True
        if "flights" in subject.can:  # JavaScript has one thread: its callers at once are in flight
            cases.append(Turns("cycle", "64 in flight", subject, context))
            cases[-1].threads, cases[-1].crowd = 64, True
        if "many" in subject.can:
            cases.append(Batches("many", "cycle", "64 in flight", subject, context))
            cases[-1].crowd = True
    return cases


def contend(context):
    settings = context.settings
    cases = []
    for hold_us in settings.holds_us if context.place != "one" else settings.holds_us[:1]:
        section = "empty" if hold_us == 0 else f"{hold_us / 1000:g} ms"
        shape = f"{settings.processes} × {settings.threads}, {section}"
        for subject in context.subjects(strict=True):
            if "contend" in subject.can:
                cases.append(Contend(shape, subject, context, settings.processes, settings.threads, hold_us))
    return cases


def state(context):
    return [
        Batches("state", "state", "1 caller", subject, context)
        for subject in context.subjects()
        if "state" in subject.can and context.backend == "sqlite"
    ]
