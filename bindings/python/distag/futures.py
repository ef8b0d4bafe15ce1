"""Futures: results that come later, for threads that wait and for event loops."""
from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from ctypes import byref, c_void_p
from typing import Any, Callable, Generic, TypeVar

from . import _callbacks, _raw
from ._arguments import Duration, callable_of, invalid, nanoseconds
from ._handles import FutureHandle, Owner, ValueHandle, handle_of_kind
from ._library import lib
from ._raw import distag_error
from .errors import DistagError, GaveUpError, fail, kind_of, raise_interrupt
from .values import from_value, to_value

T = TypeVar("T")
SLICE_NS = 50 * _raw.MILLISECOND  # a wait goes back to Python this often, so that Ctrl-C is heard


def wait_in_slices(wait_once: Callable[[int, Any], int], timeout_ns: int,
                   is_over: Callable[[], bool] = lambda: False,
                   late: str = "not complete after {} ms; it goes on") -> None:
    """Waits by `wait_once(timeout, err)`, which answers DEADLINE, until it is ok, fails otherwise, or the time is up.
    Signals are handled meanwhile. `is_over` tells whether it would answer at once: then a DEADLINE is the answer of
    what was waited for, or came just before."""
    end = None if timeout_ns < 0 else time.monotonic_ns() + timeout_ns
    slice_ns = SLICE_NS if end is None else min(SLICE_NS, timeout_ns)
    was_over = False
    while True:
        err = distag_error()
        status = wait_once(slice_ns, byref(err))
        raise_interrupt()
        if not status:
            return
        if status != _raw.E_DEADLINE or was_over:
            fail(err)
        was_over = is_over()
        if end is not None:
            slice_ns = min(SLICE_NS, end - time.monotonic_ns())
            if slice_ns <= 0 and not was_over:
                raise GaveUpError(late.format(timeout_ns // _raw.MILLISECOND), _raw.E_DEADLINE)
            slice_ns = max(slice_ns, 0)


def wait_or_cancel(handles: Sequence[FutureHandle], wait_once: Callable[[int, Any], int], timeout_ns: int,
                   is_over: Callable[[], bool]) -> None:
    """Waits in slices for what the futures stand for; Ctrl-C cancels it."""
    try:
        wait_in_slices(wait_once, timeout_ns, is_over)
    except DistagError:
        raise
    except BaseException:
        for handle in handles:
            lib.distag_future_cancel(handle)
        raise


def wait(handle: FutureHandle, timeout_ns: int) -> None:
    """Waits until a future is complete and raises its failure, or DEADLINE. Ctrl-C cancels the operation."""
    wait_or_cancel((handle,), lambda slice_ns, err: int(lib.distag_future_wait(handle, slice_ns, err)), timeout_ns,
                   lambda: bool(lib.distag_future_poll(handle)))


class Future(Owner, Generic[T]):
    """A result that comes later. `await` it in a coroutine of any event loop, or ask for its `result()`."""

    __slots__ = ("_read",)

    def __init__(self, handle: FutureHandle, read: Callable[[Any], Any] = from_value) -> None:
        self._h = handle_of_kind(handle, FutureHandle, "a call whose name ends in _async")
        self._read = read  # makes the result of the value, which is lent

    def result(self, timeout: Duration = None) -> T:
        """Waits for the result and gives it, or raises the failure. Without a timeout the operation's own counts."""
        handle = self._h
        wait(handle, nanoseconds(timeout, _raw.FOREVER))
        return self._value(handle)

    wait = result

    def _value(self, handle: FutureHandle) -> T:
        out, err = c_void_p(), distag_error()
        if lib.distag_future_get_value(handle, byref(out), byref(err)):
            fail(err)
        value: T = self._read(out)
        return value

    def exception(self, timeout: Duration = None) -> DistagError | None:
        """Waits, and gives the failure or None."""
        try:
            wait(self._h, nanoseconds(timeout, _raw.FOREVER))
        except DistagError as failure:
            if not self.done():
                raise
            return failure
        return None

    def done(self) -> bool:
        """Whether it is complete, with a value or a failure."""
        return bool(lib.distag_future_poll(self._h))

    def cancel(self) -> None:
        """Asks the operation to stop, at the callee too, and completes the future with CANCELLED."""
        lib.distag_future_cancel(self._h)

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Calls back with this future once it is complete, on a thread of the worker."""
        callable_of(callback, "add_done_callback")
        self._when_done(lambda: callback(self))

    def _when_done(self, work: Callable[[], object]) -> None:
        err = distag_error()
        if lib.distag_future_on_done(self._h, DONE, _callbacks.keep(work), _callbacks.FORGET, byref(err)):
            fail(err)

    def then(self, continuation: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of what the continuation makes of this one, once it is complete."""
        item = _Continuation(callable_of(continuation, "then"), self._read)
        return begin(lib.distag_future_then, self._h, THEN, _callbacks.keep(item), _callbacks.FORGET)

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._when_done(lambda: _wake(loop, done))
        try:
            yield from done
        except BaseException:
            self.cancel()
            raise
        return self.result(0)


def begin(function: Any, *arguments: Any, read: Callable[[Any], Any] = from_value) -> Future[Any]:
    """The future of an operation that a function of the library begins; `read` makes its result of the value."""
    out, err = FutureHandle(), distag_error()
    if function(*arguments, byref(out), byref(err)):
        fail(err)
    return Future(out, read)


def _wake(loop: Any, done: Any) -> None:
    """Completes a future of an event loop from another thread; a loop that is closed waits for nothing."""
    try:
        loop.call_soon_threadsafe(lambda: done.done() or done.set_result(None))
    except RuntimeError:
        pass


class _Continuation:
    def __init__(self, function: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
        self.function = function
        self.read = read

    def run(self, future: int, out_value: int) -> None:
        result = self.function(Future(FutureHandle.lent(future), self.read))
        keep: list[Any] = []
        value = to_value(result, keep, "result")
        _callbacks.pass_on(out_value, ValueHandle.lent(value))


@_callbacks.uninterrupted
def _done(number: int, future: int) -> None:
    _callbacks.tell(lambda: _callbacks.get(number)())


@_callbacks.uninterrupted
def _then(number: int, future: int, out_value: int, err: int) -> int:
    return _callbacks.answer(err, lambda: _callbacks.get(number).run(future, out_value))


DONE = _callbacks.immortal(_raw.distag_future_callback(_done))
THEN = _callbacks.immortal(_raw.distag_future_continuation(_then))


def wait_all(futures: Iterable[Future[Any]], timeout: Duration = None) -> list[Any]:
    """Waits until all have a value, or the first one fails, whose failure it raises; gives the results. Ctrl-C cancels
    all of them."""
    if isinstance(futures, Future):
        raise invalid("wait_all: a list of futures is wanted, not one future: ask for its result()")
    futures = list(futures)
    for index, future in enumerate(futures):
        if not isinstance(future, Future):
            raise invalid(f"wait_all: item {index} is {kind_of(future)}, not a future")
    handles = [future._h for future in futures]
    array = (c_void_p * len(handles))(*[handle.value for handle in handles])
    wait_or_cancel(handles, lambda slice_ns, err: int(lib.distag_wait_all(array, len(handles), slice_ns, err)),
                   nanoseconds(timeout, _raw.FOREVER), lambda: any(_failed(handle) for handle in handles))
    return [future.result(0) for future in futures]


def _failed(handle: FutureHandle) -> bool:
    out = c_void_p()
    return bool(lib.distag_future_poll(handle) and lib.distag_future_get_value(handle, byref(out), None))
