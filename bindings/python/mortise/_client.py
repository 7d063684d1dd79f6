"""The client: a connection to the backend that a config names, and everything that begins with it."""
from __future__ import annotations

import builtins
import itertools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _errors, _values
from . import _log as _log
from ._block import Keeper, Scope
from ._callbacks import Callbacks
from ._exit import open_clients, opened, stay_if_exiting
from ._lease import HELD, Lease, Leases, OnLoss, drop_all
from ._lock import Left, Lock, LockMany, call_back, drop_failed, drop_lost, failure_of, give_up, quietly
from ._native import ffi, lib
from ._values import WAIT_DEFAULT, Duration, Info, Name, Owner, Request, Stats, Where

if TYPE_CHECKING:
    import asyncio

    from ._aio import AsyncLock, AsyncLockMany, LoopSink

SLICE_MS = 100  # how soon the main thread looks for a signal that another thread got
Function = TypeVar("Function", bound=Callable[..., Any])

_keys = itertools.count(1)


class Client(Scope):
    """A client of the lock service. Make it with mortise.open(); one for a process is enough.

    All methods may be called from any thread. As a context manager it closes itself at the end of the block.
    """

    def __init__(self, where: Where | None = None) -> None:
        self._handle: Any = ffi.NULL
        self._pid = os.getpid()
        self._listens = False  # see _listen()
        self._closed = self._detached = True
        self._lock = threading.RLock()  # guards objects that are made at their first use; a signal handler may come in between
        self._callbacks: Callbacks | None = None
        self._loops: dict[asyncio.AbstractEventLoop, LoopSink] = {}
        self._sinks: weakref.WeakValueDictionary[int, LoopSink] = weakref.WeakValueDictionary()  # also of loops that were closed
        text = _values.encode_where(where)
        room = ffi.new("mortise_client **")
        detail = _errors.new_detail()

        try:
            status = lib.mpy_open(text, room, detail)
            if status != _errors.OK:
                raise _errors.from_native(status, detail)
            self._handle = room[0]
            opened(self)
            self._closed = self._detached = False
        except BaseException:  # a KeyboardInterrupt
            if room[0]:
                lib.mpy_close(room[0], detail)
            raise

    # ---- its life ----

    def close(self) -> None:
        """Releases what is held, ends all waits (with Closed), and closes the connections.

        Raises Unreachable if something could not be released in time; it ends with its ttl. Closing twice does nothing.
        """
        if self._forked():
            raise _errors.make(_errors.FORKED, "the client belongs to the parent process")
        if self._detached:
            return
        detail = _errors.new_detail()
        begun, status = False, _errors.CLOSING
        try:
            begun = True  # no signal handler runs between this and the call
            status = lib.mpy_close(self._handle, detail)
        finally:
            if begun:
                self._detach(status in (_errors.OK, _errors.UNREACHABLE, _errors.CLOSED))
        if status not in (_errors.OK, _errors.CLOSED):
            raise _errors.from_native(status, detail)

    def _detach(self, over: bool) -> None:
        """Called after the close: all threads that wait for events get the last ones. Several threads may close at the same time.
        over: no callback of the library runs any more."""
        self._closed = True
        try:
            if self._callbacks is not None:
                self._callbacks.stop(over)
        finally:
            for sink in [*self._loops.values(), *filter(None, [ref() for ref in self._sinks.valuerefs()])]:
                sink.stop(over)  # in __del__ there may be no weak references any more
            self._listens = False
            open_clients.discard(self)
        self._detached = True  # if a signal handler raises before, the next close() does it again

    def __enter__(self) -> Client:
        return self

    def _leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The end of the block; native/block.c calls it."""
        try:
            self.close()
        except _errors.Error:
            if error is None:
                raise

    def _drop(self) -> None:
        """_leave() was interrupted."""
        try:
            self.close()
        except _errors.Error:
            pass

    async def aclose(self) -> None:
        """As close(), without blocking the event loop."""
        from ._aio import in_thread

        await in_thread(self.close)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        try:
            await self.aclose()
        except _errors.Error:
            if error is None:
                raise

    def __del__(self) -> None:
        if lib is None or getattr(self, "_closed", True) or self._forked():
            return
        try:
            warnings.warn(f"{self!r} was not closed; it is closed now", ResourceWarning, 2, self)
        finally:
            try:
                self.close()
            except _errors.Error:
                pass

    def __repr__(self) -> str:
        if self._closed or self._forked():
            return f"<mortise.Client {'of the parent process' if self._forked() else 'closed'}>"
        return f"<mortise.Client {self.source!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a client belongs to its process and cannot be pickled: call mortise.open() in the other process")

    def _forked(self) -> bool:
        return os.getpid() != self._pid

    def _is_usable(self) -> bool:
        return not self._closed and not self._forked()

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    # ---- locks ----

    def lock(self, name: Name, *, timeout: Duration | None = None, ttl: Duration | None = None, shared: bool = False,
             permits: int = 0, owner: Owner | None = None, renew: bool = True, max_hold: Duration | None = None,
             on_loss: Callable[[Lease], object] | None = None) -> Lock:
        """A lock for a `with` block, which gets the lease: `with client.lock("nightly") as lease:`.

        timeout: how long to wait, in seconds: 0 tries once (Busy), math.inf waits for ever; None: the config's `wait`.
        ttl: how long a crashed holder blocks others; None: the config's `ttl`.
        shared: any number of shared leases hold the name together. permits=n: at most n of them.
        owner: leases with the same owner share the lock; THIS_THREAD: the thread is the owner.
        renew=False: the lease ends after its ttl, unless you extend it. max_hold: it is not renewed for longer.
        on_loss: called with the lease, on a thread for callbacks, when the lease is lost.

        The block raises Lost at its end if another holder may have overlapped.
        """
        return Lock(self, _values.encode(name, "the name"),
                    _values.request(timeout, ttl, shared, permits, owner, renew, max_hold), _values.callback(on_loss))

    def acquire(self, name: Name, *, timeout: Duration | None = None, ttl: Duration | None = None, shared: bool = False,
                permits: int = 0, owner: Owner | None = None, renew: bool = True, max_hold: Duration | None = None,
                on_loss: Callable[[Lease], object] | None = None) -> Lease:
        """Acquires a lock without a block: the lease must be released. The arguments are those of lock()."""
        request = _values.request(timeout, ttl, shared, permits, owner, renew, max_hold)
        return self._acquire(_values.encode(name, "the name"), request.options, request, _values.callback(on_loss))

    def try_lock(self, name: Name, *, ttl: Duration | None = None, shared: bool = False, permits: int = 0,
                 owner: Owner | None = None, renew: bool = True, max_hold: Duration | None = None,
                 on_loss: Callable[[Lease], object] | None = None) -> Lease | None:
        """Tries once. Returns None if the lock is held by another; raises on any other failure.

            if lease := client.try_lock("nightly"):
                with lease: ...
        """
        request = _values.request(0, ttl, shared, permits, owner, renew, max_hold)
        try:
            return self._acquire(_values.encode(name, "the name"), request.options, request, _values.callback(on_loss))
        except _errors.Busy:
            return None

    def lock_many(self, names: Iterable[Name], *, timeout: Duration | None = None, ttl: Duration | None = None,
                  shared: bool = False, permits: int = 0, owner: Owner | None = None, renew: bool = True,
                  max_hold: Duration | None = None, on_loss: Callable[[Lease], object] | None = None) -> LockMany:
        """Several names for one `with` block: all or none, within one timeout. The block gets the leases, in the order of
        the names. Callers that want some of the same names do not wait for each other for ever."""
        return LockMany(self, _values.encode_names(names), _values.request(timeout, ttl, shared, permits, owner, renew, max_hold),
                        _values.callback(on_loss))

    def locked(self, name: str | Callable[..., Name], *, timeout: Duration | None = None, ttl: Duration | None = None,
               shared: bool = False, permits: int = 0, owner: Owner | None = None, renew: bool = True,
               max_hold: Duration | None = None, lease: str | None = None) -> Callable[[Function], Function]:
        """A decorator: the function, sync or async, runs under a lock.

        name: with the function's arguments in it, as "job:{id}" or "user:{user.id}"; or a function that gets the
        arguments and returns the name. lease: the name of the argument by which the function gets the lease.
        """
        from ._decorator import decorate

        return decorate(self, name, _values.request(timeout, ttl, shared, permits, owner, renew, max_hold), lease)

    # ---- locks for asyncio ----

    def alock(self, name: Name, *, timeout: Duration | None = None, ttl: Duration | None = None, shared: bool = False,
              permits: int = 0, owner: Owner | None = None, renew: bool = True, max_hold: Duration | None = None,
              on_loss: Callable[[Any], object] | None = None) -> AsyncLock:
        """As lock(), for `async with`, or for `lease = await client.alock(name)`. on_loss is called in the event loop."""
        from ._aio import AsyncLock

        return AsyncLock(self, _values.encode(name, "the name"),
                         _values.request(timeout, ttl, shared, permits, owner, renew, max_hold), _values.callback(on_loss))

    def alock_many(self, names: Iterable[Name], *, timeout: Duration | None = None, ttl: Duration | None = None,
                   shared: bool = False, permits: int = 0, owner: Owner | None = None, renew: bool = True,
                   max_hold: Duration | None = None, on_loss: Callable[[Any], object] | None = None) -> AsyncLockMany:
        """As lock_many(), for `async with`."""
        from ._aio import AsyncLockMany

        return AsyncLockMany(self, _values.encode_names(names),
                             _values.request(timeout, ttl, shared, permits, owner, renew, max_hold), _values.callback(on_loss))

    def _loop_sink(self, loop: asyncio.AbstractEventLoop) -> LoopSink:
        """What the event loop hears from this client."""
        self._forget_loops()
        found = self._loops.get(loop)
        if found is not None:
            return found
        from ._aio import LoopSink

        self._check_usable()
        try:
            found = LoopSink(self, loop)
            found.start()
            self._loops[loop] = found
        except BaseException:  # a KeyboardInterrupt, or a loop that cannot watch descriptors
            self._loops.pop(loop, None)
            if found is not None:
                found.detach()
            raise
        if self._closed:  # the client was closed meanwhile
            found.stop()
        return found

    def _forget_loops(self) -> None:
        """Ends what was under way in event loops that were closed."""
        for loop, sink in list(self._loops.items()):
            if loop.is_closed():
                sink.stop()
                self._loops.pop(loop, None)  # not earlier: a signal handler may have raised

    # ---- how they are acquired ----

    def _check_usable(self) -> None:
        if self._forked():
            raise _errors.make(_errors.FORKED, "the client belongs to the parent process: call mortise.open() here")
        if self._closed:
            raise _errors.make(_errors.CLOSED, "the client is closed")

    def _listen(self) -> None:
        """From now on, callbacks come by dispatching only."""
        if not self._listens:
            self._check_usable()
            status = lib.mpy_listen(self._handle)
            if status != _errors.OK:
                raise _errors.make(status, "there is no descriptor for the client's events")
            self._listens = True

    def _new_sink(self) -> tuple[Keeper, Any]:
        """The sink, and what must live as long."""
        self._listen()
        room = ffi.gc(ffi.new("mpy_sink **"), lib.mpy_sink_drop)  # before there is a sink: a signal handler may raise
        keeper = Keeper(room)  # as for a lease
        status = lib.mpy_sink_new(self._handle, room)
        if status != _errors.OK:
            raise _errors.make(status, "there is no descriptor for the client's events")
        return keeper, room[0]

    def _new_lease(self, name: bytes, on_loss: OnLoss | None) -> Lease:
        self._forget_loops()
        if on_loss is None:
            return Lease(self, name, ffi.NULL, 0, None)
        callbacks = self._callbacks
        if callbacks is None or not callbacks.started:  # a signal handler may have raised between making and starting it
            self._check_usable()  # not the lock of the parent process: another thread may have held it
            with self._lock:
                callbacks = self._callbacks = self._callbacks or Callbacks(self)
                callbacks.start()
        return callbacks.new_lease(self, name, next(_keys), on_loss)

    def _acquire(self, name: bytes, options: Any, request: Request, on_loss: OnLoss | None) -> Lease:
        """`request` keeps alive what the options point to."""
        lease = self._new_lease(name, on_loss)
        watch = on_loss is not None
        try:
            if threading.get_ident() != threading.main_thread().ident:
                status = lib.mpy_acquire(self._handle, lease._slot, name, options, watch)
            else:  # the only thread that handles signals
                self._listen()
                status = lib.mpy_acquire_main(self._handle, lease._slot, name, options, watch, SLICE_MS)
                while status == _errors.PENDING:
                    status = lib.mpy_await(self._handle, lease._slot, SLICE_MS)
            if status == _errors.OK:
                lease._phase = HELD
                return lease
            if status == _errors.CLOSED:
                stay_if_exiting()
            raise lease._failure(status)
        except BaseException:
            lease._drop()
            raise

    def _left(self, request: Request) -> Left:
        """The clock of an acquire in several steps starts."""
        wait = request.wait_ms
        return Left(wait if wait != WAIT_DEFAULT else int(lib.mortise_default_wait_ms(self._handle)))

    def _acquire_many(self, names: Sequence[bytes], request: Request, on_loss: OnLoss | None) -> Leases[Lease]:
        left = self._left(request)
        leases = Leases([self._new_lease(name, quietly(on_loss)) for name in names])
        try:
            if threading.get_ident() == threading.main_thread().ident:
                if not self._try_many(leases, names, request, on_loss, left):
                    return self._acquire_in_order(names, request, on_loss, left)
            elif on_loss is None:
                self._acquire_together(leases, names, request)
            else:
                return self._acquire_in_order(names, request, on_loss, left)
            for lease in leases:
                lease._phase = HELD
            return leases
        except BaseException:
            drop_all(leases)
            raise

    def _acquire_together(self, leases: Sequence[Lease], names: Sequence[bytes], request: Request) -> None:
        detail = _errors.new_detail()
        texts = [ffi.new("char[]", name) for name in names]
        status = lib.mpy_acquire_many(self._handle, [lease._slot for lease in leases], texts, len(texts), request.options,
                                      detail)
        if status == _errors.CLOSED:
            stay_if_exiting()
        if status != _errors.OK:
            raise _errors.from_native(status, detail)

    def _try_many(self, leases: Sequence[Lease], names: Sequence[bytes], request: Request,
                  on_loss: OnLoss | None, left: Left) -> bool:
        """Tries all of them at once, so that the main thread still hears signals. False: one is busy, and the call may
        wait; then nothing is held."""
        self._listen()
        options = request.with_wait(0)
        failures: builtins.list[_errors.Error] = []
        for lease, name in zip(leases, names):
            status = lib.mpy_acquire_start(self._handle, lease._slot, name, options, on_loss is not None, False)
            if status != _errors.OK:
                raise lease._failure(status)
        slice_ms = SLICE_MS
        for lease in leases:
            status = _errors.PENDING
            while status == _errors.PENDING:
                status = lib.mpy_await(self._handle, lease._slot, slice_ms)
                if status == _errors.PENDING and left.ends_a_try():
                    status, slice_ms = _errors.TIMEDOUT, 0  # the others have had that time too
            if status != _errors.OK:
                failures.append(failure_of(lease, status))
        call_back(leases, on_loss)
        if not give_up(leases, failures, left):
            return True
        drop_all(leases)
        return False

    def _acquire_in_order(self, names: Sequence[bytes], request: Request, on_loss: OnLoss | None,
                          left: Left) -> Leases[Lease]:
        """Waits for each name while it holds only smaller ones, so that nobody waits in a circle."""
        found = builtins.list[Lease]()
        try:
            return self._fill(found, names, request, on_loss, left)  # a function without a try: see failures_of()
        except BaseException as failure:
            drop_failed(found, left, failure)
            raise

    def _fill(self, found: builtins.list[Lease], names: Sequence[bytes], request: Request,
              on_loss: OnLoss | None, left: Left) -> Leases[Lease]:
        order = sorted(names)
        while len(found) < len(order):
            options = request.with_wait(left.wait_ms())
            found.append(self._acquire(order[len(found)], options, request, quietly(on_loss)))
            call_back(found, on_loss if len(found) == len(order) else quietly(on_loss))
            drop_lost(found, left)
        by_name = dict(zip(order, found))
        return Leases([by_name[name] for name in names])

    # ---- questions ----

    def inspect(self, name: Name) -> Info:
        """What the backend knows about a name: see Info.held."""
        info, detail = ffi.new("mortise_info *"), _errors.new_detail()
        status = lib.mpy_inspect(self._handle, _values.encode(name, "the name"), info, detail)
        if status != _errors.OK:
            raise _errors.from_native(status, detail)
        return _values.make_info(info)

    def list(self, prefix: Name = "") -> builtins.list[Info]:
        """All held names that begin with prefix, in the order of their bytes."""
        return self._list(_values.encode(prefix, "the prefix"), True)

    def holders(self, name: Name) -> Sequence[Info]:
        """All leases that hold a name, in the order of their tokens."""
        return self._list(_values.encode(name, "the name"), False)

    def _list(self, text: bytes, names: bool) -> builtins.list[Info]:
        infos, count, detail = ffi.new("mortise_info **"), ffi.new("size_t *"), _errors.new_detail()
        try:
            status = lib.mpy_list(self._handle, text, names, infos, count, detail)
            if status != _errors.OK:
                raise _errors.from_native(status, detail)
            return [_values.make_info(infos[0] + i) for i in range(count[0])]
        finally:
            lib.mpy_free(infos[0])

    def break_(self, name: Name, token: int) -> None:
        """For operators: ends the lease of another holder, if it has this token (see inspect()).

        Raises NotOwner if the holder has changed, and Lost if nobody holds the name.
        """
        if not isinstance(token, int) or isinstance(token, bool):
            raise TypeError(f"token must be an int, not {type(token).__name__}")
        if not 0 <= token < 2**64:
            raise _errors.make(_errors.INVALID, f"no lease can have the token {token}")
        detail = _errors.new_detail()
        status = lib.mortise_break(self._handle, _values.encode(name, "the name"), token, detail)
        if status != _errors.OK:
            raise _errors.from_native(status, detail)

    def ping(self) -> str:
        """Checks that the backend answers. Returns a line about it, with what the driver found out about its settings."""
        text, detail = ffi.new("char[]", lib.MORTISE_PING_SIZE), _errors.new_detail()
        status = lib.mortise_ping(self._handle, text, lib.MORTISE_PING_SIZE, detail)
        if status != _errors.OK:
            raise _errors.from_native(status, detail)
        return _values.decode(text)

    def stats(self) -> Stats:
        """Counters since mortise.open()."""
        stats = ffi.new("mortise_stats *")
        status = lib.mpy_stats(self._handle, stats)
        if status != _errors.OK:
            self._check_usable()
            raise _errors.make(status, "there are no counters")
        return Stats(*(getattr(stats, field) for field in Stats._fields))

    @property
    def capabilities(self) -> frozenset[str]:
        """What the backend can promise with this config: "fencing", "fair", "shared", …  Empty if the client is closed."""
        bits = lib.mortise_capabilities(self._handle)
        return frozenset(word for bit, word in enumerate(_values.CAPABILITIES) if bits >> bit & 1)

    @property
    def source(self) -> str:
        """Where the configuration came from: a path, a URL without secrets, or "built-in defaults"."""
        if not self._is_usable():
            return ""
        text = lib.mortise_config_source(self._handle)
        return _values.decode(text) if text else ""


def open(where: Where | None = None) -> Client:
    """Opens a client.

    where: the path of a config file, or a URL whose scheme names the driver, such as "redis://redis.example" or
    "sqlite:/srv/locks.db?ttl=10s". None: $MORTISE_CONFIG, or the user's or the system's config file.

    An unreachable server is no error here; the calls that need it raise Unreachable. Raises ConfigError.
    """
    return Client(where)
