"""Checkpoints: values whose tensors may be sharded, in a folder of safetensors files that others read as well. What one
mesh saved any other loads, and a process without one."""
from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Iterator
from ctypes import byref, c_void_p
from typing import Any, Callable, TypeVar

from . import _raw
from ._arguments import Duration, invalid, limit_ns, mesh_of, text
from ._dtypes import int64
from ._handles import ValueHandle
from ._interrupts import call_and_hear, work_and_hear
from ._library import lib
from ._raw import distag_error
from ._sharded import mark_sharding
from .errors import DistagError, OtherError, UsageError, class_of, describe, fail, kind_of
from .futures import Future, begin
from .mesh import Mesh
from .nn import Module
from .optim import Optimizer
from .tensor import Tensor, put_back, tensor, values_of
from .values import from_value, to_value

F = TypeVar("F")
Pair = tuple[Optimizer, dict[str, Any]]  # one with what was saved of it
MOST_TOLD = 4096  # bytes of a failure that other members hear


def save(mesh: Mesh, directory: str | os.PathLike[str], value: Any, timeout: Duration = None) -> None:
    """Saves a map, with lists and maps in it, of tensors, modules, optimizers, numbers, texts and bytes. It replaces
    what the directory had in one instant: a load, also after a crash, finds the old or the new one, whole. After Ctrl-C
    the save goes on behind until it ends. Collective."""
    handle, err = mesh_of(mesh, "save"), distag_error()
    if call_and_hear(lib.distag_checkpoint_save, handle, _path(directory), _kept(_plain(value), "value"),
                     limit_ns(timeout), byref(err)):
        fail(err)


def save_async(mesh: Mesh, directory: str | os.PathLike[str], value: Any, timeout: Duration = None) -> Future[None]:
    """Saves the values of now while the program goes on and trains on; gives a future. Saves of one mesh follow one
    another, and a shutdown waits for them. Collective."""
    handle = mesh_of(mesh, "save_async")
    return begin(lib.distag_checkpoint_save_async, handle, _path(directory), _kept(_plain(value), "value"),
                 limit_ns(timeout))


def load_async(mesh: Mesh, directory: str | os.PathLike[str], into: Any = None,
               timeout: Duration = None) -> Future[Any]:
    """Loads while the program goes on: the tensors in `into` get their elements before the future ends, optimizers
    their state when its result is asked for first. Whether the optimizers fit is checked now, so that no tensor is
    copied. An optimizer with parameters at other workers is checked there as it loads: for it alone the old elements of
    the tensors are kept until then. Optimizers that cannot be loaded then, as another save came in between, keep their
    states; tensors that were kept are put back, others have new elements, and the message says so. After Ctrl-C in
    `result()` the optimizers are loaded behind it, or once you ask again where no thread is left: ask again. After
    Ctrl-C in this function itself other members wait for this one until their timeout, or until it closes the mesh.
    Collective."""
    handle, path, limit = mesh_of(mesh, "load_async"), _path(directory), limit_ns(timeout)
    targets = _targets_of(into)
    if not _has_optimizers(into):
        return begin(lib.distag_checkpoint_load_async, handle, path, targets, limit)
    first = begin(lib.distag_checkpoint_load_async, handle, path, None, limit).result()
    pairs = _agreed(mesh, timeout, lambda: _checked(into, first))

    def keep() -> list[tuple[Tensor, Tensor]] | None:
        _try_to_load(pairs)
        return values_of(_found(_targets(into), Tensor)) if _is_elsewhere(into) else None

    before = _agreed(mesh, timeout, keep)
    once = _Once(lambda loaded: _load_after_tensors(into, loaded, before))

    def read(lent: Any) -> Any:
        value = ValueHandle.lent(lent.value)  # also when the future is gone
        return work_and_hear(lambda: once.read(value))

    return begin(lib.distag_checkpoint_load_async, handle, path, targets, limit, read=read)


def load(mesh: Mesh | None, directory: str | os.PathLike[str], into: Any = None, timeout: Duration = None) -> Any:
    """Loads what was saved, also files of others. The tensors in `into`, and those of its modules, get their elements
    in place, its optimizers their state; readers of the tensors wait meanwhile. All is checked first: a failure leaves
    them as they were, unless a file cannot be read again, or another save, whose optimizers do not fit, comes in
    between: the message says then that tensors may have new or damaged elements. Gives all that was saved, in which
    other tensors are deferred: mark or read them. Tensors are not copied; the old states of optimizers are kept until
    the end. After Ctrl-C the load goes on behind, and how it ends is not told: do not use `into` after that, or use
    load_async, whose result can be asked for again. Without a mesh this process reads alone. Else collective."""
    handle = None if mesh is None else mesh_of(mesh, "load")
    path, limit = _path(directory), limit_ns(timeout)
    targets = _targets_of(into)

    def read(targets: Any) -> Any:
        out, err = ValueHandle(), distag_error()
        if call_and_hear(lib.distag_checkpoint_load, handle, path, targets, limit, byref(out), byref(err)):
            fail(err)
        return from_value(out)

    if not _has_optimizers(into):
        return read(targets)
    return work_and_hear(lambda: _load_with_optimizers(mesh, timeout, into, read, targets))


