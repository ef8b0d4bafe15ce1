"""The end: workers that are still there when the interpreter leaves, and after a fork."""
from __future__ import annotations

import atexit
import os
import time
import weakref
from ctypes import byref
from typing import TYPE_CHECKING, Any

from . import _callbacks, _raw
from ._handles import close_all
from ._library import lib
from ._raw import distag_error

if TYPE_CHECKING:
    from .worker import Worker

LIMIT_S = 5.0
STEP_NS = 50 * _raw.MILLISECOND

live: weakref.WeakSet[Worker] = weakref.WeakSet()


def leave(handle: Any, end: float) -> bool:
    """Takes a worker out of its group without waiting for it; waits for its functions until `end`, by steps, in which
    they get their turn to run. Whether it is down."""
    timeout_ns = 0
    while True:
        err = distag_error()
        status = lib.distag_worker_shutdown(handle, timeout_ns, None, byref(err))
        if status != _raw.E_DEADLINE or time.monotonic() >= end:
            return not status
        timeout_ns = STEP_NS


def leave_all() -> None:
    """Before the interpreter ends: no thread of a worker may run Python afterwards."""
    end = time.monotonic() + LIMIT_S
    for worker in list(live):
        if not worker.is_closed:
            worker.leave(max(0.0, end - time.monotonic()))


def after_fork() -> None:
    """In a child: the parent's handles are dead there, and say so when used."""
    live.clear()
    close_all()
    _callbacks.local.invocations.clear()


atexit.register(leave_all)
os.register_at_fork(after_in_child=after_fork)
