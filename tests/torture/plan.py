"""What happens when in a torture run: all of it drawn from one seed, before anything begins. Knows no process."""
import random

# Of each fault: who suffers (a fighter's process, its connections, the server). strikes.py says how each is done.
FAULTS = {
    "kill": "process", "stop": "process", "clock": "process",
    "delay": "link", "cut": "link", "hold": "link", "hold-up": "link", "hold-down": "link",
    "lose": "link", "cut-after-up": "link", "cut-after-down": "link", "cut-reply": "link",
    "refuse": "link",
    "server-kill": "server", "server-stop": "server", "server-restart": "server",
    "server-forget": "server", "server-power": "server",
    "server-full": "server", "server-memory": "server", "server-evict": "server",
    "server-clock": "server", "server-failover": "server",
}
# The harm is done when they end: what was given meanwhile is forgotten.
LATE = ("server-failover",)
# That they were ordered does not mean that they happen: the proxies count those.
COUNTED = ("cut", "cut-after-up", "cut-after-down", "cut-reply")
# What tells whether a holder knows its deadline: these often happen to one, and for longer than a ttl.
TO_LIVE_THROUGH = ("stop", "hold", "hold-up", "hold-down", "lose")


class Plan:
    def __init__(self, seed, settings, slots):
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
                server_free_at = at + entry["for"] + ttl_s  # it has to be there at times
            self.entries.append(entry)
            at += draw.expovariate(settings["rate"])

    @staticmethod
    def duration(draw, settings, fault):
        """Often just longer than a ttl, where the holder is to find that out."""
        if fault in TO_LIVE_THROUGH and draw.random() < 0.5:
            times = draw.uniform(1, 1.8)
        elif fault in LATE:
            times = draw.uniform(1.2, 1.5)  # so that nobody holds what they do know
        elif FAULTS[fault] == "server":
            times = draw.uniform(0, 0.3)  # nothing is learned while it is away; …
            if times > 0.24:  # … now and then for longer than a ttl
                times *= 2
            times *= settings["longest"]
        else:
            times = draw.uniform(0, draw.choice([0.2, 1]) * settings["longest"])
        return times * settings["ttl"] / 1000

    @staticmethod
    def members(draw, settings):
        """Of a group: any minority, or now and then a majority. Two have no minority: either of them, or both."""
        count = settings["members"]
        if count == 1:
            return [1]
        minority = (count - 1) // 2
        few = minority > 0 and (settings["of"] == "minority" or (settings["of"] == "any" and draw.random() < 0.7))
        number = draw.randint(1, minority) if few else draw.randint(minority + 1, count)
        return sorted(draw.sample(range(1, count + 1), number))
