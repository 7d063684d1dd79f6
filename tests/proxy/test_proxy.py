"""test_proxy.py - the fault proxy itself: each command, between sockets of the test, and with a real Redis for "the request
was executed, and the reply is lost". Nothing sleeps: the tests poll until the expected state is reached, or fail."""

import errno
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROXY = os.environ["MORTISE_PROXY"]
SERVERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "servers.sh")
PATIENCE = 20  # seconds; bounds failure


def until(what, said):
    """Looks until what() is true; its value."""
    end = time.monotonic() + PATIENCE
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("never came: " + said)
        select.select([], [], [], 0.002)


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_to_end(sock):
    """All that comes, and how it ended: "end" or "reset"."""
    sock.settimeout(PATIENCE)
    got = b""
    while True:
        try:
            more = sock.recv(65536)
        except ConnectionResetError:
            return got, "reset"
        if not more:
            return got, "end"
        got += more


def read_exactly(sock, size):
    sock.settimeout(PATIENCE)
    got = b""
    while len(got) < size:
        more = sock.recv(size - len(got))
        if not more:
            raise AssertionError("ended after %r" % got)
        got += more
    return got


def nothing_to_read(sock):
    return not select.select([sock], [], [], 0)[0]


class Proxy:
    """One proxy, and how to talk to it by its own `say`."""

    def __init__(self, folder, host, port, *options, stdin=subprocess.PIPE):
        self.control = os.path.join(folder, "control-%d" % port)
        command = [PROXY, self.control, host, str(port), *options]
        self.process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("PORT="), line
        self.port = int(line[5:])
        self.host = "127.0.0.1"

    def say(self, *words, code=0):
        done = subprocess.run([PROXY, "say", self.control, *map(str, words)], stdout=subprocess.PIPE, text=True)
        assert done.returncode == code, (words, done)
        return done.stdout.strip()

    def count(self, name):
        return int(dict(word.split("=") for word in self.say("count").split())[name])

    def connect(self):
        return socket.create_connection((self.host, self.port), PATIENCE)

    def end(self):
        self.process.stdin.close() if self.process.stdin else self.process.terminate()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mortise-proxy.")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(PATIENCE)
        self.addCleanup(self.server.close)
        self.proxy = Proxy(self.folder, *self.server.getsockname())
        self.addCleanup(self.proxy.process.wait, PATIENCE)
        self.addCleanup(self.proxy.end)

    def client(self):
        sock = self.proxy.connect()
        self.addCleanup(sock.close)
        return sock

    def accepted(self):
        sock = self.server.accept()[0]
        self.addCleanup(sock.close)
        return sock

    def pair(self):
        client = self.client()
        return client, self.accepted()

    def taken(self, way, size):
        until(lambda: self.proxy.count(way + "_taken") >= size, "%d bytes %s" % (size, way))

    def assert_reset(self, sock, got=b""):
        self.assertEqual(read_to_end(sock), (got, "reset"))


class Passing(Case):
    def test_bytes_and_ends(self):
        client, server = self.pair()
        client.sendall(b"question")
        self.assertEqual(read_exactly(server, 8), b"question")
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(read_to_end(server), (b"", "end"))
        server.sendall(b"answer, later")  # half-closed: the other way is open still
        server.close()
        self.assertEqual(read_to_end(client), (b"answer, later", "end"))
        until(lambda: self.proxy.count("now") == 0, "the connection's end")
        self.assertEqual(self.proxy.count("ever"), 1)
        self.assertEqual((self.proxy.count("up"), self.proxy.count("down")), (8, 13))

    def test_resets(self):
        client, server = self.pair()
        server.sendall(b"before")
        self.assertEqual(read_exactly(client, 6), b"before")
        reset(server)
        self.assert_reset(client)
        client, server = self.pair()
        reset(client)
        self.assert_reset(server)

    def test_more_than_buffers_hold(self):
        client, server = self.pair()
        text = os.urandom(1 << 20) * 12
        client.setblocking(False)
        server.settimeout(PATIENCE)
        sent, got = 0, b""
        end = time.monotonic() + PATIENCE
        while len(got) < len(text) and time.monotonic() < end:
            if sent < len(text):
                try:
                    sent += client.send(text[sent : sent + 65536])
                    continue
                except BlockingIOError:
                    pass
            got += server.recv(1 << 20)
        self.assertTrue(got == text)

    def test_nobody_there(self):
        self.server.close()
        try:
            client = self.client()
        except ConnectionResetError:  # so soon
            return
        self.assert_reset(client)

    def test_ports(self):
        """At each byte at which what the server sends can be torn apart; what is no port of a node stays."""
        text = b"-MOVED 1 127.0.0.1:12345\r\n*2\r\n$9\r\n127.0.0.1\r\n:12345\r\n$4\r\nport\r\n:23456\r\n:12345\r\n+127.0.0.1:1"
        wanted = text.replace(b".1:12345", b".1:54321").replace(b".1\r\n:12345", b".1\r\n:54321").replace(b"23456", b"65432")
        self.proxy.say("map", 12345, 54321)
        self.proxy.say("map", 23456, 65432)
        self.proxy.say("pass")
        for size in range(1, len(text)):
            client, server = self.pair()
            before = self.proxy.count("down_taken")
            server.sendall(text[:size])
            self.taken("down", before + size)
            server.sendall(text[size:])
            server.close()
            self.assertEqual(read_to_end(client), (wanted, "end"))
            client.close()
        self.assertIn("error", self.proxy.say("map", 80, 12345, code=64))
        self.assertIn("error", self.proxy.say("map", 12345, code=64))

    def test_many(self):
        pairs = [self.pair() for _ in range(100)]
        self.assertEqual(self.proxy.count("now"), 100)
        for i, (client, _) in enumerate(pairs):
            client.sendall(b"%3d" % i)
        for i, (_, server) in enumerate(pairs):
            self.assertEqual(read_exactly(server, 3), b"%3d" % i)


