"""A signal handler that raises, at every step of the package: nothing stays held. And blocks that are left elsewhere than they
were entered."""
import _thread
import asyncio
import contextlib
import gc
import os
import pathlib
import sys
import threading

import pytest
from conftest import PATIENCE_S, wait_until

import mortise
from mortise import _aio, _callbacks

PACKAGE = str(pathlib.Path(mortise.__file__).parent)
EVERY = int(os.environ.get("MORTISE_INTERRUPT_EVERY", 5))  # steps between two interrupts; the first one differs from run to run


class Interrupt:
    """Calls a function again and again, with a Ctrl-C that comes one step later each time: Python handles it as soon as it
    looks for signals, as with a real one."""

    def __init__(self, *frames):
        self.frames, self.left, self.where = {code.__code__ for code in frames}, 0, ""
        # Kept: CPython 3.11 uses it once more after settrace(None) in a __del__ that the garbage collector calls.
        self.hook, self.counter = self.enter, self.step

    def enter(self, frame, _event, _arg):
        if not frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code not in self.frames:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self.counter

    def step(self, frame, event, _arg):
        """Of each of our frames: most of the time of these tests passes here."""
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}, offset {frame.f_lasti}"
                sys.settrace(None)
                for _ in iter(_thread.interrupt_main, None):  # no signal is handled before the end of this function
                    pass
        return self.counter

    def come(self, function, at):
        """Whether it came before the end."""
        self.left = at
        sys.settrace(self.hook)
        try:
            function()
            sys.settrace(None)
            for _ in range(2):
                pass
        except KeyboardInterrupt:
            sys.settrace(None)
            return True
        finally:
            sys.settrace(None)
        return self.left <= 0


def steps(function, *frames, every=EVERY, limit=None):
    """The places where an interrupt came."""
    interrupt, at = Interrupt(function, *frames), 1 + os.getpid() % every
    interrupt.come(function, 10**9)  # later versions of Python report the steps of a function from its second call on
    while (limit is None or at <= limit) and interrupt.come(function, at):
        yield f"at {interrupt.where}"
        at += every
    assert at > 30


pytestmark = [  # a lease may be collected, a coroutine may not begin, and __del__ may be interrupted
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("ResourceWarning", "RuntimeWarning", "pytest.PytestUnraisableExceptionWarning")]


@pytest.fixture
def client(sqlite_where):
    with mortise.open(sqlite_where + "?ttl=60s") as opened:
        opened._listen()
        yield opened


BLOCKS = {
    "lock": lambda client: client.lock("a"),
    "on_loss": lambda client: client.lock("a", on_loss=print),
    "many": lambda client: client.lock_many(["a", "b"]),
    "lease": lambda client: client.acquire("a"),
}


@pytest.mark.parametrize("kind", [*BLOCKS, "in order"])
def test_blocks(client, kind):
    kept = []  # the program has the lease still, and so has the traceback
    if kind == "in order":  # as if one of the names were busy
        client._try_many = lambda *_: False

    def block():
        with BLOCKS.get(kind, BLOCKS["many"])(client) as lease:
            kept.append(lease)

    for at in steps(block):
        if kind != "lease":  # which has no owner before its block begins
            assert client.stats().held == 0, at
        kept.clear()


def test_one_lock_again_and_again(client):
    lock, kept = client.lock("a"), []

    def block():
        with lock as lease:
            kept.append(lease)

    for at in steps(block):
        assert client.stats().held == 0 and lock._held == [], at


def test_the_block_of_a_client(sqlite_where):
    kept = []

    def block():
        with mortise.open(sqlite_where) as client:
            kept.append(client)

    for at in steps(block):
        assert all(client.closed for client in kept), at
        kept.clear()


def test_close(sqlite_where):
    """Whenever it is interrupted, it can be closed again, and then nothing is left."""
    kept = []

    def run():
        kept[0].close()

    def opened():
        client = mortise.open(sqlite_where)
        kept[:] = [client, client.acquire("a", on_loss=print)]

    opened()
    for at in steps(run):
        kept[0].close()
        assert kept[0].closed and kept[0]._detached and not kept[1].held, at
        assert not kept[0]._callbacks._thread.is_alive(), at
        opened()
    kept[0].close()


