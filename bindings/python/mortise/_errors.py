"""The exceptions: one for each status of the library, and what they have in common."""
from __future__ import annotations

from typing import Any

from ._native import ffi


class Error(Exception):
    """Every failure that the library reports.

    `str(error)` is the library's message: one line that names the server, the lock and the operation.
    """

    status: str = "UNKNOWN"
    """The name of the status in mortise.h, for example "BUSY"."""
    native: int = 0
    """The backend's own code; 0 if it has none."""
    driver: str = ""
    """The module that reports the failure; empty: the core, or this package."""
    retryable: bool = False
    """The same call may succeed later, although nothing was changed."""


class NotAcquired(Error):
    """The lock was not acquired in time: the normal outcome of an acquire that does not wait, or not for longer."""


class Busy(NotAcquired):
    """The lock is held by another, or others wait for it already (timeout=0)."""

    status = "BUSY"


class TimedOut(NotAcquired, TimeoutError):
    """The timeout ended. Either another holder has the lock (the message says "is held by"), or the backend had not answered
    for this call yet (the message says "timed out", or of several names "no answer within the timeout"): it is slow, or it was
    asked for other callers of this process first. Of several names also: one was lost while the others were missing."""

    status = "TIMEDOUT"


class Canceled(Error):
    """The acquire was canceled."""

    status = "CANCELED"


class Lost(Error):
    """The lease was lost: another holder may have overlapped with your last steps."""

    status = "LOST"


class NotOwner(Error):
    """The name is held under another token."""

    status = "NOTOWNER"


class Unreachable(Error, ConnectionError):
    """The backend cannot be reached."""

    status = "UNREACHABLE"


class Indeterminate(Error, ConnectionError):
    """The request was sent, but its reply was lost: it may have been executed."""

    status = "INDETERMINATE"


class NotSupported(Error):
    """This backend cannot do it."""

    status = "NOTSUP"


class ConfigError(Error):
    """The configuration is wrong. The message names the file and the line."""

    status = "CONFIG"


class Invalid(Error, ValueError):
    """A bad value: a name, a ttl, a lease that was released before."""

    status = "INVALID"


class Closed(Error):
    """The client is closed."""

    status = "CLOSED"


class Forked(Error):
    """The client belongs to the parent process: call mortise.open() in the child."""

    status = "FORKED"


class Deadlock(Error):
    """A callback must not wait for a lock."""

    status = "DEADLOCK"


class NoMemory(Error, MemoryError):
    """Out of memory, or no thread could be started."""

    status = "NOMEM"


class BackendError(Error):
    """The backend refused the request."""

    status = "BACKEND"


class Closing(Error):
    """Callbacks of the closed client still run."""

    status = "CLOSING"


for _class in Error.__subclasses__() + NotAcquired.__subclasses__() + [Error]:
    _class.__module__ = "mortise"  # where a program finds it

# By the status numbers of mortise.h, which are part of the ABI.
OK, PENDING = 0, 1
BUSY, TIMEDOUT, LOST, UNREACHABLE, INDETERMINATE, INVALID = -1, -2, -4, -6, -7, -10
CLOSED, FORKED, NOMEM, CLOSING = -11, -12, -14, -16

_CLASSES: tuple[type[Error], ...] = (
    Error, Busy, TimedOut, Canceled, Lost, NotOwner, Unreachable, Indeterminate, NotSupported, ConfigError, Invalid,
    Closed, Forked, Deadlock, NoMemory, BackendError, Closing)


def make(status: int, message: str) -> Error:
    """The exception of a status."""
    kind: type[Error] = _CLASSES[-status] if 0 <= -status < len(_CLASSES) else Error
    error: Error = kind(message)
    return error


def indeterminate(failure: Error) -> Error:
    """The same failure, of a call of which another request may have been executed."""
    error = make(INDETERMINATE, str(failure))
    error.native, error.driver, error.retryable = failure.native, failure.driver, failure.retryable
    return error


def from_native(status: int, detail: Any) -> Error:
    """The exception of a failed call. detail: a mortise_error that the call filled."""
    message: str = ffi.string(detail.message).decode("utf-8", "backslashreplace")
    error = make(status, message or f"status {status}")
    error.native = detail.native
    error.driver = ffi.string(detail.driver).decode("utf-8", "backslashreplace")
    error.retryable = bool(detail.retryable)
    return error


def new_detail() -> Any:
    """A mortise_error for a call to fill."""
    return ffi.new("mortise_error *")
