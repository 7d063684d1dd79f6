"""The faults of a torture run that hit its servers: how each begins, and how it is repaired. Knows nothing of the fighters."""
import glob
import os
import shutil
import struct
import time

from arena import PATIENCE_S, Failure, put

FULL_PATIENCE_S = 20  # somebody will soon write


class ServerFaults:
    """Each by its name: begin_… and, where it is not simply started again, end_…."""

    def __init__(self, server, jump_s):
        self.server, self.jump_s, self.ahead_s = server, jump_s, 0
        self.failed_over, self.times_full, self.times_refused = False, 0, 0
        self.stopped_leader = []

    def possible(self, fault):
        return fault != "server-failover" or not self.failed_over  # there is one replica

    def begin(self, fault, members):
        getattr(self, f"begin_{fault.removeprefix('server-')}")(members)

    def end(self, fault, members):
        getattr(self, f"end_{fault.removeprefix('server-')}", self.start)(members)

    def start(self, _members):
        self.server.do("start")  # whatever does not run

    def begin_kill(self, members):
        self.server.each("kill", members)

    def begin_restart(self, members):
        self.server.each("stop", members)

    def begin_stop(self, members):
        self.server.each("freeze", members)

    def end_stop(self, members):
        self.server.each("thaw", members)

    def begin_leader(self, _members):
        """Stopped, whoever it is."""
        self.stopped_leader = [self.server.leader()]
        self.server.each("freeze", self.stopped_leader)

    def end_leader(self, _members):
        self.server.each("thaw", self.stopped_leader)

    def begin_forget(self, members):
        """Killed, and its disk is another one."""
        self.server.each("kill", members)
        for member in members:
            shutil.rmtree(f"{self.server.place}/{member}")

    def begin_power(self, members):
        """Killed, and what had not been forced to the disk is gone: disk.c has noted that."""
        self.server.each("kill", members)
        for member in members:
            for path in glob.glob(f"{self.server.place}/{member}/appendonlydir/*.incr.aof"):
                os.truncate(path, min(self.forced(path), os.path.getsize(path)))

    @staticmethod
    def forced(path):
        try:
            with open(f"{path}.forced", "rb") as file:
                return struct.unpack("=q", file.read(8))[0]
        except FileNotFoundError:
            return 0

    def begin_full(self, members):
        self.times_full += 1
        for member in members:
            put(f"{self.server.place}/{member}.full", "")
        if self.server.kind == "postgres":  # what it has for its log in advance is used up
            self.server.run("ask", "-c", "SELECT pg_logical_emit_message(false, '', repeat('x', 99999)) "
                                         "FROM generate_series(1, 200)")

    def end_full(self, members):
        """Once one has met it: some have given up then, or are about to. A ZooKeeper that could not even begin a file of its
        log does not start before that is taken away."""
        give_up = time.monotonic() + FULL_PATIENCE_S
        while not self.says_full() and time.monotonic() < give_up:
            time.sleep(0.02)
        self.times_refused += self.says_full()
        for member in members:
            self.server.run("kill", f"only={member}")
            os.unlink(f"{self.server.place}/{member}.full")
        for path in glob.glob(f"{self.server.place}/*/data/version-2/log.*"):
            if os.path.getsize(path) < 16:
                os.unlink(path)
        self.start(members)

    def says_full(self):
        return any(self.says(path, "No space left on device") for path in glob.glob(f"{self.server.place}/*.log"))

    @staticmethod
    def says(path, text):
        with open(path, encoding="utf-8", errors="replace") as file:
            return text in file.read()

    def prove(self):
        """That the libraries that are loaded into servers did what they are there for."""
        if self.times_full and not self.times_refused:
            raise Failure(f"the disk was full {self.times_full} times, and no server said so")
        if self.ahead_s and self.server.kind == "zookeeper":
            give_up = time.monotonic() + PATIENCE_S
            while not self.saw_clock():
                if time.monotonic() > give_up:
                    raise Failure(f"the server does not see that its clock is {self.ahead_s} s ahead")
                time.sleep(0.02)

    def saw_clock(self):
        path = f"{self.server.place}/clock.seen"
        return os.path.exists(path) and self.says(path, f"{self.ahead_s}\n")

    def begin_memory(self, members):
        for member in members:
            self.server.ask(member, "config", "set", "maxmemory", "1")

    def end_memory(self, members):
        for member in members:
            self.server.ask(member, "config", "set", "maxmemory", "0")

    def begin_evict(self, members):
        for member in members:
            self.server.ask(member, "config", "set", "maxmemory-policy", "allkeys-random")
        self.begin_memory(members)

    end_evict = end_memory

    def begin_clock(self, _members):
        """Forward, again and again; of all that have one that can be set."""
        self.ahead_s += self.jump_s
        self.server.set_clock(self.ahead_s)

    def end_clock(self, _members):
        pass

    def begin_failover(self, _members):
        """The replica hears nothing new, …"""
        self.failed_over = True
        self.server.ask(2, "replicaof", "127.0.0.1", "1")

    def end_failover(self, _members):
        """… and is the primary."""
        self.server.do("kill", "only=1")
        self.server.ask(2, "replicaof", "no", "one")
