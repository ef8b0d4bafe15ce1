"""Functions that workers offer: how they are declared, and what they see of a call."""
from __future__ import annotations

import types
import weakref
from ctypes import addressof, byref
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

from . import _callbacks, _raw
from ._arguments import FOREVER, callable_of, invalid, text
from ._handles import Owner, ReplyHandle, Uncopied, handle_of_kind
from ._library import lib
from ._raw import distag_error
from .calls import current
from .context import Context
from .errors import ClosedError, GaveUpError, UsageError, fail, kind_of, note_interrupt, write_error
from .values import from_value, to_result

if TYPE_CHECKING:
    from .worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

# Functions that were declared: every worker made afterwards offers them unless it names its own.
declared: dict[str, Callable[..., Any]] = {}


@overload
def function(offered: F) -> F: ...


@overload
def function(offered: str) -> Callable[[F], F]: ...


def function(offered: Any) -> Any:
    """Declares a function that workers offer, by its own name or by the given one: `@distag.function`."""
    if isinstance(offered, str):
        return lambda named: _declare(named, offered)
    return _declare(offered, name_of(offered))


def _declare(offered: Any, name: str) -> Any:
    callable_of(offered, f"function \"{name}\"")
    try:
        offered.distag_name = name
    except AttributeError:
        pass  # methods and functions in C take no attributes: they are found by their own names
    declared[name] = offered
    return offered


def name_of(offered: str | Callable[..., Any]) -> str:
    """The name under which a function is offered."""
    if isinstance(offered, str):
        return offered
    name: str | None = getattr(offered, "distag_name", None) or getattr(offered, "__name__", None)
    if name is None:
        raise invalid(f"an object of type {type(offered).__name__} has no name: give one, as in "
                      "worker.register(function, name) or distag.function(name)(function)")
    return name


class Invocation(Uncopied):
    """The call that is being answered. Only its function may use it: it is over when the function returns."""

    __slots__ = ("_lent", "_worker", "context", "is_deferred")

    def __init__(self, lent: int, worker: Worker | None) -> None:
        self._lent: int | None = lent
        self._worker = worker
        context = lib.distag_invocation_get_context(lent)
        self.context = Context._lent(context, worker) if context else None
        self.is_deferred = False

    @property
    def _address(self) -> int:
        if self._lent is None:
            raise ClosedError("this call is over: read what you need of it before its function returns",
                              _raw.E_INVALID_STATE)
        return self._lent

    @property
    def worker(self) -> Worker:
        """The worker that is called."""
        if self._worker is None:
            raise ClosedError("the worker of this call was collected: keep a reference to it while it serves",
                              _raw.E_INVALID_STATE)
        return self._worker

    @property
    def caller(self) -> str:
        """The name of the worker that calls."""
        name: bytes = lib.distag_invocation_get_caller(self._address)
        return name.decode()

    @property
    def traceparent(self) -> str | None:
        """The traceparent (W3C Trace Context) that came with the call; None if there was none."""
        found: bytes | None = lib.distag_invocation_get_traceparent(self._address)
        return None if found is None else found.decode()

    @property
    def time_left(self) -> float:
        """Seconds until the deadline; FOREVER without one."""
        left: int = lib.distag_invocation_get_time_left(self._address)
        return FOREVER if left == _raw.FOREVER else left / _raw.SECOND

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return bool(lib.distag_invocation_is_cancelled(self._address))

    def defer(self) -> Reply:
        """Keeps the call open after the function has returned, until the reply is finished."""
        out, err = ReplyHandle(), distag_error()
        if lib.distag_invocation_defer(self._address, byref(out), byref(err)):
            fail(err)
        self.is_deferred = True
        return Reply(out)

    def _arguments(self) -> list[Any]:
        count = lib.distag_invocation_get_arg_count(self._lent)
        return [from_value(lib.distag_invocation_get_arg(self._lent, index)) for index in range(count)]

    def _return(self, result: Any) -> None:
        keep: list[Any] = []
        err = distag_error()
        if lib.distag_invocation_return(self._lent, to_result(result, keep), byref(err)):
            fail(err)


