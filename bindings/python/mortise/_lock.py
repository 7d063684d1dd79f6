"""Locks as context managers, for code without asyncio."""
from __future__ import annotations

import time
from collections.abc import Sequence
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _errors, _values
from ._block import Block
from ._lease import AnyLease, BaseLease, Lease, Leases, OnLoss, drop_all, release_all

if TYPE_CHECKING:
    from ._client import Client


class Lock(Block):
    """A name and how to acquire it: client.lock() makes it, `with` acquires it.

    One Lock may be used by several threads, and again after its block. Each block has a lease of its own.
    """

    __slots__ = ("_client", "_name", "_request", "_on_loss", "_held")
    _key = staticmethod(get_ident)
    _leave = staticmethod(Lease._leave)
    _drop = staticmethod(Lease._drop)

    def __init__(self, client: Client, name: bytes, request: _values.Request, on_loss: OnLoss | None) -> None:
        self._client = client
        self._name = name
        self._request = request
        self._on_loss = on_loss
        self._held: list[tuple[int, Lease]] = []  # the blocks, by thread; see native/block.c

    def __repr__(self) -> str:
        return f"<mortise.Lock {self._name.decode('utf-8', 'backslashreplace')!r}>"

    def acquire(self) -> Lease:
        """Acquires the lock. The lease must be released."""
        return self._client._acquire(self._name, self._request.options, self._request, self._on_loss)

    def __enter__(self) -> Lease:
        lease = self._client._acquire(self._name, self._request.options, self._request, self._on_loss)
        entry = None
        try:
            entry = (get_ident(), lease)
            self._held.append(entry)
        except BaseException:  # a KeyboardInterrupt
            forget(self._held, entry)
            lease._drop()
            raise
        return lease


class LockMany(Block):
    """Several names and how to acquire them: client.lock_many() makes it, `with` acquires all of them, or none."""

    __slots__ = ("_client", "_names", "_request", "_on_loss", "_held")
    _key = staticmethod(get_ident)

    def __init__(self, client: Client, names: Sequence[bytes], request: _values.Request, on_loss: OnLoss | None) -> None:
        self._client = client
        self._names = names
        self._request = request
        self._on_loss = on_loss
        self._held: list[tuple[int, Leases[Lease]]] = []

    def acquire(self) -> Leases[Lease]:
        """Acquires all of the names. The leases must be released."""
        return self._client._acquire_many(self._names, self._request, self._on_loss)

    def __enter__(self) -> Leases[Lease]:
        leases = self._client._acquire_many(self._names, self._request, self._on_loss)
        entry = None
        try:
            entry = (get_ident(), leases)
            self._held.append(entry)
        except BaseException:  # a KeyboardInterrupt
            forget(self._held, entry)
            drop_all(leases)
            raise
        return leases

    @staticmethod
    def _leave(leases: Leases[Lease], kind: type[BaseException] | None, error: BaseException | None,
               trace: TracebackType | None) -> None:
        try:
            release_all(leases)
        except _errors.Error as failure:
            if error is None:
                raise
            leases[0]._failed_quietly(failure)

    _drop = staticmethod(drop_all)


def forget(held: list[Any], entry: object) -> None:
    """After an interrupt at the beginning of a block: it has no end."""
    for i in range(len(held) - 1, -1, -1):
        if held[i] is entry:
            del held[i]
            return


class Left:
    """How much of a wait is left, for an acquire in several steps."""

    def __init__(self, wait_ms: int) -> None:
        self.whole_ms = wait_ms
        self.unsure = False  # a request of an earlier step may have been executed, or may still be
        self._until = time.monotonic() + wait_ms / 1000

    def wait_ms(self) -> int:
        if self.whole_ms <= 0:
            return self.whole_ms
        return max(1, int((self._until - time.monotonic()) * 1000) + 1)

    def is_over(self) -> bool:
        return 0 <= self.whole_ms and self._until <= time.monotonic()

    def ends_a_try(self) -> bool:
        """A try that is not the first step of a wait lasts as long as the driver's time-outs let it."""
        return self.whole_ms != 0 and self.is_over()


def quietly(on_loss: OnLoss | None) -> OnLoss | None:
    """For the leases of several names, until all are there: the program does not know them yet."""
    return None if on_loss is None else _ignore


def _ignore(lease: BaseLease) -> None:
    pass


def call_back(leases: Sequence[BaseLease], on_loss: OnLoss | None) -> None:
    """This reports no loss that came before it, so look at the leases afterwards."""
    for lease in leases:
        lease._on_loss = on_loss


def _lost_meanwhile(status: int, lease: BaseLease) -> _errors.Error:
    return _errors.make(status, f"the lease of {lease.name!r} was lost while the others were missing")


def failures_of(leases: Sequence[BaseLease], found: Sequence[int]) -> list[_errors.Error]:
    """By the statuses. A function of its own: a signal at the end of such a loop passes by a `try` around it in Python 3.13."""
    return [failure_of(lease, status) for lease, status in zip(leases, found) if status != _errors.OK]


def failure_of(lease: BaseLease, status: int) -> _errors.Error:
    """After a try. The library gives no TIMEDOUT then; it is of who awaits the try."""
    if status == _errors.TIMEDOUT:
        return _errors.make(status, f"{lease.name!r}: no answer within the timeout")
    return lease._failure(status)


def _excludes_effects(failure: BaseException) -> bool:
    """It says that no request of the call lasts, or is under way, and that the call may succeed later."""
    return isinstance(failure, _errors.Unreachable) or (isinstance(failure, _errors.BackendError) and failure.retryable)


def give_up(leases: Sequence[BaseLease], failures: list[_errors.Error], left: Left) -> bool:
    """After a try of several names at once: False if all are held; True if waiting may mend what is missing; else raises."""
    if not failures:
        failures = [_lost_meanwhile(_errors.BUSY, lease) for lease in leases if not lease.held]
    unsure = [failure for failure in failures if isinstance(failure, _errors.Indeterminate)]
    for failure in failures:
        if left.whole_ms == 0:
            raise unsure[0] if unsure and _excludes_effects(failure) else failure
        if not isinstance(failure, (_errors.Busy, _errors.Indeterminate)) and not _excludes_effects(failure):
            raise failure
    left.unsure = bool(unsure)
    return bool(failures)


def drop_failed(found: Sequence[BaseLease], left: Left, failure: BaseException) -> None:
    """The steps after that try have failed, and the caller raises this, unless it would deny that something may be left of it."""
    drop_all(found)
    if left.unsure and isinstance(failure, _errors.Error) and _excludes_effects(failure):
        raise _errors.indeterminate(failure)


def drop_lost(found: list[AnyLease], left: Left) -> None:
    """One was lost while the call waited for a larger name: that one and those behind it are acquired again."""
    for i, lease in enumerate(found):
        if not lease.held:
            if left.is_over():
                raise _lost_meanwhile(_errors.BUSY if left.whole_ms == 0 else _errors.TIMEDOUT, lease)
            drop_all(found[i:])
            del found[i:]
            return