class Holding(Case):
    def test_hold(self):
        client, server = self.pair()
        self.proxy.say("hold")
        client.sendall(b"up")
        server.sendall(b"down")
        self.taken("up", 2)
        self.taken("down", 4)
        self.assertEqual((self.proxy.count("up"), self.proxy.count("down")), (0, 0))
        late = self.client()  # it gets in, and the server hears nothing of it
        late.sendall(b"late")
        self.taken("up", 6)
        self.assertTrue(nothing_to_read(self.server))
        client.shutdown(socket.SHUT_WR)
        self.assertTrue(nothing_to_read(server))
        self.proxy.say("pass")
        self.assertEqual(read_to_end(server), (b"up", "end"))
        self.assertEqual(read_exactly(client, 4), b"down")
        self.assertEqual(read_exactly(self.accepted(), 4), b"late")

    def test_hold_one_way(self):
        client, server = self.pair()
        self.proxy.say("hold-up")
        server.sendall(b"down")
        self.assertEqual(read_exactly(client, 4), b"down")
        client.sendall(b"up")
        self.taken("up", 2)
        self.assertTrue(nothing_to_read(server))
        self.proxy.say("pass")
        self.assertEqual(read_exactly(server, 2), b"up")
        self.proxy.say("hold-down")
        client.sendall(b"more")
        self.assertEqual(read_exactly(server, 4), b"more")
        server.sendall(b"kept")
        reset(server)  # its end is held too, behind the bytes
        self.taken("down", 8)
        self.assertTrue(nothing_to_read(client))
        self.proxy.say("pass")
        self.assert_reset(client, b"kept")

    def test_hold_keeps_the_server_away(self):
        self.server.close()
        self.proxy.say("hold-down")
        client = self.client()
        until(lambda: self.proxy.count("ever") == 1, "the connection")
        client.sendall(b"nobody there, and that is not told")
        self.assertTrue(nothing_to_read(client))
        self.proxy.say("pass")
        self.assert_reset(client)

    def test_delay(self):
        client, server = self.pair()
        self.proxy.say("delay", 150, "down")
        began = time.monotonic()
        client.sendall(b"up")
        self.assertEqual(read_exactly(server, 2), b"up")
        server.sendall(b"first")
        self.taken("down", 5)
        self.proxy.say("delay", 0, "down")
        server.sendall(b"second")  # does not overtake
        self.assertEqual(read_exactly(client, 11), b"firstsecond")
        self.assertGreaterEqual(time.monotonic() - began, 0.149)
        self.proxy.say("delay", 60000, "both")
        client.sendall(b"x")
        self.taken("up", 3)
        self.assertTrue(nothing_to_read(server))
        self.proxy.say("pass")
        self.assertEqual(read_exactly(server, 1), b"x")


