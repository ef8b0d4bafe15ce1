"""What the library calls back. A number stands for each Python object that it keeps; `FORGET`, the destroy function,
drops that object.

The tables below are the only state of this package. Each call into Python that the library makes goes through one of
a few functions that ctypes makes once, so a collector cannot free what the library still knows."""
from __future__ import annotations

import itertools
import sys
import threading
import traceback
from ctypes import c_void_p, py_object, pythonapi
from opcode import opmap
from typing import Any, Callable, TypeVar

from . import _raw
from .errors import note_interrupt, write_error

F = TypeVar("F", bound=Any)

_objects: dict[int, Any] = {}
_numbers = itertools.count(1)


def keep(item: Any) -> int:
    """The number that stands for an object until FORGET is called with it."""
    number = next(_numbers)
    _objects[number] = item
    return number


def get(number: Any) -> Any:
    """The object of a number."""
    return _objects[number]


def count() -> int:
    """How many objects the library keeps."""
    return len(_objects)


def report(failure: BaseException) -> None:
    """Reports a failure in a callback that answers no call: to sys.unraisablehook, or to stderr. A Ctrl-C on the main
    thread is raised there instead, once the library has returned."""
    note_interrupt(failure)
    if isinstance(failure, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        return
    if sys.unraisablehook is sys.__unraisablehook__:  # it takes only arguments that the interpreter has made
        if sys.stderr is not None:
            sys.stderr.write(_Unraisable.err_msg + "\n" + "".join(traceback.format_exception(
                type(failure), failure, failure.__traceback__)))
        return
    arguments: Any = _Unraisable(failure)
    sys.unraisablehook(arguments)


class _Unraisable:
    """The arguments of sys.unraisablehook."""

    err_msg = "Exception ignored in a callback of distag"
    object = None

    def __init__(self, failure: BaseException) -> None:
        self.exc_type = type(failure)
        self.exc_value = failure
        self.exc_traceback = failure.__traceback__


def uninterrupted(function: F) -> F:
    """The function without the check for signals that Python makes as it begins: Ctrl-C that came while the library ran
    would be raised there, before any `try`, and be lost. It is raised in what the function calls within one. (The
    argument 2 of RESUME says so to the interpreter; without that instruction there is no such check to leave out.)"""
    code = function.__code__
    at = next((index for index in range(0, len(code.co_code), 2) if code.co_code[index] == opmap.get("RESUME")), None)
    if at is not None:
        function.__code__ = code.replace(co_code=code.co_code[:at + 1] + b"\2" + code.co_code[at + 2:])
    return function


@uninterrupted
def answer(err: int, work: Callable[[], object]) -> int:
    """Runs the work of a callback and gives its status: 0 only if the work was done. No exception leaves it."""
    status = _raw.E_USER
    try:
        try:
            work()
            status = _raw.OK
        except BaseException as failure:
            note_interrupt(failure)
            status = write_error(err, failure)
    except BaseException as failure:  # raised by the lines above: they have set the status, or it stays E_USER
        note_interrupt(failure)
    finally:
        return status


@uninterrupted
def tell(work: Callable[[], object]) -> None:
    """Runs the work of a callback that answers no call: a failure is reported."""
    try:
        try:
            work()
        except BaseException as failure:
            report(failure)
    except BaseException as failure:
        note_interrupt(failure)


def pass_on(target: int, handle: Any) -> None:
    """Writes a new reference to an out_ parameter: the library releases it."""
    type(handle).retain(handle)
    c_void_p.from_address(target).value = handle.value


def immortal(callback: Any) -> Any:
    """A callback that is never freed, not even when the interpreter ends: a thread of the library may be about to call
    it."""
    pythonapi.Py_IncRef(py_object(callback))
    return callback


# Runs no bytecode, for the same reason as the destructors of handles.
FORGET = immortal(_raw.distag_deleter(_objects.pop))


class Local(threading.local):
    """The invocations that a thread answers, the innermost last."""

    def __init__(self) -> None:
        self.invocations: list[Any] = []


local = Local()
