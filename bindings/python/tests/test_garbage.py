"""Leases and clients that nobody uses any more. In a cycle of garbage, what ends together with them may still use them; and
they leave no descriptor open."""
import asyncio
import contextlib
import gc
import os

import pytest

import mortise

# Freed memory is overwritten, so a lease whose memory is used afterwards seems to be lost, or released before.
PERTURB = {"MALLOC_PERTURB_": "165"}

BEGIN = """
    import asyncio, gc, sys, warnings
    import mortise, mortise._client
    warnings.simplefilter("ignore", ResourceWarning)
    reports = []
    sys.unraisablehook = lambda report: reports.append(f"{report.exc_value!r} in {report.object!r}")
    gc.disable()
    client = mortise.open(sys.argv[1])
"""
END = """
    gc.collect()
    print(reports, client.list())
    client.close()
"""
ENDED = (0, "[] []\n", "")


def test_a_block_in_a_forgotten_generator(script, where):
    """The lease is older than the generator, so the collector comes to its memory first."""
    assert script(BEGIN + """
    def worker(lease):
        with lease:
            yield
    cycle = [worker(client.acquire("a"))]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    """ + END, where, **PERTURB).end() == ENDED


@pytest.mark.parametrize("call", ["release()", "release_nowait()", "__exit__(None, None, None)"])
def test_a_finalizer_releases(script, where, call):
    assert script(BEGIN + f"""
    class Job:
        def __init__(self, lease):
            self.lease, self.me = lease, self
        def __del__(self):
            assert self.lease.held and self.lease.token and self.lease.remaining
            self.lease.{call}
    Job(client.acquire("a"))
    Job(client.acquire("b", on_loss=print))
    """ + END, where, **PERTURB).end() == ENDED


def test_a_finalizer_saves_the_lease(script, where):
    """It is a lease as before."""
    assert script(BEGIN + """
    saved = []
    class Job:
        def __init__(self, lease):
            self.lease, self.me = lease, self
        def __del__(self):
            saved.append(self.lease)
    Job(client.acquire("a"))
    gc.collect()
    saved[0].check()
    assert [info.token for info in client.list()] == [saved[0].token]
    saved.pop().release()
    """ + END, where, **PERTURB).end() == ENDED


def test_a_finalizer_releases_an_async_lease(script, where):
    assert script(BEGIN + """
    loop, sinks = asyncio.new_event_loop(), []
    class Job:
        def __init__(self, lease):
            self.lease, self.me = lease, self
        def __del__(self):
            self.lease.release_nowait()
    async def work():
        Job(await client.alock("a"))
    loop.run_until_complete(work())
    loop.close()
    del loop
    """ + END, where, **PERTURB).end() == ENDED


def test_a_client_behind_its_loop(script, where):
    """A client that was not closed ends what its event loop hears, which may be garbage of the same cycle."""
    assert script(BEGIN + """
    from mortise._native import ffi
    order = []
    class Watched:
        def __getattr__(self, name):
            return getattr(ffi, name)
        def gc(self, room, free):
            return ffi.gc(room, lambda room: (order.append(free.__name__), free(room)))
    class Client(mortise.Client):
        def close(self):
            super().close()
            order.append("close")
    async def work(forgotten):
        await (await forgotten.alock("a")).release()
    mortise._client.ffi = Watched()
    loop, forgotten = asyncio.new_event_loop(), Client(sys.argv[1])
    forgotten.me = forgotten
    gc.collect(0)  # the collector comes to the client later than to younger objects
    loop.run_until_complete(work(forgotten))
    loop.close()
    del loop, forgotten
    gc.collect()
    assert order == ["close", "mpy_sink_drop"], order
    """ + END, where, **PERTURB).end() == ENDED


def leaves_no_descriptor(work):
    work()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        work()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


ENDS = pytest.mark.parametrize("end", ["forgotten", "released"])


@ENDS
def test_closed_while_held(where, end):
    def work():
        client = mortise.open(where)
        lease = client.acquire("a", on_loss=print)
        client.close()
        if end == "released":
            with contextlib.suppress(mortise.Closed, mortise.Invalid):
                lease.release()

    leaves_no_descriptor(work)


@ENDS
def test_closed_while_held_in_a_loop(where, end):
    async def main():
        client = mortise.open(where)
        lease = await client.alock("a")
        await client.aclose()
        if end == "released":
            with contextlib.suppress(mortise.Closed, mortise.Invalid):
                await lease.release()

    leaves_no_descriptor(lambda: asyncio.run(main()))


def test_closed_after_its_loop(where):
    """The client has worked for another loop since."""
    def work():
        client, leases = mortise.open(where), []

        async def main(name):
            leases.append(await client.alock(name))

        asyncio.run(main("a"))
        asyncio.run(main("b"))
        client.close()

    leaves_no_descriptor(work)
