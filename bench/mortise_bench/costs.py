"""What it costs while nothing happens: wait (a lock is held, W clients wait for it) and renew (M locks are held).
Counted on the server over some seconds, once for each subject, one after the other."""

import time

from .servers import cpu_s, memory_bytes
from .workloads import Case

SETTLE_S = 1.0
TTL_MS = 3000


class Cost(Case):
    """A figure is what happened in a second of the watch."""

    count = 1

    def __init__(self, workload, shape, subject, context, count):
        super().__init__(workload, shape, subject, context)
        self.count = count


    def watch(self, seconds, client):
        servers = self.context.servers
        time.sleep(SETTLE_S)
        before = self.costs(servers, client)
        time.sleep(seconds)
        after = self.costs(servers, client)
        took_s = after["at"] - before["at"]
        return {name: max(0, after[name] - before[name]) / took_s for name in before if name != "at"}

    @staticmethod
    def costs(servers, client):
        found = {"at": time.monotonic(), "client_cpu": 1e3 * cpu_s(client.pid)}
        if servers is not None:
            found["server_cpu"] = 1e3 * servers.cpu_s()
            requests = servers.requests()
            if requests is not None:
                found["requests"] = requests
        return found

    def open(self):
        pass  # in measure(): it is done once


class Wait(Cost):
    def measure(self, seconds):
        holder, waiter = self.start(), self.start()
        holder.ask("hold", name=self.name(), count=1, ttl_ms=30000)
        waiter.ask("wait", name=f"{self.name()}/0", count=self.count)
        found = self.watch(seconds, waiter)
        self.close()
        return found

    def name(self):
        return f"{super().name()}-{self.count}"


class Renew(Cost):
    def measure(self, seconds):
        holder = self.start()
        before = memory_bytes(holder.pid)
        holder.ask("hold", name=self.name(), count=self.count, ttl_ms=TTL_MS)
        memory = memory_bytes(holder.pid) - before
        found = self.watch(max(seconds, TTL_MS / 1e3), holder)
        self.close()
        return {**found, "memory": max(0, memory) / self.count}


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