class Cutting(Case):
    def assert_counted(self, **expected):
        """Which connections were reset so; none else was."""
        said = dict(word.split("=") for word in self.proxy.say("count").split())
        cuts = {name: int(said[name]) for name in said if name.startswith("cut") and said[name] != "0"}
        self.assertEqual(cuts, {name.replace("_", "-"): times for name, times in expected.items()})

    def test_cut(self):
        self.proxy.say("cut")  # nobody
        self.assert_counted()
        pairs = [self.pair() for _ in range(3)]
        just_now = self.client()
        self.assertEqual(self.proxy.say("cut"), "ok")
        for client, server in pairs:
            self.assert_reset(client)
            self.assert_reset(server)
        self.assert_reset(just_now)
        self.assert_counted(cut=4)
        self.pair()

    def test_cut_after(self):
        client, server = self.pair()
        client.sendall(b"not counted")
        self.assertEqual(read_exactly(server, 11), b"not counted")
        self.proxy.say("cut-after", "up", 5)
        client.sendall(b"123")
        self.assertEqual(read_exactly(server, 3), b"123")
        self.assert_counted()  # it has not happened yet
        client.sendall(b"456789")
        self.assert_reset(server, b"45")
        self.assert_reset(client)
        client, server = self.pair()  # once only
        client.sendall(b"1234567")
        self.assertEqual(read_exactly(server, 7), b"1234567")
        self.proxy.say("cut-after", "down", 4)
        server.sendall(b"1234")
        self.assert_reset(client, b"1234")
        self.assert_reset(server)
        self.assert_counted(cut_after_up=1, cut_after_down=1)

    def test_cut_after_that_is_forgotten(self):
        client, server = self.pair()
        self.proxy.say("cut-after", "up", 5)
        self.proxy.say("cut-reply", 1)
        self.proxy.say("pass")
        client.sendall(b"123456")
        self.assertEqual(read_exactly(server, 6), b"123456")
        server.sendall(b"1")
        self.assertEqual(read_exactly(client, 1), b"1")
        self.assert_counted()

    def test_cut_after_none(self):
        self.proxy.say("cut-after", "up", 0)
        client, server = self.pair()
        server.sendall(b"down goes")
        self.assertEqual(read_exactly(client, 9), b"down goes")
        client.sendall(b"x")
        self.assert_reset(server)
        self.assert_reset(client)

    def test_cut_after_each(self):
        self.proxy.say("cut-after", "down", 2, "each")
        for _ in range(3):
            client, server = self.pair()
            server.sendall(b"abc")
            self.assert_reset(client, b"ab")
        client, server = self.pair()
        self.proxy.say("pass")
        server.sendall(b"abc")
        self.assertEqual(read_exactly(client, 3), b"abc")

    def test_cut_after_a_slow_reader(self):
        """All N bytes come, also where they fill every buffer on the way."""
        client, server = self.pair()
        size = 8 << 20
        self.proxy.say("cut-after", "up", size)
        client.settimeout(PATIENCE)
        client.sendall(b"x" * size)
        self.taken("up", size)
        self.assertEqual(self.proxy.count("now"), 1)  # it waits for the reader
        got, how = read_to_end(server)
        self.assertEqual((len(got), how), (size, "reset"))

    def test_cut_reply(self):
        client, server = self.pair()
        self.proxy.say("cut-reply", 2)
        server.sendall(b"first")
        self.assertEqual(read_exactly(client, 5), b"first")
        server.sendall(b"second")
        self.assert_reset(client)
        self.assert_reset(server)
        client, server = self.pair()
        server.sendall(b"third")
        self.assertEqual(read_exactly(client, 5), b"third")
        self.assert_counted(cut_reply=1)

    def test_lose(self):
        client, server = self.pair()
        quiet, _ = self.pair()
        self.proxy.say("lose")
        client.sendall(b"question")
        self.assertEqual(read_exactly(server, 8), b"question")
        server.sendall(b"answer")
        self.taken("down", 6)
        self.assertEqual(self.proxy.count("down"), 0)
        self.assertTrue(nothing_to_read(client))
        self.proxy.say("pass")
        self.assert_reset(client)
        self.assert_reset(server)
        self.assertEqual(self.proxy.count("now"), 1)
        self.assertTrue(nothing_to_read(quiet))  # has lost nothing

    def test_refuse(self):
        client, _ = self.pair()
        self.proxy.say("refuse")
        self.assert_reset(client)
        for _ in range(2):
            with self.assertRaises(ConnectionRefusedError):
                self.proxy.connect()
        with self.assertRaises(OSError), socket.socket() as other:  # the port stays the proxy's
            other.bind((self.proxy.host, self.proxy.port))
        self.proxy.say("refuse")
        self.proxy.say("accept")
        self.pair()
        self.proxy.say("refuse")
        self.proxy.say("pass")
        self.pair()
        self.assertIn("cut=0 ", self.proxy.say("count"))  # `cut` is something else


