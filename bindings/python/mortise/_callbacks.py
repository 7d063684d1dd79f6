"""The thread that calls on_loss of leases that were acquired without asyncio.

A client starts it with the first on_loss, and it ends when the client is closed. It knows the leases by weak references,
so a forgotten lease is still collected."""
from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ._lease import RELEASED, Lease, OnLoss
from ._native import ffi, lib

if TYPE_CHECKING:
    from ._client import Client

ROOM = 64  # events at a time
_logger = logging.getLogger("mortise")


class Callbacks:
    """The events of a client that no event loop waits for."""

    def __init__(self, handle: Any, fd: int) -> None:
        sink = lib.mpy_sink_new(handle)
        if not sink:
            raise MemoryError
        self._sink = ffi.gc(sink, lib.mpy_sink_drop)
        self._leases: weakref.WeakValueDictionary[int, Lease] = weakref.WeakValueDictionary()
        self._thread = threading.Thread(target=_run, args=(self._sink, fd, self._leases), name="mortise-callbacks",
                                        daemon=True)
        self._thread.start()

    def new_lease(self, client: Client, name: bytes, key: int, on_loss: OnLoss) -> Lease:
        lease = Lease(client, name, self._sink, key, on_loss)
        self._leases[key] = lease
        return lease

    def stop(self) -> None:
        """The client was closed: the thread sees that, and ends."""
        lib.mpy_sink_end(self._sink)
        if threading.current_thread() is not self._thread:
            self._thread.join(5)


def _run(sink: Any, fd: int, leases: weakref.WeakValueDictionary[int, Lease]) -> None:
    events = ffi.new("mpy_event[]", ROOM)
    count = 0
    while count >= 0:
        if count < ROOM:
            lib.mpy_sink_wait(sink, fd, -1)
        count = lib.mpy_collect(sink, events, ROOM)
        for i in range(count):
            if events[i].what & lib.MPY_STATE and events[i].state == 0:
                _tell(leases.get(events[i].key))


def _tell(lease: Lease | None) -> None:
    if lease is None or lease._on_loss is None or lease._phase == RELEASED:
        return
    try:
        lease._on_loss(lease)
    except Exception:
        _logger.exception("on_loss of %r failed", lease.name)
