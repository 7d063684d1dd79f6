"""Locks in asyncio: tasks, cancellation, several loops, beside code without asyncio, the end of a loop and of a client."""
import asyncio
import concurrent.futures
import gc
import math
import threading
import time

import pytest
from conftest import PATIENCE_S, wait_until

import mortise


async def eventually(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        await asyncio.sleep(0.002)


@pytest.fixture
def run():
    """Runs a coroutine function in a loop of its own, which complains of what is left."""
    return lambda coroutine: asyncio.run(coroutine, debug=True)


def test_block(client, other, run):
    async def main():
        async with client.alock("a", timeout=5) as lease:
            assert isinstance(lease, mortise.AsyncLease) and lease.held and lease.token > 0 and lease.remaining > 0
            lease.check()
            with pytest.raises(mortise.Busy, match="held by|wanted by"):
                await other.alock("a", timeout=0)
            with pytest.raises(mortise.TimedOut):
                await other.alock("a", timeout=0.05)
            assert await other.alock("a").try_acquire() is None
        assert lease.state is mortise.State.LOST
        with pytest.raises(mortise.Invalid, match="released before"):
            await lease.release()
        lease = await client.alock("a")
        twice = await asyncio.gather(lease.release(), lease.release(), return_exceptions=True)
        assert twice[0] is None and isinstance(twice[1], mortise.Invalid)
        lease = await other.alock("a")
        assert lease.name == "a" and "'a'" in repr(lease)
        await lease.release()
        lease = await other.alock("a").try_acquire()
        lease.release_nowait()
        async with await client.alock("a"):
            pass
        with pytest.raises(KeyError):
            async with client.alock("a"):
                raise KeyError

    run(main())
    wait_until(lambda: client.list() == [])


def test_a_crowd(client, run):
    """Tasks that all want one name get it one after the other; no thread is started for a wait."""
    inside, most, threads = [], [], set()

    async def work():
        async with client.alock("a", timeout=60) as lease:
            inside.append(lease)
            most.append(len(inside))
            threads.add(threading.active_count())
            await asyncio.sleep(0)
            inside.pop()

    async def main():
        await asyncio.gather(*(work() for _ in range(50)))
        await asyncio.gather(*(client.alock(f"b{i}").acquire() for i in range(300)))

    with pytest.warns(ResourceWarning, match="was not released"):
        run(main())
        gc.collect()
    assert len(most) == 50 and max(most) == 1 and threads == {threading.active_count()}


def test_handover(client, other, run):
    async def main():
        async with other.alock("a"):
            task = asyncio.create_task(client.alock("a", timeout=60).acquire())
            await eventually(lambda: client.stats().waiting)
        lease = await task
        await lease.release()

    run(main())


def test_cancel(client, other, run):
    """A cancelled task leaves nothing behind, whenever the cancellation comes."""

    async def wait():
        async with client.alock("a", timeout=60):
            await asyncio.sleep(60)

    async def main():
        async with other.alock("a"):
            task = asyncio.create_task(wait())
            await eventually(lambda: client.stats().waiting)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.alock("a", timeout=math.inf).acquire(), 0.02)
        for steps in range(40):
            task = asyncio.create_task(wait())
            for _ in range(steps):
                await asyncio.sleep(0)
            if steps > 20:
                await asyncio.sleep(0.0003 * steps)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with other.alock("a", timeout=20):
            pass

    run(main())
    wait_until(lambda: client.stats().held == 0 and client.stats().waiting == 0)
    assert client.list() == []


def test_decided_before_it_is_canceled(client, run):
    """The lock is granted, but the loop has not heard of it yet: the cancellation must release it."""

    async def main():
        for i in range(20):
            task = asyncio.create_task(client.alock(f"a{i}").acquire())
            await asyncio.sleep(0)
            wait_until(lambda: client.stats().acquires > i)  # the loop stands still meanwhile
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert client.stats().held == 0

    run(main())


def test_lost(client, other, run):
    async def main():
        told = []
        with pytest.raises(mortise.Lost):
            async with client.alock("a", ttl=0.5, on_loss=told.append) as lease:
                assert not lease.lost.is_set()
                other.break_("a", lease.token)
                await asyncio.wait_for(lease.lost.wait(), PATIENCE_S)
                assert told == [lease] and not lease.held
        lease = await client.alock("a", ttl=0.2, renew=False)
        await eventually(lambda: not lease.held)
        await asyncio.wait_for(lease.lost.wait(), PATIENCE_S)
        with pytest.raises(mortise.Lost):
            await lease.release()

    run(main())


