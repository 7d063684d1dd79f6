"""A lease: the right to a name until it is released or lost."""
from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _errors, _values
from ._block import Keeper, Scope
from ._native import ffi, lib

if TYPE_CHECKING:
    from ._client import Client

NEW, HELD, RELEASED = range(3)
OnLoss = Callable[[Any], object]
AnyLease = TypeVar("AnyLease", bound="BaseLease")
_log = logging.getLogger("mortise")


class BaseLease:
    """What a lease is, whoever waits for it: Lease and AsyncLease."""

    __slots__ = ("_client", "_keeper", "_slot", "_name", "_phase", "_on_loss", "__weakref__")

    def __init__(self, client: Client, name: bytes, sink: Any, key: int, on_loss: OnLoss | None) -> None:
        self._phase = NEW
        # Made before the slot, and freed in C. So a signal handler that raises, here or in __del__, does not lose the slot.
        room = ffi.gc(ffi.new("mpy_slot **"), lib.mpy_slot_free)
        self._keeper = Keeper(room)  # other finalizers of a cycle of garbage may use the slot; see native/block.c
        if not lib.mpy_slot_new(sink, key, room):
            raise MemoryError
        self._slot = room[0]
        self._client = client
        self._name = name
        self._on_loss = on_loss

    def _failure(self, status: int) -> _errors.Error:
        return _errors.from_native(status, lib.mpy_slot_error(self._slot))

    def _drop(self) -> None:
        """Nobody will use this lease: ends what is under way. The memory stays, because another thread may ask at this
        moment."""
        if self._phase != RELEASED:
            self._phase = RELEASED
            lib.mpy_slot_leave(self._slot)

    def __del__(self) -> None:
        if lib is None or getattr(self, "_phase", NEW) != HELD or not self._client._is_usable():
            return  # the interpreter ends, or there is nothing to report
        warnings.warn(f"{self!r} was not released; it is released now", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        state = self.state.name if self._phase == HELD else "NEW" if self._phase == NEW else "RELEASED"
        return f"<mortise.{type(self).__name__} {self.name!r} {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("a lease belongs to its process and cannot be pickled; send its token instead")

    @property
    def name(self) -> str:
        """The name of the lock. Bytes that are not UTF-8 are shown as \\xNN."""
        return self._name.decode("utf-8", "backslashreplace")

    @property
    def token(self) -> int:
        """The fencing token: each exclusive grant has a larger one than all grants of the name before it. Pass it along with
        each write.

        0 if the driver has no tokens, or after the release.
        """
        return int(lib.mpy_token(self._slot))

    @property
    def state(self) -> _values.State:
        """Compares the deadline with the clock, without a request. LOST also after the release."""
        return _values.State(lib.mpy_state(self._slot))

    @property
    def held(self) -> bool:
        """Whether the lease is not LOST."""
        return bool(lib.mpy_state(self._slot))

    @property
    def remaining(self) -> float:
        """The seconds until the deadline, or 0 if the lease is lost."""
        return float(lib.mpy_remaining_ms(self._slot)) / 1000

    @property
    def owner(self) -> str:
        """The owner that was given, or the id of this grant; empty after the release."""
        buffer = ffi.new("char[]", 520)
        lib.mpy_owner(self._slot, buffer, 520)
        return _values.decode(buffer)

    def check(self) -> None:
        """Raises Lost if the lease is lost. Call it before each step that cannot be undone."""
        if lib.mpy_state(self._slot) == 0:
            raise self._lost()

    def _lost(self) -> _errors.Error:
        if self._phase == RELEASED:
            return _errors.make(_errors.LOST, f"the lease of {self.name!r} was released")
        if self._client._forked():
            return _errors.make(_errors.FORKED, "the lease belongs to the parent process")
        return _errors.make(_errors.LOST, f"the lease of {self.name!r} is lost: another holder may have the lock now")

    def _failed_quietly(self, failure: BaseException) -> None:
        """The release failed while another exception leaves the block: that one is the more important."""
        _log.warning("release of %r after an exception: %s", self.name, failure)

    def _released(self, status: int) -> None:
        """Raises what a release ended with."""
        if status not in (_errors.FORKED, _errors.NOMEM):
            self._phase = RELEASED
        if status != _errors.OK:
            raise self._failure(status)

    def release_nowait(self) -> None:
        """Releases the lock without waiting for the backend's answer. Raises Lost if it is known that it was lost."""
        self._released(lib.mpy_release_nowait(self._slot))


class Lease(BaseLease, Scope):
    """The right to a name. As a context manager, it releases the lock at the end of the block."""

    __slots__ = ()

    def __enter__(self) -> Lease:
        return self

    def _leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The end of the block; native/block.c calls it."""
        if self._phase == RELEASED:
            return
        try:
            self._released(lib.mpy_release(self._slot))
        except _errors.Error as failure:
            if error is None:
                raise
            self._failed_quietly(failure)

    def release(self) -> None:
        """Releases the lock and waits for the backend's answer.

        Raises Lost if another holder may have overlapped with your last steps; Indeterminate or Unreachable if the backend
        did not answer (the library repeats the release in the background; the ttl bounds it).
        """
        self._released(lib.mpy_release(self._slot))

    def extend(self, ttl: _values.Duration | None = None) -> None:
        """For a lease with renew=False: lets it last for ttl from now on (None: the ttl of the acquire)."""
        status = lib.mpy_extend(self._slot, _values.ttl_ms(ttl))
        if status != _errors.OK:
            raise self._failure(status)

    def downgrade(self) -> None:
        """Makes an exclusive lease shared, in one step: no other writer comes in between."""
        status = lib.mpy_downgrade(self._slot)
        if status != _errors.OK:
            raise self._failure(status)


class Leases(Sequence[AnyLease]):
    """The leases of several names, in the order in which the names were given."""

    def __init__(self, leases: Sequence[AnyLease]) -> None:
        self._leases = tuple(leases)

    @overload
    def __getitem__(self, index: int) -> AnyLease: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnyLease]: ...

    def __getitem__(self, index: int | slice) -> AnyLease | Sequence[AnyLease]:
        return self._leases[index]

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[AnyLease]:
        return iter(self._leases)

    @property
    def held(self) -> bool:
        """Whether none of them is lost."""
        return all(lease.held for lease in self._leases)

    def check(self) -> None:
        """Raises Lost if one of them is lost."""
        for lease in self._leases:
            lease.check()


def drop_all(leases: Sequence[BaseLease]) -> None:
    """Ends what an acquire of several names has begun, or what is still held."""
    for lease in leases:
        lease._drop()


def release_all(leases: Sequence[Lease]) -> None:
    """Releases all of them at the same time, and waits for all answers. Raises the first failure."""
    held = [lease for lease in leases if lease._phase == HELD]
    detail = _errors.new_detail()
    status = lib.mpy_release_many([lease._slot for lease in held], len(held), detail)
    for lease in held:
        if status != _errors.FORKED:
            lease._phase = RELEASED
    if status != _errors.OK:
        raise _errors.from_native(status, detail)
