"""Values on their way to the library and back: names, durations, options, and what the backend knows about a name.

Everything that comes from a program is checked here, so that the library never sees a text that C would cut at a zero
byte, or a number that does not fit."""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple, Union

from . import _errors
from ._native import ffi

Name = Union[str, bytes]
Duration = Union[float, timedelta]
Where = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

WAIT_FOREVER, WAIT_DEFAULT = -1, -2
WAIT_MAX_MS = 31_536_000_000  # a year: longer waits are as good as this one
INT64_MAX = 2**63 - 1
MANY_MAX = 256  # MORTISE_MANY_MAX
THREAD_OWNER = b"\001thread"  # MORTISE_OWNER_THREAD


class State(IntEnum):
    """The state of a lease."""

    LOST = 0
    """You do not hold it, or it is uncertain: stop. Final."""
    SUSPECT = 1
    """You still hold it, but a renewal failed and the deadline does not move."""
    HELD = 2
    """You hold it."""

    def __str__(self) -> str:
        return self.name


class _ThisThread:
    """The owner is the thread that acquires; see mortise.THIS_THREAD."""

    def __repr__(self) -> str:
        return "mortise.THIS_THREAD"


THIS_THREAD = _ThisThread()
"""owner=THIS_THREAD: the leases of one thread share the lock, as with threading.RLock."""

Owner = Union[str, bytes, _ThisThread]


def _invalid(what: str) -> _errors.Error:
    return _errors.make(_errors.INVALID, what)


def encode(value: Name, what: str) -> bytes:
    """The bytes of a name, a prefix or an owner."""
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            raise _invalid(f"{what} {value!r} has a surrogate: a str must be Unicode text (bytes may be anything)") from None
    elif not isinstance(value, bytes):
        raise TypeError(f"{what} must be str or bytes, not {type(value).__name__}")
    if b"\0" in value:
        raise _invalid(f"{what} {value!r} has a zero byte: C would use only the part before it")
    return value


def encode_where(where: Where | None) -> Any:
    """What mortise_open() gets."""
    if where is None:
        return ffi.NULL
    try:
        text = os.fsencode(where)
    except UnicodeEncodeError:
        raise _invalid(f"where {where!r} has a surrogate: a str must be Unicode text") from None
    except TypeError:
        raise TypeError(f"where must be a path or a URL (str, bytes or os.PathLike), not {type(where).__name__}") from None
    return encode(text, "where")


def decode(text: Any) -> str:
    return bytes(ffi.string(text)).decode("utf-8", "backslashreplace")


def milliseconds(value: Duration, what: str, hint: str = "") -> int:
    """Rounded up. Not negative; may be longer than an int64."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf if value > 0 else -math.inf
    else:
        raise TypeError(f"{what} must be seconds (int or float) or a timedelta, not {type(value).__name__}")
    if math.isnan(seconds):
        raise _invalid(f"{what} is not a number")
    if seconds < 0:
        raise _invalid(f"{what} {value!r} is negative{hint}")
    if seconds > 1e15:
        return 10**18
    return math.ceil(round(seconds * 1000, 6))


def wait_ms(timeout: Duration | None) -> int:
    """None: as the config says. math.inf: for ever."""
    if timeout is None:
        return WAIT_DEFAULT
    if timeout == math.inf:
        return WAIT_FOREVER
    found = milliseconds(timeout, "timeout", " (0 tries once, math.inf waits for ever)")
    return min(found, WAIT_MAX_MS)


def ttl_ms(ttl: Duration | None) -> int:
    """0: as the config says. The library checks the range."""
    if ttl is None:
        return 0
    found = milliseconds(ttl, "ttl")
    if found == 0:
        raise _invalid("ttl is 0")
    return min(found, INT64_MAX)


class Request:
    """The checked arguments of an acquire. Made once, used for each acquire of a Lock."""

    __slots__ = ("options", "owner", "wait_ms")

    def __init__(self, timeout: Duration | None, ttl: Duration | None, shared: bool, permits: int,
                 owner: Owner | None, renew: bool, max_hold: Duration | None) -> None:
        self.wait_ms = wait_ms(timeout)
        for flag, what in ((shared, "shared"), (renew, "renew")):
            if not isinstance(flag, bool):
                raise TypeError(f"{what} must be a bool, not {type(flag).__name__}")
        if not isinstance(permits, int) or isinstance(permits, bool):
            raise TypeError(f"permits must be an int, not {type(permits).__name__}")
        if not 0 <= permits < 2**32:
            raise _invalid(f"permits {permits} is out of range: 1 to {2**32 - 1}, or 0 for no semaphore")
        options = self.options = ffi.new("mortise_options *")
        options.size = ffi.sizeof("mortise_options")
        options.wait_ms = self.wait_ms
        options.ttl_ms = ttl_ms(ttl)
        options.no_renew = not renew
        options.mode = 1 if shared or permits else 0
        options.permits = permits
        if max_hold is not None:
            options.max_hold_ms = min(milliseconds(max_hold, "max_hold"), INT64_MAX)
            if options.max_hold_ms == 0:
                raise _invalid("max_hold is 0")
        self.owner = None
        if owner is not None:
            text = THREAD_OWNER if isinstance(owner, _ThisThread) else encode(owner, "owner")
            if text == THREAD_OWNER and not isinstance(owner, _ThisThread):
                raise _invalid("this owner has a meaning of its own: use mortise.THIS_THREAD")
            self.owner = ffi.new("char[]", text)
            options.owner = self.owner

    def check_async(self) -> None:
        """All tasks of an event loop run in one thread."""
        if self.owner is not None and ffi.string(self.owner) == THREAD_OWNER:
            raise _invalid("owner=THIS_THREAD is not for asyncio: all tasks of an event loop would hold the lock together; "
                           "name an owner, or none")

    def with_wait(self, wait: int) -> Any:
        """A copy of the options with another wait_ms; the owner's text belongs to this object."""
        copy = ffi.new("mortise_options *", self.options[0])
        copy.wait_ms = wait
        return copy


