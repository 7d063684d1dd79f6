"""The library's log lines go to Python's logging, to the logger "mortise". The import connects them."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ._native import ffi

_logger = logging.getLogger("mortise")
_LEVELS = {3: logging.ERROR, 4: logging.WARNING, 6: logging.INFO}  # those of syslog
_as_mpy_log: Callable[[Callable[[int, Any, Any], None]], object] = ffi.def_extern(name="mpy_log")


def _log_line(level: int, line: Any, _user_data: Any) -> None:
    """Called on the library's thread for log lines."""
    _logger.log(_LEVELS.get(level, logging.INFO), "%s", ffi.string(line).decode("utf-8", "backslashreplace"))


_as_mpy_log(_log_line)
