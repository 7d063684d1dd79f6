"""Locks for asyncio.

Each event loop that uses a client has a LoopSink: it hears the client's descriptor and its own one, so there is no thread
for a wait. Any of the loops, or the main thread while it waits for a lock, may carry the client's work; the outcome
always reaches the loop that asked for it.

A cancelled task leaves nothing behind: the acquire is canceled, and a lease that came nevertheless is released."""
from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _errors, _values
from ._block import AsyncBlock, AsyncScope, Waiter, call_on_loss
from ._client import _keys
from ._lease import HELD, RELEASED, BaseLease, Leases, OnLoss, drop_all
from ._lock import Left, call_back, drop_failed, drop_lost, failures_of, forget, give_up, quietly
from ._native import ffi, lib

if TYPE_CHECKING:
    from ._client import Client

Result = TypeVar("Result")
_log = logging.getLogger("mortise")


async def in_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """In a thread of its own. All threads of the loop's executor may wait for locks, until this call lets them go on."""
    executor = ThreadPoolExecutor(1, "mortise")
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
    finally:
        executor.shutdown(wait=False)


class Outcome(Waiter, asyncio.Future[int]):
    """The status of an acquire or of a release. One task awaits it."""

    _wake = _context = None
    _register = asyncio.Future[int].add_done_callback

    def tell(self, status: int) -> None:
        """May be called again. A signal handler that raises in the call_soon() of set_result() leaves a future that is done, and
        a task that nobody wakes."""
        if not self.done():
            self.set_result(status)
        elif self._wake is not None:
            self.get_loop().call_soon(self._wake, self, context=self._context)


class LoopSink:
    """What one event loop hears from one client. Except stop(), only the thread of the loop uses it.

    A signal handler may raise at each step (Ctrl-C, in a loop that does not handle it), and the program may run the loop
    again. An outcome is not lost then, because each place keeps it until the next one has it:

        where it is               | what brings the loop there            | done with
        not dispatched            | the client's descriptor is readable   | mpy_collect() dispatches it
        in the sink's queue       | the sink's descriptor is readable     | mpy_collect() moves it to the batch
        in the batch, from `done` | the sink's descriptor is readable yet | Outcome.tell() has returned, and `done` is counted
        in the loop               | the loop has the wake-up of the task  | the task runs
        a loss, in `losses`       | the sink's descriptor is readable yet | call_on_loss() has returned

    A repeated outcome wakes no task, and calls no on_loss: see native/block.c.
    """

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.acquires: dict[int, Outcome] = {}
        self.releases: dict[int, Outcome] = {}  # separate: a repeated outcome of an acquire must not end a release
        self.asking: dict[int, weakref.ref[AsyncLease]] = {}  # leases whose task has not got the outcome yet
        self.watched: weakref.WeakValueDictionary[int, AsyncLease] = weakref.WeakValueDictionary()
        self.losses: dict[int, AsyncLease] = {}  # for on_loss
        self._batch = ffi.new("mpy_batch *")
        self._keeper, self.sink = client._new_sink()
        client._sinks[id(self)] = self

    def start(self) -> None:
        self.loop.add_reader(lib.mpy_sink_client_fd(self.sink), self.collect)
        self.loop.add_reader(lib.mpy_sink_fd(self.sink), self.collect)

    def collect(self) -> None:
        """Does what is ready, and passes on what has come."""
        batch = self._batch
        count = lib.mpy_collect(self.sink, batch)
        if count < 0:
            self.detach()
            return
        while batch.done < count:
            event = batch.events[batch.done]
            what, key = event.what, event.key
            if what & 1:
                self._tell(self.acquires, key, event.status)
            if what & 2:
                self._tell(self.releases, key, event.status)
            if what & 4 and event.state == 0:
                lease = self.watched.get(key)
                if lease is not None:
                    lease._is_lost()
            batch.done += 1
        if self.losses:
            self.loop.call_soon(self._tell_losses)  # after the tasks, which know their leases then
        else:
            lib.mpy_collected(self.sink)

    def _tell_losses(self) -> None:
        for key, lease in list(self.losses.items()):
            lease._tell()
            self.losses.pop(key, None)

    @staticmethod
    def _tell(waiting: dict[int, Outcome], key: int, status: int) -> None:
        outcome = waiting.get(key)
        if outcome is not None:
            outcome.tell(status)
            waiting.pop(key, None)

    def detach(self) -> None:
        """The client is closed, or the loop. If the loop is interrupted here, it comes again: at the latest after stop(), because
        the sink's descriptor is readable from there on, and is heard until the last step."""
        if not self.loop.is_closed():
            self._tell_losses()
            for waiting in (self.acquires, self.releases):
                for key in list(waiting):
                    self._tell(waiting, key, _errors.CLOSED)
            for lease in list(self.watched.values()):  # the close has released it
                if lease._lost_event is not None and lease._phase == HELD:
                    lease._lost_event.set()
            fd = lib.mpy_sink_client_fd(self.sink)
            if fd >= 0:
                self.loop.remove_reader(fd)
        else:
            self._drop_asking()
        self.acquires.clear()
        self.releases.clear()
        self.losses.clear()
        lib.mpy_sink_deaf(self.sink)
        if not self.loop.is_closed():
            self.loop.remove_reader(lib.mpy_sink_fd(self.sink))

    def _drop_asking(self) -> None:
        """No task will get an outcome any more; and the tasks may last, with all that they know."""
        for key, ref in list(self.asking.items()):
            lease = ref()
            if lease is not None:
                lease._drop()
            self.asking.pop(key, None)

    def stop(self, over: bool = False) -> None:
        """Called by any thread when the client was closed, or when the loop was closed. over: see Client._detach()."""
        lib.mpy_sink_end(self.sink, over)  # the loop collects what is left, and detaches
        if self.loop.is_closed():  # no task awaits anything there
            self.detach()


