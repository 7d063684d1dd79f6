"""The thread that calls on_loss of leases that were acquired without asyncio.

A client starts it with the first on_loss, and it ends when the client is closed. It knows the leases by weak references,
so a forgotten lease is still collected."""
from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ._block import Keeper
from ._lease import RELEASED, Lease, OnLoss
from ._native import ffi, lib

if TYPE_CHECKING:
    from ._client import Client

_logger = logging.getLogger("mortise")
STOP_S = 5  # how long close() waits for an on_loss that runs


class Callbacks:
    """The events of a client that no event loop waits for."""

    def __init__(self, client: Client) -> None:
        self._keeper, self._sink = client._new_sink()
        self._leases: weakref.WeakValueDictionary[int, Lease] = weakref.WeakValueDictionary()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=_run, args=(self._keeper, self._sink, self._leases, self._ended),
                                        name="mortise-callbacks", daemon=True)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        """Starts the thread, if it has not been started."""
        if not self.started and not self._ended.is_set():
            self._thread.start()

    def new_lease(self, client: Client, name: bytes, key: int, on_loss: OnLoss) -> Lease:
        lease = Lease(client, name, self._sink, key, on_loss)
        self._leases[key] = lease
        return lease

    def stop(self, over: bool) -> None:
        """The client was closed: the thread ends. An on_loss that runs may end, and no further one begins.
        over: see Client._detach()."""
        self._ended.set()
        lib.mpy_sink_end(self._sink, over)
        if threading.current_thread() is self._thread or self._thread.ident is None:
            return
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            _logger.warning("an on_loss still runs, although the client is closed")


def _run(_keeper: Keeper, sink: Any, leases: weakref.WeakValueDictionary[int, Lease], ended: threading.Event) -> None:
    batch = ffi.new("mpy_batch *")
    count = 0
    while count >= 0 and not ended.is_set():
        lib.mpy_sink_wait(sink)
        count = lib.mpy_collect(sink, batch)
        for i in range(count):
            if ended.is_set():
                return
            event = batch.events[i]
            if event.what & lib.MPY_STATE and event.state == 0:
                _tell(leases.get(event.key))
        batch.done = batch.count
        lib.mpy_collected(sink)


def _tell(lease: Lease | None) -> None:
    if lease is None or lease._on_loss is None or lease._phase == RELEASED:
        return
    try:
        lease._on_loss(lease)
    except BaseException:  # also sys.exit(): this thread calls the others
        _logger.exception("on_loss of %r failed", lease.name)
