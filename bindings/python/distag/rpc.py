"""Calls with the names that a user of torch.distributed.rpc knows, over one worker of this process."""
from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

from . import _callbacks, _raw
from ._arguments import FOREVER, TORCH_UNSET, Duration, flag, invalid, torch_timeout
from .calls import CURRENT
from .errors import UsageError
from .functions import function, name_of
from .futures import Future, wait_all
from .rref import RRef
from .worker import Worker

__all__ = ["BackendOptions", "Future", "RRef", "WorkerInfo", "function", "get_worker_info", "init_rpc", "remote",
           "rpc_async", "rpc_sync", "shutdown", "wait_all", "worker"]

# The worker that torch's functions mean by "this process": set by init_rpc, gone after shutdown.
_workers: list[Worker] = []


class BackendOptions(NamedTuple):
    """The options of init_rpc, with the names of torch."""

    num_worker_threads: int = 0
    rpc_timeout: float = 60.0
    init_method: str = "env://"


class WorkerInfo(NamedTuple):
    """A worker by name and rank."""

    name: str
    id: int


def init_rpc(name: str | None = None, rank: int | None = None, world_size: int = 0,
             rpc_backend_options: BackendOptions = BackendOptions()) -> Worker:
    """Starts the worker of this process, which offers all functions declared with `@distag.function`."""
    if _workers:
        raise UsageError("init_rpc: there is a worker already: shut it down first", _raw.E_INVALID_STATE)
    made = Worker(name, rank=rank, world_size=world_size, rendezvous=rpc_backend_options.init_method,
                  thread_count=rpc_backend_options.num_worker_threads,
                  call_timeout=torch_timeout(rpc_backend_options.rpc_timeout))
    made.start()
    _workers.append(made)
    return made


def worker() -> Worker:
    """The worker of this process; within a function the one that answers."""
    calls = _callbacks.local.invocations
    if calls:
        answering: Worker = calls[-1].worker
        return answering
    if not _workers:
        raise UsageError("there is no worker: call init_rpc first", _raw.E_INVALID_STATE)
    return _workers[0]


def shutdown(graceful: bool = True, timeout: Duration = FOREVER) -> None:
    """Leaves the group: when all others do, or at once."""
    leaving = worker()
    if flag(graceful, "graceful"):
        leaving.shutdown(FOREVER if timeout == 0 else timeout)
    else:
        leaving.leave()
    leaving.close()
    _workers.remove(leaving)


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """A worker by its name; this one without a name."""
    here = worker()
    member = here.member(here.rank if worker_name is None else worker_name)
    return WorkerInfo(member.name, member.rank)


def _arguments(to: str | int | WorkerInfo, func: str | Callable[..., Any], args: Iterable[Any] | None,
               kwargs: Mapping[str, Any] | None) -> tuple[Any, ...]:
    target = to.name if isinstance(to, WorkerInfo) else to
    given = tuple(args or ())
    if kwargs:
        if isinstance(func, str):
            raise invalid("kwargs need the function itself, not its name: arguments travel by their places")
        signature = inspect.signature(func)
        bound = signature.bind(*given, **kwargs)
        for name in kwargs:
            if name not in signature.parameters or signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
                raise invalid(f"{name_of(func)}: the argument {name} has no place, and arguments travel by their "
                              "places: give it one in the function's head")
        bound.apply_defaults()
        given = bound.args
    return (target, func, *given)


def rpc_sync(to: str | int | WorkerInfo, func: str | Callable[..., Any], args: Iterable[Any] | None = None,
             kwargs: Mapping[str, Any] | None = None, timeout: float = TORCH_UNSET) -> Any:
    """Calls a function that the other worker offers, and waits for its answer."""
    return rpc_async(to, func, args, kwargs, timeout).result()


def rpc_async(to: str | int | WorkerInfo, func: str | Callable[..., Any], args: Iterable[Any] | None = None,
              kwargs: Mapping[str, Any] | None = None, timeout: float = TORCH_UNSET) -> Future[Any]:
    """The same as a future."""
    return worker().call_async(*_arguments(to, func, args, kwargs), context=CURRENT, timeout=torch_timeout(timeout))


def remote(to: str | int | WorkerInfo, func: str | Callable[..., Any], args: Iterable[Any] | None = None,
           kwargs: Mapping[str, Any] | None = None, timeout: float = TORCH_UNSET) -> RRef:
    """Calls a function whose answer stays where it is made."""
    return worker().remote(*_arguments(to, func, args, kwargs), context=CURRENT, timeout=torch_timeout(timeout))
