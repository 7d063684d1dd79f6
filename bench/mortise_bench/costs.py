"""What it costs while nothing happens: wait (a lock is held, W clients wait for it) and renew (M locks are held).
Counted on the server over some seconds, once for each subject, one after the other. If counting the requests costs the
server something, processor time and requests are measured in two intervals of the same length, one after the other."""

import math
import time

from .servers import cpu_s, memory_bytes
from .workloads import Case

SETTLE_S = 0.7
TTL_MS = 3000
# The part of the ttl after which a held lock is renewed, if that is not a third, because an interval consists of whole
# periods. In ZooKeeper, a session of 4 s is kept alive.
RENEWED_AFTER = {"redis_semaphore": 0.8, "red_mutex": 0.5}
BEATS = {"zookeeper": 10, "etcd": 6}  # of Mortise while it holds something, in a session or a lease
SESSION_PERIOD_S = 4 / 3
# An interval of several pings: Mortise has its own distance between beats there, 1.03 s, so 9 beats come in the time
# of 7 pings.
SESSION_PERIODS = 7
SESSION_BEGINS_S = 0.02  # of each waiter, until it is in the queue
LEASE_PERIODS_S = 20  # etcd: a waiter's lease of 38 s is kept alive every 6.3 s
# On Redis and PostgreSQL, a waiter of Mortise asks again when the holder's time is over, which the last answer has told it. An
# interval lasts two such times, and begins after one. It is the same on MySQL, although waiters poll there at least every 1.6 s
# and requests are not counted. Rivals poll. A rival that does not renew would lose what it holds in so long an interval.
HOLDERS_TIMES = 2


def period_s(subject, backend, ttl_s):
    """Between two renewals of what lasts so long, or of a session."""
    if subject.kind == "driver" and backend in BEATS:
        lasts_s = math.ceil(1.25 * ttl_s) if backend == "etcd" else ttl_s  # a lease of the server's is of whole seconds
        return lasts_s / BEATS[backend]
    return ttl_s * RENEWED_AFTER.get(subject.name, 1 / 3)


class Cost(Case):
    """A figure is what happened in a second of the watch."""

    count = 1

    def __init__(self, workload, shape, subject, context, count):
        super().__init__(workload, shape, subject, context)
        self.count = count

    @staticmethod
    def session_periods_s(seconds):
        """One in a quick run."""
        return SESSION_PERIOD_S * (SESSION_PERIODS if seconds > 1 else 1)

    def watch(self, seconds, client):
        """Processor time is read last before the interval and first after it, because reading it costs some itself."""
        servers = self.context.servers
        time.sleep(SETTLE_S)
        counting = servers.requests() if servers is not None else None
        before = self.processor_ms(servers, client)
        time.sleep(seconds)
        after = self.processor_ms(servers, client)
        took_s = after["at"] - before["at"]
        found = {name: max(0, after[name] - before[name]) / took_s for name in before if name != "at"}
        if counting is not None:
            found["requests"] = counting.a_second(seconds)
        return found

    @staticmethod
    def processor_ms(servers, client):
        found = {"client_cpu": 1e3 * cpu_s(client.pid)}
        if servers is not None:
            found["server_cpu"] = 1e3 * servers.cpu_s()
        return {**found, "at": time.monotonic()}

    def open(self):
        pass  # in measure(): it is done once


class Wait(Cost):
    def measure(self, seconds):
        holder, waiter = self.start(), self.start()
        holder.ask("hold", name=self.name(), count=1, ttl_ms=self.context.ttl_ms)
        waiter.ask("wait", name=f"{self.name()}/0", count=self.count)
        before_s, spell_s = self.spell(seconds)
        time.sleep(before_s)
        found = self.watch(spell_s, waiter)
        self.close()
        return found

    def spell(self, seconds):
        """How long after the waiters have come it begins, and how long it is. Short in a quick run."""
        backend, ttl_s = self.context.backend, self.context.ttl_ms / 1e3
        if backend == "zookeeper":
            return SESSION_BEGINS_S * self.count, self.session_periods_s(seconds)
        if backend == "etcd" and seconds > 1:
            return 0, LEASE_PERIODS_S
        if self.subject.kind == "driver" and backend != "sqlite" and seconds > 1:
            return ttl_s, HOLDERS_TIMES * ttl_s
        return 0, seconds

    def name(self):
        return f"{super().name()}-{self.count}"


class Renew(Cost):
    def measure(self, seconds):
        holder = self.start()
        before = memory_bytes(holder.pid)
        holder.ask("hold", name=self.name(), count=self.count, ttl_ms=TTL_MS)
        memory = memory_bytes(holder.pid) - before
        found = self.watch(self.whole_periods_s(seconds), holder)
        self.close()
        return {**found, "memory": max(0, memory) / self.count}

    def whole_periods_s(self, seconds):
        if self.context.backend == "zookeeper":
            return self.session_periods_s(seconds)
        one_s = period_s(self.subject, self.context.backend, TTL_MS / 1e3)
        return max(1, round(seconds / one_s)) * one_s


def of_each(make, workload, counts, words, context):
    return [
        make(workload, f"{count} {words}", subject, context, count)
        for count in counts
        for subject in context.subjects()
        if workload in subject.can
    ]


def wait(context):
    return of_each(Wait, "wait", context.settings.waiters, "waiters", context)


def renew(context):
    return of_each(Renew, "renew", context.settings.held, "held", context)
