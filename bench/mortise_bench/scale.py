"""How things grow (scale): curves of how much it costs when one thing becomes ten times as many, and ten times more.

A curve has a case for each of its sizes: held locks in one client, callers of one client that wait for one name, clients with a
lock each, names that the server knows. Each case has processes of its own and names of its own, and begins when the one
before has ended. A curve ends early when its next size would take too long to set up; the report says so."""

import math
import os
import time
from pathlib import Path

from .costs import Cost
from .servers import children, cpu_s, memory_bytes, own_memory_bytes
from .figures import rounded

TTL_MS = 5000  # as url_of() allows on redlock
PERIOD_S = TTL_MS / 3000  # between two renewals of a lock
GRANTS = 5  # how often the time to the next grant is measured
AGAIN = 10  # about how many times as long the next size takes
SPELL_S = {"zookeeper": 4.2, "etcd": 6}  # of whole beats; elsewhere of whole periods
BEGIN_S = 0.05  # until a waiter is in the queue


class TooLong(Exception):
    """A size is not reached: the curve ends before it, as it has to somewhere."""


class Scale(Cost):
    """One size of a curve."""

    words = verb = ""
    settle_s = 0

    def __init__(self, subject, context, count, before):
        super().__init__("scale", f"{self.words}: {count:,}", subject, context, count)
        self.before = before  # the size before, of the same curve
        self.set_up_s = None  # None: it has not been reached

    def name(self):
        return f"scale-{self.verb}-{self.count}"

    def measure(self, seconds):
        self.check_time()
        prober, load = (self.start(), self.start()), self.start()
        before = memory_bytes(load.pid), self.server_bytes()
        began, spent_s = time.monotonic(), cpu_s(load.pid)
        self.set_up(load, prober[0])
        self.set_up_s, spent_s = time.monotonic() - began, cpu_s(load.pid) - spent_s
        memory, server = memory_bytes(load.pid) - before[0], self.server_bytes() - before[1]
        if seconds > 1:
            seconds = SPELL_S.get(self.context.backend, 3 * PERIOD_S)
            time.sleep(self.settle_s)
        found = self.watch(seconds, load)
        found["to_grant"] = self.to_grant(prober, load)
        self.close()
        for name, grown in (("memory", memory), ("server_memory", server)):
            found[name] = max(0, grown) / self.count
        return {**found, "set_up": self.each_us(self.set_up_s), "set_up_cpu": self.each_us(self.less_renewing(spent_s, found))}

    def each_us(self, seconds):
        return 1e6 * seconds / self.count

    def less_renewing(self, spent_s, found):
        """What was there already was renewed meanwhile."""
        return max(0, spent_s - self.were_there_s() * found["client_cpu"] / 1e3)

    def were_there_s(self):
        """How long it would take with all of them there: the smaller sizes tell how long there were how many."""
        size, each_s = self, 0
        while size is not None:
            before = size.before
            count, until_s = (before.count, before.set_up_s) if before is not None and before.set_up_s is not None else (0, 0)
            each_s += max(0, size.set_up_s - until_s) * (size.count + count) / 2
            size = before if count else None
        return each_s / self.count

    def check_time(self):
        """Raises if it would take too long, to judge by the size before."""
        longest_s = self.context.settings.scale_s
        if self.before is None:
            return
        if self.before.set_up_s is None:
            raise TooLong("a smaller size was not reached")
        expected_s = self.before.set_up_s * self.count / self.before.count
        if expected_s > longest_s:
            raise TooLong(f"it would take {expected_s:.0f} s to set up, and {longest_s:.0f} s are the limit")

    def set_up(self, load, holder):
        """The load; holder: another process."""
        self.tell(load, self.verb, name=self.name(), count=self.count, ttl_ms=TTL_MS)

    def tell(self, load, verb, **words):
        load.say(verb, **words)
        load.done(AGAIN * self.context.settings.scale_s)

    def to_grant(self, prober, load):
        """Milliseconds from before a release until another process has the lock; the median."""
        holder, waiter = prober
        took = []
        for number in range(GRANTS):
            name = f"{self.name()}-probe-{number}"
            holder.ask("hold", name=name, count=1, ttl_ms=TTL_MS)
            waiter.ask("crowd", name=f"{name}/0", count=1)
            time.sleep(BEGIN_S)
            took.append(self.passed_ms(holder, waiter))
        return sorted(took)[GRANTS // 2]

    @staticmethod
    def passed_ms(holder, waiter):
        freed = holder.ask("free")["ns"]
        return max(0, waiter.ask("first")["ns"] - freed) / 1e6

    def server_bytes(self):
        """The memory of the server; of a file, its size."""
        if self.context.servers is None:
            files = Path(self.context.folder).glob("locks.db*")
            return sum(os.path.getsize(file) for file in files)
        pids = self.context.servers.pids()
        return sum(own_memory_bytes(pid) + sum(map(own_memory_bytes, children(pid))) for pid in pids)

    def result(self):
        found = super().result()
        return {**found, "curve": self.verb, "count": self.count}


# The first renewal gives a node of redlock the locks that it missed, and renewals fall into step with the second one.
class Held(Scale):
    words, verb = "held in one client", "hold"
    settle_s = 2 * PERIOD_S


class Waiting(Scale):
    words, verb = "waiting in one client", "crowd"

    def set_up(self, load, holder):
        holder.ask("hold", name=self.name(), count=1, ttl_ms=TTL_MS)
        self.tell(load, self.verb, name=f"{self.name()}/0", count=self.count)

    def to_grant(self, prober, load):
        """The lock that all of them want."""
        return self.passed_ms(prober[0], load)


class Clients(Scale):
    words, verb = "clients with a lock", "clients"
    settle_s = 2 * PERIOD_S


class Names(Scale):
    words, verb = "names in the server", "touch"


def scale(context):
    found = []
    for curve in (Held, Waiting, Clients, Names):
        for subject in context.subjects():
            before = None
            for count in context.settings.scale[curve.verb] if "scale" in subject.can else ():
                found.append(before := curve(subject, context, count, before))
    return found


# ---- what the curves say -----------------------------------------------------------------------------------------------

HOSTS = 10000
PER_UNIT = ("memory", "server_memory", "set_up", "set_up_cpu")  # told for each of the things that are many
GROWING = (*PER_UNIT, "requests", "server_cpu", "client_cpu", "to_grant")
# Smaller values are mostly noise, or costs that a process has only once.
LEAST = {
    "memory": 8 << 20, "server_memory": 8 << 20, "set_up": 2e4, "set_up_cpu": 5e4, "requests": 4, "server_cpu": 10,
    "client_cpu": 10, "to_grant": 1,
}  # fmt: skip
SCATTER = 2  # how many times linear a step may be, as two measurements scatter,
STEP = 3  # if it is to so many times as much at least


def total(case, name):
    found = case["figures"].get(name)
    if found is None:
        return None
    return found["median"] * (case["count"] if name in PER_UNIT else 1)


def slope(few, many):
    """Of the logarithms, from (size, total) to (size, total): 1 is linear."""
    return math.log(many[1] / few[1]) / math.log(many[0] / few[0])


def is_steep(at, points):
    """Whether each point that is far enough is more than twice what linear growth from this one gives: if only the next one is too
    high, its spell was a bad one."""
    few = points[at]
    far = [point for point in points[at + 1 :] if point[0] >= STEP * few[0]]
    return bool(far) and all(many[1] / few[1] > SCATTER * many[0] / few[0] for many in far)


def at_hosts(points, steps):
    """What it comes to for so many hosts. Where the sizes end before: by the slope over all of them or that of the last step,
    whichever is more, because a single step may be noise; what falls is not expected to fall any further."""
    count, value = points[-1]
    if count < HOSTS:
        return value * (HOSTS / count) ** max(0, slope(points[0], points[-1]), steps[-1])
    return next((value for count, value in points if count == HOSTS), value * (HOSTS / count) ** steps[-1])


def curve_of(cases, name):
    """The points that say more than noise, the slope over all of them, from where on it is more than twice linear, the slope
    from there on, and what it comes to for so many hosts."""
    points = [(case["count"], total(case, name)) for case in cases]
    points = [(count, value) for count, value in points if value is not None and value >= LEAST[name]]
    if len(points) < 2:
        return None
    steps = [slope(*pair) for pair in zip(points, points[1:])]
    bend = next((points[at] for at in range(len(points)) if is_steep(at, points)), None)
    return {
        "figure": name, "points": [[count, rounded(value, 4)] for count, value in points],
        "slope": rounded(slope(points[0], points[-1]), 3), "steps": [rounded(step, 3) for step in steps],
        "bends": bend and bend[0], "slope_on": bend and rounded(slope(bend, points[-1]), 3), "hosts": rounded(at_hosts(points, steps), 3),
    }  # fmt: skip


def curves(cases):
    """Of all cases of scale: for each backend and curve, what its figures do."""
    groups = {}
    for case in cases:
        if case["workload"] == "scale":
            groups.setdefault((case["backend"], case["curve"]), []).append(case)
    found = []
    for (backend, curve), members in groups.items():
        words = members[0]["shape"].partition(":")[0]
        told = [curve_of(members, name) for name in GROWING]
        found.append({"backend": backend, "curve": curve, "words": words, "place": members[0]["place"],
                      "sizes": len(members), "largest": members[-1]["count"], "figures": [one for one in told if one]})  # fmt: skip
    return found
