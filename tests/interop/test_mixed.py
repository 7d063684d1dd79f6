"""test_mixed.py - Mortise clients with different settings on one lock: atomicity, tokens and queue may differ, and they
still exclude each other. Clients in the queue are notified only by each other; beside other clients they must poll."""

import itertools

import interop
from interop import TakerContender, contend

SCRIPTS = [("fencing = on", "queue = no"), ("fencing = off", "queue = no")]
WATCH = [(*way, "atomicity = watch") for way in SCRIPTS]
QUEUED = ("queue = yes", "foreign = poll", "retry = 10ms")


class Cases:
    told = SCRIPTS
    queued = False

    def ways(self):
        return self.told + [QUEUED] * self.queued

    def test_the_count_is_exact(self):
        """And each of them has its turns."""
        counter = interop.Counter(self.folder)
        told = [TakerContender(self.taker(*way), self.name) for way in self.told]
        polling = [TakerContender(self.taker(*QUEUED), self.name) for _ in range(2 * self.queued)]
        turns = contend(counter, told, pollers=polling)
        self.assertEqual(counter.value(), sum(turns), "\nFINDING: two held the lock at one instant")

    def test_busy(self):
        takers = [self.taker(*way) for way in self.ways()]
        for holder, other in itertools.permutations(takers, 2):
            self.assertEqual(holder.word("acquire", self.name, 0, 30000), "OK")
            self.assertEqual(other.word("acquire", self.name, 0, 30000), "BUSY")
            self.assertEqual(holder.word("release"), "OK")


class String(Cases, interop.Case):
    settings = ("mode = string",)
    told = SCRIPTS + WATCH
    queued = True


class Hash(Cases, interop.Case):
    settings = ("mode = hash",)
    queued = True


class Redisson(Cases, interop.Case):
    settings = ("mode = hash", "dialect = redisson")


if __name__ == "__main__":
    interop.main()
