"""test_redlock.py - locks shared with clients that use SET NX PX: see onekey.py. Their requests are written here
according to their documentation. Each uses one server, because more than one is a quorum, in which this driver does not
take part.

    SetNx    SET key value NX PX ttl, and the compare-and-delete script of Redis's own documentation: redsync,
             redlock-py, ShedLock, a shell script
    Script   the same decision in a script: node-redlock
    Registry an owner that may acquire its lock again, which extends it: Spring's RedisLockRegistry"""

import os

import interop
import onekey

SETTINGS = {"plain": ("fencing = off",), "plain_watch": ("fencing = off", "atomicity = watch")}

RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
"""

EXTEND = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0
"""


class SetNx(onekey.Neighbour):
    def __init__(self, redis, name):
        super().__init__(redis, name)
        self.value = os.urandom(20).hex()

    def try_lock(self, ttl_ms=60000):
        return bool(self.redis.set(self.name, self.value, nx=True, px=ttl_ms))

    def unlock(self):
        return self.redis.eval(RELEASE, 1, self.name, self.value) == 1

    def extend(self, ttl_ms):
        return self.redis.eval(EXTEND, 1, self.name, self.value, ttl_ms) == 1


class Script(SetNx):
    LOCK = """
    if redis.call('exists', KEYS[1]) == 1 then
        return 0
    end
    redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
    """

    def try_lock(self, ttl_ms=60000):
        return self.redis.eval(self.LOCK, 1, self.name, self.value, ttl_ms) == 1


class Registry(SetNx):
    OBTAIN = """
    local client = redis.call('get', KEYS[1])
    if client and client ~= ARGV[1] then
        return 0
    end
    redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
    """

    def try_lock(self, ttl_ms=60000):
        return self.redis.eval(self.OBTAIN, 1, self.name, self.value, ttl_ms) == 1


for neighbour in SetNx, Script, Registry:
    globals().update(onekey.cases_of(neighbour, SETTINGS))
del neighbour

if __name__ == "__main__":
    interop.main()
