"""Workers: participants of a group that call each other's functions."""
from __future__ import annotations

import contextlib
import functools
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import addressof, byref, c_int32, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Union

from . import _callbacks, _life, _raw, functions
from ._arguments import (FOREVER, Duration, Ints, callable_of, fit, flag, integer, ints, invalid, limit_ns, nanoseconds,
                         text)
from ._handles import FutureHandle, Owner, RRefHandle, WorkerHandle
from ._interrupts import HostExecutor, call_and_hear
from ._library import lib
from ._raw import distag_error
from .calls import CURRENT, ContextArgument, call_options, context_handle
from .context import Context, copy_ranks, copy_report, copy_text
from .errors import UsageError, fail, kind_of, raise_interrupt
from .functions import Watch
from .futures import Future, begin, wait_in_slices
from .rref import RRef
from .security import peer_lists, security_options
from .values import from_value, to_result, to_value

if TYPE_CHECKING:
    from .mesh import Mesh

EXECUTORS = {"pool": _raw.EXECUTOR_POOL, "host": _raw.EXECUTOR_HOST}
SOCKET_ENGINES = {"zmq": _raw.SOCKET_ENGINE_ZMQ, "zmtp": _raw.SOCKET_ENGINE_ZMTP}
LOG_LEVELS = {"error": _raw.LOG_ERROR, "warning": _raw.LOG_WARNING, "info": _raw.LOG_INFO, "debug": _raw.LOG_DEBUG}
LEVELS = {value: name for name, value in LOG_LEVELS.items()}
STATES = {_raw.MEMBER_ALIVE: "alive", _raw.MEMBER_LEFT: "left", _raw.MEMBER_LOST: "lost"}
OPEN_WORLD = -1
START_TIMEOUT = 60.0

Offers = Union[Mapping[str, Callable[..., Any]], Iterable[Callable[..., Any]]]


class Member(NamedTuple):
    """One participant as a worker sees it."""

    rank: int
    name: str
    state: str  # "alive", "left" by its own shutdown, or "lost"
    incarnation: int


def _member(raw: Any) -> Member:
    return Member(raw.rank, raw.name.decode(), STATES.get(raw.state, "other"), raw.incarnation)


class _Listeners:
    """The callbacks of a worker's options."""

    def __init__(self, log: Callable[[str, str], object] | None, on_member: Callable[[Member], object] | None) -> None:
        self.log = log
        self.on_member = on_member


@_callbacks.uninterrupted
def _log(number: int, level: int, message: bytes) -> None:
    _callbacks.tell(lambda: _callbacks.get(number).log(LEVELS.get(level, "other"), message.decode("utf-8", "replace")))


@_callbacks.uninterrupted
def _on_member(number: int, worker: int, member: int) -> None:
    _callbacks.tell(lambda: _callbacks.get(number).on_member(_member(_raw.distag_member.from_address(member))))


LOG = _callbacks.immortal(_raw.distag_log_sink(_log))
ON_MEMBER = _callbacks.immortal(_raw.distag_member_callback(_on_member))