class Reply(Owner):
    """The answer to a call whose function has returned without one."""

    __slots__ = ()

    def __init__(self, handle: ReplyHandle) -> None:
        self._h = handle_of_kind(handle, ReplyHandle, "distag.current_call().defer()")

    def finish(self, result: Any = None) -> None:
        """Answers the call."""
        keep: list[Any] = []
        value = to_result(result, keep)
        self._finish(value, None)

    def fail(self, failure: BaseException) -> None:
        """Answers with a failure."""
        error = distag_error()
        write_error(addressof(error), failure)
        self._finish(None, byref(error))

    def _finish(self, value: Any, error: Any) -> None:
        err = distag_error()
        if lib.distag_reply_finish(self._h, value, error, byref(err)):
            fail(err)

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return bool(lib.distag_reply_is_cancelled(self._h))


def current_call() -> Invocation:
    """The call that this thread is answering."""
    if not _callbacks.local.invocations:
        raise UsageError("current_call: this thread answers no call: use it in a function that a worker calls",
                         _raw.E_INVALID_STATE)
    found: Invocation = _callbacks.local.invocations[-1]
    return found


class Offered:
    """A function of one worker, as the library keeps it."""

    __slots__ = ("function", "worker")

    def __init__(self, offered: Callable[..., Any], worker: Worker) -> None:
        self.function = offered
        self.worker = weakref.ref(worker)

    def run(self, lent: int) -> None:
        """Answers one call."""
        invocation = Invocation(lent, self.worker())
        _callbacks.local.invocations.append(invocation)
        token = current.set(invocation.context)
        try:
            self.answer(invocation)
        finally:
            current.reset(token)
            _callbacks.local.invocations.pop()
            invocation._lent = None

    def answer(self, invocation: Invocation) -> None:
        result = self.function(*invocation._arguments())
        if isinstance(result, types.CoroutineType):
            result = run_coroutine(result)
        if invocation.is_deferred:
            return
        if hasattr(type(result), "add_done_callback"):  # a future of this package or another
            answer_later(invocation.defer(), result)
        elif result is not None:
            invocation._return(result)


def run_coroutine(coroutine: Any) -> Any:
    """The result of an `async def` function, in an event loop of its own on this thread."""
    import asyncio

    return asyncio.run(coroutine)


def answer_later(reply: Reply, result: Any) -> None:
    """Finishes a reply as a future ends: of this package, or of concurrent.futures."""
    result.add_done_callback(lambda future: _finish_with(reply, future))


def _finish_with(reply: Reply, future: Any) -> None:
    try:
        reply.finish(future.result())
    except BaseException as failure:  # the future failed, or its result cannot travel
        note_interrupt(failure)
        reply.fail(failure)


@_callbacks.uninterrupted
def _call(number: int, invocation: int, err: int) -> int:
    return _callbacks.answer(err, lambda: _callbacks.get(number).offered.run(invocation))


CALL = _callbacks.immortal(_raw.distag_function(_call))


class Place:
    """The place of a function at its worker. It goes when the function is withdrawn and no call of it runs."""

    __slots__ = ("offered", "__weakref__")

    def __init__(self, offered: Offered) -> None:
        self.offered = offered


class Watch:
    """Waits until a place is gone. Where that happens no bytecode of this package runs."""

    __slots__ = ("gone", "reference")

    def __init__(self, place: Place) -> None:
        self.gone: SimpleQueue[Any] = SimpleQueue()
        self.reference = weakref.ref(place, self.gone.put)

    def wait(self, timeout_ns: int) -> bool:
        """Whether the place went within the time. Ctrl-C is heard."""
        try:
            self.gone.get(timeout=None if timeout_ns < 0 else timeout_ns / _raw.SECOND)
        except Empty:
            return False
        return True


def offer(worker: Worker, offered: Callable[..., Any], name: str) -> Watch:
    """Registers a function with a worker."""
    callable_of(offered, name)
    err = distag_error()
    place = Place(Offered(offered, worker))
    if lib.distag_worker_register(worker._h, text(name, "name"), CALL, _callbacks.keep(place), _callbacks.FORGET, None,
                                  byref(err)):
        fail(err)
    return Watch(place)


def withdraw(worker: Worker, name: str, watch: Watch | None, timeout_ns: int) -> None:
    """Unregisters a function, and waits until no call of it runs."""
    err = distag_error()
    status = lib.distag_worker_unregister(worker._h, text(name, "name"), 0, byref(err))
    if not status or status == _raw.E_DEADLINE and watch and watch.wait(timeout_ns):
        return
    if status == _raw.E_DEADLINE:
        raise GaveUpError(f"unregister: {name} is withdrawn, and a call of it still runs after "
                          f"{timeout_ns // _raw.MILLISECOND} ms", _raw.E_DEADLINE)
    fail(err)
