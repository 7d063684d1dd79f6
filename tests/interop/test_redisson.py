"""test_redisson.py - locks shared with Redisson's RLock (mode = hash, dialect = redisson): the Java side is
redisson.py. Nobody polls here: a waiter that misses a notification waits for the holder's ttl, 30 or 60
seconds, and fails the test."""

import uuid

import interop
import redisson
from interop import InThread, TakerContender, contend, pause, until

MODE = ("mode = hash", "dialect = redisson")


class JavaContender:
    def __init__(self, java):
        self.java = java

    def lock(self):
        return self.java.lock()

    def unlock(self):
        return self.java.unlock() == 1


class Listener:
    """One who listens to the channel of a name, as a Java client does that waits."""

    def __init__(self, case):
        self.pubsub = case.redis.pubsub()
        self.pubsub.subscribe(redisson.channel_of(case.name))
        assert self.pubsub.get_message(timeout=interop.PATIENCE)["type"] == "subscribe"
        case.addCleanup(self.pubsub.close)

    def next(self):
        got = self.pubsub.get_message(timeout=interop.PATIENCE)
        return got and got["data"]

    def heard_nothing_before(self, redis, channel):
        """Of what was published before this call."""
        redis.publish(channel, "nothing")
        return self.next() == b"nothing"