class Ending(Case):
    def test_stdin(self):
        client, server = self.pair()
        self.assertEqual(self.proxy.end(), 0)
        self.assertFalse(os.path.exists(self.proxy.control))
        with self.assertRaises(ConnectionRefusedError):
            self.proxy.connect()
        self.assertEqual(read_to_end(client)[0], b"")
        self.assertEqual(read_to_end(server)[0], b"")

    def another(self, *options, stdin=subprocess.DEVNULL):
        folder = os.path.join(self.folder, "another")
        os.mkdir(folder)
        proxy = Proxy(folder, *self.server.getsockname(), *options, stdin=stdin)
        self.addCleanup(proxy.process.stdout.close)
        return proxy

    def test_with(self):
        guarded = subprocess.Popen(["sleep", "100"])
        proxy = self.another("with=%d" % guarded.pid)
        self.assertIn("now=0", proxy.say("count"))  # its stdin has ended, and it goes on
        guarded.send_signal(signal.SIGKILL)
        guarded.wait()
        self.assertEqual(proxy.process.wait(PATIENCE), 0)

    def test_quit_and_signal(self):
        proxy = self.another("with=%d" % os.getpid())
        self.assertEqual(proxy.say("quit"), "ok")
        self.assertEqual(proxy.process.wait(PATIENCE), 0)
        proxy.say("count", code=1)  # nobody answers
        self.proxy.process.terminate()
        self.assertEqual(self.proxy.process.wait(PATIENCE), -signal.SIGTERM)

    def test_not_understood(self):
        wrong = "paint/cut-after up/cut-after sideways 5/cut-after up many/cut-after up -1/cut-after up 5 all"
        for line in (wrong + "/cut-reply 0/delay up/delay x up/delay 5").split("/"):
            self.assertTrue(self.proxy.say(*line.split(), code=64).startswith("error"), line)
        client, server = self.pair()  # and nothing of it is in force
        client.sendall(b"123456")
        self.assertEqual(read_exactly(server, 6), b"123456")

    def test_ipv6(self):
        try:
            server = socket.create_server(("::1", 0), family=socket.AF_INET6)
        except OSError as problem:
            self.assertIn(problem.errno, (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT))
            print("this host has no ::1", file=sys.stderr)
            return
        self.addCleanup(server.close)
        proxy = Proxy(self.folder, "::1", server.getsockname()[1], "listen=::1")
        self.addCleanup(proxy.end)
        client = socket.create_connection(("::1", proxy.port), PATIENCE)
        self.addCleanup(client.close)
        served = server.accept()[0]
        self.addCleanup(served.close)
        client.sendall(b"six")
        self.assertEqual(read_exactly(served, 3), b"six")
        proxy.say("refuse")
        proxy.say("accept")
        socket.create_connection(("::1", proxy.port), PATIENCE).close()


class Redis(unittest.TestCase):
    """Before a real server: what the client is not told has happened nevertheless."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="mortise-proxy.")
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        done = cls.servers("start", "guard=%d" % os.getpid())
        if done.returncode == 77:
            raise unittest.SkipTest(done.stderr)
        assert done.returncode == 0, done
        cls.addClassCleanup(cls.servers, "end")
        cls.server_port = int(dict(line.split("=", 1) for line in done.stdout.split())["PORT"])
        cls.proxy = Proxy(cls.folder, "127.0.0.1", cls.server_port)
        cls.addClassCleanup(cls.proxy.end)

    @classmethod
    def servers(cls, verb, *keys):
        command = ["sh", SERVERS, verb, "redis", cls.folder, *keys]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def value(self, key):
        with socket.create_connection(("127.0.0.1", self.server_port), PATIENCE) as direct:
            direct.sendall(b"GET %s\r\n" % key)
            return read_exactly(direct, 3) != b"$-1"

    def setUp(self):
        self.client = self.proxy.connect()
        self.addCleanup(self.client.close)
        self.addCleanup(self.proxy.say, "pass")
        self.client.sendall(b"PING\r\n")
        self.assertEqual(read_exactly(self.client, 7), b"+PONG\r\n")

    def assert_reset(self, got=b""):
        self.assertEqual(read_to_end(self.client), (got, "reset"))

    def test_lose(self):
        self.proxy.say("lose")
        self.client.sendall(b"SET lose 1\r\n")
        until(lambda: self.value(b"lose"), "the execution")
        self.proxy.say("pass")
        self.assert_reset()

    def test_cut_reply(self):
        self.proxy.say("cut-reply", 1)
        self.client.sendall(b"SET cut-reply 1\r\n")
        self.assert_reset()
        self.assertTrue(self.value(b"cut-reply"))

    def test_cut_after_request(self):
        request = b"SET whole 1\r\nSET half 1\r\n"
        self.proxy.say("cut-after", "up", request.index(b"f 1"))
        self.client.sendall(request)
        self.assert_reset()
        until(lambda: self.value(b"whole"), "the execution of the first")
        self.assertFalse(self.value(b"half"))

    def test_cut_after_reply(self):
        self.proxy.say("cut-after", "down", 3)
        self.client.sendall(b"SET cut-after 1\r\n")
        self.assert_reset(b"+OK")

    def test_restart(self):
        self.assertEqual(self.servers("kill").returncode, 0)
        self.assertEqual(read_to_end(self.client)[0], b"")
        self.assertEqual(self.servers("start").returncode, 0)
        with self.proxy.connect() as client:
            client.sendall(b"PING\r\n")
            self.assertEqual(read_exactly(client, 7), b"+PONG\r\n")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
