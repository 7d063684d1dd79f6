"""test_etcdctl.py - locks shared with `etcdctl lock`: each side waits for the other one, in one queue. docs/etcd.md says
which name is which."""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

import parties
from parties import PATIENCE, Counter, Taker, TakerContender, contend, main, until

if not shutil.which("etcdctl"):
    print("skipped: etcdctl is not installed")
    sys.exit(77)

ROUNDS = 6  # of each contender: every turn of etcdctl is a process


class Ctl:
    """`etcdctl lock KEY [COMMAND …]`. Without a command it prints its key when it holds, and holds until a signal."""

    def __init__(self, port, key, *command, ttl=60):
        words = ["etcdctl", "--endpoints", "127.0.0.1:%d" % port, "lock", "--ttl=%d" % ttl, key, *command]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        self.process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def holds(self):
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def await_lock(self):
        """The key that it prints; b"" if it has ended instead."""
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "etcdctl never got the lock"
        return self.process.stdout.readline().decode().strip()

    def end(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        return self.wait()

    def wait(self):
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


class CtlContender:
    """What `contend` wants: a process for each turn."""

    def __init__(self, port, key):
        self.port, self.key, self.ctl = port, key, None

    def lock(self):
        self.ctl = Ctl(self.port, self.key)
        return self.ctl.await_lock() != ""

    def unlock(self):
        return self.ctl.end() == 0


class Etcdctl(unittest.TestCase):
    server = None
    count = 0

    @classmethod
    def setUpClass(cls):
        cls.server = parties.Server("etcd", "heartbeat=50", "election=500")
        cls.addClassCleanup(cls.server.end)

    def setUp(self):
        Etcdctl.count += 1
        self.name = "interop-%d" % Etcdctl.count
        self.key = "mortise/" + self.name
        self.folder = tempfile.mkdtemp(prefix="mortise-interop.")
        self.addCleanup(shutil.rmtree, self.folder, True)

    def taker(self):
        path = os.path.join(self.folder, "mortise.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write("[mortise]\ndriver = etcd\n[etcd]\nendpoints = 127.0.0.1:%d\n" % self.server.port)
        taker = Taker(path)
        self.addCleanup(taker.close)
        return taker

    def ctl(self, *command, key=None, ttl=60):
        ctl = Ctl(self.server.port, key or self.key, *command, ttl=ttl)
        self.addCleanup(ctl.close)
        return ctl

    def contenders(self):
        return self.server.ask("get", "--prefix", self.key + "/", "--keys-only").split()

    def queue_is(self, length):
        until(lambda: len(self.contenders()) == length, "a queue of %d" % length)

    def waits(self, length, *words):
        """A new taker that stands in the queue, which has this length then."""
        taker = self.taker()
        taker.begin("acquire", self.name, PATIENCE * 1000, 20000, *words)
        self.queue_is(length)
        return taker

    def ctl_waits(self, length, **more):
        ctl = self.ctl(**more)
        self.queue_is(length)
        return ctl

    def has(self, taker):
        self.assertEqual(taker.answer().split()[0], "OK")

    def test_mortise_waits_for_etcdctl(self):
        ctl = self.ctl()
        self.assertTrue(ctl.await_lock().startswith(self.key + "/"))
        self.assertEqual(self.taker().word("acquire", self.name, 0, 20000), "BUSY")
        taker = self.waits(2)
        self.assertFalse(taker.has_answered())
        self.assertEqual(ctl.end(), 0)
        self.has(taker)

    def test_etcdctl_waits_for_mortise(self):
        taker = self.taker()
        self.assertEqual(taker.word("acquire", self.name, 0, 20000), "OK")
        ctl = self.ctl_waits(2)
        self.assertFalse(ctl.holds())
        self.assertEqual(taker.word("release"), "OK")
        self.assertNotEqual(ctl.await_lock(), "")
        self.assertEqual(self.taker().word("acquire", self.name, 0, 20000), "BUSY")

    def test_a_killed_etcdctl_is_outlived(self):
        ctl = self.ctl(ttl=1)
        ctl.await_lock()
        taker = self.waits(2)
        ctl.end(signal.SIGKILL)
        self.assertEqual(len(self.contenders()), 2)  # its lease lives on
        self.has(taker)

    def test_a_killed_mortise_is_outlived(self):
        taker = self.taker()
        self.assertEqual(taker.word("acquire", self.name, 0, 1000), "OK")
        ctl = self.ctl_waits(2)
        taker.kill()
        self.assertNotEqual(ctl.await_lock(), "")

    def test_one_queue(self):
        """They get the lock in the order in which they came."""
        holder = self.taker()
        self.assertEqual(holder.word("acquire", self.name, 0, 20000), "OK")
        first = self.ctl_waits(2)
        second = self.waits(3)
        gives_up = self.ctl_waits(4)
        third = self.waits(5)
        fourth = self.ctl_waits(6)
        gives_up.end()
        self.queue_is(5)
        self.assertEqual(holder.word("release"), "OK")
        first.await_lock()
        self.assertFalse(second.has_answered())
        first.end()
        self.has(second)
        self.assertFalse(third.has_answered())
        self.assertEqual(second.word("release"), "OK")
        self.has(third)
        self.assertFalse(fourth.holds())
        self.assertEqual(third.word("release"), "OK")
        self.assertNotEqual(fourth.await_lock(), "")

    def test_shared_ones(self):
        """etcdctl knows none: it waits for each of them, and they wait for it."""
        share = ("acquire", self.name, 0, 20000, "shared")
        first, second = self.taker(), self.taker()
        self.assertEqual(first.word(*share), "OK")
        self.assertEqual(second.word(*share), "OK")
        ctl = self.ctl_waits(3)
        late = self.waits(4, "shared")
        self.assertEqual(first.word("release"), "OK")
        self.queue_is(3)
        self.assertFalse(ctl.holds())
        self.assertEqual(second.word("release"), "OK")
        ctl.await_lock()
        self.assertFalse(late.has_answered())
        ctl.end()
        self.has(late)

    def test_a_script(self):
        """`etcdctl lock NAME ./script` holds while the script runs."""
        script, begun, go = (os.path.join(self.folder, name) for name in ("script", "begun", "go"))
        os.mkfifo(begun)
        os.mkfifo(go)
        with open(script, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$ETCD_LOCK_KEY" >"$1"\nread -r line <"$2"\nexit 7\n')
        os.chmod(script, stat.S_IRWXU)
        ctl = self.ctl(script, begun, go)
        with open(begun, encoding="utf-8") as file:
            self.assertTrue(file.read().startswith(self.key + "/"))
        self.assertEqual(self.taker().word("acquire", self.name, 0, 20000), "BUSY")
        taker = self.waits(2)
        with open(go, "w", encoding="utf-8") as file:
            file.write("go\n")
        self.assertNotEqual(ctl.wait(), 0)
        self.has(taker)

    def test_names(self):
        """A slash is %2F there; and the lock `a/b` is no part of the lock `a`, for us."""
        taker, other = self.taker(), self.taker()
        ctl = self.ctl(key=self.key + "%2Fb")
        ctl.await_lock()
        self.assertEqual(taker.word("acquire", self.name + "/b", 0, 20000), "BUSY")
        self.assertEqual(other.word("acquire", self.name, 0, 20000), "OK")
        ctl.end()
        self.assertEqual(taker.word("acquire", self.name + "/b", 0, 20000), "OK")

    def test_the_count_is_exact(self):
        counter = Counter(self.folder)
        takers = [TakerContender(self.taker(), self.name) for _ in range(2)]
        ctls = [CtlContender(self.server.port, self.key) for _ in range(2)]
        turns = contend(counter, takers + ctls, rounds=ROUNDS)
        self.assertEqual(counter.value(), sum(turns), "\nFINDING: two held the lock at one instant")


if __name__ == "__main__":
    main()
