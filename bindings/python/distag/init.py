"""First values of parameters, in place and unrecorded, by the rules of `torch.nn.init`. Without a seed, one is drawn by
Python's `random`; with it, the values are the same on every machine. Random values are drawn before a tensor is
sharded: with one seed on all members, or `mark_sharding` takes those of one member as the source."""
from __future__ import annotations

import math
import random
from typing import Callable

from . import ops
from ._arguments import invalid
from ._dtypes import FLOATING, float64
from .tensor import Tensor

__all__ = ["calculate_gain", "constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_",
           "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_"]

GAINS = {"linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv_transpose2d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3,
         "relu": math.sqrt(2), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float = 0.01) -> float:
    """By how much values are made larger before a nonlinearity, so that its results vary as its inputs do; `param` is
    the slope of leaky_relu below 0."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + param * param))
    if nonlinearity not in GAINS:
        known = ", ".join(sorted([*GAINS, "leaky_relu"]))
        raise invalid(f"calculate_gain: the nonlinearity \"{nonlinearity}\" is not known; give one of {known}")
    return GAINS[nonlinearity]


def constant_(tensor: Tensor, value: float) -> Tensor:
    """Sets all elements to one value; gives the tensor itself, as all functions here do."""
    tensor.assign(value)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Sets all elements to 0."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Sets all elements to 1."""
    return constant_(tensor, 1)


def uniform_(tensor: Tensor, low: float = 0.0, high: float = 1.0, seed: int | None = None) -> Tensor:
    """Uniform values of [low, high)."""
    return _draw(tensor, seed, ops.rand, high - low, low)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, seed: int | None = None) -> Tensor:
    """Values of a normal distribution."""
    return _draw(tensor, seed, ops.randn, std, mean)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, seed: int | None = None) -> Tensor:
    """Uniform values of at most gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, seed)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, seed: int | None = None) -> Tensor:
    """Normal values with the deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), seed)


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     seed: int | None = None) -> Tensor:
    """Uniform values of at most gain * sqrt(3 / fan) (He et al. 2015); `a` is the slope of leaky_relu below 0."""
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, seed)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    seed: int | None = None) -> Tensor:
    """Normal values with the deviation gain / sqrt(fan) (He et al. 2015); `a` is the slope of leaky_relu below 0."""
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), seed)


def orthogonal_(tensor: Tensor, gain: float = 1.0, seed: int | None = None) -> Tensor:
    """A matrix whose rows, or columns where there are fewer of them, are orthogonal and of the length gain (Saxe et al.
    2013); dims after the first are one. Of n rows of m, n <= m, it takes n steps of n * m each."""
    _check(tensor, 2)
    rows, columns = tensor.shape[0], tensor.size // max(tensor.shape[0], 1)
    if tensor.size == 0:
        return tensor
    count, length = min(rows, columns), max(rows, columns)
    drawn = ops.randn(_seed(seed), (count, length), float64)
    basis = ops.zeros((count, length), float64)
    for number in range(count):  # classical Gram-Schmidt, twice: the second time takes away what was rounded
        row = drawn[number]
        for _ in range(2):
            row = row - (basis @ row) @ basis
        basis[number] = row / (row * row).sum().sqrt()
    whole = basis if rows <= columns else basis.T
    tensor.assign((whole * gain).reshape(tensor.shape))
    return tensor


def _draw(tensor: Tensor, seed: int | None, distribution: Callable[..., Tensor], scale: float, offset: float) -> Tensor:
    _check(tensor, 0)
    tensor.assign(distribution(_seed(seed), tensor.shape, tensor.dtype) * scale + offset)
    return tensor


def _seed(seed: int | None) -> int:
    return random.getrandbits(62) if seed is None else seed


def _check(tensor: Tensor, ndim: int) -> None:
    if tensor.dtype not in FLOATING:
        raise invalid(f"init: a tensor of floats is wanted, not of {tensor.dtype.name}")
    if tensor.spec is not None:  # its members would draw by themselves, each a whole tensor of its own
        raise invalid(f"init: the tensor is sharded as {tensor.spec}: initialise it before mark_sharding")
    if tensor.ndim < ndim:
        raise invalid(f"init: a tensor of at least {ndim} dims is wanted, not of the shape {list(tensor.shape)}")


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs and outputs an element of [out, in, ...] works on."""
    _check(tensor, 2)
    if tensor.size == 0:
        raise invalid(f"init: a tensor without elements has no fan: its shape is {list(tensor.shape)}")
    field = tensor.size // (tensor.shape[0] * tensor.shape[1])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise invalid(f"init: the mode is fan_in or fan_out, not \"{mode}\"")
    return _fans(tensor)[mode == "fan_out"]
