"""What a failure costs: a holder is killed, a server is restarted, one of several nodes is dead for a while.

Latencies are of an open loop: a cycle is due every 20 ms, and its latency counts from then, so that a caller who stood
still is told by all the cycles that should have been. A cycle that was refused lasts until the next one that was not."""

import math
import shutil
import statistics
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from .costs import Cost, period_s
from .servers import Servers
from .subjects import LONG_TTL_S, SESSION_S, await_votes, url_of, with_setting

PERIOD_US = 20000
STEP_S = 0.1
PULSE_TTL = "ttl=5s"  # what a grant outlives a release by that a killed server has forgotten
TTL_MS, SESSION_MS = 2000, 1000 * SESSION_S  # of what is held; of ZooKeeper's sessions
SETTLE_S = 0.3  # until those that wait do so
ONLY = 0.8  # of a ttl that is not renewed
WITNESS_S = 20  # bounds failure only
LONG_KILLS = 5  # a run with so many kills has time for the long ttl without a witness, too


def records(path):
    """Tuples: asked, granted, releasing, done; in nanoseconds."""
    with open(path, "rb") as file:
        return list(struct.iter_unpack("=4q", file.read()))


class Killed(Cost):
    """Holders are killed with SIGKILL, at instants that are spread over the time between two renewals; when has the one that
    waits for each the lock? They are killed one after the other, but wait together: nothing else happens. Each is a
    round, and in a round all subjects are killed after the same part of that time: how much of it has passed decides how
    soon the lock is granted again. A rival that does not renew is killed before its ttl is over."""

    def round(self, seconds, counts=True):
        self.rounds += self.kills(self.context.settings.kills)

    ttl_ms = TTL_MS

    def kills(self, count):
        self.start(2 * count)
        holders, waiters = self.adapters[:count], self.adapters[count:]
        names = [f"{self.name()}-{number}" for number in range(count)]
        outs = [self.context.folder / name for name in names]
        held_ns = []
        for name, holder in zip(names, holders):
            holder.ask("hold", name=name, count=1, ttl_ms=self.ttl_ms)
            held_ns.append(time.monotonic_ns())
        for name, waiter, out in zip(names, waiters, outs):
            waiter.say(
                "turns", name=f"{name}/0", own=0, threads=1, hold_us=0, from_ns=held_ns[-1], to_ns=held_ns[-1] + 1,
                patience_ms=30000 + 2 * self.ttl_ms, out=out,
            )  # fmt: skip
        killed_ns = [self.kill(holder, at_ns + int(1e9 * age_s)) for holder, at_ns, age_s in zip(holders, held_ns, self.ages_s(count))]
        for waiter in waiters:
            waiter.done(2 * self.ttl_ms / 1e3)
        self.close()
        return [self.told(records(out), at_ns) for out, at_ns in zip(outs, killed_ns)]

    def ttl_s(self):
        """What is held, if it is not renewed."""
        return (SESSION_MS if self.context.backend == "zookeeper" else self.ttl_ms) / 1e3

    def ages_s(self, count):
        """How long each is held: parts of the first period, or of a later one if the first of them would come too soon."""
        parts = [(at + 0.5) / count for at in range(count)]
        if not self.subject.renews:
            return [SETTLE_S + part * (ONLY * self.ttl_s() - SETTLE_S) for part in parts]
        one_s = period_s(self.subject, self.context.backend, self.ttl_s())
        first_s = one_s * max(0, math.ceil(SETTLE_S / one_s - parts[0]))
        return [first_s + part * one_s for part in parts]

    def kill(self, holder, at_ns):
        """When it was about to happen."""
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        killed_ns = time.monotonic_ns()
        holder.kill()
        self.adapters.remove(holder)
        return killed_ns

    @staticmethod
    def told(found, killed_ns):
        granted_ns = next((granted for _, granted, _, _ in found if granted > 0), None)
        if granted_ns is None:
            return {"refused": 1}
        if granted_ns < killed_ns:  # the other one still lived, and held it
            return {"refused": 0, "overlaps": 1}
        return {"to_grant": (granted_ns - killed_ns) / 1e6, "refused": 0, "overlaps": 0}


class KilledLongTtl(Killed):
    """With the default ttl; with ZooKeeper, with a session of that length."""

    ttl_ms = 1000 * LONG_TTL_S

    def __init__(self, subject, context):
        environment = {**subject.environment, "BENCH_SESSION_MS": str(self.ttl_ms)}
        super().__init__("fail", f"holder killed, ttl {LONG_TTL_S} s", replace(subject, environment=environment), context, 1)

    def ttl_s(self):
        return self.ttl_ms / 1e3  # of a session as well

    def where(self):
        if self.subject.kind != "driver" or self.context.url:
            return super().where()
        return url_of(self.context.backend, self.context.ports, self.context.folder, LONG_TTL_S)

    def kills(self, count):
        if self.context.servers is not None:
            await_votes(self.context.backend, self.context.servers, LONG_TTL_S)
        return super().kills(count)


