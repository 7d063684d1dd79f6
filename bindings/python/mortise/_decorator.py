"""client.locked(): a function that runs under a lock."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _values

if TYPE_CHECKING:
    from ._client import Client

Function = TypeVar("Function", bound=Callable[..., Any])
NameOf = Callable[..., _values.Name]


def _name_of(function: Callable[..., Any], name: str | NameOf, lease: str | None) -> NameOf:
    """A function that gets the arguments of a call and returns the name of its lock."""
    if callable(name):
        return name
    if not isinstance(name, str):
        raise TypeError(f"name must be a str or a function, not {type(name).__name__}")
    text = name
    if "{" not in text and "}" not in text:
        return lambda *_args, **_kwargs: text
    signature = inspect.signature(function)
    rest = next((name for name, found in signature.parameters.items() if found.kind is found.VAR_KEYWORD), None)

    def formatted(*args: Any, **kwargs: Any) -> str:
        if lease is not None:
            kwargs[lease] = None  # the lock passes it
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        more = bound.arguments[rest] if rest is not None else {}
        return text.format(*args, **{**more, **bound.arguments})

    return formatted


def _is_coroutine_function(function: Any) -> bool:
    """Also an object whose __call__ is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(type(function), "__call__", None))


def _refuse_later_work(result: Any) -> None:
    """What a plain function returns must not run afterwards, without the lock: wrappers may return a coroutine."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    close = getattr(result, "close", None) or getattr(result, "cancel", None)
    if close is not None:
        close()
    raise TypeError(f"the decorated function returned a {type(result).__name__}, which would run without the lock: "
                    "decorate an async def function, or use client.alock()")


def decorate(client: Client, name: str | NameOf, request: _values.Request,
             lease: str | None) -> Callable[[Function], Function]:
    """See Client.locked()."""
    if lease is not None and not isinstance(lease, str):
        raise TypeError(f"lease must be the name of an argument, not {type(lease).__name__}")

    def decorator(function: Any) -> Any:
        if not callable(function):
            raise TypeError(f"client.locked() decorates functions, not {type(function).__name__}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("client.locked() cannot decorate a generator: the lock would be released before its first step")
        name_of = _name_of(function, name, lease)

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            from ._lock import Lock

            with Lock(client, _values.encode(name_of(*args, **kwargs), "the name"), request, None) as found:
                if lease is not None:
                    kwargs[lease] = found
                result = function(*args, **kwargs)
                _refuse_later_work(result)
                return result

        @functools.wraps(function)
        async def alocked(*args: Any, **kwargs: Any) -> Any:
            from ._aio import AsyncLock

            async with AsyncLock(client, _values.encode(name_of(*args, **kwargs), "the name"), request, None) as found:
                if lease is not None:
                    kwargs[lease] = found
                return await function(*args, **kwargs)

        if not _is_coroutine_function(function):
            return locked
        request.check_async()
        return alocked

    return decorator
