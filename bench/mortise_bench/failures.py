"""What a failure costs: a holder is killed, a server is restarted, one of several nodes is dead for a while.

Latencies are of an open loop: a cycle is due every 20 ms, and its latency counts from then, so that a caller who stood
still is told by all the cycles that should have been."""

import statistics
import struct
import time

from .costs import Cost
from .servers import Servers
from .subjects import with_setting

PERIOD_US = 20000
STEP_S = 0.1
PULSE_TTL = "ttl=5s"  # what a grant outlives a release by that a killed server has forgotten
TTL_MS = 2000


def records(path):
    """Tuples: asked, granted, releasing, done; in nanoseconds."""
    with open(path, "rb") as file:
        return list(struct.iter_unpack("=4q", file.read()))


class Killed(Cost):
    """The holder is killed with SIGKILL; when has the one that waits for it the lock?"""

    def measure(self, seconds):
        holder, waiter = self.start(), self.start()
        out = self.context.folder / "killed"
        name = f"{self.name()}-{len(self.rounds)}"
        holder.ask("hold", name=name, count=1, ttl_ms=TTL_MS)
        now = time.monotonic_ns()
        waiter.say(
            "turns", name=f"{name}/0", own=0, threads=1, hold_us=0, from_ns=now, to_ns=now + 1, patience_ms=60000, out=out
        )
        time.sleep(0.5)
        killed_ns = time.monotonic_ns()
        holder.kill()
        self.adapters.remove(holder)
        waiter.done()
        self.close()
        granted = [record[1] for record in records(out) if record[1] > 0]
        return {"to_grant": (granted[0] - killed_ns) / 1e6} if granted else {"refused": 1}


class Timeline(Cost):
    """A pulse of cycles, while something is done to the servers at a third and at two thirds of the time."""

    again = "again"

    def where(self):
        return with_setting(super().where(), PULSE_TTL)

    def __init__(self, shape, subject, context):
        super().__init__("fail", shape, subject, context, 1)
        self.events, self.timeline = [], []

    def harm(self):
        raise NotImplementedError

    def mend(self):
        raise NotImplementedError

    def measure(self, seconds):
        out = self.context.folder / "pulse"
        adapter = self.start()
        adapter.ask("pulse", **self.pulse(0.2), out=out)  # warm-up
        words = self.pulse(seconds)
        adapter.say("pulse", **words, out=out)
        at = [self.act(self.harm, words["from_ns"] + int(seconds * 1e9 / 3))]
        at.append(self.act(self.mend, words["from_ns"] + int(seconds * 2e9 / 3)))
        adapter.done()
        self.close()
        begin = words["from_ns"]
        self.events = [[(at[0] - begin) / 1e9, "killed"], [(at[1] - begin) / 1e9, self.again]]
        return self.told(records(out), begin, at)

    def pulse(self, seconds):
        begin = time.monotonic_ns() + 50_000_000
        return {
            "name": self.name(), "period_us": PERIOD_US, "from_ns": begin, "to_ns": begin + int(seconds * 1e9),
        }  # fmt: skip

    @staticmethod
    def act(deed, at_ns):
        """When it had happened."""
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        deed()
        return time.monotonic_ns()

    def told(self, found, begin, at):
        took_ms = {asked: (done - asked) / 1e6 for asked, _, _, done in found}
        phases = [
            [took for asked, took in took_ms.items() if from_ns <= asked < to_ns]
            for from_ns, to_ns in ((0, at[0]), (at[0], at[1]), (at[1], 1 << 62))
        ]
        steps = {}
        for asked, granted, _, done in found:
            steps.setdefault(int((asked - begin) / (STEP_S * 1e9)), []).append(((done - asked) / 1e6, granted == 0))
        self.timeline = [
            [step * STEP_S, statistics.median(took for took, _ in here), max(took for took, _ in here),
             sum(refused for _, refused in here)]
            for step, here in sorted(steps.items())
        ]  # fmt: skip
        figures = {"refused": sum(granted == 0 for _, granted, _, _ in found)}
        for name, phase in zip(("before", "during", "after"), phases):
            if phase:
                figures[f"{name}_p50"] = statistics.median(phase)
        if phases[1]:
            figures["during_max"] = max(phases[1])
        granted = [record[1] for record in found if record[1] > at[1]]
        if granted:
            figures["to_grant"] = (min(granted) - at[1]) / 1e6
        return figures

    def result(self):
        return {**super().result(), "timeline": self.timeline, "events": self.events}


class Restarted(Timeline):
    """The only server is killed, and started again; the first grant counts from when it answers."""

    again = "server answers"

    def harm(self):
        self.context.servers.verb("kill")

    def mend(self):
        self.context.servers.start()


class OneDead(Timeline):
    """One of several nodes."""

    again = "it answers again"

    def __init__(self, shape, subject, context, servers, member):
        super().__init__(shape, subject, context)
        self.group, self.member = servers, member

    def harm(self):
        self.group.verb("kill", f"only={self.member()}")
        self.dead = self.member()

    def mend(self):
        self.group.verb("start", f"only={self.dead}")


class Ensemble(OneDead):
    """Three ZooKeeper servers of its own, whose leader is killed."""

    def __init__(self, subject, context):
        super().__init__("the leader of 3 dead", subject, context, None, self.leader)
        self.dead = ""

    def leader(self):
        roles = {key: value for key, value in self.group.values.items() if key.startswith("ROLE")}
        return next((key[4:] or "1" for key, value in roles.items() if value == "leader"), "1")

    def start(self):
        if self.group is None:
            folder = self.context.folder / "ensemble"
            self.group = Servers("zookeeper", folder, self.context.cpus, ("tick=1000", "heap=96m", "nodes=3"))
            self.group.start()
        return super().start()

    def where(self):
        return f"zookeeper://{self.group.values['SERVERS']}/bench?session_timeout=4s&{PULSE_TTL}"

    def close(self):
        super().close()
        if self.group is not None:
            self.group.end()


def fail(context):
    cases = [
        Killed("fail", "holder killed", subject, context, 1)
        for subject in context.subjects()
        if {"hold", "contend"} <= subject.can
    ]
    if context.servers is None:
        return cases
    drivers = [subject for subject in context.subjects() if "pulse" in subject.can]
    for subject in drivers:
        if context.backend == "redlock":
            cases.append(OneDead("one of 5 dead", subject, context, context.servers, lambda: "5"))
        elif context.backend != "sqlite":
            cases.append(Restarted("server restarted", subject, context))
        if context.backend == "zookeeper":
            cases.append(Ensemble(subject, context))
    return cases
