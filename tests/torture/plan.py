"""Which fault happens when in a torture run: one seed determines all of it before the run. Knows no process."""
import random

# What each fault hits (a fighter's process, its connections, the server). strikes.py has the faults.
FAULTS = {
    "kill": "process", "stop": "process", "clock": "process",
    # of the processes that a witness watches: witness.py
    "trace": "process", "fork": "process", "exec": "process", "unwatch": "process",
    "close-all": "process",
    "witness-kill": "witness", "witness-stop": "witness", "witness-double": "witness",
    "delay": "link", "cut": "link", "hold": "link", "hold-up": "link", "hold-down": "link",
    "lose": "link", "cut-after-up": "link", "cut-after-down": "link", "cut-reply": "link",
    "refuse": "link",
    "server-kill": "server", "server-stop": "server", "server-restart": "server",
    "server-forget": "server", "server-power": "server",
    "server-full": "server", "server-memory": "server", "server-evict": "server",
    "server-clock": "server", "server-failover": "server", "server-leader": "server",
    # of a Redis Cluster: cluster_faults.py
    "server-takeover": "server", "server-reshard": "server",
}
# These do their harm when they end: what was granted meanwhile is forgotten, or a leader does not know yet that there is another.
LATE = ("server-failover", "server-leader")
# A command for one of these does not mean that it happens: the proxies count them.
COUNTED = ("cut", "cut-after-up", "cut-after-down", "cut-reply")
# These choose the members of a group by themselves.
CHOOSE = ("server-clock", "server-leader", "server-failover", "server-takeover", "server-reshard")
DOWN = ("server-kill", "server-stop", "server-restart")
# These show whether a holder knows its deadline: they often hit a holder, and last longer than a ttl.
TO_LIVE_THROUGH = ("stop", "trace", "unwatch", "close-all", "hold", "hold-up", "hold-down", "lose")


def share_of(entry, count):
    """Of a group of so many servers it hits a "majority" or a "minority". None: it hits no share of a group."""
    if count == 1 or FAULTS[entry["fault"]] in ("process", "witness") or entry["fault"] in CHOOSE:
        return None
    return "majority" if 2 * len(entry["members"]) > count else "minority"


class Plan:
    def __init__(self, seed, settings, slots):
        self.settings = settings
        draw = random.Random(seed)
        ttl_s = settings["ttl"] / 1000
        self.entries, at, server_free_at = [], settings["first"], 0.0
        while at < settings["seconds"] and settings["faults"]:
            fault = draw.choice(settings["faults"])
            entry = {"at": at, "fault": fault, "slot": draw.randrange(slots),
                     "holder": fault in TO_LIVE_THROUGH and draw.random() < 0.7,
                     "for": self.duration(draw, settings, fault),
                     "number": draw.choice([draw.randrange(40), draw.randrange(3000)]),
                     "members": self.members(draw, settings)}
            if FAULTS[fault] == "server":
                at = max(at, server_free_at)
                entry["at"] = at
                server_free_at = at + entry["for"] + ttl_s  # the server must also work for a while
            self.entries.append(entry)
            at += draw.expovariate(settings["rate"])

    def kinds(self):
        """The faults that begin in time; and of a group whether a "majority-down" or a "minority-down" is among them."""
        entries = [entry for entry in self.entries if entry["at"] < self.settings["seconds"]]
        down = {f"{share_of(entry, self.settings['members'])}-down" for entry in entries if entry["fault"] in DOWN}
        return {entry["fault"] for entry in entries} | down

    @staticmethod
    def duration(draw, settings, fault):
        """Often slightly longer than a ttl, so that the holder must notice it."""
        if fault in TO_LIVE_THROUGH and draw.random() < 0.5:
            times = draw.uniform(1, 1.8)
        elif fault == "server-leader":
            times = draw.uniform(2.2, 3.5)  # longer than a lease of whole seconds
        elif fault in LATE:
            times = draw.uniform(1.2, 1.5)  # so that no lock that the replica knows is still held
        elif FAULTS[fault] == "server":
            times = draw.uniform(0, 0.3)  # a server that is down tests nothing, …
            if times > 0.24:  # … but sometimes it is down longer than a ttl
                times *= 2
            times *= settings["longest"]
        else:
            times = draw.uniform(0, draw.choice([0.2, 1]) * settings["longest"])
        return times * (settings["unit"] or settings["ttl"]) / 1000

    @staticmethod
    def members(draw, settings):
        """Of a group: any minority, or sometimes a majority. Two have no minority: either of them, or both."""
        count = settings["members"]
        if count == 1:
            return [1]
        minority = (count - 1) // 2
        few = minority > 0 and (settings["of"] == "minority" or (settings["of"] == "any" and draw.random() < 0.7))
        number = draw.randint(1, minority) if few else draw.randint(minority + 1, count)
        return sorted(draw.sample(range(1, count + 1), number))
