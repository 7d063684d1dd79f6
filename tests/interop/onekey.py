"""onekey.py - the cases of clients whose lock is one string key that expires, with the holder's own value: each must
exclude this project's driver and be excluded by it, and neither may end or extend a lock of the other. A client is a
Neighbour."""

import interop
from interop import InThread, TakerContender, contend, pause, until


class Neighbour:
    """One holder of another kind. `cases` are not run for this class itself."""

    def __init__(self, redis, name):
        self.redis, self.name = redis, name

    def try_lock(self, ttl_ms=60000):
        """Whether it has the lock now."""
        raise NotImplementedError

    def lock(self):
        """Waits for it, in the way that this client does: it asks again and again."""
        return until(lambda: self.try_lock(), "the neighbour's turn")

    def unlock(self):
        """Whether it was its own to the end."""
        raise NotImplementedError

    def extend(self, ttl_ms):
        """Whether it is still its own."""
        raise NotImplementedError


class Cases:
    """To be mixed with interop.Case; `neighbour` makes one."""

    def neighbour(self):
        raise NotImplementedError

    def pttl(self):
        return self.redis.pttl(self.name)

    def test_the_count_is_exact(self):
        counter = interop.Counter(self.folder)
        ours = [TakerContender(self.taker(), self.name) for _ in range(2)]
        turns = contend(counter, ours, pollers=[self.neighbour(), self.neighbour()])
        self.assertEqual(counter.value(), sum(turns), "\nFINDING: two held the lock at one instant")
        self.assertGreaterEqual(min(turns), interop.ROUNDS)

    def test_busy_for_us(self):
        taker, other = self.taker(), self.neighbour()
        self.assertTrue(other.try_lock())
        self.assertEqual(taker.say("acquire", self.name, 0, 30000), 'BUSY "%s" is held by another' % self.name)
        self.assertEqual(taker.numbers("inspect", self.name)[0], 1)
        self.assertTrue(other.unlock())
        self.assertEqual(taker.numbers("inspect", self.name)[0], 0)
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "OK")
        self.assertEqual(taker.word("release"), "OK")

    def test_busy_for_the_neighbour(self):
        taker, other = self.taker(), self.neighbour()
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "OK")
        self.assertFalse(other.try_lock())
        self.assertEqual(taker.word("release"), "OK")
        self.assertTrue(other.try_lock())
        self.assertTrue(other.unlock())

    def test_we_wait_for_one_who_tells_nobody(self):
        taker, other = self.taker(), self.neighbour()
        self.assertTrue(other.try_lock())
        taker.begin("acquire", self.name, -1, 30000)
        self.waiter_is_subscribed()
        self.assertFalse(taker.has_answered())
        self.assertTrue(other.unlock())
        self.assertEqual(taker.answer().split()[0], "OK")
        self.assertEqual(taker.word("release"), "OK")

    def test_the_neighbour_waits_for_us(self):
        taker, other = self.taker(), self.neighbour()
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "OK")
        waiting = InThread(other.lock)
        self.assertEqual(taker.word("state"), "HELD")
        self.assertEqual(taker.word("release"), "OK")
        self.assertTrue(waiting.result())
        self.assertTrue(other.unlock())

    def test_we_wait_for_one_who_died(self):
        taker, other = self.taker(), self.neighbour()
        self.assertTrue(other.try_lock(300))
        self.assertEqual(taker.word("acquire", self.name, 20000, 30000), "OK")
        self.assertFalse(other.unlock(), "it released what is ours")
        self.assertFalse(other.extend(60000), "it prolonged what is ours")
        self.assertLessEqual(self.pttl(), 30000)
        self.assertEqual(taker.word("state"), "HELD")
        self.assertEqual(taker.word("release"), "OK")

    def test_the_neighbour_waits_for_one_who_was_killed(self):
        taker, other = self.taker(), self.neighbour()
        self.assertEqual(taker.word("acquire", self.name, 20000, 300), "OK")
        taker.kill()
        self.assertTrue(other.lock())
        self.assertTrue(other.unlock())

    def test_ours_expired_and_was_taken(self):
        taker, other = self.taker(), self.neighbour()
        self.assertEqual(taker.word("acquire", self.name, 20000, 300, "-", "no_renew"), "OK")
        self.assertTrue(other.lock())
        self.assertEqual(taker.word("state"), "LOST")
        self.assertEqual(taker.word("release"), "LOST")
        self.assertTrue(other.unlock(), "we released what was the neighbour's")

    def test_ours_was_taken_away(self):
        taker, other = self.renewing_taker(), self.neighbour()
        self.assertEqual(taker.word("acquire", self.name, 0, 20000), "OK")
        self.assertEqual(self.redis.delete(self.name), 1)
        self.assertTrue(other.try_lock(60000))
        until(lambda: taker.word("state") == "LOST", "that we have lost it")
        self.assertEqual(taker.word("release"), "LOST")
        self.assertTrue(self.pttl() == -1 or 20000 < self.pttl() <= 60000, "we changed when it ends")
        self.assertTrue(other.unlock(), "we released what was the neighbour's")

    def test_we_release_what_was_taken_away(self):
        """Not told of it yet."""
        taker, other = self.taker(), self.neighbour()
        self.assertEqual(taker.word("acquire", self.name, 0, 60000), "OK")
        self.assertEqual(self.redis.delete(self.name), 1)
        self.assertTrue(other.try_lock(60000))
        self.assertEqual(taker.word("release"), "LOST")
        self.assertTrue(other.unlock(), "we released what was the neighbour's")

    def test_renewed_it_stays_ours(self):
        taker, other = self.renewing_taker(), self.neighbour()
        self.assertEqual(taker.word("acquire", self.name, 0, 20000), "OK")
        while taker.renewals() < 6:
            self.assertFalse(other.try_lock())
            pause()
        self.assertEqual(taker.word("state"), "HELD")
        self.assertEqual(taker.word("release"), "OK")


def cases_of(make, settings):
    """Test classes, one for each of the settings: {name: lines}. To be put into a module's globals()."""
    made = {}
    for word, lines in settings.items():
        lines = (*lines, "foreign = poll", "retry = 10ms")
        members = {"settings": lines, "neighbour": lambda self: make(self.redis, self.name)}
        name = "%s_%s" % (make.__name__, word)
        made[name] = type(name, (Cases, interop.Case), members)
    return made
