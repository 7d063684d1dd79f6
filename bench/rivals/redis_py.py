"""redis-py's Lock as an adapter. One client for all threads, which its pool is made for; the Lock's own settings, but
that it waits for as long as it takes. It looks every 100 ms, or after REDIS_PY_SLEEP seconds. A Lock does not renew
itself."""

import os
import sys

import redis
from adapter import main


SLEEP_S = float(os.environ.get("REDIS_PY_SLEEP", "0.1"))  # its own


class RedisPy:
    def __init__(self, where):
        self.where = where
        host, port = where.split(",")[0].split(":")
        self.client = redis.Redis(host=host, port=int(port))
        self.version = f"redis-py {redis.__version__}, {'hiredis' if redis.utils.HIREDIS_AVAILABLE else 'without hiredis'}"
        self.client.ping()

    def worker(self):
        return self.client

    def another(self):
        return RedisPy(self.where)

    @staticmethod
    def acquire(client, name, ttl_s, wait_s):
        lock = client.lock(name, timeout=ttl_s, sleep=SLEEP_S, thread_local=False)
        return lock if lock.acquire(blocking_timeout=wait_s) else None

    @staticmethod
    def release(lock):
        lock.release()


main(RedisPy(sys.argv[1]))
