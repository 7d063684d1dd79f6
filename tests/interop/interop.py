"""interop.py - what the tests with other clients of Redis share: a private Redis, and a test that leaves nothing in it.
parties.py has the rest, and all of it can be used from here."""

import os
import shutil
import sys
import tempfile
import unittest

import parties
from parties import (  # pylint: disable=unused-import
    PATIENCE, ROUNDS, TESTS, Counter, InThread, Taker, TakerContender, contend, main, pause, until,
)  # fmt: skip

try:
    import redis
except ImportError:
    print("skipped: python3-redis is not installed")
    sys.exit(77)


class Server(parties.Server):
    """A Redis of this test's own."""

    def __init__(self, *settings):
        super().__init__("redis", *settings)
        self.admin = {"username": "admin", "password": "admin"} if "USER" in self.values else {}

    def client(self):
        """One that may do all."""
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=PATIENCE, **self.admin)


class Case(unittest.TestCase):
    """A test with a server of the module's own, one name, and takers. At its end nothing is left."""

    server = None
    server_settings = ()
    settings = ()  # lines of the driver's section
    core_settings = ("namespace =",)
    count = 0

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.server_settings)
        cls.addClassCleanup(cls.server.end)

    def setUp(self):
        Case.count += 1
        self.name = "interop-%d" % Case.count
        self.redis = self.server.client()
        self.addCleanup(self.redis.close)
        self.addCleanup(self.nothing_left)
        self.folder = tempfile.mkdtemp(prefix="mortise-interop.")
        self.addCleanup(shutil.rmtree, self.folder, True)

    def config(self, *settings):
        path = os.path.join(self.folder, "mortise.conf")
        lines = ["[mortise]", "driver = redis", *self.core_settings, "[redis]"]
        lines += ["servers = 127.0.0.1:%d" % self.server.port, *self.settings, *settings]
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return path

    def taker(self, *settings):
        taker = Taker(self.config(*settings))
        self.addCleanup(taker.close)
        return taker

    def renewing_taker(self):
        """It renews long before it has to: whoever stands still for a while loses nothing."""
        if "renew_every = 100ms" not in self.core_settings:
            self.core_settings = [*self.core_settings, "renew_every = 100ms"]
        return self.taker()

    def waiter_is_subscribed(self):
        """A taker that waits listens by now: what is told from here on reaches it."""
        until(lambda: self.redis.execute_command("PUBSUB", "CHANNELS"), "the subscription of a waiter")

    def left(self):
        """Keys that are not to be there: a token may, if it goes by itself."""
        keys = self.redis.keys("*")
        return [key for key in keys if b"}:mortise:token" not in key or self.redis.pttl(key) < 0]

    def nothing_left(self):
        left = self.left()
        if left:
            self.redis.delete(*left)  # the next test is not to suffer from it
        until(lambda: not self.redis.execute_command("PUBSUB", "CHANNELS"), "the end of subscriptions")
        self.assertEqual(left, [])
