"""The end of the program: what is held is released."""
from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

from . import _errors
from ._native import lib

if TYPE_CHECKING:
    from ._client import Client

open_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_exiting = False
_finalized_pid = 0


def opened(client: Client) -> None:
    """A child that multiprocessing has forked ends without atexit, but runs its finalizers."""
    global _finalized_pid
    open_clients.add(client)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None and _finalized_pid != os.getpid():
        util.Finalize(None, _close_all, exitpriority=0)
        _finalized_pid = os.getpid()


def stay_if_exiting() -> None:
    """A daemon thread that waits at the end of the program goes on waiting, and ends with it: an exception of its own would
    only be printed."""
    while _exiting and threading.current_thread().daemon:
        time.sleep(60)


def _close_all() -> None:
    """At the end of the program: releases what is held. `close_timeout` bounds it for each client."""
    global _exiting
    _exiting = True
    try:
        for client in list(open_clients):
            try:
                client.close()
            except _errors.Error:
                pass
    finally:
        lib.mpy_log_off()


atexit.register(_close_all)