def _load_with_optimizers(mesh: Mesh | None, timeout: Duration, into: Any, read: Callable[[Any], Any],
                          targets: Any) -> Any:
    first = read(None)
    states, pairs = _agreed(mesh, timeout, lambda: (_states(into), _checked(into, first)))
    with _put_back_states(states):
        _agreed(mesh, timeout, lambda: _load_optimizers(pairs))
        loaded = read(targets)
        if _numbers(loaded) != _numbers(first):
            with _after_tensors():
                later = _agreed(mesh, timeout, lambda: _checked(into, loaded))
                _agreed(mesh, timeout, lambda: _load_optimizers(later))
    return loaded


def _agreed(mesh: Mesh | None, timeout: Duration, work: Callable[[], F]) -> F:
    """What work of this member gives, if it has gone well on all members. A failure on one of them fails the others
    too, which would wait for it in the next step."""
    if mesh is None:
        return work()
    try:
        result = work()
    except Exception as failure:
        code = int(failure.code) if isinstance(failure, DistagError) else _raw.E_INTERNAL
        message = failure.message if isinstance(failure, DistagError) else describe(failure)
        with contextlib.suppress(DistagError):  # the mesh has ended: the failure of this member is why
            _told_by_all(mesh, timeout, [code, *message.encode("utf-8", "replace")[:MOST_TOLD]])
        raise
    for rank, (code, *words) in _told_by_all(mesh, timeout, []):
        message = bytes(words).decode("utf-8", "ignore")
        raise class_of(code)(f"load: the optimizers of rank {rank} cannot be loaded: {message}", code, rank)
    return result


def _told_by_all(mesh: Mesh, timeout: Duration, words: list[int]) -> Iterator[tuple[int, list[int]]]:
    """The ranks of members that tell something, with their words. Collective."""
    told = iter(mesh.all_gather(tensor([len(words), *words], int64), timeout=timeout).tolist())
    rows = [(rank, list(itertools.islice(told, count))) for rank, count in zip(mesh.ranks, told)]
    return iter([row for row in rows if row[1]])


def _load_after_tensors(into: Any, loaded: Any, before: list[tuple[Tensor, Tensor]] | None) -> Any:
    try:
        with _put_back_states(_states(into)), _after_tensors() if before is None else contextlib.nullcontext():
            _load_optimizers(_checked(into, loaded))
    except KeyboardInterrupt:  # the optimizers are loaded when the result is asked for again
        raise
    except BaseException:
        put_back(before or [])
        raise
    return loaded


class _Once:
    """The result of a load, made when it is asked for first: the optimizers may have stepped since then."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._lock = threading.Lock()
        self._make: Callable[[Any], Any] | None = make
        self._result: Any = None
        self._failure: Callable[[], DistagError] | None = None

    def read(self, value: ValueHandle) -> Any:
        with self._lock:
            if self._make is not None:
                try:
                    self._result = self._make(from_value(value))
                except KeyboardInterrupt:  # here no thread could be made that goes on: the next one to ask begins anew
                    raise
                except BaseException as failure:
                    self._make, self._failure = None, _again(failure)
                    raise
                self._make = None
            if self._failure is not None:
                raise self._failure()
            return self._result


def _again(failure: BaseException) -> Callable[[], DistagError]:
    """Makes the failure once more. The failure itself is not kept: its traceback holds all that its frames had."""
    if isinstance(failure, DistagError):
        return functools.partial(type(failure), *failure.args)
    return functools.partial(OtherError, f"load_async: {describe(failure)}", _raw.E_INTERNAL)


def _try_to_load(pairs: list[Pair]) -> None:
    """Loads states into other optimizers of the same parameters, which go at once: a state that does not fit fails
    before anything is written. Elements that are still in files stay there. Owners elsewhere are not asked."""
    with contextlib.ExitStack() as others:
        tries: list[Pair] = []
        for optimizer, state in pairs:
            if all(isinstance(parameter, Tensor) for parameter in optimizer.parameters):
                other = Optimizer.__new__(type(optimizer))
                Optimizer.__init__(other, None, optimizer.parameters)
                tries.append((others.enter_context(other), state))
        _load_optimizers(tries)


class _Kept(c_void_p):
    """The address of a value, which keeps it: a call that Ctrl-C has left behind still reads it."""

    keep: list[Any]


def _kept(item: Any, name: str) -> _Kept:
    keep: list[Any] = []
    kept = _Kept(to_value(item, keep, name))
    kept.keep = keep
    return kept


def _path(directory: str | os.PathLike[str]) -> bytes:
    if not isinstance(directory, (str, os.PathLike)):
        raise invalid(f"directory: a text or a path is wanted, not {kind_of(directory)}")
    return text(os.fspath(directory), "directory")


def _plain(value: Any) -> Any:
    """The value with what is in modules and optimizers in their place."""
    if isinstance(value, Module):
        return value.state_dict()
    if isinstance(value, Optimizer):
        return value.save()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _targets_of(into: Any) -> _Kept | None:
    return None if into is None else _kept(_targets(into), "into")


def _targets(value: Any) -> Any:
    """The tensors that get their elements in place; optimizers make theirs of what was saved."""
    if isinstance(value, Module):
        return value.state_dict()
    if isinstance(value, Optimizer):
        return {}
    if isinstance(value, dict):
        return {key: _targets(item) for key, item in value.items() if not isinstance(item, Optimizer)}
    if isinstance(value, (list, tuple)):
        return [None if isinstance(item, Optimizer) else _targets(item) for item in value]
    return value


def _has_optimizers(into: Any) -> bool:
    return any(_found(into, Optimizer))


def _found(value: Any, kind: type[F]) -> Iterator[F]:
    """What of a kind is in a value, with lists and maps in it."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _found(item, kind)


