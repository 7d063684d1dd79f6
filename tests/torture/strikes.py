"""The faults of a torture run: how each begins, and how it is repaired. Keeps the queue of faults; the plan decides which
one comes when. Counts the faults that happened: a cut that finds nothing to cut before the connection is repaired does
not count."""
import heapq
import os
import signal
import time

from arena import Failure, now_ns
from cluster_faults import ClusterFaults
from plan import COUNTED, FAULTS, LATE, Plan, share_of
from server_faults import ServerFaults
from witness import Tracer, stop_for_good


HOLDER_PATIENCE_S = 5  # there will soon be one


class Strikes:
    """Upon the slots and the server of a run."""

    def __init__(self, run):
        self.run, self.counts, self.kinds, self.in_vain = run, {}, set(), 0
        self.queue, self.order, self.server_busy, self.until = [], 0, False, 0
        self.tracers = {}  # by the number of the slot
        faults = ClusterFaults if run.server.is_cluster else ServerFaults
        self.server_faults = faults(run.server, 20 * run.settings["ttl"] // 1000)

    def later(self, at, action):
        self.order += 1
        heapq.heappush(self.queue, (at, self.order, action))

    def kill(self, slot):
        slot.check_alive()
        self.untrace(slot)
        if self.run.witness:  # which may free its locks before its death is written down
            stop_for_good(slot.fighter.pid)
            self.run.write("killed", pid=slot.fighter.pid)
        slot.fighter.child.kill()
        slot.fighter.child.wait()
        if not self.run.witness:
            self.run.write("killed", pid=slot.fighter.pid)
        slot.fighter.end()
        slot.start()
        slot.expect_ready()

    def stop(self, slot, until):
        slot.check_alive()
        if slot.number in self.tracers:
            return
        slot.stopped_ns = slot.stopped_ns if slot.stopped_until else now_ns()
        slot.signal(signal.SIGSTOP)
        slot.stopped_until = max(slot.stopped_until, until)
        self.later(until, lambda: self.go_on(slot))

    def stands(self, slot):
        return slot.stopped_until or slot.number in self.tracers

    def go_on(self, slot):
        """Not if it is traced: the time of its stop may have been over before this was noticed."""
        if slot.number not in self.tracers and slot.stopped_until and slot.stopped_until <= time.monotonic():
            self.go_on_now(slot)

    def go_on_now(self, slot):
        """The checker learns when it stood still: what it was about to write is late."""
        slot.stopped_until = 0
        slot.signal(signal.SIGCONT)
        self.run.write("stopped", at_ns=slot.stopped_ns, until_ns=now_ns(), pid=slot.fighter.pid)

    def trace(self, slot, until):
        if self.stands(slot):
            return
        slot.check_alive()
        slot.stopped_ns = now_ns()
        tracer = self.tracers[slot.number] = Tracer(slot.fighter.pid)
        if not tracer.works:
            raise Failure("this system does not allow ptrace")
        slot.stopped_until = until
        self.later(until, lambda: self.untrace(slot, tracer))

    def untrace(self, slot, tracer=None):
        """The one that traces it, if it is this one."""
        if slot.number in self.tracers and tracer in (None, self.tracers[slot.number]):
            self.tracers.pop(slot.number).end()
            self.go_on_now(slot)  # the stop that came with the tracer may outlive it

    def end(self):
        """A process that is traced does not end before its tracer."""
        for tracer in self.tracers.values():
            tracer.end()
        self.tracers = {}

    def tell_fighter(self, slot, word):
        """One that is stopped would not answer. Nor would one without descriptors: SQLite tries for ten seconds to lock what is
        closed, again and again, and fork() waits for that."""
        if self.stands(slot) or slot.fighter is slot.without_fds:
            return
        slot.fighter.say(word)
        if slot.fighter.hear() != "done":
            raise Failure(f"fighter {slot.number} did not obey: {word}")

    def exec(self, slot):
        """It holds nothing that it knows of from then on; it is dead when the new program has ended."""
        if self.stands(slot):
            return
        slot.check_alive()
        slot.fighter.say("exec")
        while os.path.basename(os.readlink(f"/proc/{slot.fighter.pid}/exe")) == "torture":
            time.sleep(0.001)
        self.kill(slot)

    def close_all(self, slot, until):
        """It lives on without any descriptor, and is killed at that time, if it was not before."""
        fighter = slot.fighter
        if self.stands(slot) or fighter is slot.without_fds:
            return
        self.tell_fighter(slot, "close-all")
        slot.without_fds = fighter
        self.later(until, lambda: self.kill(slot) if slot.fighter is fighter else None)

    def break_witness(self, fault, until):
        witness = self.run.witness
        witness.check()  # one that has crashed would be replaced
        if fault == "witness-kill":
            witness.end()
            self.later(until, self.mend_witness)
        elif fault == "witness-stop":
            witness.signal(signal.SIGSTOP)
            self.later(until, self.mend_witness)
        elif len(witness.processes) < 3:
            witness.signal(signal.SIGCONT)
            witness.start()

    def mend_witness(self):
        witness = self.run.witness
        witness.signal(signal.SIGCONT)
        if not witness.processes:
            witness.start()

    @staticmethod
    def set_clock(slot, number):
        """By up to an hour, ahead or back; it stays so."""
        slot.set_clock(number if number % 2 else -number)

    def mend_link(self, slot, until):
        """Then; or, if more is broken meanwhile, when the last of it is over."""
        slot.broken_until = max(slot.broken_until, until)
        self.later(until, lambda: self.pass_again(slot))

    def pass_again(self, slot):
        if slot.broken_until and slot.broken_until <= time.monotonic():
            slot.broken_until = 0
            slot.say_proxies("pass")
            self.count_cuts(slot)

    def count(self, fault, word):
        self.counts[word] = self.counts.get(word, 0) + 1
        self.kinds.add(fault)

    def count_cuts(self, slot):
        """Of those that were ordered, as many as have happened."""
        happened = slot.ask_cuts()
        for fault, word in slot.ordered:
            if happened[fault] > 0:
                happened[fault] -= 1
                self.count(fault, word)
            else:
                self.in_vain += 1
        slot.ordered = []

    def break_link(self, slot, entry, until):
        fault, number, members = entry["fault"], entry["number"], entry["members"]
        if fault == "delay":
            slot.say_proxies(f"delay {number % 300} {'up down both'.split()[number % 3]}", members)
        elif fault in ("cut-after-up", "cut-after-down"):
            slot.say_proxies(f"cut-after {fault[10:]} {number}", members)
        elif fault == "cut-reply":
            slot.say_proxies(f"cut-reply {number % 20 + 1}", members)
        else:
            slot.say_proxies(fault, members)
        self.mend_link(slot, until)

    def break_server(self, entry, until):
        fault, members = entry["fault"], entry["members"]
        if fault not in LATE:
            self.deafen()
        self.server_faults.begin(fault, members)
        self.run.write(fault)
        self.server_busy = True
        self.later(until, lambda: self.mend_server(fault, members))

    def holder(self, patience_s=0):
        """One who holds something now, if anybody does."""
        give_up = time.monotonic() + patience_s
        while True:
            for slot in self.run.slots:
                if not slot.stopped_until and slot.ask_counts().get("holding"):
                    return slot
            if time.monotonic() >= give_up:
                return None

    def deafen(self):
        """Where a violation is to be found: one who holds something does not hear of what happens now."""
        slot = self.holder(HOLDER_PATIENCE_S) if self.run.settings["deaf"] else None
        if slot:
            slot.say_proxies("hold")
            self.mend_link(slot, time.monotonic() + self.run.settings["ttl"] / 1000)

    def mend_server(self, fault, members):
        if fault in LATE:
            self.deafen()
        self.server_faults.end(fault, members)
        self.run.write(f"{fault}-mended")
        self.server_busy = False

    def victim(self, entry):
        """The one of the plan; or who holds something now, if anybody does."""
        patience_s = HOLDER_PATIENCE_S if self.run.settings["deaf"] else 0
        holder = self.holder(patience_s) if entry["holder"] else None
        return holder or self.run.slots[entry["slot"]]

    def word(self, entry):
        """What it is counted as: "majority-kill"."""
        share, fault = share_of(entry, self.run.server.count), entry["fault"]
        return f"{share}-{fault.removeprefix('server-')}" if share else fault

    def strike(self, entry):
        slot, until = self.victim(entry), time.monotonic() + entry["for"]
        fault = entry["fault"]
        if time.monotonic() > self.until or (FAULTS[fault] == "server" and self.server_busy):
            return
        if not self.server_faults.possible(fault):
            return
        word = self.word(entry)
        if fault in COUNTED:
            slot.ordered.append((fault, word))
        else:
            self.count(fault, word)
        self.run.write("fault", text=word, pid=slot.fighter.pid, value=int(entry["for"] * 1000))
        if fault == "kill":
            self.kill(slot)
        elif fault == "stop":
            self.stop(slot, until)
        elif fault == "clock":
            self.set_clock(slot, entry["number"])
        elif fault == "trace":
            self.trace(slot, until)
        elif fault == "exec":
            self.exec(slot)
        elif fault == "close-all":
            self.close_all(slot, until)
        elif fault in ("fork", "unwatch"):
            self.tell_fighter(slot, fault)
        elif FAULTS[fault] == "witness":
            self.break_witness(fault, until)
        elif FAULTS[fault] == "link":
            self.break_link(slot, entry, until)
        else:
            self.break_server(entry, until)

    def all(self):
        """Until the plan is done and all that was broken is mended."""
        begin, settings = time.monotonic(), self.run.settings
        for entry in Plan(self.run.seed, settings, len(self.run.slots)).entries:
            self.later(begin + entry["at"], lambda entry=entry: self.strike(entry))
        self.until = begin + settings["seconds"] + 1  # a server may be slow to start
        while self.queue:
            at, _, action = heapq.heappop(self.queue)
            time.sleep(max(0, at - time.monotonic()))
            action()
        self.server_faults.prove()
