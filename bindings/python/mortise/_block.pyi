# The module in C (native/block.c): code that a signal handler must not interrupt.
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any

class Scope:
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

class AsyncScope:
    def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                  trace: TracebackType | None) -> Coroutine[Any, Any, None]: ...

class Block(Scope): ...
class AsyncBlock(AsyncScope): ...

class Keeper:
    def __init__(self, kept: object, /) -> None: ...

def call_on_loss(lease: Any, /) -> object: ...

class Waiter:
    _wake: Callable[[Any], object] | None
    _context: Context | None
    def add_done_callback(self, function: Callable[[Any], object], /, *, context: Context | None = None) -> None: ...
