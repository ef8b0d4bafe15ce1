"""Parts of tensors that a key in brackets names: views to read, and places to write."""
from __future__ import annotations

import builtins
from numbers import Integral
from typing import Any

from . import _raw, _sharded, ops
from ._handles import MeshHandle
from ._library import lib
from .errors import UnsupportedError, UsageError, kind_of

Keys = tuple[Any, ...]
ALL = builtins.slice(None)  # of a dim that no key names


def part(whole: Any, keys: Keys) -> Any:
    """The part that integers, slices, None and ... name; a view, but along a dim that is cut a copy."""
    shape, dim = whole.shape, 0  # the dim of what is left, and
    given = 0  # that of the tensor, which errors name
    is_sharded = whole.spec is not None
    if is_sharded and shape and keys != (Ellipsis,) and names_all(keys, shape):
        return whole.redistribute(whole.spec)
    for key in _spelled(keys, len(shape)):
        if key is None:
            whole, dim = ops.unsqueeze(whole, dim), dim + 1
            continue
        if key is ALL or is_sharded and _is_all(key, shape[given]):  # a slice of a dim that is cut gathers it
            dim += 1
        elif isinstance(key, builtins.slice):
            start, stop, step = _bounds(key, shape[given])
            whole, dim = ops.slice(whole, dim, start, stop, step), dim + 1
        else:
            index = _index(key, given, shape[given])
            whole = ops.squeeze(ops.slice(whole, dim, index, index + 1, 1), dim)
        given += 1
    return whole


def names_all(keys: Keys, shape: tuple[int, ...]) -> bool:
    """Whether the keys are slices of everything and ... only."""
    spelled = _spelled(keys, len(shape))
    return len(spelled) == len(shape) and all(
        _is_all(key, size) for key, size in zip(spelled, shape))


def _is_all(key: Any, size: int) -> bool:
    return isinstance(key, builtins.slice) and key.indices(size) == (0, size, 1)


def write_sharded(whole: Any, keys: Keys, value: Any) -> None:
    """Writes a plain value to what the keys name of a sharded tensor: each member writes what of it lies here.
    Collective; sends nothing."""
    handle, shape = whole._h, whole.shape
    mesh, spec = MeshHandle.lent(lib.distag_tensor_get_mesh(handle)), whole.spec.encode()
    if b") sum(" in spec:
        raise UnsupportedError(f"a part of a sum, {whole.spec}, cannot be written: redistribute it first, or gather, "
                               "change and assign", _raw.E_UNSUPPORTED)
    offset, extent, _ = _sharded.box_of(mesh, spec, shape, max(_sharded.mesh_info(mesh).position, 0))
    here: list[Any] = []  # the keys of what is here, and
    taken: list[tuple[int, int]] = []  # which part of the value it is
    wanted: list[int] = []  # the shape of the value
    dim, is_here = 0, True
    for key in _spelled(keys, len(shape)):
        if key is None:
            here.append(None)
            taken.append((0, 1))
            wanted.append(1)
            continue
        first, last = offset[dim], offset[dim] + extent[dim]
        if isinstance(key, builtins.slice):
            every = range(*_bounds(key, shape[dim]))
            begin, end = _position(every, first), _position(every, last)
            is_here = is_here and begin < end
            here.append(builtins.slice(every[begin] - first, every[end - 1] - first + 1, every.step) if begin < end
                        else builtins.slice(0, 0))
            taken.append((begin, end))
            wanted.append(len(every))
        else:
            index = _index(key, dim, shape[dim])
            is_here = is_here and first <= index < last
            here.append(index - first)
        dim += 1
    given = ops.expand(ops.detach(value), wanted)  # on all members, so that all refuse a shape that does not fit
    own = whole.local()
    if names_all(keys, shape) and not _sharded.info_of(handle).flags & _raw.TENSOR_HAS_HISTORY:
        own = ops.detach(own)  # a parameter may be written as a whole
    elif _sharded.info_of(own._h).flags & _raw.TENSOR_HAS_HISTORY:
        raise UsageError("a part of what requires grad, or was computed from that, cannot be written: detach it, or "
                         "write within no_grad", _raw.E_INVALID_STATE)
    if is_here:
        for place, (begin, end) in enumerate(taken):
            given = ops.slice(given, place, begin, end, 1)
        part(own, tuple(here)).assign(given)


def _position(every: range, place: int) -> int:
    """How many of the indices are before the place."""
    return min(len(every), max(0, -((every.start - place) // every.step)))


def _spelled(keys: Keys, ndim: int) -> list[Any]:
    """The keys with ALL for each dim that ... stands for, or that is left out."""
    named = sum(key is not None and key is not Ellipsis for key in keys)
    if named > ndim:
        raise IndexError(f"{named} indices for a tensor with {ndim} dims")
    dots = [place for place, key in enumerate(keys) if key is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index has one ... at most")
    at = dots[0] if dots else len(keys)
    return [*keys[:at], *[ALL] * (ndim - named), *keys[at + 1:]]


def _bounds(key: builtins.slice, size: int) -> tuple[int, int, int]:
    start, stop, step = key.indices(size)
    if step < 0:
        raise UnsupportedError("a slice with a negative step: flip the tensor first", _raw.E_UNSUPPORTED)
    return start, max(start, stop), step


def _index(key: Any, dim: int, size: int) -> int:
    """An index from 0 on."""
    if isinstance(key, builtins.bool) or not isinstance(key, (int, Integral)):
        raise TypeError("an index is an integer, a slice, None, ... or, alone, a tensor of int64, not "
                        f"{kind_of(key)}")
    index = int(key)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for dim {dim} with size {size}")
    return index % size
