"""The memory and descriptors of the fighters of a load test: whether they grow once everything runs. Reads /proc; knows
nothing of locks."""
import os
import time

from arena import PATIENCE_S, Failure

EVERY_S = 0.5
# How much the memory of all fighters may grow between the windows: SLACK for pages that are used for the first time,
# OF_CLIENT for what a client has not done before (new names, longer queues), and `leak` bytes for each acquisition, which
# is less than the smallest allocation that could be leaked (32).
SLACK_KIB = 256
OF_CLIENT_KIB = 8
FILES_SLACK = 8
CLIENTS_OF_A_FILE = 4  # one of so many waits for the first time, and opens the descriptor for notifications


class Growth:
    """Measures in two windows, one after `settled` seconds and one at the end. A leak grows from the maximum of the first
    to the minimum of the last; what comes and goes does not."""

    def __init__(self, run):
        self.run, self.settled_s = run, run.settings["settled"]
        self.text = "not looked at"

    @staticmethod
    def memory_kib(pid):
        """Its own memory, without mapped files: the histories are mapped."""
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

    def settle(self):
        """Waits for that time, and until so much has been done, because a slow machine needs longer."""
        begin = time.monotonic()
        time.sleep(self.settled_s)
        while self.acquisitions() < self.run.settings["warm"] and time.monotonic() < begin + PATIENCE_S:
            time.sleep(EVERY_S)

    def watch(self, seconds, settled):
        self.settle()
        settled()  # all are connected: from now on nobody may wait longer than patience
        begin, rest_s = time.monotonic(), seconds - self.settled_s
        memory, files = self.look_until(begin + rest_s / 4)
        had = self.acquisitions()
        time.sleep(max(0, begin + rest_s * 3 / 4 - time.monotonic()))
        had = self.acquisitions() - had
        memory_then, files_then = self.look_until(begin + rest_s)
        settings = self.run.settings
        clients = settings["processes"] * settings["clients"]
        memory_slack = SLACK_KIB + clients * OF_CLIENT_KIB + had * settings["leak"] // 1024
        files_slack = FILES_SLACK + clients // CLIENTS_OF_A_FILE
        self.text = (f"memory: {max(memory)} KiB, then {min(memory_then)} (may be {memory_slack} more); "
                     f"descriptors: {max(files)}, then {min(files_then)}; {had} acquisitions between")
        if min(memory_then) > max(memory) + memory_slack or min(files_then) > max(files) + files_slack:
            raise Failure(f"growth: {self.text}")

    def acquisitions(self):
        return sum(slot.ask_counts().get("acquire.OK", 0) for slot in self.run.slots)
