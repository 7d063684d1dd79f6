"""Several names without asyncio: all or none."""
import asyncio
import contextlib
import threading
import time

import pytest
from conftest import wait_until, waiters

import mortise
from mortise import _errors
from mortise._lock import Left, drop_lost, give_up
from mortise._native import lib


def run_in(kind, function):
    """In the main thread, which hears signals while it waits, or in another one."""
    if kind == "main":
        function()
        return
    failures = []

    def run():
        try:
            function()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def test_many_one_is_lost_meanwhile(client, other):
    """a ends while the call waits for b. It is acquired again: the block begins with both, and on_loss has not heard of it."""
    holder, told = other.acquire("b"), []

    def give():
        wait_until(lambda: other.inspect("a").held)
        threading.Event().wait(other.inspect("a").remaining)
        wait_until(lambda: not other.inspect("a").held)
        holder.release()

    giver = threading.Thread(target=give)
    giver.start()
    with client.lock_many(["b", "a"], ttl=2, renew=False, timeout=60, on_loss=told.append) as leases:
        assert leases.held and other.inspect("a").token == leases[1].token
        assert told == []
    giver.join()


def test_many_lost_afterwards(client, other):
    """on_loss hears of it, however the leases were acquired."""
    told = []
    with contextlib.suppress(mortise.Lost), client.lock_many(["a", "b"], ttl=0.5, on_loss=told.append) as leases:
        other.break_("b", leases[1].token)
        wait_until(lambda: told == [leases[1]])
    client._try_many = lambda *_: False
    with contextlib.suppress(mortise.Lost), client.lock_many(["a", "b"], ttl=0.5, on_loss=told.append) as leases:
        other.break_("b", leases[1].token)
        wait_until(lambda: told[1:] == [leases[1]])


def test_many_when_it_gives_up(client):
    """A server that is away may come back, within the timeout."""
    unreachable, invalid = mortise.Unreachable("away"), mortise.Invalid("bad")
    with client.lock("a") as lease:
        assert give_up([lease], [], Left(0)) is False and give_up([lease], [unreachable], Left(5000)) is True
        for failures, wait_ms, failure in (([unreachable], 0, mortise.Unreachable), ([unreachable, invalid], 5000, mortise.Invalid)):
            with pytest.raises(failure):
                give_up([lease], failures, Left(wait_ms))
    for end in (lambda left: give_up([lease], [], left), lambda left: drop_lost([lease], left)):
        with pytest.raises(mortise.Busy, match="was lost while"):
            end(Left(0))
    over = Left(1)
    wait_until(over.is_over)
    with pytest.raises(mortise.TimedOut, match="was lost while"):
        drop_lost([lease], over)


def refused():
    failure = mortise.BackendError("no room")
    failure.retryable, failure.native, failure.driver = True, 7, "redis"
    return failure


def end_with(patch, tries, waits):
    """The tries of the main thread or of asyncio end as said, and the wait for the first name as well."""
    tries = iter(tries)

    def wait(*_):
        raise waits

    async def wait_async(*_):
        raise waits

    patch.setattr("mortise._client.failure_of", lambda *_: next(tries))
    patch.setattr("mortise._aio.failures_of", lambda *_: list(tries))
    patch.setattr(mortise.Client, "_acquire", wait)
    patch.setattr("mortise._aio.acquire", wait_async)


@pytest.mark.parametrize("kind", ["main", "asyncio"])
@pytest.mark.parametrize("first", [lambda: mortise.Unreachable("away"), refused])
def test_many_with_an_unsure_request(client, other, monkeypatch, kind, first):
    """Unreachable, or a refusal that may pass, would say that nothing may be left in the backend."""
    async def many_async(timeout):
        await client.alock_many(["a", "b", "c"], timeout=timeout)

    def many(timeout, tries):
        with monkeypatch.context() as patch, pytest.raises(mortise.Error) as failed:
            end_with(patch, tries, failure)
            if kind == "asyncio":
                asyncio.run(many_async(timeout))
            else:
                client.lock_many(["a", "b", "c"], timeout=timeout).acquire()
        return failed.value

    failure, busy, lost = first(), mortise.Busy("held"), mortise.Indeterminate("no reply")
    with other.lock("a"), other.lock("b"), other.lock("c"):
        assert many(0, [failure, busy, lost]) is lost
        assert many(0, [busy, failure, lost]) is busy
        assert many(0, [failure, busy, failure]) is failure
        found = many(60, [busy, lost, failure])
        assert type(found) is mortise.Indeterminate and str(found) == str(failure)
        assert (found.native, found.driver, found.retryable) == (failure.native, failure.driver, failure.retryable)
        assert many(60, [busy, busy, failure]) is failure