@pytest.mark.parametrize("kind", ["lock", "many", "first"])
def test_asyncio(client, kind):
    """In a loop that does not handle Ctrl-C itself, and then runs again: the outcomes of all tasks that were not interrupted
    arrive. first: in a loop that has not used the client before."""
    tasks = []

    async def block():
        async with client.alock_many(["a", "b"]) if kind == "many" else client.alock("a") as lease:
            lease.check()

    async def beside():
        async with client.alock("c") as lease:
            lease.check()

    def run():
        tasks[:] = [loop.create_task(beside()), loop.create_task(block())]
        loop.run_until_complete(tasks[1])

    def hung():
        for task in asyncio.all_tasks(loop):
            task.print_stack()
        raise SystemExit(f"the loop waits for ever, at {at}; {loop}")

    async def the_rest():
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if number % 2:
            for task in left:
                task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                assert task.exception() is None or isinstance(task.exception(), KeyboardInterrupt)

    loop, at = asyncio.new_event_loop(), "no step"
    guard = loop.call_later(PATIENCE_S, hung)
    every = EVERY if kind == "many" else 1  # each step, but with several names only every EVERY steps
    for number, at in enumerate(steps(run, block, beside, every=every, limit=300 if kind == "first" else None)):
        loop.run_until_complete(the_rest())
        assert client.stats().held == 0 and client.stats().waiting == 0, at
        for sink in client._loops.values():
            assert not sink.acquires and not sink.releases, at
        guard.cancel()
        if kind == "first":
            loop.close()
            loop = asyncio.new_event_loop()
        guard = loop.call_later(PATIENCE_S, hung)
    loop.close()


def test_told_twice(client, monkeypatch):
    """A signal comes when the loop has told an acquire, and has not counted that: told again, it must not end the release."""
    tell, told = _aio.Outcome.tell, []

    def interrupted(outcome, status):
        tell(outcome, status)
        if not told:
            told.append(outcome)
            raise KeyboardInterrupt

    async def block():
        async with client.alock("a") as lease:
            client.break_("a", lease.token)

    monkeypatch.setattr(_aio.Outcome, "tell", interrupted)
    loop = asyncio.new_event_loop()
    task = loop.create_task(block())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    with pytest.raises(mortise.Lost):
        loop.run_until_complete(task)
    loop.close()


def test_on_loss(client):
    """In a loop that is interrupted and runs again, each on_loss is called, and once. Also in the steps of asyncio itself."""
    told, left = [], []
    loop = asyncio.new_event_loop()

    def one_round():
        loop.call_soon(loop.stop)
        loop.run_forever()

    def run():
        for _ in range(3):
            one_round()

    def lose():
        lock = client.alock("a", ttl=0.05, renew=False, on_loss=told.append)  # which has no step of its own in Python
        left[:] = [loop.run_until_complete(lock.acquire())]
        wait_until(lambda: not left[0].held)
        told.clear()

    lose()
    asyncio_frames = [asyncio.BaseEventLoop.call_soon, asyncio.BaseEventLoop._call_soon, asyncio.Handle._run]
    for at in steps(run, *asyncio_frames):
        wait_until(lambda: one_round() or told, f"on_loss, at {at},")
        run()
        assert told == left, at
        lose()
    loop.close()


@pytest.mark.parametrize("kind", ["loop", "thread", "client"])
def test_descriptors(client, sqlite_where, kind, monkeypatch):
    """Nothing is lost between the function in C that makes it and the object in Python that owns it: what is counted is the
    descriptors, of which a sink has three, and a slot keeps its sink."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the object whose __del__ is interrupted
    loop = asyncio.new_event_loop()

    def make():
        if kind == "loop":
            _aio.AsyncLease(client, b"a", _aio.LoopSink(client, loop), None)
        elif kind == "thread":
            _callbacks.Callbacks(client).new_lease(client, b"a", 1, print)
        else:
            with mortise.open(sqlite_where) as opened:
                opened._listen()

    def count():
        return len(os.listdir("/proc/self/fd"))

    make()
    gc.collect()
    before = count()
    for at in steps(make, every=1):
        if count() != before:
            gc.collect()
            assert count() == before, at
    loop.close()


# ---- left by another thread or task ----


def in_thread(function):
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(function()))
    thread.start()
    thread.join()
    return outcome[0]


@pytest.mark.parametrize("make", [lambda client: client.lock("a", shared=True), lambda client: client.lock_many(["a"], shared=True)])
def test_left_by_another_thread(client, make):
    lock = make(client)
    with pytest.raises(RuntimeError, match="no block"):
        lock.__exit__(None, None, None)
    in_thread(lock.__enter__)
    lock.__exit__(None, None, None)
    assert client.stats().held == 0 and lock._held == []
    others = in_thread(lock.__enter__)
    with lock as mine:  # the own one is taken first
        pass
    assert not mine[0].held if isinstance(mine, mortise.Leases) else not mine.held
    assert others[0].held if isinstance(others, mortise.Leases) else others.held
    lock.__exit__(None, None, None)
    assert client.stats().held == 0
    with contextlib.ExitStack() as stack:
        in_thread(lambda: stack.enter_context(lock))
    assert client.stats().held == 0


@pytest.mark.parametrize("make", [lambda client: client.alock("a"), lambda client: client.alock_many(["a", "b"])])
def test_left_by_another_task(client, make):
    """As a generator that another task finishes."""

    async def main():
        lock = make(client)

        async def generator():
            async with lock:
                yield

        steps = generator()
        await asyncio.create_task(steps.__anext__())
        assert client.stats().held
        await asyncio.create_task(steps.aclose())
        assert client.stats().held == 0 and lock._held == []
        with pytest.raises(RuntimeError, match="no block"):
            await lock.__aexit__(None, None, None)

    asyncio.run(main())
