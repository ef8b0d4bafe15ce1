"""Layers: a few, so that a first model needs no other package."""
from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import _arguments, _raw, _sharded, ops
from . import init as init
from ._arguments import Ints, flag, int64_pair, invalid
from ._dtypes import DType, float32
from .errors import kind_of
from .tensor import Tensor

_walk = threading.local()  # the modules whose tensors are being named


class Module:
    """Something with parameters. Derive a class with `forward`; parameters are its tensors that require grad and those
    of the modules in it, also in lists and dicts, in the order in which they were set."""

    def forward(self, x: Tensor) -> Tensor:
        """Computes the output."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def parameters(self) -> list[Tensor]:
        """The tensors that an optimizer steps: those that require grad."""
        return [parameter for _, parameter in self.named_parameters()]

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters with their names."""
        return ((name, each) for name, each in self.named_tensors() if each.requires_grad)

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All that makes up the model, frozen tensors too: those of modules in it are "encoder.weight", of those in a
        list or a dict "layers.0.weight". Each once, also one with two names; not results, which have a history."""
        inside: set[int] = _walk.__dict__.setdefault("modules", set())
        if id(self) in inside:
            return iter(())  # a part that names its whole
        inside.add(id(self))
        try:
            found: dict[int, tuple[str, Tensor]] = {}
            for name, each in _named_in("", vars(self)):
                found.setdefault(each.id, (name, each))
        finally:
            inside.discard(id(self))
        return iter(found.values())

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name: what `checkpoint.save` keeps of a module, and `distribute_module` distributes."""
        state: dict[str, Tensor] = {}
        for name, each in self.named_tensors():
            if name in state:
                raise invalid(f"two tensors of the {type(self).__name__} have the name \"{name}\"")
            state[name] = each
        return state

    def buffers(self) -> list[Tensor]:
        """The other tensors: statistics, tables, frozen parameters."""
        return [buffer for _, buffer in self.named_buffers()]

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The others with their names."""
        return ((name, each) for name, each in self.named_tensors() if not each.requires_grad)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Sets all tensors in place to those of the same names; sharded ones lie as these do. After a failure all are
        as they were, unless memory runs out while they are written; after Ctrl-C all are set, or none. Takes memory
        for a copy of one of them."""
        if not isinstance(state, Mapping):
            raise invalid(f"load_state_dict: a dict of tensors is wanted, not {kind_of(state)}")
        own = self.state_dict()
        missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
        if missing or unknown:
            raise invalid(f"load_state_dict: the state lacks {missing}, and the module has no {unknown}")
        for name, parameter in own.items():
            _arguments.tensor_of(state[name], f"load_state_dict: \"{name}\"")
            if state[name].shape != parameter.shape:
                raise invalid(f"load_state_dict: \"{name}\" has the shape {list(state[name].shape)} in the state and "
                              f"{list(parameter.shape)} in the module")
        sources = {name: state[name].snapshot() for name in own}
        for name, parameter in own.items():
            parameter.snapshot().assign(sources[name])  # fits
            parameter.assign(parameter)  # can be written, and has memory of its own from now on
        try:
            _set(own, sources)
        except KeyboardInterrupt:
            _set(own, sources)
            raise


def _set(own: Mapping[str, Tensor], sources: Mapping[str, Tensor]) -> None:
    for name, parameter in own.items():
        parameter.assign(sources[name])


def _named_in(prefix: str, part: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors in a part, each behind the prefix."""
    if isinstance(part, Tensor):
        if not _sharded.info_of(part._h).flags & _raw.TENSOR_HAS_HISTORY:
            yield prefix, part
        return
    if isinstance(part, Module):
        found: Iterable[tuple[Any, Any]] = part.named_tensors()
    elif isinstance(part, dict):
        found = part.items()
    else:
        found = enumerate(part) if isinstance(part, (list, tuple)) else ()
    for name, each in found:
        yield from _named_in(f"{prefix}.{name}" if prefix else str(name), each)


def _uniform(shape: tuple[int, ...], bound: float, dtype: DType, seed: int) -> Tensor:
    return ((ops.rand(seed, shape, dtype) * 2.0 - 1.0) * bound).requires_grad_()


def _seed(seed: int | None) -> int:
    return random.getrandbits(62) if seed is None else seed


class Linear(Module):
    """y = x weight^T + bias, with uniform weights of at most 1 / sqrt(in_features), as in PyTorch. Without a seed it is
    drawn by Python's `random`."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: DType = float32,
                 seed: int | None = None) -> None:
        bound = 1.0 / math.sqrt(in_features)
        seed = _seed(seed)
        self.weight = _uniform((out_features, in_features), bound, dtype, seed)
        self.bias = _uniform((out_features,), bound, dtype, seed + 1) if flag(bias, "bias") else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias)


class Conv2d(Module):
    """A convolution of [n, c, h, w], with uniform weights as in PyTorch."""

    def __init__(self, in_channels: int, out_channels: int, kernel: Ints, stride: Ints = 1, padding: Ints = 0,
                 dilation: Ints = 1, groups: int = 1, bias: bool = True, dtype: DType = float32,
                 seed: int | None = None) -> None:
        rows, columns = int64_pair(kernel)
        bound = 1.0 / math.sqrt(in_channels // groups * rows * columns)
        seed = _seed(seed)
        self.stride, self.padding, self.dilation = (tuple(int64_pair(each)) for each in (stride, padding, dilation))
        self.groups = groups
        self.weight = _uniform((out_channels, in_channels // groups, rows, columns), bound, dtype, seed)
        self.bias = _uniform((out_channels,), bound, dtype, seed + 1) if flag(bias, "bias") else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Sequential(Module):
    """Modules and functions one after the other: `Sequential(Linear(64, 32), distag.relu, Linear(32, 10))`."""

    def __init__(self, *parts: Any) -> None:
        self.parts = list(parts)

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """As those of a module, "0.weight"."""
        return ((name.removeprefix("parts."), each) for name, each in super().named_tensors())

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x