@pytest.mark.parametrize("kind", ["main", "thread"])
def test_many(client, other, kind):
    def many():
        with client.lock_many(["b", "a", "c"]) as leases:
            assert [lease.name for lease in leases] == ["b", "a", "c"] and leases.held and len(leases) == 3
            assert leases[0].token > 0 and len(leases[1:]) == 2
            leases.check()
            assert [info.name for info in other.list()] == ["a", "b", "c"]
        assert other.list() == []
        with other.lock("b"):
            for timeout, kind_of in ((0, mortise.Busy), (0.5, mortise.TimedOut)):
                with pytest.raises(kind_of, match="b"):
                    client.lock_many(["a", "b", "c"], timeout=timeout).acquire()
            wait_until(lambda: [info.name for info in other.list()] == ["b"])  # all or none

    run_in(kind, many)


@pytest.mark.parametrize("kind", ["main", "thread"])
def test_many_wait(client, other, kind):
    held = other.acquire("b")

    def many():
        with client.lock_many(["a", "b"], timeout=60, on_loss=print) as leases:
            assert leases.held

    thread = threading.Thread(target=lambda: (waiters(other, "b"), held.release()))
    thread.start()
    run_in(kind, many)
    thread.join()


class Clock:
    """In place of the module `time`."""

    def __init__(self):
        self.ahead_s = 0

    def monotonic(self):
        return time.monotonic() + self.ahead_s


@pytest.mark.parametrize("kind", ["main", "thread", "asyncio"])
def test_many_has_one_timeout(where, other, monkeypatch, kind):
    """Also if it is the config's: the wait for the second name gets what the wait for the first one has left."""
    first, second = other.acquire("a"), other.acquire("b")
    clock = Clock()
    monkeypatch.setattr("mortise._lock.time", clock)

    def give():
        waiters(other, "a")
        clock.ahead_s = 1000
        first.release()

    with mortise.open(where + ("&" if "?" in where else "?") + "wait=500s") as client:

        async def many_async():
            await client.alock_many(["a", "b"])

        def many():
            with pytest.raises(mortise.TimedOut):
                if kind == "asyncio":
                    asyncio.run(many_async())
                else:
                    client.lock_many(["a", "b"], on_loss=print).acquire()

        giver = threading.Thread(target=give)
        giver.start()
        began = time.monotonic()
        run_in("thread" if kind == "thread" else "main", many)
        giver.join()
        assert time.monotonic() - began < 400
    second.release()


@pytest.mark.parametrize("kind", ["main", "asyncio"])
def test_many_when_the_server_hangs(redis_server, kind):
    """The first step, which tries all names, ends with the timeout, and not after `unreachable_timeout` (10 s), nor a little later
    for each name."""
    names = [f"name {i}" for i in range(60)]

    async def many_async(client):
        await client.alock_many(names, timeout=0.3)

    with mortise.open(f"redis://127.0.0.1:{redis_server.port}?namespace=hangs/&close_timeout=100ms") as client:
        client.ping()
        redis_server.do("freeze")
        began = time.monotonic()
        try:
            with pytest.raises(mortise.TimedOut):
                if kind == "asyncio":
                    asyncio.run(many_async(client))
                else:
                    client.lock_many(names, timeout=0.3).acquire()
            assert time.monotonic() - began < 5
        finally:
            redis_server.do("thaw")


class ShortOfMemory:
    """The library, whose second release finds none."""

    def __init__(self):
        self.releases = 0

    def __getattr__(self, name):
        return getattr(lib, name)

    def mpy_release_start(self, slot):
        self.releases += 1
        return _errors.NOMEM if self.releases == 2 else lib.mpy_release_start(slot)


def test_many_canceled_while_one_release_could_not_begin(client, monkeypatch):
    """It waits for the others then."""
    library, kept = ShortOfMemory(), []
    monkeypatch.setattr("mortise._aio.lib", library)

    async def work():
        async with client.alock_many(["a", "b", "c"]) as leases:
            kept.append(leases)

    async def main():
        task = asyncio.create_task(work())
        while library.releases < 3:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.stats().held == 0

    asyncio.run(main())


def test_many_in_circles(where):
    """Each wants what the other has."""
    count = []

    def work(names):
        with mortise.open(where) as client:
            for _ in range(10):
                with client.lock_many(names, timeout=60) as leases:
                    leases.check()
                    count.append(1)

    threads = [threading.Thread(target=work, args=(names,)) for names in (["a", "b"], ["b", "a"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(count) == 20
