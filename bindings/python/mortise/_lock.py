"""Locks as context managers, for code without asyncio."""
from __future__ import annotations

import time
from collections.abc import Sequence
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING

from . import _errors, _values
from ._lease import RELEASED, Lease, Leases, OnLoss, release_all

if TYPE_CHECKING:
    from ._client import Client


class Lock:
    """A name and how to acquire it: client.lock() makes it, `with` acquires it.

    One Lock may be used by several threads, and again after its block. Each block has a lease of its own.
    """

    __slots__ = ("_client", "_name", "_request", "_on_loss", "_held")

    def __init__(self, client: Client, name: bytes, request: _values.Request, on_loss: OnLoss | None) -> None:
        self._client = client
        self._name = name
        self._request = request
        self._on_loss = on_loss
        self._held: dict[int, list[Lease]] = {}  # by thread

    def __repr__(self) -> str:
        return f"<mortise.Lock {self._name.decode('utf-8', 'backslashreplace')!r}>"

    def acquire(self) -> Lease:
        """Acquires the lock. The lease must be released."""
        return self._client._acquire(self._name, self._request.options, self._request, self._on_loss)

    def __enter__(self) -> Lease:
        lease = self.acquire()
        try:
            self._held.setdefault(get_ident(), []).append(lease)
        except BaseException:  # a KeyboardInterrupt
            drop([lease])
            raise
        return lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        thread = get_ident()
        stack = self._held[thread]
        lease = stack.pop()
        if not stack:
            del self._held[thread]
        lease.__exit__(kind, error, trace)


class LockMany:
    """Several names and how to acquire them: client.lock_many() makes it, `with` acquires all of them, or none."""

    __slots__ = ("_client", "_names", "_request", "_on_loss", "_held")

    def __init__(self, client: Client, names: Sequence[bytes], request: _values.Request, on_loss: OnLoss | None) -> None:
        self._client = client
        self._names = names
        self._request = request
        self._on_loss = on_loss
        self._held: dict[int, list[Leases[Lease]]] = {}

    def acquire(self) -> Leases[Lease]:
        """Acquires all of the names. The leases must be released."""
        return Leases(self._client._acquire_many(self._names, self._request, self._on_loss))

    def __enter__(self) -> Leases[Lease]:
        leases = self.acquire()
        try:
            self._held.setdefault(get_ident(), []).append(leases)
        except BaseException:  # a KeyboardInterrupt
            drop(leases)
            raise
        return leases

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        thread = get_ident()
        stack = self._held[thread]
        leases = stack.pop()
        if not stack:
            del self._held[thread]
        try:
            release_all(leases)
        except _errors.Error as failure:
            if error is None:
                raise
            leases[0]._failed_quietly(failure)


class Left:
    """How much of a wait is left, for an acquire in several steps."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._until = time.monotonic() + wait_ms / 1000

    def wait_ms(self) -> int:
        if self._wait_ms < 0:
            return self._wait_ms
        return max(1, int((self._until - time.monotonic()) * 1000) + 1)


def drop(leases: Sequence[Lease]) -> None:
    """Ends what an acquire of several names has begun."""
    for lease in leases:
        if lease._phase != RELEASED:
            lease._abandon()