class Cases:
    def java(self, thread=1, **more):
        return redisson.Thread(self.redis, self.name, thread, **more)

    # ---- exclusion ------------------------------------------------------------------------------------

    def test_the_count_is_exact(self):
        counter = interop.Counter(self.folder)
        ours = [TakerContender(self.taker(), self.name) for _ in range(2)]
        client = str(uuid.uuid4())
        theirs = [self.java(1, client=client), self.java(2, client=client), self.java()]
        turns = contend(counter, ours + [JavaContender(java) for java in theirs])
        self.assertEqual(counter.value(), sum(turns), "\nFINDING: two held the lock at one instant")

    def test_busy_for_us_until_the_last_unlock(self):
        taker, java = self.taker(), self.java()
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "BUSY")
        self.assertIsNone(java.try_lock())
        self.assertEqual(java.hold_count(), 2)
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "BUSY")
        self.assertEqual(java.unlock(), 1)
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "OK")
        self.assertEqual(taker.word("release"), "OK")

    def test_busy_for_java(self):
        taker, java = self.taker(), self.java()
        self.assertEqual(taker.word("acquire", self.name, 0, 20000), "OK")
        left_ms = java.try_lock()
        self.assertTrue(0 < left_ms <= 20000, left_ms)
        self.assertTrue(java.is_locked())
        self.assertFalse(java.is_held())
        self.assertEqual(java.hold_count(), 0)
        self.assertEqual(taker.word("release"), "OK")
        self.assertFalse(java.is_locked())
        self.assertIsNone(java.try_lock())
        self.assertEqual(java.unlock(), 1)

    def test_release_by_a_non_owner_is_refused(self):
        taker, java = self.taker(), self.java()
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "OK")
        before = self.redis.hgetall(self.name)
        self.assertIsNone(java.unlock())
        self.assertIsNone(java.unlock_without_latch())
        self.assertFalse(java.renew())
        self.assertEqual(self.redis.hgetall(self.name), before)
        self.assertEqual(taker.word("release"), "OK")

    def test_we_release_what_was_taken_away(self):
        """Not told of it yet. Of a shared owner it may even be the same field."""
        java, taker = self.java(), self.taker()
        for more in "-", java.field:
            self.assertEqual(taker.word("acquire", self.name, 0, 60000, more), "OK")
            self.assertTrue(java.force_unlock())
            self.assertIsNone(java.try_lock())
            self.assertEqual(taker.word("release"), "LOST")
            self.assertEqual(java.hold_count(), 1)
            self.assertEqual(java.unlock(), 1)

    def test_java_expired(self):
        taker, java = self.taker(), self.java(lease_ms=300)
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("acquire", self.name, 20000, 30000), "OK")
        self.assertIsNone(java.unlock())
        self.assertFalse(java.renew())
        self.assertEqual(taker.word("state"), "HELD")
        self.assertEqual(taker.word("release"), "OK")

    def test_we_expired(self):
        for more in ("-",), (str(uuid.uuid4()) + ":7",):
            taker, java = self.taker(), self.java()
            self.assertEqual(taker.word("acquire", self.name, 20000, 300, *more, "no_renew"), "OK")
            self.assertTrue(java.lock())
            self.assertEqual(taker.word("state"), "LOST")
            self.assertEqual(taker.word("release"), "LOST")
            self.assertEqual(java.hold_count(), 1)
            self.assertEqual(java.unlock(), 1)

    def test_we_were_killed(self):
        for more in ("-",), (str(uuid.uuid4()) + ":7",):
            taker, java = self.taker(), self.java()
            self.assertEqual(taker.word("acquire", self.name, 20000, 300, *more), "OK")
            taker.kill()
            self.assertTrue(java.lock())
            self.assertEqual(java.unlock(), 1)

    def test_by_redis_cli(self):
        taker, field = self.taker(), "%s:1" % uuid.uuid4()
        lock = ("eval", redisson.LOCK, "1", self.name, "30000", field)
        unlock = ("eval", redisson.UNLOCK_WITHOUT_LATCH, "2", self.name, redisson.channel_of(self.name))
        unlock += (redisson.UNLOCK_MESSAGE, "30000", field)
        self.assertEqual(self.server.ask(*lock), "")
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "BUSY")
        self.assertEqual(self.server.ask(*unlock), "1")
        self.assertEqual(taker.word("acquire", self.name, 0, 30000), "OK")
        self.assertGreater(int(self.server.ask(*lock)), 0)
        self.assertEqual(self.server.ask(*unlock), "")
        self.assertEqual(taker.word("release"), "OK")

    # ---- renewal --------------------------------------------------------------------------------------

    def test_renewed_by_us(self):
        taker, java = self.renewing_taker(), self.java()
        self.assertEqual(taker.word("acquire", self.name, 0, 20000), "OK")
        while taker.renewals() < 6:
            left_ms = java.try_lock()
            self.assertTrue(left_ms is not None and left_ms <= 20000, left_ms)
            pause()
        self.assertEqual(taker.word("release"), "OK")

    def test_renewed_by_java(self):
        taker, java = self.taker(), self.java(lease_ms=60000)
        self.assertIsNone(java.try_lock())
        for _ in range(6):
            self.redis.pexpire(self.name, 30000)  # as if half of it were over
            self.assertTrue(java.renew())
            self.assertTrue(30000 < java.remaining_ms() <= 60000)
            self.assertEqual(taker.word("acquire", self.name, 0, 30000), "BUSY")
        self.assertEqual(java.unlock(), 1)

    def test_our_renewal_does_not_shorten_a_shared_hold(self):
        taker, java = self.renewing_taker(), self.java(lease_ms=600000)
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("acquire", self.name, 0, 20000, java.field), "OK")
        until(lambda: taker.renewals() >= 3, "renewals")
        self.assertGreater(java.remaining_ms(), 300000)
        self.assertEqual(taker.word("release"), "OK")
        self.assertGreater(java.remaining_ms(), 300000)
        self.assertEqual(java.unlock(), 1)

    def test_our_renewals_keep_a_shared_hold(self):
        """The Java side's part is short and is not renewed; ours goes on."""
        taker, java, other = self.renewing_taker(), self.java(lease_ms=3000), self.java()
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("acquire", self.name, 0, 20000, java.field), "OK")
        while taker.renewals() < 40:
            self.assertIsNotNone(other.try_lock())
            pause()
        self.assertEqual(java.hold_count(), 2)
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(taker.word("state"), "HELD")
        self.assertEqual(taker.word("release"), "OK")
        self.assertFalse(java.is_locked())

    # ---- a hold in common -----------------------------------------------------------------------------

    def test_we_join_java_and_leave_last(self):
        taker, java, other = self.taker(), self.java(), self.java(2)
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("acquire", self.name, 0, 30000, java.field), "OK")
        self.assertEqual(java.hold_count(), 2)
        self.assertIsNotNone(other.try_lock())
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(taker.word("state"), "HELD")
        self.assertEqual(java.hold_count(), 1)
        self.assertIsNotNone(other.try_lock())
        self.assertEqual(taker.word("release"), "OK")
        self.assertFalse(java.is_locked())

    def test_we_join_java_and_leave_first(self):
        taker, java, other = self.taker(), self.java(), self.java(2)
        self.assertIsNone(java.try_lock())
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("acquire", self.name, 0, 30000, java.field), "OK")
        self.assertEqual(java.hold_count(), 3)
        self.assertEqual(taker.word("release"), "OK")
        self.assertEqual(java.hold_count(), 2)
        self.assertIsNotNone(other.try_lock())
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(java.unlock(), 1)

    def test_java_joins_us(self):
        taker, second, java = self.taker(), self.taker(), self.java()
        self.assertEqual(taker.word("acquire", self.name, 0, 30000, java.field), "OK")
        self.assertTrue(java.is_held())
        self.assertIsNone(java.try_lock())
        self.assertEqual(second.word("acquire", self.name, 0, 30000, java.field), "OK")
        self.assertEqual(java.hold_count(), 3)
        self.assertEqual(taker.word("release"), "OK")
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(java.hold_count(), 1)
        self.assertEqual(second.word("release"), "OK")
        self.assertFalse(java.is_locked())

    def test_we_died_in_a_hold_in_common(self):
        """Java's part stands; what we had counted no longer keeps us out once Java has unlocked."""
        taker, second, java = self.taker(), self.taker(), self.java()
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("acquire", self.name, 20000, 300, java.field), "OK")
        taker.kill()
        self.assertEqual(second.word("acquire", self.name, 1000, 30000), "TIMEDOUT")
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(second.word("acquire", self.name, 0, 30000), "OK")
        self.assertFalse(java.is_held())
        self.assertEqual(second.word("release"), "OK")

    def test_java_shortens_a_hold_in_common(self):
        """Its lock() and unlock() set the end to its own leaseTime: we are told LOST, if late."""
        taker, java = self.taker(), self.java(lease_ms=300)
        self.assertEqual(taker.word("acquire", self.name, 0, 9000, java.field), "OK")
        self.assertIsNone(java.try_lock())
        until(lambda: not java.is_locked(), "the end of Java's lease")
        until(lambda: taker.word("state") == "LOST", "that we have lost it")
        self.assertEqual(taker.word("release"), "LOST")

    # ---- waking up ------------------------------------------------------------------------------------

    def waits(self, taker):
        taker.begin("acquire", self.name, -1, 60000)
        self.waiter_is_subscribed()
        self.assertFalse(taker.has_answered())

    def test_we_are_woken_by_unlock(self):
        for unlock in "unlock", "unlock_without_latch", "force_unlock":
            taker, java = self.taker(), self.java(lease_ms=60000)
            self.assertIsNone(java.try_lock())
            self.waits(taker)
            self.assertEqual(getattr(java, unlock)(), 1)
            self.assertEqual(taker.answer().split()[0], "OK")
            self.assertEqual(taker.word("release"), "OK")
            taker.close()

    def test_java_is_woken_by_our_release(self):
        taker, java = self.taker(), self.java()
        self.assertEqual(taker.word("acquire", self.name, 0, 60000), "OK")
        waiting = InThread(java.lock)
        self.waiter_is_subscribed()
        self.assertEqual(taker.word("release"), "OK")
        self.assertTrue(waiting.result())
        self.assertEqual(java.unlock(), 1)

    def test_our_message_is_theirs(self):
        listener, taker, java = Listener(self), self.taker(), self.java()
        for how in "release", "nowait":
            self.assertEqual(taker.word("acquire", self.name, 0, 60000), "OK")
            self.assertEqual(taker.word(how), "OK")
            self.assertEqual(listener.next(), b"0")
        self.assertEqual(taker.word("acquire", self.name, 0, 60000, java.field), "OK")
        self.assertIsNone(java.try_lock())
        self.assertEqual(taker.word("release"), "OK")
        self.assertTrue(listener.heard_nothing_before(self.redis, java.channel), "it is held still")
        self.assertEqual(taker.word("acquire", self.name, 0, 60000, java.field), "OK")
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(taker.word("release"), "OK")
        self.assertEqual(listener.next(), b"0")

    def test_names_with_braces(self):
        for tag in "{%s}", "a{%s}b", "{%s", "%s}", "{}%s":
            self.name = tag % self.id().rsplit(".", 1)[1]
            listener, taker, java = Listener(self), self.taker(), self.java(lease_ms=60000)
            self.assertIsNone(java.try_lock())
            taker.begin("acquire", self.name, -1, 60000)
            until(lambda: dict(self.redis.pubsub_numsub(java.channel))[java.channel.encode()] == 2, "a waiter")
            self.assertEqual(java.unlock(), 1)
            self.assertEqual(taker.answer().split()[0], "OK")
            self.assertEqual(listener.next(), b"0")
            self.assertEqual(taker.word("release"), "OK")
            self.assertEqual(listener.next(), b"0")
            taker.close()
            listener.pubsub.close()

    # ---- what else it has -----------------------------------------------------------------------------

    def test_force_unlock_takes_it_from_us(self):
        for more in "-", str(uuid.uuid4()) + ":7":
            listener, taker, java = Listener(self), self.renewing_taker(), self.java()
            self.assertEqual(taker.word("acquire", self.name, 0, 20000, more), "OK")
            self.assertTrue(java.force_unlock())
            self.assertEqual(listener.next(), b"0")
            self.assertIsNone(java.try_lock())
            until(lambda: taker.word("state") == "LOST", "that we have lost it")  # pylint: disable=cell-var-from-loop
            self.assertEqual(taker.word("release"), "LOST")
            self.assertEqual(java.hold_count(), 1)
            self.assertEqual(java.unlock(), 1)
            self.assertFalse(java.force_unlock())

    def test_an_unlock_sent_twice_is_done_once(self):
        taker, java = self.taker(), self.java()
        self.assertIsNone(java.try_lock())
        self.assertEqual(java.unlock(latch="once"), 1)
        self.assertEqual(taker.word("acquire", self.name, 0, 30000, java.field), "OK")
        self.assertEqual(java.unlock(latch="once"), 1)
        self.assertEqual(java.hold_count(), 1)
        self.assertEqual(taker.word("state"), "HELD")
        self.assertEqual(taker.word("release"), "OK")
        latch = redisson.prefixed("redisson_unlock_latch", self.name) + ":once"
        self.assertGreater(self.redis.pttl(latch), 0)
        self.assertEqual(self.redis.delete(latch), 1)

    def test_what_is_ours_in_the_hash_goes_with_it(self):
        taker, java = self.taker(), self.java()
        self.assertIsNone(java.try_lock())
        self.assertEqual(self.redis.hlen(self.name), 1)
        self.assertEqual(taker.word("acquire", self.name, 0, 30000, java.field), "OK")
        self.assertEqual(taker.word("release"), "OK")
        fields = set(self.redis.hkeys(self.name)) - {java.field.encode()}
        self.assertLessEqual(fields, {b"mortise"})
        self.assertTrue(java.renew())
        self.assertIsNone(java.try_lock())
        self.assertEqual(java.unlock(), 0)
        self.assertEqual(java.unlock(), 1)
        self.assertFalse(java.is_locked())

    def test_tokens_grow_over_javas_holds(self):
        taker, java, last = self.taker(), self.java(), 0
        for _ in range(5):
            token = taker.numbers("acquire", self.name, 0, 30000)[0]
            self.assertGreater(token, last)
            last = token
            self.assertEqual(taker.word("release"), "OK")
            self.assertIsNone(java.try_lock())
            self.assertEqual(java.unlock(), 1)

    def test_one_hold_has_one_token(self):
        taker, second, java = self.taker(), self.taker(), self.java()
        self.assertIsNone(java.try_lock())
        token = taker.numbers("acquire", self.name, 0, 30000, java.field)[0]
        self.assertGreater(token, 0)
        self.assertEqual(second.numbers("acquire", self.name, 0, 30000, java.field)[0], token)
        self.assertEqual(taker.numbers("inspect", self.name)[:2], [1, token])
        self.assertEqual(taker.word("release"), "OK")
        self.assertEqual(second.word("release"), "OK")
        self.assertEqual(java.unlock(), 1)


class Lua(Cases, interop.Case):
    settings = MODE


class LuaWithoutTokens(Cases, interop.Case):
    settings = (*MODE, "fencing = off")
    test_tokens_grow_over_javas_holds = test_one_hold_has_one_token = None


if __name__ == "__main__":
    interop.main()
