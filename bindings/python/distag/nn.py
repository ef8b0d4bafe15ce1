"""Layers: a few, so that a first model needs no other package."""
from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

from . import init as init
from . import ops
from ._arguments import Ints, int64_pair, invalid
from ._dtypes import DType, float32
from .tensor import Tensor


class Module:
    """Something with parameters. Derive a class with `forward`; parameters are its tensors that require grad and those
    of the modules in it, in the order in which they were set."""

    def forward(self, x: Tensor) -> Tensor:
        """Computes the output."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def parameters(self) -> list[Tensor]:
        """The tensors that an optimizer steps."""
        return [parameter for _, parameter in self.named_parameters()]

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters with their names: those of modules in it are "encoder.weight", of those in a list
        "layers.0.weight"."""
        for name, part in vars(self).items():
            yield from _named_in(name, part)


    def state_dict(self) -> dict[str, Tensor]:
        """The parameters by name: what `checkpoint.save` keeps of a module."""
        return dict(self.named_parameters())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Sets all parameters in place to those of the same names; sharded ones lie as these do. With other names or
        shapes nothing is set."""
        own = self.state_dict()
        missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
        if missing or unknown:
            raise invalid(f"load_state_dict: the state lacks {missing}, and the module has no {unknown}")
        for name, parameter in own.items():
            if state[name].shape != parameter.shape:
                raise invalid(f"load_state_dict: \"{name}\" has the shape {list(state[name].shape)} in the state and "
                              f"{list(parameter.shape)} in the module")
        for name, parameter in own.items():
            parameter.assign(state[name])


def _named_in(name: str, part: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(part, Tensor):
        if part.requires_grad:
            yield name, part
    elif isinstance(part, Module):
        yield from ((f"{name}.{below}", each) for below, each in part.named_parameters())
    elif isinstance(part, (list, tuple)):
        for number, each in enumerate(part):
            yield from _named_in(f"{name}.{number}", each)


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
        self.bias = _uniform((out_features,), bound, dtype, seed + 1) if bias else None

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
        self.bias = _uniform((out_channels,), bound, dtype, seed + 1) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Sequential(Module):
    """Modules and functions one after the other: `Sequential(Linear(64, 32), distag.relu, Linear(32, 10))`."""

    def __init__(self, *parts: Any) -> None:
        self.parts = list(parts)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """As those of a module, "0.weight"."""
        return ((name.removeprefix("parts."), each) for name, each in super().named_parameters())

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x
