"""Checkpoints: values whose tensors may be sharded, in a folder of safetensors files that others read as well. What one
mesh saved any other loads, and a process without one."""
from __future__ import annotations

import os
import threading
from ctypes import byref
from typing import Any

from . import _raw
from ._arguments import Duration, limit_ns, text
from ._handles import ValueHandle
from ._library import lib
from ._raw import distag_error
from ._sharded import mark_sharding
from .errors import fail
from .futures import Future, begin
from .mesh import Mesh
from .nn import Module
from .optim import Optimizer
from .tensor import Tensor
from .values import from_value, to_value


def save(mesh: Mesh, directory: str | os.PathLike[str], value: Any, timeout: Duration = None) -> None:
    """Saves a map, with lists and maps in it, of tensors, modules, optimizers, numbers, texts and bytes. It replaces
    what the directory had in one instant: a load, also after a crash, finds the old or the new one, whole.
    Collective."""
    keep: list[Any] = []
    err = distag_error()
    given = to_value(_plain(value), keep, "value")
    if lib.distag_checkpoint_save(mesh._h, _path(directory), given, limit_ns(timeout), byref(err)):
        fail(err)


def save_async(mesh: Mesh, directory: str | os.PathLike[str], value: Any, timeout: Duration = None) -> Future[None]:
    """Saves the values of now while the program goes on and trains on; gives a future. Saves of one mesh follow one
    another, and a shutdown waits for them. Collective."""
    keep: list[Any] = []
    given = to_value(_plain(value), keep, "value")
    return begin(lib.distag_checkpoint_save_async, mesh._h, _path(directory), given, limit_ns(timeout))


def load_async(mesh: Mesh, directory: str | os.PathLike[str], into: Any = None,
               timeout: Duration = None) -> Future[Any]:
    """Loads while the program goes on: the tensors in `into` get their elements before the future ends, and optimizers
    their state as its result is asked for the first time. Collective."""
    keep: list[Any] = []
    targets = None if into is None else to_value(_targets(into), keep, "into")
    results: list[Any] = []
    lock = threading.Lock()

    def read(value: Any) -> Any:
        with lock:  # only once: an optimizer may have stepped since
            if not results:
                loaded = from_value(value)
                _load_optimizers(into, loaded)
                results.append(loaded)
            return results[0]

    return begin(lib.distag_checkpoint_load_async, mesh._h, _path(directory), targets, limit_ns(timeout), read=read)


def load(mesh: Mesh | None, directory: str | os.PathLike[str], into: Any = None, timeout: Duration = None) -> Any:
    """Loads what was saved, also files of others. The tensors in `into`, and those of its modules, get their elements
    in place, its optimizers their state; after a failure tensors are as they were. Gives all that was saved, in which
    other tensors are deferred: mark or read them. Without a mesh this process reads alone. Else collective."""
    keep: list[Any] = []
    out, err = ValueHandle(), distag_error()
    targets = None if into is None else to_value(_targets(into), keep, "into")
    handle = None if mesh is None else mesh._h
    if lib.distag_checkpoint_load(handle, _path(directory), targets, limit_ns(timeout), byref(out), byref(err)):
        fail(err)
    loaded = from_value(out)
    _load_optimizers(into, loaded)
    return loaded


def _path(directory: str | os.PathLike[str]) -> bytes:
    return text(os.fspath(directory), "directory")


def _plain(value: Any) -> Any:
    """The value with what is in modules and optimizers in their place."""
    if isinstance(value, Module):
        return dict(value.named_parameters())
    if isinstance(value, Optimizer):
        return value.save()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _targets(value: Any) -> Any:
    """The tensors that get their elements in place; optimizers make theirs of what was saved."""
    if isinstance(value, Module):
        return dict(value.named_parameters())
    if isinstance(value, dict):
        return {key: _targets(item) for key, item in value.items() if not isinstance(item, Optimizer)}
    if isinstance(value, (list, tuple)):
        return [None if isinstance(item, Optimizer) else _targets(item) for item in value]
    return value


def _load_optimizers(into: Any, loaded: Any) -> None:
    if isinstance(into, Optimizer):
        for parameter, state in zip(into.parameters, loaded["parameters"]):
            _lay(parameter, state)
        into.load(loaded)
    elif isinstance(into, dict):
        for key, item in into.items():
            _load_optimizers(item, loaded[key])
    elif isinstance(into, (list, tuple)):
        for item, other in zip(into, loaded):
            _load_optimizers(item, other)


def _lay(parameter: Any, state: Any) -> None:
    """State lies as its parameter does."""
    if isinstance(state, Tensor):
        mesh, spec = parameter.mesh, parameter.spec
        if mesh is not None and spec is not None:
            mark_sharding(state, mesh, spec)
    elif isinstance(state, (dict, list)):
        for item in state.values() if isinstance(state, dict) else state:
            _lay(parameter, item)
