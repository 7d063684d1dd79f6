"""The course of one torture run: it starts the server and the fighters, causes the faults of the plan, repairs everything,
checks that every fighter makes progress, and ends everything cleanly; then the checker (check.c) reads the histories."""
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time

from arena import COMPLAINT, PATIENCE_S, Failure, Finding, Server, Slot, now_ns, tell
from growth import Growth
from strikes import Strikes
from witness import Witness

UNREACHABLE = 69  # exit code: half a step may have been taken, and it can be repeated
LOOK_S = 0.2
GETTING_ON = 5  # acquisitions of a process, and one of each name
SLACK_MS = 100  # a process that was stopped continues only when it gets a processor
# What a call may end with where nothing is broken, but there is much to do. Only acquires end without success: of those
# that would not wait, or not for longer, or were canceled. All time-outs of a load are longer than it makes anything wait.
NAMED = {"acquire.OK", "acquire.BUSY", "acquire.TIMEDOUT", "acquire.CANCELED",
         "release.OK", "nowait.OK", "close.OK", "write.OK", "read.OK", "downgrade.OK"}


class Run:
    def __init__(self, name, template, settings, seed):
        self.name, self.template, self.settings, self.seed = name, template, settings, seed
        self.folder = tempfile.mkdtemp(prefix="mortise-torture-")
        os.chmod(self.folder, 0o711)  # a server may run as somebody else
        os.mkdir(f"{self.folder}/history")
        self.log = open(f"{self.folder}/history/nemesis.jsonl", "w", encoding="utf-8", buffering=1)
        self.server = Server(settings, self.folder)
        self.slots, self.statuses, self.took = [], {}, []
        self.witness = Witness(self.folder, settings["witness"]) if settings["witness"] else None
        self.strikes, self.growth = Strikes(self), Growth(self)

    def write(self, event, **more):
        self.log.write(json.dumps({"event": event, "at_ns": now_ns()} | more) + "\n")

    # ---- the course of it --------------------------------------------------------------------------

    def take_step(self):
        """Of a migration, by its operator, who has the config of the first fighter."""
        shutil.copy(self.slots[0].config, f"{self.folder}/operator.conf")
        give_up = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run([os.environ["MORTISE_COMMAND"], "-C", f"{self.folder}/operator.conf", "migrate",
                                   "advance", "--wait", f"{PATIENCE_S}s"], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            if done.returncode != UNREACHABLE or time.monotonic() > give_up:
                raise Failure(f"mortise migrate advance: exit code {done.returncode}: {done.stderr}")

    def fight(self):
        if self.settings["load"]:
            self.growth.watch(self.settings["seconds"], lambda: self.write("calm"))
        else:
            self.strikes.all()

    def calm(self):
        """All have to get on again."""
        for slot in self.slots:
            slot.check_alive()
            slot.check_clock()
        if self.witness:
            self.witness.check()
        if not self.settings["load"]:
            self.write("calm")
        for slot in self.slots:
            slot.fighter.say("calm")
        before = [slot.ask_counts() for slot in self.slots]
        calm_at = time.monotonic()
        waiting = self.who_waits(before)
        while waiting:
            if time.monotonic() > calm_at + PATIENCE_S:
                raise Failure(f"who does not get on after the last fault: {', '.join(waiting)}")
            time.sleep(0.05)
            waiting = self.who_waits(before)
        time.sleep(max(0, calm_at + self.settings["calm"] - time.monotonic()))

    def who_waits(self, before):
        """Every fighter gets on, and has each name; of a load, in which there are many of both, they have it together."""
        now = [slot.ask_counts() for slot in self.slots]
        waiting = [f"fighter {slot.number}" for slot, then, counts in zip(self.slots, before, now)
                   if counts.get("acquire.OK", 0) < then.get("acquire.OK", 0) + GETTING_ON]
        if self.settings["load"]:
            before, now = [self.sum_of(before)], [self.sum_of(now)]
        return waiting + sorted({name.removeprefix("had.") for then, counts in zip(before, now) for name in counts
                                 if name.startswith("had.") and counts[name] <= then[name]})

    @staticmethod
    def sum_of(all_counts):
        added = {}
        for counts in all_counts:
            for word, times in counts.items():
                added[word] = added.get(word, 0) + times
        return added

    def stop_all(self):
        for slot in self.slots:
            slot.fighter.say("stop")
        for slot in self.slots:
            for status, times in slot.hear_counts().items():
                if status.startswith("had."):
                    continue
                self.statuses[status] = self.statuses.get(status, 0) + times
        for slot in self.slots:
            code = slot.fighter.child.wait(PATIENCE_S)
            slot.check_complaints()
            if code != 0:
                raise Failure(f"fighter {slot.number}: exit code {code}\n{slot.last_words()}")

    def add_up(self):
        """Of a load, in which nothing is broken: no error, and no update was lost."""
        if not self.settings["load"]:
            return
        if unnamed := sorted(set(self.statuses) - NAMED):
            raise Failure("errors, though nothing was broken: " +
                          ", ".join(f"{status} {self.statuses[status]} times" for status in unnamed))
        total = 0
        for path in glob.glob(f"{self.folder}/history/*.count"):
            with open(path, "rb") as file:
                total += struct.unpack("=q", file.read(8))[0]
        if total != self.statuses.get("write.OK", 0):  # and nobody had lost his lease, or that is an error above
            raise Finding(f"{self.statuses.get('write.OK', 0)} updates were written, {total} are there")
        for path in glob.glob(f"{self.folder}/history/*.count"):
            os.unlink(path)

    def look_for_left(self):
        """Claims of the dead end by themselves; nothing may be there after that. Nor may connections, of a witness either."""
        if self.witness:
            self.witness.check()
            self.witness.end()
        patience_s = 30 + self.settings["calm_ttl"] / 1000
        give_up = time.monotonic() + patience_s
        # So many looks, not so many seconds: what is left is a finding, and a machine that stands still meanwhile ends no claim.
        for _ in range(int(patience_s / LOOK_S)):
            fails, listed = self.left_by_list()
            server_fails, in_server = self.server.left()
            fails, left = fails or server_fails, listed + in_server
            if not fails and not left:
                return
            if fails and time.monotonic() > give_up:
                break
            time.sleep(LOOK_S)
        if fails:
            raise Failure(f"what is left: {fails}")
        for text in left:
            self.write("left", text=text)

    def left_by_list(self):
        """(why it cannot say that, or "", and the claims)"""
        for slot in self.slots:
            slot.say_proxies("pass")
        done = subprocess.run([os.environ["MORTISE_COMMAND"], "-C", self.slots[0].config, "list"],
                              capture_output=True, text=True, check=False)
        if done.returncode < 0 or re.search(COMPLAINT, done.stderr):
            raise Failure(f"mortise list: exit code {done.returncode}: {done.stderr}")
        if done.returncode == 0:
            return "", done.stdout.splitlines()
        return f"exit code {done.returncode}: {done.stderr}", []

    def check(self):
        history = f"{self.folder}/history"
        files = sorted(os.path.join(history, name) for name in os.listdir(history))
        done = subprocess.run([os.environ["MORTISE_CHECK"], f"patience={self.settings['patience']}", "fencing=1",
                               f"slack={SLACK_MS}", *files],
                              capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise Failure(f"the checker: exit code {done.returncode}: {done.stderr}")
        return dict(word.split("=") for word in done.stdout.split()), done.stderr

    def go(self):
        settings = self.settings
        self.server.start()
        if self.witness:
            self.witness.start()
        self.slots = [Slot(self, number) for number in range(settings["processes"])]
        if settings["step"]:
            self.take_step()
        if settings["load"]:
            self.left_by_list()  # the first one makes the tables, and whoever would not wait for that is told UNREACHABLE
        for slot in self.slots:
            slot.start()
        for slot in self.slots:
            slot.expect_ready()
        for phase in (self.fight, self.calm, self.stop_all, self.add_up,
                      self.look_for_left):
            begin = time.monotonic()
            phase()
            self.took.append(f"{phase.__name__} {time.monotonic() - begin:.1f} s")
        return self.check()

    def report(self, found):
        def line(counts):
            return " ".join(f"{word}={counts[word]}" for word in sorted(counts)) or "none"

        tell(f"  faults: {sum(self.strikes.counts.values())} {line(self.strikes.counts)}; ordered in vain: "
             f"{self.strikes.in_vain}")
        tell(f"  calls: {line(self.statuses)}")
        tell(f"  check: {line(found)}")
        if self.settings["load"]:
            tell(f"  growth: {self.growth.text}")
        tell(f"  took: {', '.join(self.took)}")

    def note_faults(self):
        folder = os.environ.get("MORTISE_TORTURE_REPORT")
        if folder:
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{self.name}", "a", encoding="utf-8") as file:
                file.write(" ".join(f"{word}={times}" for word, times in self.strikes.counts.items()) + "\n")

    def end(self, keep):
        """False: the server could not be ended. Then the folder, which says what it is, is kept: its guard tries once more."""
        self.note_faults()
        self.strikes.end()
        for slot in self.slots:
            slot.end()
        if self.witness:
            self.witness.end()
        self.log.close()
        ended = True
        try:
            self.server.do("end")
        except Failure as failure:
            tell(f"  failed: {failure}")
            ended = False
        if keep or not ended:
            tell(f"  kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        return ended
