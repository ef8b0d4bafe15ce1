"""Failures of distag as exceptions: one class per ten of their status, which says how to go on."""
from __future__ import annotations

import enum
import threading
from ctypes import byref
from typing import Any, NoReturn

from . import _raw
from ._library import lib
from ._raw import distag_error


def kind_of(value: Any) -> str:
    """The type of a value with its article: "an int". None is "None"."""
    name = type(value).__name__
    return "None" if value is None else ("an " if name[0] in "aeioAEIO" or name[:4].lower() == "rref" else "a ") + name


class Status(enum.IntEnum):
    """The statuses that this version knows; others pass through as plain numbers."""

    OK = _raw.OK
    INVALID_ARGUMENT = _raw.E_INVALID_ARGUMENT
    INVALID_STATE = _raw.E_INVALID_STATE
    NOT_FOUND = _raw.E_NOT_FOUND
    DENIED = _raw.E_DENIED
    UNSUPPORTED = _raw.E_UNSUPPORTED
    OVERLOADED = _raw.E_OVERLOADED
    OUT_OF_MEMORY = _raw.E_OUT_OF_MEMORY
    DISCONNECTED = _raw.E_DISCONNECTED
    PEER_RESTARTED = _raw.E_PEER_RESTARTED
    DEADLINE = _raw.E_DEADLINE
    CANCELLED = _raw.E_CANCELLED
    REMOTE = _raw.E_REMOTE
    PROTOCOL = _raw.E_PROTOCOL
    INTERNAL = _raw.E_INTERNAL
    GRAPH_FREED = _raw.E_GRAPH_FREED
    UNREACHED_SEND = _raw.E_UNREACHED_SEND
    USER = _raw.E_USER


class DistagError(Exception):
    """A call that failed. `message` says what failed, where, what to do, and which workers it passed through."""

    def __init__(self, message: str, code: int = _raw.E_USER, origin_rank: int = -1,
                 may_have_run: bool = False) -> None:
        super().__init__(message, code, origin_rank, may_have_run)
        self.message = message
        self.code = Status(code) if code in Status._value2member_map_ else code
        self.origin_rank = origin_rank  # the worker on which it arose; -1: this process
        self.may_have_run = may_have_run  # the function ran, or it is not known whether it did

    @property
    def name(self) -> str:
        """The name of the status: "DEADLINE"."""
        name: bytes = lib.distag_status_get_name(self.code)
        return name.decode()

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class UsageError(DistagError, ValueError):
    """1x: the call is wrong: correct it."""


class ClosedError(UsageError):
    """Use of an object after it was closed."""


class UnsupportedError(DistagError):
    """2x: this is not supported: do it another way."""


class RetryError(DistagError):
    """3x: wait and try again."""


class ReconnectError(DistagError, ConnectionError):
    """4x: reconnect."""


class GaveUpError(DistagError, TimeoutError):
    """5x: the time is up, or the call was cancelled."""


class OtherError(DistagError):
    """6x: read the message."""


class UserError(DistagError):
    """1000 and above: a function failed with a status of its own."""


TENS: dict[int, type[DistagError]] = {1: UsageError, 2: UnsupportedError, 3: RetryError, 4: ReconnectError,
                                      5: GaveUpError, 6: OtherError}


def class_of(code: int) -> type[DistagError]:
    """The class of exceptions with a status."""
    kind: type[DistagError] = UserError
    if code < _raw.E_USER:
        kind = TENS.get(code // 10, DistagError)
    return kind


def error_of(err: Any) -> DistagError:
    """The exception for a distag_error."""
    code: int = err.code
    message = err.message.decode("utf-8", "replace")
    return class_of(code)(message, code, err.origin_rank, bool(err.flags & _raw.ERROR_MAY_HAVE_RUN))


class Interrupt:
    """Whether Ctrl-C was heard in a callback on the main thread, within a call of the library. Exceptions do not pass
    through the library, so it is raised when that call has returned."""

    is_due = False


def note_interrupt(failure: BaseException) -> None:
    """Keeps a Ctrl-C that ended a callback. Only the main thread hears signals: on another one a KeyboardInterrupt is a
    failure of the code that raised it."""
    if isinstance(failure, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        Interrupt.is_due = True


def raise_interrupt() -> None:
    """Raises the Ctrl-C that was heard in a callback of the call that has just returned."""
    if Interrupt.is_due and threading.current_thread() is threading.main_thread():
        Interrupt.is_due = False
        raise KeyboardInterrupt


def fail(err: Any) -> NoReturn:
    """Raises what a call has written to its distag_error."""
    raise_interrupt()
    raise error_of(err)


def describe(failure: BaseException) -> str:
    """"Type: message" of an exception. Its own code may fail in that: the text then says so."""
    name = "exception"
    try:
        name = type(failure).__name__
        return f"{name}: {failure}"
    except BaseException as odd:
        note_interrupt(odd)
        return f"{name}: (its text cannot be read: {object.__repr__(odd)})"


def write_error(address: int, failure: BaseException) -> int:
    """Writes an exception to the distag_error of a callback, and gives its status: 1000 for one that is not a
    DistagError."""
    err = distag_error.from_address(address)
    code = _raw.E_USER
    if isinstance(failure, DistagError):
        code = int(failure.code)
        if not 0 < code < 2**31:
            code = _raw.E_USER
        message = failure.message
    else:
        message = describe(failure)
    text = message.encode("utf-8", "replace").replace(b"\0", b" ")
    lib.distag_error_set(byref(err), code, text)
    if isinstance(failure, DistagError):
        err.origin_rank = failure.origin_rank
        err.flags = _raw.ERROR_MAY_HAVE_RUN if failure.may_have_run else 0
    return code