def test_the_rest_of_a_lease(client, other, run):
    async def main():
        async with client.alock("a") as lease:
            await lease.downgrade()
            async with other.alock("a", shared=True, timeout=0):
                pass
        async with client.alock("a", renew=False, ttl=1) as lease:
            await lease.extend(30)
            assert lease.remaining > 20
        async with client.alock("a", permits=2), other.alock("a", permits=2):
            assert await client.alock("a", permits=2).try_acquire() is None
        with pytest.raises(mortise.Invalid, match="ttl_ms 1 "):
            await client.alock("a", ttl=0.001)

    run(main())


def test_many(client, other, run):
    async def main():
        async with client.alock_many(["b", "a"]) as leases:
            assert [lease.name for lease in leases] == ["b", "a"] and leases.held
        async with other.alock("b"):
            with pytest.raises(mortise.Busy):
                await client.alock_many(["a", "b", "c"], timeout=0)
            with pytest.raises(mortise.TimedOut):
                await client.alock_many(["a", "b", "c"], timeout=0.05)
            await eventually(lambda: [info.name for info in other.list()] == ["b"])
            task = asyncio.create_task(client.alock_many(["a", "b"]).acquire())
            await eventually(lambda: client.stats().waiting)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: [info.name for info in other.list()] == ["b"])

    run(main())


def test_many_one_is_lost_meanwhile(client, other, run):
    """a ends while the call waits for b. It is acquired again: the block begins with both, and on_loss has not heard of it."""

    async def main():
        told = []
        lock = client.alock_many(["b", "a"], ttl=2, renew=False, timeout=60, on_loss=told.append)
        async with other.alock("b"):
            task = asyncio.create_task(lock.acquire())
            await eventually(lambda: other.inspect("a").held)
            await asyncio.sleep(other.inspect("a").remaining)
            await eventually(lambda: not other.inspect("a").held)
        leases = await task
        assert leases.held and other.inspect("a").token == leases[1].token
        assert told == []
        for lease in leases:
            await lease.release()

    run(main())


def test_many_canceled_while_it_releases(client, other, run):
    """All releases have begun, so that none of the leases stays held."""

    async def main():
        inside = asyncio.Event()

        async def work():
            async with client.alock_many(["a", "b", "c"]) as leases:
                kept.append(leases)
                inside.set()
                await asyncio.sleep(60)

        for steps in range(4):
            inside.clear()
            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.stats().held == 0
        async with other.alock_many(["a", "b", "c"], timeout=20):
            pass

    kept = []
    run(main())


def test_nothing_is_kept(client, run):
    """Not even the future of a release whose task was canceled, and whose lease is gone when the answer comes."""

    async def main():
        for steps in range(1, 4):
            task = asyncio.create_task((await client.alock("a", timeout=20)).release())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            del task
        (sink,) = client._loops.values()
        await eventually(lambda: not sink.releases and not sink.acquires)

    run(main())


def test_on_loss_exits(client, other, run):
    """sys.exit() in on_loss ends the loop, as in each callback of it. What came with that loss is not forgotten."""
    told = []

    def leave(lease):
        told.append(lease)
        raise SystemExit

    async def main():
        leases.extend([await client.alock(name, ttl=0.5, on_loss=leave) for name in "ab"])
        for lease in leases:
            other.break_(lease.name, lease.token)
        wait_until(lambda: not any(lease.held for lease in leases))  # the loop stands still meanwhile
        await asyncio.sleep(60)

    leases, loop = [], asyncio.new_event_loop()
    task = loop.create_task(main())
    for number in (1, 2):
        with pytest.raises(SystemExit):
            loop.run_until_complete(asyncio.wait_for(asyncio.shield(task), PATIENCE_S))
        assert told == leases[:number]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    for lease in leases:
        with pytest.raises(mortise.Lost):
            loop.run_until_complete(lease.release())
    loop.close()


def test_this_thread(client, run):
    """All tasks of a loop run in one thread, so it is no owner."""
    owner = {"owner": mortise.THIS_THREAD}

    async def job():
        pass

    for call in (lambda: client.alock("a", **owner), lambda: client.alock_many(["a"], **owner),
                 lambda: client.locked("a", **owner)(job)):
        with pytest.raises(mortise.Invalid, match="tasks"):
            call()
    client.locked("a", **owner)(print)


def test_decorator(client, run):
    @client.locked("job:{id}", lease="lease")
    async def job(id, lease=None):
        await asyncio.sleep(0)
        return lease.name, lease.held

    assert run(job(3)) == ("job:3", True)


