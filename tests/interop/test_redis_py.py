"""test_redis_py.py - locks shared with redis-py's class Lock: see onekey.py. Its lock may have no timeout; then the key does
not expire."""

from redis.exceptions import LockNotOwnedError

import interop
import onekey
from interop import until

SETTINGS = {
    "plain": ("fencing = off",),
    "plain_watch": ("fencing = off", "atomicity = watch"),
    "fencing": (),
    "fencing_watch": ("atomicity = watch",),
}


class RedisPy(onekey.Neighbour):
    def __init__(self, redis, name):
        super().__init__(redis, name)
        # sleep: with a longer one it rarely wins against clients that are notified, and the contest lasts until its end.
        # thread_local: a test waits in another thread than that in which it releases
        self.held = redis.lock(name, sleep=0.002, thread_local=False)

    def try_lock(self, ttl_ms=60000):
        self.held.timeout = ttl_ms / 1000 if ttl_ms else None
        return self.held.acquire(blocking=False)

    def lock(self):
        self.held.timeout = 60
        return self.held.acquire(blocking_timeout=interop.PATIENCE)

    def unlock(self):
        token = self.held.local.token
        try:
            self.held.release()
        except LockNotOwnedError:
            self.held.local.token = token
            return False
        return True

    def extend(self, ttl_ms):
        try:
            return self.held.extend(ttl_ms / 1000, replace_ttl=True)
        except LockNotOwnedError:
            return False


globals().update(onekey.cases_of(RedisPy, SETTINGS))


class NoTimeout(interop.Case):
    """redis-py without a timeout: a key for ever, until it is released."""

    settings = ("fencing = off", "foreign = poll", "retry = 10ms")

    def setUp(self):
        super().setUp()
        self.other = RedisPy(self.redis, self.name)
        self.assertTrue(self.other.try_lock(None))
        self.assertEqual(self.redis.pttl(self.name), -1)

    def test_busy(self):
        taker = self.taker()
        self.assertEqual(taker.word("acquire", self.name, 0, 300), "BUSY")
        self.assertEqual(taker.word("acquire", self.name, 100, 300), "TIMEDOUT")
        self.assertEqual(self.redis.pttl(self.name), -1)
        self.assertTrue(self.other.unlock())

    def test_we_wait_until_it_is_released(self):
        taker = self.taker()
        taker.begin("acquire", self.name, -1, 30000)
        self.waiter_is_subscribed()
        self.assertTrue(self.other.unlock())
        self.assertEqual(taker.answer().split()[0], "OK")
        self.assertEqual(taker.word("release"), "OK")

    def test_we_wait_until_it_is_deleted_by_hand(self):
        taker = self.taker("atomicity = watch")
        taker.begin("acquire", self.name, -1, 30000)
        self.waiter_is_subscribed()
        self.assertEqual(self.redis.delete(self.name), 1)
        self.assertEqual(taker.answer().split()[0], "OK")
        self.assertFalse(self.other.unlock())
        self.assertEqual(taker.word("release"), "OK")

    def test_ours_expired_and_was_taken(self):
        self.assertTrue(self.other.unlock())
        taker = self.taker()
        self.assertEqual(taker.word("acquire", self.name, 20000, 300, "-", "no_renew"), "OK")
        until(lambda: self.other.try_lock(None), "the end of our ttl")
        self.assertEqual(taker.word("state"), "LOST")
        self.assertEqual(taker.word("release"), "LOST")
        self.assertEqual(self.redis.pttl(self.name), -1, "we gave another's key an end")
        self.assertTrue(self.other.unlock())


if __name__ == "__main__":
    interop.main()