class AsyncLease(BaseLease, AsyncScope):
    """The right to a name, for asyncio. As an async context manager, it releases the lock at the end of the block."""

    __slots__ = ("_key", "_sink", "_lost_event")

    def __init__(self, client: Client, name: bytes, sink: LoopSink, on_loss: OnLoss | None) -> None:
        self._key = next(_keys)
        self._sink = sink
        self._lost_event: asyncio.Event | None = None
        super().__init__(client, name, sink.sink, self._key, on_loss)
        if on_loss is not None:
            sink.watched[self._key] = self

    def _start_acquire(self, options: Any) -> Outcome:
        self._sink.asking[self._key] = weakref.ref(self)
        outcome = self._sink.acquires[self._key] = Outcome(loop=self._sink.loop)
        status = int(lib.mpy_acquire_start(self._client._handle, self._slot, self._name, options, True, True))
        if status != _errors.OK:  # no event will come
            self._sink.acquires.pop(self._key, None)
            outcome.tell(status)
        return outcome

    def _acquired(self, status: int) -> int:
        if status == _errors.OK:
            self._phase = HELD
        self._sink.asking.pop(self._key, None)
        return status

    def _drop(self) -> None:
        if self._phase != RELEASED:
            self._sink.acquires.pop(self._key, None)
            self._sink.asking.pop(self._key, None)
        super()._drop()

    def _is_lost(self) -> None:
        if self._phase == RELEASED:
            return
        if self._on_loss is not None:
            self._sink.losses[self._key] = self
        if self._lost_event is not None:
            self._lost_event.set()

    def _tell(self) -> None:
        if self._phase == RELEASED:
            return
        try:
            call_on_loss(self)
        except Exception:
            _log.exception("on_loss of %r failed", self.name)

    @property
    def lost(self) -> asyncio.Event:
        """Is set when the lease is lost: `await lease.lost.wait()`."""
        if self._lost_event is None:
            self._lost_event = asyncio.Event()
            self._sink.watched[self._key] = self
            if self._phase == HELD and not self.held:
                self._lost_event.set()
        return self._lost_event

    async def __aenter__(self) -> AsyncLease:
        return self

    def _leave(self, kind: type[BaseException] | None, error: BaseException | None,
               trace: TracebackType | None) -> Coroutine[Any, Any, None]:
        """The end of the block; native/block.c calls it. The release is under way when it returns."""
        return self._left(None if self._phase == RELEASED else self._start_release(), error)

    async def _left(self, release: Outcome | None, error: BaseException | None) -> None:
        if release is None:
            return
        try:
            self._released(await release)
        except _errors.Error as failure:
            self._drop()  # the release did not begin, because memory was short
            if error is None:
                raise
            self._failed_quietly(failure)

    def _start_release(self) -> Outcome:
        if asyncio.get_running_loop() is not self._sink.loop:
            raise RuntimeError("the lease belongs to another event loop; release_nowait() works everywhere")
        outcome = self._sink.releases[self._key] = Outcome(loop=self._sink.loop)
        status = int(lib.mpy_release_start(self._slot))
        if status == _errors.OK:
            self._phase = RELEASED
        else:
            self._sink.releases.pop(self._key, None)
            outcome.tell(status)
        return outcome

    async def release(self) -> None:
        """Releases the lock and waits for the backend's answer; see Lease.release().

        If the task is canceled meanwhile, the release goes on.
        """
        if self._phase == RELEASED:
            raise _errors.make(_errors.INVALID, f"the lease of {self.name!r} was released before")
        self._released(await self._start_release())

    async def extend(self, ttl: _values.Duration | None = None) -> None:
        """For a lease with renew=False: lets it last for ttl from now on (None: the ttl of the acquire)."""
        status = await in_thread(self._extend_here, _values.ttl_ms(ttl))
        if status != _errors.OK:
            raise self._failure(status)

    async def downgrade(self) -> None:
        """Makes an exclusive lease shared, in one step: no other writer comes in between."""
        status = await in_thread(self._downgrade_here)
        if status != _errors.OK:
            raise self._failure(status)

    # For a thread, which may outlive a canceled task: it keeps the lease, and so its slot, until the call has returned.
    def _extend_here(self, ttl_ms: int) -> int:
        return int(lib.mpy_extend(self._slot, ttl_ms))

    def _downgrade_here(self) -> int:
        return int(lib.mpy_downgrade(self._slot))


