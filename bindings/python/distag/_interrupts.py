"""Ctrl-C in calls that wait for other members and have no form without a wait."""
from __future__ import annotations

import contextvars
import threading
from typing import Any, Callable


class HostExecutor:
    """Whether a worker of this process ever runs its callbacks where the host polls: they run on the thread that polls,
    in its calls too, so no other thread makes these."""

    is_used = False


def call_and_hear(function: Callable[..., int], *arguments: Any) -> int:
    """What a function of the library answers. On the main thread, which alone hears signals, another thread makes the
    call, and this one waits for it; after Ctrl-C the call goes on there, with its arguments, until it ends."""
    if HostExecutor.is_used or threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    call = _Call(function, arguments)
    try:
        threading.Thread(target=call.run, name="distag call", daemon=True).start()
    except RuntimeError:  # there can be no more threads
        return function(*arguments)
    return call.wait()


class _Call:
    def __init__(self, function: Callable[..., int], arguments: tuple[Any, ...]) -> None:
        self._work = contextvars.copy_context().run, function, *arguments
        self._done = threading.Event()
        self._result: int | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        run, *arguments = self._work
        try:
            self._result = run(*arguments)
        except BaseException as failure:  # an argument that ctypes refuses
            self._failure = failure
        self._done.set()

    def wait(self) -> int:
        self._done.wait()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result
