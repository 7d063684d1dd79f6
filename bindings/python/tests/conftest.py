"""What the tests share: a backend of each kind, clients, other processes in C and in Python, and a way to wait."""
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import mortise

SOURCE = pathlib.Path(os.environ["MORTISE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["MORTISE_BUILD_DIR"])
PATIENCE_S = 60  # bounds failure only


class Redis:
    """A private server, by tests/servers.sh."""

    def __init__(self, folder):
        self.folder = folder
        done = self._run("start", f"guard={os.getpid()}")
        if done.returncode == 77:
            pytest.skip("there is no redis-server")
        assert done.returncode == 0
        self.port = dict(line.split("=", 1) for line in done.stdout.splitlines())["PORT"]

    def _run(self, verb, *words):
        return subprocess.run(["sh", SOURCE / "tests/servers.sh", verb, "redis", self.folder, *words],
                              stdout=subprocess.PIPE, text=True, check=False,
                              env={key: value for key, value in os.environ.items() if key != "LD_PRELOAD"})

    def ask(self, *words):
        return self._run("ask", *words).stdout

    def do(self, verb):
        assert self._run(verb).returncode == 0

    def end(self):
        self._run("end")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("redis")
    for parent in [folder, *folder.parents][:3]:
        parent.chmod(0o755)
    server = Redis(folder)
    yield server
    server.end()


@pytest.fixture
def sqlite_where(tmp_path):
    return f"sqlite:{tmp_path}/locks.db"


@pytest.fixture(params=["sqlite", "redis"])
def where(request):
    """A URL of each kind of backend. The names in it are the test's own."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_where")
    server = request.getfixturevalue("redis_server")
    return f"redis://127.0.0.1:{server.port}?namespace={request.node.name.replace('[', '-').replace(']', '')}/"


@pytest.fixture
def client(where):
    with mortise.open(where) as opened:
        yield opened


@pytest.fixture
def other(where):
    """A client that is not the first one: another process, as far as the backend knows."""
    with mortise.open(where) as opened:
        yield opened


def wait_until(condition, what="it"):
    """Waits for something that another thread or process does."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"{what} did not come"
        threading.Event().wait(0.002)


def waiters(client, name, number=1):
    """Waits until so many clients wait for the name, where the backend counts them; else until they should."""
    wait_until(lambda: (client.inspect(name).waiters or 0) >= number, "the waiter")


class Taker:
    """tests/taker.c: a process in C, on the same library of the build tree."""

    def __init__(self, where):
        self.child = subprocess.Popen([BUILD / "tests/taker", where], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True, bufsize=1)
        assert self.hear() == "ready"

    def say(self, line):
        self.child.stdin.write(line + "\n")

    def hear(self):
        return self.child.stdout.readline().strip()

    def ask(self, line):
        self.say(line)
        return self.hear()

    def end(self):
        self.child.stdin.close()
        self.child.wait(PATIENCE_S)
        self.child.stdout.close()


@pytest.fixture
def taker(where):
    if not (BUILD / "tests/taker").exists():
        pytest.skip("tests/taker is not built")
    process = Taker(where)
    yield process
    process.end()


class Script:
    """A Python program in a process of its own."""

    def __init__(self, text, *arguments, **environment):
        self.child = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, env=os.environ | environment)

    def hear(self):
        return self.child.stdout.readline().strip()

    def interrupt(self):
        self.child.send_signal(signal.SIGINT)

    def end(self):
        """Returns exit code, stdout and stderr."""
        out, err = self.child.communicate(timeout=PATIENCE_S)
        return self.child.returncode, out, err


@pytest.fixture
def script():
    started = []

    def start(text, *arguments, **environment):
        started.append(Script(text, *arguments, **environment))
        return started[-1]

    yield start
    for process in started:
        process.child.kill()
        process.child.communicate()
