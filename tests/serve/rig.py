"""rig.py - what the tests of `mortise serve` share: a folder, holders that a test can kill, the page itself, requests."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

COMMAND = os.environ["MORTISE_COMMAND"]
BUILD = os.environ["MORTISE_BUILD_DIR"]
SOURCE = os.environ["MORTISE_SOURCE_DIR"]
LIMIT_S = 60  # a wait that takes longer has failed


def skip(why):
    print("SKIPPED: " + why)
    sys.exit(77)


def until(what, condition):
    end = time.monotonic() + LIMIT_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "it never happened: " + what
        time.sleep(0.02)


started = []  # processes of the test that runs


def spawned(words, **popen):
    """A process that ends with the test, however that ends."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, **popen)
    started.append(process)
    return process


def free_port(folder):
    """Of a server that the test starts itself: no other test takes it, and no outgoing connection has it."""
    words = ["sh", os.path.join(SOURCE, "tests", "servers.sh"), "port", "redis", folder]
    return int(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)


class Holder:
    """One process that holds or waits, see taker.c."""

    def __init__(self, where):
        self.process = subprocess.Popen([os.path.join(BUILD, "tests", "taker"), where], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        started.append(self.process)
        assert self.hear() == "ready"

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def acquire(self, name, ttl_ms=30000, more=""):
        self.say("acquire %s 0 %d - %s" % (urllib.parse.quote_from_bytes(name.encode() if isinstance(name, str) else name), ttl_ms, more))
        answer = self.hear()
        assert answer.startswith("OK"), answer

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Serve:
    def __init__(self, folder, where, *words, before=(), **popen):
        self.log = os.path.join(folder, "serve-%d.log" % time.monotonic_ns())
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([*before, COMMAND, "-C", where, "serve", "--listen", "127.0.0.1:0", *words],
                                            stderr=log, stdin=subprocess.DEVNULL, **popen)
        started.append(self.process)
        self.port = int(until("it listens", self.listens))

    @classmethod
    def by_its_port(cls, process, says):
        """One that the test has started, which keeps its stderr: says() is what has come of that."""
        serve = cls.__new__(cls)
        serve.process, serve.says = process, says
        serve.port = int(until("it listens", serve.listens))
        return serve

    def says(self):
        with open(self.log) as log:
            return log.read()

    def listens(self):
        assert self.process.poll() is None, self.says()
        found = re.search(r"serve: http://127\.0\.0\.1:(\d+)/\n", self.says())
        return found and found[1]

    def ask(self, path="/", method="GET", **headers):
        """(status, headers with small letters, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for key, value in headers.items():
            if value is not None:
                connection.putheader(key, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, body

    def json(self):
        return json.loads(self.ask("/locks.json")[2])

    def metric(self, name):
        found = re.search(r"^%s\{.*\} (\S+)$" % name, self.ask("/metrics")[2].decode(), re.M)
        return found and float(found[1])

    def connect(self, data=b""):
        connection = socket.create_connection(("127.0.0.1", self.port), LIMIT_S)
        connection.sendall(data)
        return connection

    def end(self, number=signal.SIGTERM):
        """Its exit code. A sanitizer has its last look then, and what it says would be gone with the folder."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(LIMIT_S)
        if code != 0:
            print("serve: exit code %d: %s" % (code, self.says()))
        return code


def listed(where, *words):
    return json.loads(subprocess.run([COMMAND, "-C", where, "list", "--json", *words], capture_output=True, check=True).stdout)


def steady(locks):
    """Less what changes with the time, and what only the command says."""
    return [{k: v for k, v in lock.items() if k not in ("held_ms", "remaining_ms", "witnessed")} for lock in locks]


class Redis:
    def __init__(self, folder):
        self.folder = os.path.join(folder, "redis")
        os.mkdir(self.folder)
        self.port = re.search(r"^PORT=(\d+)$", self.do("start", "guard=%d" % os.getpid()), re.M)[1]

    def do(self, verb, *words):
        done = subprocess.run(["sh", os.path.join(SOURCE, "tests", "servers.sh"), verb, "redis", self.folder, *words],
                              stdout=subprocess.PIPE, text=True)
        if done.returncode == 77:
            skip("no redis-server")
        assert done.returncode == 0
        return done.stdout


class Proxy:
    """What a network does to the connections to a backend, on command: see tests/proxy/main.c."""

    def __init__(self, folder, port):
        self.control = os.path.join(folder, "proxy")
        process = subprocess.Popen([os.environ["MORTISE_PROXY"], self.control, "127.0.0.1", port], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        started.append(process)
        self.port = process.stdout.readline().strip().removeprefix("PORT=")

    def do(self, *words):
        return subprocess.run([os.environ["MORTISE_PROXY"], "say", self.control, *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def end_started():
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
    started.clear()


def main(tests):
    """Runs each test with a folder of its own. Then everything that it started has ended."""
    only = sys.argv[1:]
    for test in tests:
        if only and test.__name__ not in only:
            continue
        folder = tempfile.mkdtemp(prefix="mortise-serve.")
        began = time.monotonic()
        try:
            test(folder)
        finally:
            end_started()
            for name in os.listdir(folder):
                if name == "redis":
                    subprocess.run(["sh", os.path.join(SOURCE, "tests", "servers.sh"), "end", "redis", os.path.join(folder, name)])
            shutil.rmtree(folder)
        print("ok %-40s %.2f s" % (test.__name__, time.monotonic() - began), flush=True)