class Worker(Owner):
    """One participant of a group. In a `with` it is started, and shut down at the end: when the block ends well it
    serves until all others shut down too, when it fails it leaves at once.

    Without rank and size these and the rendezvous come from the environment (`env://`). Other options are those of
    distag_worker_options; durations are seconds. The worker offers the functions declared with `distag.function` so
    far, or `functions`: a list of them, or a dict by their names.

    Over several machines all workers have one `group_key`, or each a `secret_key` of its own and in `peers` the public
    keys of those that may connect, by their names (`distag.create_keys`). With keys of workers `initiators` are the only
    workers in whose backward passes it takes part, and `rendezvous_name` is the worker that serves "tcp://"."""

    __slots__ = ("_ending", "_is_down", "_starting", "_watches")

    def __init__(self, name: str | None = None, *, rank: int | None = None, world_size: int = 0,
                 rendezvous: str | None = None, job: str | None = None, functions: Offers | None = None,
                 executor: str = "pool", thread_count: int = 0, call_timeout: Duration = None, lease: Duration = None,
                 max_message_bytes: int = 0, max_in_flight_bytes: int = 0, bind: str | None = None,
                 advertise: str | None = None, no_lane: bool = False, socket_engine: str | None = None,
                 group_key: str | None = None, secret_key: str | None = None, peers: Mapping[str, str] | None = None,
                 rendezvous_name: str | None = None, initiators: Iterable[str] | None = None,
                 allow_insecure: bool = False,
                 log: Callable[[str, str], object] | None = None, log_level: str = "warning",
                 on_member: Callable[[Member], object] | None = None) -> None:
        if rank is None:
            rank = -1 if world_size == OPEN_WORLD else 0
        options = _raw.distag_worker_options(
            struct_size=sizeof(_raw.distag_worker_options), executor=_choice("executor", executor, EXECUTORS),
            log_level=_choice("log_level", log_level, LOG_LEVELS), call_timeout_ns=limit_ns(call_timeout),
            lease_ns=limit_ns(lease), no_lane=flag(no_lane, "no_lane"),
            socket_engine=0 if socket_engine is None else _choice("socket_engine", socket_engine, SOCKET_ENGINES))
        for field, kind, number in (("rank", c_int32, rank), ("world_size", c_int32, world_size),
                                    ("thread_count", c_uint32, thread_count),
                                    ("max_message_bytes", c_uint64, max_message_bytes),
                                    ("max_in_flight_bytes", c_uint64, max_in_flight_bytes)):
            setattr(options, field, fit(number, kind, field))
        for field, given in (("name", name), ("rendezvous", rendezvous), ("job", job), ("bind", bind),
                             ("advertise", advertise)):
            setattr(options, field, None if given is None else text(given, field))
        security, _keep = security_options(group_key, secret_key, peers, rendezvous_name, initiators, allow_insecure)
        options.security = addressof(security)  # read by _create alone
        if log is not None:
            callable_of(log, "log")
            options.on_log = LOG
        if on_member is not None:
            callable_of(on_member, "on_member")
            options.on_member = ON_MEMBER
        self._is_down = True  # nothing to shut down until it is made
        self._starting: Future[None] | None = None
        self._ending: FutureHandle | None = None
        self._watches: dict[str, Watch] = {}
        self._create(options, _Listeners(log, on_member))
        if executor == "host":
            HostExecutor.polls_here(self._h)
        _offer_all(self, functions)

    def _create(self, options: Any, listeners: _Listeners) -> None:
        options.user_data = _callbacks.keep(listeners)
        options.destroy = _callbacks.FORGET
        out, err = WorkerHandle(), distag_error()
        if lib.distag_worker_create(byref(options), byref(out), byref(err)):
            fail(err)
        self._h = out
        self._is_down = False
        _life.live[id(out)] = out

    # ---- life ----

    def start(self, timeout: Duration = START_TIMEOUT) -> Worker:
        """Meets the group and becomes reachable. After `start_async` it waits for that start, which has a timeout."""
        limit = nanoseconds(timeout)
        starting = self._starting or self._start(limit)
        self._starting = None
        starting.result()
        return self

    def start_async(self, timeout: Duration = START_TIMEOUT) -> Future[None]:
        """The same as a future, so that one thread can start several workers."""
        return self._start(nanoseconds(timeout))

    def _start(self, limit: int) -> Future[None]:
        self._starting = begin(lib.distag_worker_start_async, self._h, limit)
        return self._starting

    def shutdown(self, timeout: Duration = FOREVER) -> dict[str, Any]:
        """Leaves the group once all others do, at the latest after the timeout, and gives the report: "clean",
        "missing", "open_calls", "leaked_rrefs". Called again it gives the same report. With the host executor the
        caller becomes the thread that polls."""
        limit = nanoseconds(timeout)
        if any(call._worker is self for call in _callbacks.local.invocations):
            raise UsageError("shutdown: a function cannot wait for its own worker to end: use shutdown_async",
                             _raw.E_INVALID_STATE)
        if lib.distag_worker_get_fd(self._h) >= 0:
            HostExecutor.polls_here(self._h)
            lib.distag_worker_poll(self._h, 0, 0, None, None)
        return self._shut_down(limit).result()

    def shutdown_async(self, timeout: Duration = FOREVER) -> Future[dict[str, Any]]:
        """The same as a future. No thread becomes the one that polls."""
        return self._shut_down(nanoseconds(timeout))

    def _shut_down(self, limit: int) -> Future[dict[str, Any]]:
        handle, here = self._h, weakref.ref(self)

        def read(report: Any) -> dict[str, Any]:
            _life.forget(handle)
            worker = here()
            if worker is not None:
                worker._is_down = True
            return dict(from_value(report))

        future = begin(lib.distag_worker_shutdown_async, handle, limit, read=read)
        self._starting = None  # a later start() begins a new one
        self._ending = future._h
        return future

    def __enter__(self) -> Worker:
        try:
            return self.start() if not self.is_started else self
        except BaseException:
            self.leave()
            raise

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.shutdown()
        else:
            self.leave()
        self.close()

    def leave(self, limit: Duration = 5.0) -> bool:
        """Leaves the group without waiting for other members, and waits until the limit for its own functions. Gives
        whether they have ended."""
        wait_ns = nanoseconds(limit, int(_life.LIMIT_S * _raw.SECOND))
        if not self._is_down:
            handle = self._h
            handles = {0: handle}
            _life.leave(handles, FOREVER if wait_ns < 0 else time.monotonic() + wait_ns / _raw.SECOND)
            if not handles:
                self._is_down = True
                _life.forget(handle)
        return self._is_down

    def close(self) -> None:
        """Leaves the group if it is still in it, and drops the handle."""
        if not self.is_closed:
            self.leave()
        self._starting = self._ending = None
        super().close()

    def __del__(self) -> None:
        if getattr(self, "_is_down", True) or self.is_closed:
            return
        if self._ending is not None and lib.distag_future_poll(self._ending):
            _life.forget(self._h)
            return
        was_started = self.is_started
        _life.abandon(self._h)
        if was_started:
            warnings.warn(f"worker {self.name} was not shut down: use it in a with statement, or call shutdown()",
                          ResourceWarning, stacklevel=2, source=self)

    @property
    def is_started(self) -> bool:
        """Whether it has met its group."""
        return self.rank >= 0 and bool(self.ranks())

    # ---- its place ----

    @property
    def name(self) -> str | None:
        """Its name; None as long as it depends on the rank."""
        name: bytes | None = lib.distag_worker_get_name(self._h)
        return None if name is None else name.decode()

    @property
    def rank(self) -> int:
        """Its rank; -1 before the start."""
        return int(lib.distag_worker_get_rank(self._h))

    @property
    def world_size(self) -> int:
        """The size of the group; in an open world the number of living members."""
        return int(lib.distag_worker_get_world_size(self._h))

    def member(self, member: int | str) -> Member:
        """The latest member of a rank or a name."""
        raw, err = _raw.distag_member(struct_size=sizeof(_raw.distag_member)), distag_error()
        if isinstance(member, str):
            status = lib.distag_worker_get_member_by_name(self._h, text(member, "name"), byref(raw), byref(err))
        else:
            rank = integer(member, "member", "the name or the rank of a worker is wanted")
            status = lib.distag_worker_get_member(self._h, fit(rank, c_int32, "member"), byref(raw), byref(err))
        if status:
            fail(err)
        return _member(raw)

    def ranks(self, prefix: str = "") -> list[int]:
        """The ranks of the living members whose names begin with a prefix."""
        return copy_ranks(lib.distag_worker_copy_ranks, self._h, text(prefix, "prefix"))

    def set_peers(self, peers: Mapping[str, str]) -> None:
        """From now on only these workers may connect, each with its public key."""
        names, keys, count = peer_lists(peers)
        err = distag_error()
        if lib.distag_worker_set_peers(self._h, names, keys, count, byref(err)):
            fail(err)

    # ---- functions ----

    def register(self, offered: Callable[..., Any], name: str | None = None) -> None:
        """Offers a function, under its own name or the given one."""
        known = name or functions.name_of(offered)
        self._watches[known] = functions.offer(self, offered, known)

    def unregister(self, name: str | Callable[..., Any], timeout: Duration = FOREVER) -> None:
        """Withdraws a function, and waits until no call of it runs."""
        known = functions.name_of(name)
        functions.withdraw(self, known, self._watches.get(known), nanoseconds(timeout))

    # ---- calls ----

    def call(self, to: str | int, function: str | Callable[..., Any], *args: Any,
             context: ContextArgument = CURRENT, timeout: Duration = None, label: str | None = None,
             traceparent: str | None = None) -> Any:
        """Calls a function of another worker and waits for its answer. Ctrl-C is heard, and cancels the call. The
        default traceparent is that of the call being answered; with "" the call has no traceparent."""
        return self.call_async(to, function, *args, context=context, timeout=timeout, label=label,
                               traceparent=traceparent).result()

    def call_async(self, to: str | int, function: str | Callable[..., Any], *args: Any,
                   context: ContextArgument = CURRENT, timeout: Duration = None, label: str | None = None,
                   traceparent: str | None = None) -> Future[Any]:
        """The same as a future."""
        keep: list[Any] = []
        return begin(lib.distag_call_async,
                     *self._call(to, function, args, context, (timeout, label, traceparent), keep))

    def remote(self, to: str | int, function: str | Callable[..., Any], *args: Any,
               context: ContextArgument = CURRENT, timeout: Duration = None, label: str | None = None,
               traceparent: str | None = None) -> RRef:
        """Calls a function whose answer stays at its worker, and gives a reference to that answer at once."""
        out, err = RRefHandle(), distag_error()
        keep: list[Any] = []
        begun = self._call(to, function, args, context, (timeout, label, traceparent), keep)
        if lib.distag_remote(*begun, byref(out), byref(err)):
            fail(err)
        return RRef(out)

    def _call(self, to: str | int, function: str | Callable[..., Any], args: Sequence[Any], context: ContextArgument,
              options: tuple[Duration, str | None, str | None], keep: list[Any]) -> tuple[Any, ...]:
        """The arguments that all kinds of calls begin with; `keep` holds what they point to."""
        target = to if isinstance(to, str) else self.member(to).name
        values = [to_value(arg, keep, f"args[{index}]") for index, arg in enumerate(args)]
        timeout, label, traceparent = options
        return (self._h, context_handle(context), text(target, "to"), text(functions.name_of(function), "function"),
                (c_void_p * len(values))(*values), len(values),
                call_options(timeout, self._within(), label, traceparent))

    def _within(self) -> int | None:
        """The call that this thread answers for this worker: its deadline bounds the calls that it makes."""
        calls = _callbacks.local.invocations
        return calls[-1]._lent if calls and calls[-1]._worker is self else None

    def rref(self, value: Any) -> RRef:
        """Shares a value or an object of this worker."""
        out, err = RRefHandle(), distag_error()
        keep: list[Any] = []
        if lib.distag_rref_create(self._h, to_result(value, keep), byref(out), byref(err)):
            fail(err)
        return RRef(out)

    def context(self) -> Context:
        """A context for calls and passes that begin here: `with worker.context() as context:`."""
        return Context(self)

    def mesh(self, shape: Ints | None = None, axes: Sequence[str] | None = None, ranks: Sequence[int] | None = None,
             **options: Any) -> Mesh:
        """A mesh of the workers of these ranks, or of all: see distag.Mesh for the options. Collective."""
        from .mesh import Mesh

        return Mesh(shape, axes, ranks, worker=self, **options)

    def all_gather(self, value: Any = None, ranks: Sequence[int] | None = None,
                   timeout: Duration = FOREVER) -> list[Any]:
        """Gathers the values of these ranks (without them: of all). Each of them calls it with its own value and gets
        all values, by rank."""
        return self.all_gather_async(value, ranks, timeout).result()

    def all_gather_async(self, value: Any = None, ranks: Sequence[int] | None = None,
                         timeout: Duration = FOREVER) -> Future[list[Any]]:
        """The same as a future."""
        keep: list[Any] = []
        given = to_value(value, keep, "value")
        chosen = [] if ranks is None else [fit(rank, c_int32, "ranks") for rank in ints(ranks, "ranks")]
        array = None if ranks is None else (c_int32 * len(chosen))(*chosen)
        return begin(lib.distag_worker_all_gather_async, self._h, given, array, len(chosen), nanoseconds(timeout))

    def barrier(self, ranks: Sequence[int] | None = None, timeout: Duration = FOREVER) -> None:
        """Waits until each of these ranks (without them: all) has called it."""
        self.all_gather(None, ranks, timeout)

    # ---- the host executor ----

    def poll(self, max_items: int = 0, budget: Duration = FOREVER) -> int:
        """With the host executor: runs callbacks that are due, and gives their number."""
        done, err = c_size_t(), distag_error()
        count = fit(max_items, c_size_t, "max_items")
        limit = nanoseconds(budget)
        HostExecutor.polls_here(self._h)
        if lib.distag_worker_poll(self._h, count, limit, byref(done), byref(err)):
            fail(err)
        raise_interrupt()
        return done.value

    def wait(self, timeout: Duration = FOREVER) -> None:
        """With the host executor: waits until `poll` has something to run, and runs nothing."""
        wait_in_slices(lambda slice_ns, err: int(lib.distag_worker_wait(self._h, slice_ns, err)),
                       nanoseconds(timeout), late="nothing to run after {} ms")

    def fileno(self) -> int:
        """With the host executor: a descriptor that is readable while `poll` has something to run."""
        return int(lib.distag_worker_get_fd(self._h))

    def attach(self, loop: Any) -> None:
        """With the host executor: an event loop (asyncio) polls from now on. `loop.remove_reader(worker)` ends that."""
        if self.fileno() < 0:
            raise UsageError("attach: the worker runs its callbacks on threads of its own: make it with "
                             "executor=\"host\"", _raw.E_INVALID_STATE)
        if not hasattr(loop, "add_reader"):
            raise invalid("attach: an event loop is wanted, such as asyncio.get_running_loop(), not "
                          f"{kind_of(loop)}")
        loop.add_reader(self.fileno(), self.poll)

    # ---- looking inside ----

    def stats(self) -> dict[str, int]:
        """Counters: totals since the start, and current numbers."""
        raw, err = _raw.distag_stats(struct_size=sizeof(_raw.distag_stats)), distag_error()
        if lib.distag_worker_get_stats(self._h, byref(raw), byref(err)):
            fail(err)
        return {name: getattr(raw, name) for name, *_ in raw._fields_[2:]}

    def report(self) -> dict[str, Any]:
        """What the worker has now: members, open calls, contexts, references, events."""
        return copy_report(lib.distag_worker_copy_report, self._h)

    def group_report(self, timeout: Duration = 1.0) -> dict[str, Any]:
        """What all members have open and wait for, in "members". A member that does not answer in time has no "report";
        its "silent" says why."""
        return copy_report(functools.partial(call_and_hear, lib.distag_worker_copy_group_report), self._h,
                           nanoseconds(timeout))

    def metrics(self) -> str:
        """The counters in the text format of Prometheus."""
        return copy_text(lib.distag_worker_copy_metrics, self._h)

    def start_trace(self, folder: str | None = None, max_bytes: int = 0) -> None:
        """Writes what the worker does to FOLDER/NAME.trace.json (Perfetto opens it); None: where DISTAG_TRACE says."""
        options, err = _raw.distag_trace_options(struct_size=sizeof(_raw.distag_trace_options)), distag_error()
        options.max_bytes = fit(max_bytes, c_uint64, "max_bytes")
        options.folder = None if folder is None else text(folder, "folder")
        if lib.distag_worker_start_trace(self._h, byref(options), byref(err)):
            fail(err)

    def stop_trace(self) -> None:
        """Ends the trace, if there is one."""
        err = distag_error()
        if lib.distag_worker_stop_trace(self._h, byref(err)):
            fail(err)

    @contextlib.contextmanager
    def trace(self, label: str) -> Iterator[None]:
        """A span in the trace: `with worker.trace("step"):`. Without a trace it does nothing."""
        span, err = c_uint64(), distag_error()
        if lib.distag_trace_begin(self._h, text(label, "label"), byref(span), byref(err)):
            fail(err)
        try:
            yield
        finally:
            if not self.is_closed:
                lib.distag_trace_end(self._h, span.value)

    def __repr__(self) -> str:
        return "<closed distag.Worker>" if self.is_closed else f"<distag.Worker {self.name} rank {self.rank}>"


def _choice(what: str, given: str, choices: dict[str, int]) -> int:
    if not isinstance(given, str) or given not in choices:
        raise invalid(f"{what} is one of {', '.join(choices)}, not {given!r}")
    return choices[given]


def _offer_all(worker: Worker, offers: Offers | None) -> None:
    if offers is None:
        offers = functions.declared
    if isinstance(offers, str) or not isinstance(offers, Iterable):
        raise invalid(f"functions: a list of functions, or a dict of them by name, is wanted, not {kind_of(offers)}")
    if isinstance(offers, Mapping):
        for name, offered in offers.items():
            worker.register(offered, name)
    else:
        for offered in offers:
            worker.register(offered)
    worker.register(_parameters_of, PARAMETERS)


PARAMETERS = "python.parameters"


def _parameters_of(holder: Any) -> list[RRef]:
    """Offered by every worker of this package: references to the parameters of an object that lives there."""
    worker = functions.current_call().worker
    item = holder.local() if isinstance(holder, RRef) else holder
    if hasattr(item, "parameters"):
        item = list(item.parameters())
    return [worker.rref(list(item) if isinstance(item, tuple) else item)]