_USUAL = Request(None, None, False, 0, None, True, None)
_TRY = Request(0, None, False, 0, None, True, None)


def request(timeout: Duration | None, ttl: Duration | None, shared: bool, permits: int, owner: Owner | None, renew: bool,
            max_hold: Duration | None) -> Request:
    """The request of these arguments."""
    if ttl is None and shared is False and permits == 0 and owner is None and renew is True and max_hold is None:
        if timeout is None:
            return _USUAL
        if timeout == 0 and timeout is not False:
            return _TRY
    return Request(timeout, ttl, shared, permits, owner, renew, max_hold)


def callback(on_loss: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
    if on_loss is not None and not callable(on_loss):
        raise TypeError(f"on_loss must be callable, not {type(on_loss).__name__}")
    return on_loss


def encode_names(names: Iterable[Name]) -> Sequence[bytes]:
    """The bytes of several names."""
    if isinstance(names, (str, bytes)):
        raise TypeError(f"names must be several names, not one {type(names).__name__}")
    found = [encode(name, "the name") for name in names]
    if not 1 <= len(found) <= MANY_MAX:
        raise _invalid(f"{len(found)} names; 1 to {MANY_MAX} can be acquired together")
    if len(set(found)) < len(found):
        raise _invalid("a name is given twice")
    return found


class Info(NamedTuple):
    """What the backend knows about a name, or about one of its holders."""

    held: bool
    """If it is False, only name and waiters have a meaning."""
    name: str
    """Bytes that are not UTF-8 are shown as \\xNN: then use raw_name."""
    raw_name: bytes
    owner: str
    host: str
    program: str
    pid: int
    held_for: float | None
    """Seconds; None if unknown."""
    remaining: float | None
    """Seconds until it ends if it is not renewed; None if unknown (a session)."""
    token: int
    leases: int
    waiters: int | None
    """None if unknown."""
    shared: bool
    permits: int
    holders: int


def _seconds(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


def make_info(info: Any) -> Info:
    raw = bytes(ffi.string(info.name))
    return Info(bool(info.held), raw.decode("utf-8", "backslashreplace"), raw, decode(info.owner), decode(info.host),
                decode(info.program), info.pid, _seconds(info.held_ms), _seconds(info.remaining_ms), info.token,
                info.leases, None if info.waiters < 0 else info.waiters, info.mode == 1, info.permits, info.holders)


class Stats(NamedTuple):
    """Counters since mortise.open(). Each is exact, but they are not all read at the same instant."""

    acquires: int
    waits: int
    wait_ns: int
    failures: int
    handovers: int
    releases: int
    renewals: int
    renewal_failures: int
    losses: int
    requests: int
    held: int
    waiting: int
    joins: int


# The bits of MORTISE_CAPABILITY_MAP, in its order.
CAPABILITIES = ("lease", "session", "fencing", "fair", "notify", "inspect", "list", "reentrant", "quorum", "durable",
                "shared", "permits")