class AsyncLock(AsyncBlock):
    """A name and how to acquire it: client.alock() makes it. `async with` acquires it; `await` too, and returns the lease.

    One AsyncLock may be used by several tasks, and again after its block.
    """

    __slots__ = ("_client", "_name", "_request", "_on_loss", "_held")
    _key = staticmethod(asyncio.current_task)
    _leave = staticmethod(AsyncLease._leave)
    _drop = staticmethod(AsyncLease._drop)

    def __init__(self, client: Client, name: bytes, request: _values.Request, on_loss: OnLoss | None) -> None:
        request.check_async()
        self._client = client
        self._name = name
        self._request = request
        self._on_loss = on_loss
        self._held: list[tuple[object, AsyncLease]] = []  # the blocks, by task; see native/block.c

    def __repr__(self) -> str:
        return f"<mortise.AsyncLock {self._name.decode('utf-8', 'backslashreplace')!r}>"

    async def acquire(self) -> AsyncLease:
        """Acquires the lock. The lease must be released."""
        return await acquire(self._client, self._name, self._request.options, self._on_loss)

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        return self.acquire().__await__()

    async def try_acquire(self) -> AsyncLease | None:
        """Tries once, whatever the timeout is. Returns None if the lock is held by another."""
        try:
            return await acquire(self._client, self._name, self._request.with_wait(0), self._on_loss)
        except _errors.Busy:
            return None

    async def __aenter__(self) -> AsyncLease:
        lease = await acquire(self._client, self._name, self._request.options, self._on_loss)
        entry = None
        try:
            entry = (asyncio.current_task(), lease)
            self._held.append(entry)
        except BaseException:  # a KeyboardInterrupt
            forget(self._held, entry)
            lease._drop()
            raise
        return lease


async def acquire(client: Client, name: bytes, options: Any, on_loss: OnLoss | None) -> AsyncLease:
    """`options` must stay alive until the call returns."""
    lease = AsyncLease(client, name, client._loop_sink(asyncio.get_running_loop()), on_loss)
    try:  # Python 3.10 looks for signals at jumps too, so the return is inside
        status = lease._acquired(await lease._start_acquire(options))
        if status != _errors.OK:
            raise lease._failure(status)
        return lease
    except BaseException:
        lease._drop()
        raise


def tell_all(outcomes: Sequence[Outcome], status: int) -> None:
    """Gives the status to all outcomes that have none yet."""
    for outcome in outcomes:
        outcome.tell(status)


