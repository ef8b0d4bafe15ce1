"""Contexts: one forward with its backward passes, and the gradients that they leave."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import Token
from ctypes import addressof, byref, c_int32, c_size_t, c_void_p, create_string_buffer, sizeof
from typing import TYPE_CHECKING, Any, Union

from . import _raw
from ._arguments import Duration, flag, handle_array, invalid, limit_ns, tensor_of
from ._handles import ContextHandle, GradientsHandle, Owner, TensorHandle, WorkerHandle, handle_of_kind
from ._interrupts import call_and_hear
from ._library import lib
from ._raw import distag_error
from .calls import current
from .errors import UsageError, fail, kind_of
from .futures import Future, begin
from .rref import RRef
from .tensor import Tensor

if TYPE_CHECKING:
    from .worker import Worker

Root = Union[Tensor, RRef]
MODES = {"smart": _raw.BACKWARD_SMART, "fast": _raw.BACKWARD_FAST}


class Gradients(Owner, Mapping[Tensor, Tensor]):
    """The gradients of a moment, by tensor."""

    __slots__ = ()

    def __init__(self, handle: GradientsHandle) -> None:
        self._h = handle_of_kind(handle, GradientsHandle, "context.gradients()")

    def __getitem__(self, tensor: Tensor) -> Tensor:
        found = lib.distag_gradients_find(self._h, tensor._h) if isinstance(tensor, Tensor) else None
        if not found:
            raise KeyError(tensor)
        return _lent_tensor(found)

    def __len__(self) -> int:
        return int(lib.distag_gradients_get_count(self._h))

    def __iter__(self) -> Iterator[Tensor]:
        handle = self._h
        return (_lent_tensor(lib.distag_gradients_get_tensor(handle, index)) for index in range(len(self)))

    __hash__ = None  # type: ignore[assignment]


def _lent_tensor(lent: int) -> Tensor:
    return Tensor(TensorHandle.lent(lent))


class Context(Owner):
    """One forward and its backward passes. In a `with` it is the one that calls are recorded in, and ends with it."""

    __slots__ = ("worker", "_is_joint", "_token")

    def __init__(self, worker: Worker | None = None) -> None:
        if worker is not None and not isinstance(getattr(worker, "_h", None), WorkerHandle):
            raise invalid(f"worker: a worker or None is wanted, not {kind_of(worker)}")
        out, err = ContextHandle(), distag_error()
        if lib.distag_context_create(None if worker is None else worker._h, byref(out), byref(err)):
            fail(err)
        self._h = out
        self.worker = worker
        self._is_joint = False
        self._token: Token[Any] | None = None

    @classmethod
    def _joint(cls, handle: ContextHandle) -> Context:
        """The members of a mesh share it: its calls block, as the pass runs on the thread that calls."""
        self = cls.__new__(cls)
        self._h, self.worker, self._is_joint, self._token = handle, None, True, None
        return self

    @classmethod
    def _lent(cls, lent: int, worker: Worker | None) -> Context:
        self = cls.__new__(cls)
        self._h, self.worker, self._is_joint, self._token = ContextHandle.lent(lent), worker, False, None
        return self

    def __enter__(self) -> Context:
        self._h  # a closed one says so
        if self._token is not None:
            raise UsageError("this context is entered already, and ends with that `with`: another thread or function "
                             "names it, context=context", _raw.E_INVALID_STATE)
        self._token = current.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                current.reset(token)
            except ValueError:  # left in another coroutine than it was entered in
                current.set(None)
        self.close()

    @property
    def is_joint(self) -> bool:
        """Whether the members of a mesh share it."""
        return self._is_joint

    @property
    def id(self) -> int:
        """The same on every worker."""
        return int(lib.distag_context_get_id(self._h))

    # ---- the backward pass ----

    def backward(self, roots: Root | Sequence[Root], seeds: Sequence[Tensor | None] | None = None, *,
                 retain_graph: bool = False, create_graph: bool = False, mode: str = "smart",
                 timeout: Duration = None) -> None:
        """Runs a backward pass from the roots through every worker they depend on. A root is a tensor of this process,
        or an rref to a scalar anywhere. All leaves get their gradient, or after any failure none. With `create_graph`
        gradients have a history: what ops make of them may be a root again, of this context where values of other workers
        take part. It keeps the graph."""
        if self.worker is not None:
            self.backward_async(roots, seeds, retain_graph=retain_graph, create_graph=create_graph, mode=mode,
                                timeout=timeout).result()
            return
        tensors, options, keep = _backward_arguments(roots, seeds, retain_graph, create_graph, mode, timeout)
        err = distag_error()

        def run(*arguments: Any) -> int:
            result: int = lib.distag_backward(*arguments)
            del keep[:]  # the options point into it: it lives until C has returned, also after Ctrl-C
            return result

        arguments = (self._h, *tensors, byref(options), byref(err))
        if call_and_hear(run, *arguments) if self.is_joint else run(*arguments):
            fail(err)

    def backward_async(self, roots: Root | Sequence[Root], seeds: Sequence[Tensor | None] | None = None, *,
                       retain_graph: bool = False, create_graph: bool = False, mode: str = "smart",
                       timeout: Duration = None) -> Future[None]:
        """The same as a future."""
        tensors, options, keep = _backward_arguments(roots, seeds, retain_graph, create_graph, mode, timeout)
        future = begin(lib.distag_backward_async, self._h, *tensors, byref(options))
        del keep
        return future

    def gradients(self) -> Gradients:
        """The gradients that tensors of this worker have, summed over the passes of this context."""
        if self.worker is not None or self.is_joint:
            self.settle_async().result()
        out, err = GradientsHandle(), distag_error()
        if lib.distag_get_gradients(self._h, byref(out), byref(err)):
            fail(err)
        return Gradients(out)

    def settle_async(self) -> Future[None]:
        """Completes when the passes that ran here have their verdicts: then `gradients` does not wait."""
        return begin(lib.distag_context_settle_async, self._h)

    def gradient(self, tensor: Tensor) -> Tensor:
        """The gradient of one tensor; KeyError when no pass has reached it."""
        tensor_of(tensor, "gradient")
        return self.gradients()[tensor]

    # ---- looking inside ----

    def info(self) -> dict[str, int]:
        """The counts of this context on this worker: sends, receives, known workers, gradients, passes."""
        info, err = _raw.distag_context_info(struct_size=sizeof(_raw.distag_context_info)), distag_error()
        if lib.distag_context_get_info(self._h, byref(info), byref(err)):
            fail(err)
        return {name: getattr(info, name) for name, *_ in info._fields_[1:]}

    def known_ranks(self) -> list[int]:
        """The ranks of the workers that this one exchanged calls with in this context."""
        return copy_ranks(lib.distag_context_copy_known_ranks, self._h)

    def report(self) -> dict[str, Any]:
        """The context on this worker, for people and tools."""
        return copy_report(lib.distag_context_copy_report, self._h)


def _backward_arguments(roots: Root | Sequence[Root], seeds: Sequence[Tensor | None] | None, retain_graph: bool,
                        create_graph: bool, mode: str, timeout: Duration) -> tuple[tuple[Any, int], Any, list[Any]]:
    if isinstance(roots, (Tensor, RRef)):
        roots = [roots]
    if not isinstance(roots, Sequence):
        raise invalid(f"backward: a root is a tensor or an rref, not {kind_of(roots)}")
    tensors = [root for root in roots if isinstance(root, Tensor)]
    rrefs = [root for root in roots if isinstance(root, RRef)]
    if len(tensors) + len(rrefs) != len(roots):
        raise invalid("backward: a root is a tensor or an rref")
    if seeds is not None and not (isinstance(seeds, Sequence)
                                  and all(isinstance(seed, (Tensor, type(None))) for seed in seeds)):
        raise invalid(f"backward: seeds are a list with a tensor, or None, for each root, not {seeds!r}")
    if seeds is not None and len(seeds) != len(tensors):
        raise invalid(f"backward: {len(tensors)} roots, but {len(seeds)} seeds")
    if not isinstance(mode, str) or mode not in MODES:
        raise invalid(f"backward: the mode is one of {', '.join(MODES)}, not {mode!r}")
    options = _raw.distag_backward_options(struct_size=sizeof(_raw.distag_backward_options), mode=MODES[mode],
                                           retain_graph=flag(retain_graph, "retain_graph"),
                                           create_graph=flag(create_graph, "create_graph"),
                                           timeout_ns=limit_ns(timeout))
    if options.timeout_ns == _raw.FOREVER:
        options.timeout_ns = 0
    keep: list[Any] = [rref._h for rref in rrefs]
    if seeds is not None:
        keep.append(handle_array(seeds)[0])
        options.seeds = addressof(keep[-1])
    if rrefs:
        keep.append((c_void_p * len(rrefs))(*[rref._h.value for rref in rrefs]))
        options.remote_roots = addressof(keep[-1])
        options.remote_root_count = len(rrefs)
    return handle_array(tensors) if tensors else (None, 0), options, keep


def copy_ranks(function: Any, handle: Any, *arguments: Any) -> list[int]:
    """What a copy_ function gives: as many ranks as there are when they fit."""
    capacity = 0
    while True:
        ranks, count, err = (c_int32 * capacity)(), c_size_t(), distag_error()
        if function(handle, *arguments, ranks if capacity else None, capacity, byref(count), byref(err)):
            fail(err)
        if count.value <= capacity:
            return list(ranks[:count.value])
        capacity = count.value


def copy_report(function: Any, *handle: Any) -> dict[str, Any]:
    """A report in JSON."""
    import json

    report: dict[str, Any] = json.loads(copy_text(function, *handle))
    return report


def copy_text(function: Any, *arguments: Any) -> str:
    """What a copy_ function gives: a text, which may grow between two calls."""
    capacity = 4096
    while True:
        buffer, size, err = create_string_buffer(capacity), c_size_t(), distag_error()
        if function(*arguments, buffer, capacity, byref(size), byref(err)):
            fail(err)
        if size.value < capacity:
            return buffer.value.decode()
        capacity = size.value + 1024
