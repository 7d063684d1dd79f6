"""What the fighters of a load take of the machine: whether memory or descriptors grow once all is running. Looks at
/proc; knows nothing of locks."""
import os
import time

from arena import Failure

EVERY_S = 0.5
MEMORY_SLACK = 1.15, 4096  # times, and KiB more: of all fighters together
FILES_SLACK = 1.02, 20
LEAK_BYTES = 250  # of each acquisition between the windows, beside the KiB


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
        self.judge("memory", "KiB", max(memory), min(memory_then), MEMORY_SLACK)
        self.judge("descriptors", "of them", max(files), min(files_then), FILES_SLACK)
        self.text += f"; {had} acquisitions between"
        if (min(memory_then) - max(memory) - MEMORY_SLACK[1]) * 1024 > had * LEAK_BYTES:
            raise Failure(f"a leak: {max(memory)} KiB, and {min(memory_then)} after {had} acquisitions more")

    def acquisitions(self):
        return sum(slot.ask_counts().get("acquire.OK", 0) for slot in self.run.slots)

    def judge(self, what, unit, before, after, slack):
        text = f"{what}: {before} {unit}, then {after}"
        self.text = f"{self.text}; {text}" if "then" in self.text else text
        if after > before * slack[0] + slack[1]:
            raise Failure(f"growth of {what}: {before} {unit} after {self.settled_s} s, {after} at the end")