def test_several_loops_and_none(where):
    """One client for three loops, each in its thread, for threads, and for the main thread, on a few names."""
    client, counts, alone, failures = mortise.open(where), [], {"a": [], "b": []}, []

    def use(name):
        alone[name].append(1)
        counts.append(len(alone[name]))
        alone[name].pop()

    async def work(seed):
        for i in range(15):
            name = "ab"[(seed + i) % 2]
            async with client.alock(name, timeout=60):
                use(name)

    async def crowd():
        await asyncio.gather(*(work(seed) for seed in range(3)))

    def plain():
        for i in range(30):
            with client.lock("ab"[i % 2], timeout=60):
                use("ab"[i % 2])

    def guarded(function):
        try:
            function()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(lambda: asyncio.run(crowd()),)) for _ in range(3)]
    threads += [threading.Thread(target=guarded, args=(plain,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    plain()
    for thread in threads:
        thread.join()
    assert not failures and len(counts) == 3 * 3 * 15 + 3 * 30 and max(counts) == 1
    asyncio.run(crowd())  # the loops before have ended
    assert len(client._loops) == 1
    client.close()


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("then", ["another loop", "the same name", "a known loop", "no loop"])
def test_the_loop_ends_before_the_task(client, other, told, then):
    """Nobody cancels the task, and the program keeps it: its lease must not be held for ever."""
    loop, known = asyncio.new_event_loop(), asyncio.new_event_loop()
    known.run_until_complete(_use(client, "b"))
    with other.lock("a"):
        task = loop.create_task(client.alock("a").acquire())
        loop.run_until_complete(asyncio.sleep(0))
        wait_until(lambda: client.stats().waiting == 1)
    wait_until(lambda: client.stats().acquires == 2)  # it is granted, but no task gets the outcome
    sink = client._loops[loop]
    while told and sink.acquires:  # or the outcome is there, but its task does not run
        sink.collect()
    loop.close()
    if then == "no loop":
        client.acquire("a", timeout=20).release()
    elif then == "a known loop":
        known.run_until_complete(_use(client, "a"))
    else:
        asyncio.run(_use(client, "a" if then == "the same name" else "b"))
    assert not sink.asking and not client._loops.get(loop)
    other.acquire("a", timeout=20).release()
    known.close()
    del task
    gc.collect()


async def _use(client, name):
    async with client.alock(name, timeout=20):
        pass


def test_close(where, run):
    """Those who wait get Closed, from whichever thread the close comes."""

    async def main(aclose):
        client = mortise.open(where)
        other = mortise.open(where)
        async with other.alock("a"):
            tasks = [asyncio.create_task(client.alock("a").acquire()) for _ in range(3)]
            await eventually(lambda: client.stats().waiting == 3)
            lease = await client.alock("b")
            if aclose:
                await client.aclose()
            else:
                client.close()
            for task in tasks:
                with pytest.raises(mortise.Closed):
                    await asyncio.wait_for(task, PATIENCE_S)
            with pytest.raises(mortise.Closed):
                await client.alock("a")
            with pytest.raises((mortise.Closed, mortise.Invalid)):
                await lease.release()
        await other.aclose()

    run(main(True))
    run(main(False))


def test_close_while_all_threads_wait(where, other, run):
    """The threads of the loop wait for a lock until the client is closed, so the close needs a thread of its own."""

    async def main():
        client = mortise.open(where)
        asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
        async with other.alock("a"):
            waiting = asyncio.get_running_loop().run_in_executor(None, client.acquire, "a")
            await eventually(lambda: client.stats().waiting)
            async with client.alock("b") as lease:
                lost = asyncio.create_task(lease.lost.wait())
                await asyncio.sleep(0)
                with pytest.raises(mortise.Error):
                    await asyncio.wait_for(client.aclose(), PATIENCE_S)
                    await lease.release()
            await asyncio.wait_for(lost, PATIENCE_S)  # the close has released it
            with pytest.raises(mortise.Closed):
                await waiting

    run(main())


def test_client_block(sqlite_where, run):
    async def main():
        async with mortise.open(sqlite_where) as client:
            async with client.alock("a"):
                pass
        assert client.closed

    run(main())


def test_wrong_loop(client):
    lease = asyncio.run(client.alock("a").acquire())

    async def release():
        with pytest.raises(RuntimeError, match="another event loop"):
            await lease.release()
        lease.release_nowait()

    asyncio.run(release())


def test_waiting_costs_nothing(redis_server, where, run):
    """100 tasks that wait send nothing between two ttls."""
    if not where.startswith("redis"):
        pytest.skip("commands are counted by Redis")

    def commands():
        text = redis_server.ask("info", "commandstats")
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in text.splitlines()
                   if line.startswith("cmdstat_") and not line.startswith(("cmdstat_info", "cmdstat_auth")))

    async def main():
        with mortise.open(where + "&ttl=60s") as client, mortise.open(where + "&ttl=60s") as other:
            async with other.alock("a"):
                tasks = [asyncio.create_task(client.alock("a", timeout=120).acquire()) for _ in range(100)]
                await eventually(lambda: client.stats().waiting == 100)
                await eventually(lambda: (client.inspect("a").waiters or 0) >= 1)
                before = commands()
                await asyncio.sleep(1)
                assert commands() == before
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    run(main())