class AsyncLockMany(AsyncBlock):
    """Several names and how to acquire them: client.alock_many() makes it; `async with` acquires all of them, or none."""

    __slots__ = ("_client", "_names", "_request", "_on_loss", "_held")
    _key = staticmethod(asyncio.current_task)

    def __init__(self, client: Client, names: Sequence[bytes], request: _values.Request, on_loss: OnLoss | None) -> None:
        request.check_async()
        self._client = client
        self._names = names
        self._request = request
        self._on_loss = on_loss
        self._held: list[tuple[object, Leases[AsyncLease]]] = []

    async def acquire(self) -> Leases[AsyncLease]:
        """Acquires all of the names. The leases must be released."""
        left = self._client._left(self._request)
        leases = await self._try_all(left)
        return leases if leases is not None else await self._in_order(left)

    def __await__(self) -> Generator[Any, None, Leases[AsyncLease]]:
        return self.acquire().__await__()

    async def _try_all(self, left: Left) -> Leases[AsyncLease] | None:
        """At the same time. None: one is busy, and the call may wait; then nothing is held."""
        sink = self._client._loop_sink(asyncio.get_running_loop())
        options = self._request.with_wait(0)
        leases = Leases([AsyncLease(self._client, name, sink, quietly(self._on_loss)) for name in self._names])
        timer: asyncio.TimerHandle | None = None
        try:
            futures = [lease._start_acquire(options) for lease in leases]
            if left.whole_ms > 0:
                timer = asyncio.get_running_loop().call_later(left.wait_ms() / 1000, tell_all, futures, _errors.TIMEDOUT)
            found = [lease._acquired(await future) for lease, future in zip(leases, futures)]
            failures = failures_of(leases, found)
            call_back(leases, self._on_loss)
            if timer is not None:
                timer.cancel()
            if not give_up(leases, failures, left):
                return leases
        except BaseException:
            drop_all(leases)
            if timer is not None:
                timer.cancel()
            raise
        drop_all(leases)
        return None

    async def _in_order(self, left: Left) -> Leases[AsyncLease]:
        """Waits for each name while it holds only smaller ones, so that nobody waits in a circle."""
        found = list[AsyncLease]()
        try:
            return await self._fill(found, left)  # a function without a try: see failures_of()
        except BaseException as failure:
            drop_failed(found, left, failure)
            raise

    async def _fill(self, found: list[AsyncLease], left: Left) -> Leases[AsyncLease]:
        order = sorted(self._names)
        while len(found) < len(order):
            options = self._request.with_wait(left.wait_ms())
            found.append(await acquire(self._client, order[len(found)], options, quietly(self._on_loss)))
            call_back(found, self._on_loss if len(found) == len(order) else quietly(self._on_loss))
            drop_lost(found, left)
        by_name = dict(zip(order, found))
        return Leases([by_name[name] for name in self._names])

    async def __aenter__(self) -> Leases[AsyncLease]:
        leases = await self.acquire()
        entry = None
        try:
            entry = (asyncio.current_task(), leases)
            self._held.append(entry)
        except BaseException:  # a KeyboardInterrupt
            forget(self._held, entry)
            drop_all(leases)
            raise
        return leases

    @staticmethod
    def _leave(leases: Leases[AsyncLease], kind: type[BaseException] | None, error: BaseException | None,
               trace: TracebackType | None) -> Coroutine[Any, Any, None]:
        held = [lease for lease in leases if lease._phase == HELD]
        return _left_all(held, [lease._start_release() for lease in held], error)

    _drop = staticmethod(drop_all)


async def _left_all(leases: Sequence[AsyncLease], releases: Sequence[Outcome], error: BaseException | None) -> None:
    """All are under way already that could begin. Raises the first failure, after all of them have ended."""
    first: _errors.Error | None = None
    for lease, release in zip(leases, releases):
        try:
            lease._released(await release)
        except _errors.Error as failure:
            lease._drop()  # as in _left()
            first = first or failure
        except BaseException:  # canceled: the releases go on, but those that did not begin would never be tried again
            drop_all(leases)
            raise
    if first is not None and error is None:
        raise first
    if first is not None:
        leases[0]._failed_quietly(first)
