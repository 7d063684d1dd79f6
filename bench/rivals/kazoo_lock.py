"""kazoo's Lock as an adapter. One session for all threads; a Lock for each acquire, as its documentation shows. One that is
used again would be no faster: a new one asks whether its path exists, one that was used lists it, to look for a node that it
may have left behind. Both are four requests a cycle (kazoo 2.8), and the list is the longer answer."""

import logging
import os
import sys

import kazoo
from adapter import main
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

logging.disable(logging.CRITICAL)
SESSION_S = int(os.environ.get("BENCH_SESSION_MS", "4000")) / 1000


class Kazoo:
    def __init__(self, where):
        self.where = where
        self.client = KazooClient(hosts=where, timeout=SESSION_S)
        self.client.start(timeout=30)
        self.version = f"kazoo {kazoo.__version__}"

    def worker(self):
        return self.client

    def another(self):
        return Kazoo(self.where)

    @staticmethod
    def acquire(client, name, _ttl_s, wait_s):
        lock = client.Lock(f"/bench-kazoo/{name}")
        try:
            return lock if lock.acquire(timeout=wait_s) else None
        except LockTimeout:
            return None

    @staticmethod
    def release(lock):
        lock.release()


main(Kazoo(sys.argv[1]))
