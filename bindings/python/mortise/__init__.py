"""Distributed locks: one API, and a config names the backend.

    import mortise

    client = mortise.open("redis://redis.example")      # or a config file, or no argument
    with client.lock("nightly", timeout=5) as lease:    # raises TimedOut, Unreachable, …
        lease.check()                                   # raises Lost: before each step that cannot be undone
        write(row, token=lease.token)

For asyncio: `async with client.alock("nightly") as lease:`.
"""
try:
    from ._native import ffi as _ffi
    from ._native import lib as _lib
except ImportError as _problem:
    raise ImportError(f"{_problem}: the package mortise has no library for this Python; install its wheel, or build it "
                      "(docs/python.md)") from _problem
from ._client import Client, open
from ._errors import (BackendError, Busy, Canceled, Closed, Closing, ConfigError, Deadlock, Error, Forked, Indeterminate,
                      Invalid, Lost, NoMemory, NotAcquired, NotOwner, NotSupported, TimedOut, Unreachable)
from ._lease import BaseLease, Lease, Leases
from ._lock import Lock, LockMany
from ._values import THIS_THREAD, Info, State, Stats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._aio import AsyncLease as AsyncLease
    from ._aio import AsyncLock as AsyncLock
    from ._aio import AsyncLockMany as AsyncLockMany

__version__: str = _ffi.string(_lib.mortise_version()).decode()

__all__ = [
    "THIS_THREAD", "AsyncLease", "AsyncLock", "AsyncLockMany", "BackendError", "BaseLease", "Busy", "Canceled", "Client",
    "Closed", "Closing", "ConfigError", "Deadlock", "Error", "Forked", "Indeterminate", "Info", "Invalid", "Lease", "Leases",
    "Lock", "LockMany", "Lost", "NoMemory", "NotAcquired", "NotOwner", "NotSupported", "State", "Stats", "TimedOut",
    "Unreachable", "open",
]

if not TYPE_CHECKING:
    def __getattr__(name):  # asyncio takes longer to import than all of this, so it is imported at the first use
        if name in ("AsyncLease", "AsyncLock", "AsyncLockMany"):
            from . import _aio

            return getattr(_aio, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
