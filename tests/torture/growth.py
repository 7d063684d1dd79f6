"""What the fighters of a load take of the machine: whether memory or descriptors grow once all is running. Looks at
/proc; knows nothing of locks."""
import os
import time

from arena import Failure

EVERY_S = 0.5
# What memory may have grown by between the windows, of all fighters together: pages that are touched for the first time,
# for each client what it had not done before (it meets names that it has not had, and queues that are longer), and,
# beside that, less for each acquisition than the smallest piece that could be forgotten (32 bytes).
SLACK_KIB = 256
OF_CLIENT_KIB = 8
OF_ACQUISITION_BYTES = 8
FILES_SLACK = 8


class Growth:
    """Looks in two windows, one after `settled` seconds and one at the end. What leaks has grown from the highest of
    the first to the lowest of the last: what comes and goes has not."""

    def __init__(self, run):
        self.run, self.settled_s = run, run.settings["settled"]
        self.text = "not looked at"

    @staticmethod
    def memory_kib(pid):
        """Its own, not what it has of files: the histories are written by mapping."""
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))

    def look(self):
        pids = [slot.fighter.pid for slot in self.run.slots]
        return (sum(self.memory_kib(pid) for pid in pids),
                sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids))

    def look_until(self, end):
        looks = []
        while not looks or time.monotonic() < end:
            looks.append(self.look())
            time.sleep(EVERY_S)
        return zip(*looks)

    def watch(self, seconds):
        begin = time.monotonic()
        window_s = (seconds - self.settled_s) / 4
        time.sleep(self.settled_s)
        memory, files = self.look_until(begin + self.settled_s + window_s)
        had = self.acquisitions()
        time.sleep(max(0, begin + seconds - window_s - time.monotonic()))
        had = self.acquisitions() - had
        memory_then, files_then = self.look_until(begin + seconds)
        settings = self.run.settings
        new = settings["processes"] * settings["clients"] * OF_CLIENT_KIB
        memory_slack = SLACK_KIB + new + had * OF_ACQUISITION_BYTES // 1024
        self.text = (f"memory: {max(memory)} KiB, then {min(memory_then)} (may be {memory_slack} more); "
                     f"descriptors: {max(files)}, then {min(files_then)}; {had} acquisitions between")
        if min(memory_then) > max(memory) + memory_slack or min(files_then) > max(files) + FILES_SLACK:
            raise Failure(f"growth: {self.text}")

    def acquisitions(self):
        return sum(slot.ask_counts().get("acquire.OK", 0) for slot in self.run.slots)