def _checked(into: Any, loaded: Any, path: str = "") -> list[Pair]:
    """The optimizers with what was saved of them, whose kinds and counts fit."""
    if not _has_optimizers(into):
        return []
    name = f"\"{path.rstrip('/')}\"" if path else "the checkpoint"
    if isinstance(into, Optimizer):
        return [(into, _checked_state(into, loaded, name))]
    if isinstance(into, dict):
        items = list(into.items())
        if not isinstance(loaded, dict):
            raise invalid(f"load: {name} was saved as {kind_of(loaded)}, and `into` has a map")
    else:
        items = list(enumerate(into))
        if not isinstance(loaded, list) or len(loaded) != len(into):
            saved = f"a list of {len(loaded)}" if isinstance(loaded, list) else kind_of(loaded)
            raise invalid(f"load: {name} was saved as {saved}, and `into` has a list of {len(into)}")
    pairs: list[Pair] = []
    for key, item in items:
        if not _has_optimizers(item):
            continue  # the library checks tensors
        if isinstance(loaded, dict) and key not in loaded:
            raise UsageError(f"load: the checkpoint has no entry \"{path}{key}\"", _raw.E_NOT_FOUND)
        pairs += _checked(item, loaded[key], f"{path}{key}/")
    return pairs


def _checked_state(optimizer: Optimizer, state: Any, name: str) -> dict[str, Any]:
    kinds = {"kind": str, "parameters": list, "settings": dict}
    if not isinstance(state, dict) or not all(isinstance(state.get(key), kind) for key, kind in kinds.items()):
        raise invalid(f"load: {name} was saved of no optimizer")
    if state["kind"] != optimizer.kind:
        raise invalid(f"load: {name} was saved of an optimizer {state['kind']}, and this one is {optimizer.kind}")
    saved, own = len(state["parameters"]), len(optimizer.parameters)
    if saved != own:
        raise invalid(f"load: {name} was saved of {saved} parameters, and this optimizer has {own}")
    for number, (parameter, part) in enumerate(zip(optimizer.parameters, state["parameters"])):
        if not isinstance(parameter, Tensor) or parameter.spec is None:
            continue
        if any(each.shape != parameter.shape for each in _found(part, Tensor)):  # of which members see parts only
            raise invalid(f"load: {name} was saved of a parameter {number} with another shape than {parameter.shape}")
    return state


def _is_elsewhere(into: Any) -> bool:
    """Whether an optimizer has parameters that may be at other workers."""
    return any(not isinstance(parameter, Tensor) for optimizer in _found(into, Optimizer)
               for parameter in optimizer.parameters)


def _states(into: Any) -> list[Pair]:
    """The optimizers with the states that they have."""
    return [(optimizer, optimizer.save()) for optimizer in _found(into, Optimizer)]


@contextlib.contextmanager
def _put_back_states(states: list[Pair]) -> Iterator[None]:
    """After a failure in the block the optimizers have these states."""
    try:
        yield
    except BaseException:
        for optimizer, state in states:
            with contextlib.suppress(DistagError):  # of an owner that is gone: the failure of the block is the cause
                optimizer.load(state)
        raise


@contextlib.contextmanager
def _after_tensors() -> Iterator[None]:
    """A failure in the block says that tensors have been written."""
    try:
        yield
    except DistagError as failure:
        raise type(failure)(f"{failure.message}; the tensors of `into` have new elements already, the optimizers their "
                            "states from before", *failure.args[1:]) from None


def _load_optimizers(pairs: list[Pair]) -> None:
    for optimizer, state in pairs:  # all of them first: members mark the same tensors, also if a state does not fit
        for parameter, part in zip(optimizer.parameters, state["parameters"]):
            if isinstance(parameter, Tensor):
                _lay(parameter, part)
    for optimizer, state in pairs:
        optimizer.load(state)


def _numbers(value: Any) -> Any:
    """What was saved without the elements of tensors."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value.shape if isinstance(value, Tensor) else value


def _lay(parameter: Any, state: Any) -> None:
    """State lies as its parameter does. Asked again after Ctrl-C, the rest is marked."""
    mesh, spec = parameter.mesh, parameter.spec
    if mesh is not None and spec is not None:
        for each in _found(state, Tensor):
            if each.spec is None:
                mark_sharding(each, mesh, spec)
