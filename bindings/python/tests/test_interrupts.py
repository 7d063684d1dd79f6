"""Blocks that are left elsewhere than they were entered."""
import asyncio
import contextlib
import threading

import pytest

import mortise


@pytest.fixture
def client(sqlite_where):
    with mortise.open(sqlite_where + "?ttl=60s") as opened:
        opened._poll_fd()
        yield opened


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
