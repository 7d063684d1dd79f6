"""redisson.py - a client that does in Redis what Redisson's RLock does according to its public documentation; the
scripts are this project's own.

    the lock    a hash, named as the lock; its one field is "uuid:threadId" of the holder, its value how many
                times that thread holds it. It expires (leaseTime; 30 s and a watchdog if none was given)
    lock        if there is no hash, or it has the own field: count one more (HINCRBY), expire after leaseTime
                (PEXPIRE, shorter than before or not); else answer with PTTL
    unlock      nil if the own field is not there; else count one less. Above zero: PEXPIRE again, answer 0. At
                zero: DEL, and PUBLISH of "0" to redisson_lock__channel:{name} (no braces more where the name
                has one); answer 1
    latch       newer versions note the answer in redisson_unlock_latch:{name}:requestId for some seconds, so
                that an unlock that is sent twice is done once, and delete that key when they have the answer
    renew       where the own field is: PEXPIRE, answer 1; else 0
    isLocked    EXISTS; isHeldByThread: HEXISTS; getHoldCount: HGET; remainTimeToLive: PTTL
    forceUnlock DEL, and the same message
    waiting     subscribe, try again, then wait for the message or until the answered PTTL is over"""

import time
import uuid

import interop

LOCK = """
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil
"""

UNLOCK = """
local known = redis.call('get', KEYS[3])
if known then
    return tonumber(known)
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
local free = 0
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
else
    redis.call('del', KEYS[1])
    redis.call('publish', KEYS[2], ARGV[1])
    free = 1
end
redis.call('set', KEYS[3], free, 'px', ARGV[4])
return free
"""

UNLOCK_WITHOUT_LATCH = """
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1
"""

RENEW = """
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return 0
end
redis.call('pexpire', KEYS[1], ARGV[1])
return 1
"""

FORCE_UNLOCK = """
if redis.call('del', KEYS[1]) == 0 then
    return 0
end
redis.call('publish', KEYS[2], ARGV[1])
return 1
"""

UNLOCK_MESSAGE = "0"
LEASE_MS = 30000
LATCH_MS = 10000


def prefixed(prefix, name):
    return "%s:%s" % (prefix, name) if "{" in name else "%s:{%s}" % (prefix, name)


def channel_of(name):
    return prefixed("redisson_lock__channel", name)


class Thread:
    """One thread of one Java client, and its lock of one name."""

    def __init__(self, redis, name, thread=1, client=None, lease_ms=LEASE_MS):
        self.redis, self.name, self.lease_ms = redis, name, lease_ms
        self.client = client or str(uuid.uuid4())
        self.field = "%s:%d" % (self.client, thread)
        self.channel = channel_of(name)

    def try_lock(self):
        """None: it has it; else how long the holder has, at most."""
        return self.redis.eval(LOCK, 1, self.name, self.lease_ms, self.field)

    def lock(self):
        if self.try_lock() is None:
            return True
        end = time.monotonic() + interop.PATIENCE
        with self.redis.pubsub() as messages:
            messages.subscribe(self.channel)
            assert messages.get_message(timeout=interop.PATIENCE)["type"] == "subscribe"
            while time.monotonic() < end:
                left_ms = self.try_lock()
                if left_ms is None:
                    return True
                self.wait(messages, min(time.monotonic() + left_ms / 1000, end))
        return False

    @staticmethod
    def wait(messages, end):
        """For the message; others are nothing to it."""
        left = end - time.monotonic()
        while left > 0:
            got = messages.get_message(timeout=left)
            if got and got["data"] == UNLOCK_MESSAGE.encode():
                return
            left = end - time.monotonic()

    def unlock(self, latch=None):
        """1: free now; 0: held still; None: it was not the holder. `latch`: the id of a request that is sent
        again, whose answer is kept."""
        request = latch or uuid.uuid4().hex
        key = "%s:%s" % (prefixed("redisson_unlock_latch", self.name), request)
        answer = self.redis.eval(
            UNLOCK, 3, self.name, self.channel, key, UNLOCK_MESSAGE, self.lease_ms, self.field, LATCH_MS
        )
        if latch is None:
            self.redis.delete(key)
        return answer

    def unlock_without_latch(self):
        return self.redis.eval(
            UNLOCK_WITHOUT_LATCH, 2, self.name, self.channel, UNLOCK_MESSAGE, self.lease_ms, self.field
        )

    def renew(self):
        return self.redis.eval(RENEW, 1, self.name, self.lease_ms, self.field) == 1

    def force_unlock(self):
        return self.redis.eval(FORCE_UNLOCK, 2, self.name, self.channel, UNLOCK_MESSAGE) == 1

    def is_locked(self):
        return self.redis.exists(self.name) == 1

    def is_held(self):
        return bool(self.redis.hexists(self.name, self.field))

    def hold_count(self):
        return int(self.redis.hget(self.name, self.field) or 0)

    def remaining_ms(self):
        return self.redis.pttl(self.name)
