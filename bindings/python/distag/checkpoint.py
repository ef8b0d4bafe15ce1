"""Checkpoints: values whose tensors may be sharded, in a folder of safetensors files that others read as well. What one
mesh saved any other loads, and a process without one."""
from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from ctypes import byref
from typing import Any, Callable, TypeVar

from . import _raw
from ._arguments import Duration, invalid, limit_ns, mesh_of, text
from ._handles import ValueHandle
from ._interrupts import call_and_hear
from ._library import lib
from ._raw import distag_error
from ._sharded import mark_sharding
from .errors import DistagError, UsageError, fail, kind_of
from .futures import Future, begin
from .mesh import Mesh
from .nn import Module
from .optim import Optimizer
from .tensor import Tensor, put_back, values_of
from .values import from_value, to_value

F = TypeVar("F")
Pair = tuple[Optimizer, dict[str, Any]]  # one with what was saved of it


def save(mesh: Mesh, directory: str | os.PathLike[str], value: Any, timeout: Duration = None) -> None:
    """Saves a map, with lists and maps in it, of tensors, modules, optimizers, numbers, texts and bytes. It replaces
    what the directory had in one instant: a load, also after a crash, finds the old or the new one, whole.
    Collective."""
    keep: list[Any] = []
    handle, err = mesh_of(mesh, "save"), distag_error()
    given = to_value(_plain(value), keep, "value")
    if call_and_hear(lib.distag_checkpoint_save, handle, _path(directory), given, limit_ns(timeout), byref(err)):
        fail(err)


def save_async(mesh: Mesh, directory: str | os.PathLike[str], value: Any, timeout: Duration = None) -> Future[None]:
    """Saves the values of now while the program goes on and trains on; gives a future. Saves of one mesh follow one
    another, and a shutdown waits for them. Collective."""
    keep: list[Any] = []
    handle = mesh_of(mesh, "save_async")
    given = to_value(_plain(value), keep, "value")
    return begin(lib.distag_checkpoint_save_async, handle, _path(directory), given, limit_ns(timeout))


def load_async(mesh: Mesh, directory: str | os.PathLike[str], into: Any = None,
               timeout: Duration = None) -> Future[Any]:
    """Loads while the program goes on: the tensors in `into` get their elements before the future ends, and optimizers
    their state as its result is asked for the first time, which after a failure puts all back; that they fit is
    checked now. Collective."""
    keep: list[Any] = []
    handle = mesh_of(mesh, "load_async")
    targets = None if into is None else to_value(_targets(into), keep, "into")
    if _has_optimizers(into):
        _checked(into, _begin(handle, directory, None, timeout).result())
    before = _before_load(into)
    results: list[Any] = []
    failures: list[BaseException] = []
    lock = threading.Lock()

    def read_once(value: Any) -> Any:
        with _put_back_on_failure(into, before):
            loaded = from_value(value)
            _load_optimizers(_checked(into, loaded))
        return loaded

    def read(value: Any) -> Any:
        with lock:  # only once: an optimizer may have stepped since
            try:
                if not results and not failures:
                    results.append(read_once(value))
            except BaseException as failure:
                failures.append(failure)
            before.clear()
            if failures:
                raise failures[0]
            return results[0]

    return _begin(handle, directory, targets, timeout, read)


def load(mesh: Mesh | None, directory: str | os.PathLike[str], into: Any = None, timeout: Duration = None) -> Any:
    """Loads what was saved, also files of others. The tensors in `into`, and those of its modules, get their elements
    in place, its optimizers their state; readers of the tensors wait meanwhile. All is checked first: a failure leaves
    them as they were, unless a file cannot be read again: the message says then that some tensors may have new or
    damaged elements. Gives all that was saved, in which other tensors are deferred: mark or read them. Without a mesh
    this process reads alone. Else collective."""
    keep: list[Any] = []
    handle = None if mesh is None else mesh_of(mesh, "load")
    targets = None if into is None else to_value(_targets(into), keep, "into")
    if not _has_optimizers(into):
        return _read(handle, directory, targets, timeout)
    first = _read(handle, directory, None, timeout)
    pairs = _checked(into, first)
    with _put_back_on_failure(into, _before_load(into)):
        _load_optimizers(pairs)
        loaded = _read(handle, directory, targets, timeout)
        if _numbers(loaded) != _numbers(first):  # another save came between
            _load_optimizers(_checked(into, loaded))
    return loaded


def _begin(mesh: Any, directory: str | os.PathLike[str], targets: Any, timeout: Duration,
           read: Callable[[Any], Any] = from_value) -> Future[Any]:
    return begin(lib.distag_checkpoint_load_async, mesh, _path(directory), targets, limit_ns(timeout), read=read)


def _read(mesh: Any, directory: str | os.PathLike[str], targets: Any, timeout: Duration) -> Any:
    out, err = ValueHandle(), distag_error()
    if call_and_hear(lib.distag_checkpoint_load, mesh, _path(directory), targets, limit_ns(timeout), byref(out),
                     byref(err)):
        fail(err)
    return from_value(out)


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


def _before_load(into: Any) -> list[tuple[Tensor, Tensor]]:
    """What a load beside optimizers may have to put back: they load apart, and may fail when tensors are written."""
    return values_of(_found(_targets(into), Tensor)) if _has_optimizers(into) else []


@contextlib.contextmanager
def _put_back_on_failure(into: Any, before: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """After a failure in the block the optimizers are as they were, and the tensors have the values of `before`."""
    states: list[tuple[Optimizer, dict[str, Any]]] = []
    try:
        states = [(optimizer, optimizer.save()) for optimizer in _found(into, Optimizer)]
        yield
    except BaseException:
        for optimizer, state in states:
            with contextlib.suppress(DistagError):  # of an owner that is gone: the failure of the block is the cause
                optimizer.load(state)
        put_back(before)
        raise


def _load_optimizers(pairs: list[Pair]) -> None:
    for optimizer, state in pairs:
        for parameter, part in zip(optimizer.parameters, state["parameters"]):
            if isinstance(parameter, Tensor):
                _lay(parameter, part)
        optimizer.load(state)


def _numbers(value: Any) -> Any:
    """What was saved without the elements of tensors."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value.shape if isinstance(value, Tensor) else value


def _lay(parameter: Any, state: Any) -> None:
    """State lies as its parameter does."""
    mesh, spec = parameter.mesh, parameter.spec
    if mesh is not None and spec is not None:
        for each in _found(state, Tensor):
            mark_sharding(each, mesh, spec)
