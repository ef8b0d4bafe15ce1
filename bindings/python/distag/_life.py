"""The end: workers that are still there when the interpreter leaves, and after a fork."""
from __future__ import annotations

import atexit
import os
import time
from ctypes import byref

from . import _callbacks, _raw
from ._handles import FutureHandle, WorkerHandle, close_all
from ._library import lib
from ._raw import distag_error

LIMIT_S = 5.0
STEP_NS = 50 * _raw.MILLISECOND

# The workers that are not down yet, whether anybody still has their objects or not.
live: dict[int, WorkerHandle] = {}


def forget(handle: WorkerHandle) -> None:
    """Lets go of a worker that is down."""
    if live.get(id(handle)) is handle:
        del live[id(handle)]


def abandon(handle: WorkerHandle) -> None:
    """Lets a worker that nobody has any more leave its group. Its handle stays here until the interpreter ends, so that
    no thread of it outlives that."""
    lib.distag_worker_shutdown_async(handle, 0, byref(FutureHandle()), None)


def try_to_leave(handle: WorkerHandle, timeout_ns: int) -> bool:
    """Whether the worker is down, or cannot be shut down from here."""
    err = distag_error()
    return bool(lib.distag_worker_shutdown(handle, timeout_ns, None, byref(err)) != _raw.E_DEADLINE)


def leave(handles: dict[int, WorkerHandle], end: float) -> None:
    """Takes workers out of their groups without waiting for these; waits for their functions until `end`, by steps, in
    which they get their turn to run. Those that are down are taken out of `handles`."""
    timeout_ns = 0
    while handles:
        for key, handle in list(handles.items()):
            if try_to_leave(handle, timeout_ns):
                handles.pop(key, None)
        if time.monotonic() >= end:
            return
        timeout_ns = STEP_NS


def leave_all() -> None:
    """Before the interpreter ends: no thread of a worker may run Python afterwards."""
    leave(live, time.monotonic() + LIMIT_S)


def after_fork() -> None:
    """In a child: the parent's handles are dead there, and say so when used."""
    live.clear()
    close_all()
    _callbacks.local.invocations.clear()


atexit.register(leave_all)
os.register_at_fork(after_in_child=after_fork)