class Witnessed(KilledLongTtl):
    """The same, and a witness of its own frees what the killed one held."""

    def __init__(self, subject, context):
        super().__init__(replace(subject, name="mortise_witness", label="mortise, witness"), context)
        self.witness = None

    def where(self):
        return with_setting(super().where(), f"witness={self.folder() / 'socket'}")

    def folder(self):
        return self.context.folder / "witness"

    def start(self, count=1):
        if self.witness is None:
            self.folder().mkdir(mode=0o700, exist_ok=True)
            self.witness = subprocess.Popen([command(), "witness", "--socket", self.folder() / "socket"],
                                            stderr=subprocess.PIPE, text=True)
            if "listens" not in self.witness.stderr.readline():
                raise RuntimeError("mortise witness does not start")
        return super().start(count)

    def close(self):
        super().close()
        if self.witness is not None:
            self.witness.terminate()
            self.witness.communicate(timeout=WITNESS_S)
            self.witness = None


def command():
    """`mortise`, beside this program or on the path."""
    beside = Path(sys.argv[0]).resolve().parent / "mortise"
    return str(beside) if beside.exists() else shutil.which("mortise") or "mortise"


def lasting_ms(found):
    """(when due, until it or the next one was had) of each cycle, in their order; to the end where none was."""
    next_ns, lasting = found[-1][3] if found else 0, []
    for asked, granted, _, done in reversed(found):
        next_ns = done if granted > 0 else next_ns
        lasting.append((asked, (next_ns - asked) / 1e6))
    return lasting[::-1]


class Timeline(Cost):
    """A pulse of cycles, while something is done to the servers at a third and at two thirds of the time."""

    again = "again"

    def where(self):
        where = super().where()
        return where if f"&{PULSE_TTL}" in where else with_setting(where, PULSE_TTL)

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
        begin = words["from_ns"]
        adapter.say("pulse", **words, out=out)
        harmed, _ = self.act(self.harm, begin + int(seconds * 1e9 / 3))
        mended, whole = self.act(self.mend, begin + int(seconds * 2e9 / 3))
        adapter.done(2 * seconds)
        self.close()
        self.events = [[(harmed - begin) / 1e9, "killed"], [(whole - begin) / 1e9, self.again]]
        return self.told(records(out), begin, harmed, mended, whole)

    def pulse(self, seconds):
        begin = time.monotonic_ns() + 50_000_000
        return {
            "name": self.name(), "period_us": PERIOD_US, "from_ns": begin, "to_ns": begin + int(seconds * 1e9),
        }  # fmt: skip

    @staticmethod
    def act(deed, at_ns):
        """When it was begun, and when it had happened."""
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        began = time.monotonic_ns()
        deed()
        return began, time.monotonic_ns()

    def told(self, found, begin, harmed, mended, whole):
        took_ms = lasting_ms(found)
        phases = {
            "before": [took for asked, took in took_ms if asked < harmed],
            "during": [took for asked, took in took_ms if harmed <= asked < whole],
            "after": [took for asked, took in took_ms if asked >= whole],
        }
        steps = {}
        for (asked, granted, _, _), (_, took) in zip(found, took_ms):
            steps.setdefault(int((asked - begin) / (STEP_S * 1e9)), []).append((took, granted == 0))
        self.timeline = [
            [step * STEP_S, statistics.median(took for took, _ in here), max(took for took, _ in here),
             sum(refused for _, refused in here)]
            for step, here in sorted(steps.items())
        ]  # fmt: skip
        figures = {"refused": sum(granted == 0 for _, granted, _, _ in found)}
        figures.update({f"{name}_p50": statistics.median(phase) for name, phase in phases.items() if phase})
        if phases["during"]:
            figures["during_max"] = max(phases["during"])
        return {**figures, **self.until_mended(found, mended)}

    def until_mended(self, found, mended):
        """What else there is to tell where nothing can be had until all is well."""
        return {}

    def result(self):
        return {**super().result(), "timeline": self.timeline, "events": self.events}


class Restarted(Timeline):
    """The only server is killed, and started again. The next grant counts from when the start was begun: the server's own
    time to start is in it."""

    again = "server answers"

    def harm(self):
        self.context.servers.verb("kill")

    def mend(self):
        self.context.servers.start()

    def until_mended(self, found, mended):
        granted = [record[1] for record in found if record[1] > mended]
        return {"to_grant": (min(granted) - mended) / 1e6} if granted else {}


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

    def start(self, count=1):
        if self.group is None:
            folder = self.context.folder / "ensemble"
            self.group = Servers("zookeeper", folder, self.context.cpus, ("tick=1000", "heap=96m", "nodes=3"))
        if not self.group.values:
            self.group.start()
        return super().start(count)

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
    killed = [case.subject for case in cases]
    cases += [Witnessed(subject, context) for subject in killed if subject.name == "mortise"]
    if context.settings.kills >= LONG_KILLS:  # each takes as long as the ttl
        cases += [KilledLongTtl(subject, context) for subject in killed]
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
