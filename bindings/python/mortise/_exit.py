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
_LAST = -1000  # priority of a finalizer of multiprocessing. Those below 0 run after the children of the process were joined


def opened(client: Client) -> None:
    """A child that multiprocessing has forked ends without atexit, but runs its finalizers."""
    global _finalized_pid
    open_clients.add(client)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None and _finalized_pid != os.getpid():
        util.Finalize(None, _at_end_of_child, exitpriority=_LAST)
        _finalized_pid = os.getpid()


def stay_if_exiting() -> None:
    """A daemon thread that waits at the end of the program goes on waiting, and ends with it: an exception of its own would
    only be printed."""
    while _exiting and threading.current_thread().daemon:
        time.sleep(60)


def _at_end_of_child() -> None:
    """multiprocessing runs the finalizers while threads may still work under a lock, and waits for the threads afterwards.

    So this waits as multiprocessing does; its own call then returns at once. Joining the threads is not enough: idle threads
    of a ThreadPoolExecutor end only when this function asks them to. In a Python without the function, what is held
    lasts until its ttl is over."""
    wait_for_threads = getattr(threading, "_shutdown", None)
    if wait_for_threads is not None:
        wait_for_threads()
        _close_all()


def _at_exit() -> None:
    """The threads have ended. Children may work under a lock of this process: if multiprocessing was imported first, it joins
    them after this."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not util.is_exiting():
        util.Finalize(None, _close_all, exitpriority=_LAST)
    else:
        _close_all()


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


atexit.register(_at_exit)
