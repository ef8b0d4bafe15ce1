"""Specs: how a tensor lies on a mesh. A text of any form that the library takes, a tuple with an item per dim, or a
list of placements with an item per axis of the mesh."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_int64
from dataclasses import dataclass
from operator import index
from typing import Any, Union

from ._arguments import fit, invalid, text

Item = Union[None, str, int, tuple[Union[str, int], ...]]
Axes = Union[None, str, Sequence[Union[str, int]]]


class Placement:
    """How a tensor lies along one axis of a mesh."""


@dataclass(frozen=True)
class Shard(Placement):
    """A placement: the axis cuts a dim."""

    dim: int

    def __post_init__(self) -> None:
        fit(self.dim, c_int64, "Shard: dim")

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """A placement: the tensor is repeated along the axis."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """A placement: the tensor is the sum of what the members along the axis have."""

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if not (isinstance(self.reduce_op, str) and self.reduce_op == "sum"):
            raise invalid(f"Partial: a partial tensor is a sum, not {self.reduce_op!r}: of \"avg\" divide by the size of "
                          "the axis, of \"max\" and \"min\" reduce the parts (mesh.all_reduce)")

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


Spec = Union[str, Sequence[Item], Sequence[Placement]]


def text_of(spec: Any, where: str = "") -> bytes:
    """A spec for the library."""
    if isinstance(spec, str):
        return text(spec, f"{where}spec")
    if not isinstance(spec, (tuple, list)):
        raise invalid(f"{where}a spec is a text, a tuple with an item per dim, or a list of placements, not {spec!r}")
    if any(_is_placement(item) for item in spec):
        return text(", ".join(str(item) for item in spec), f"{where}spec")
    return text(_listed([_item(item, where) for item in spec]), f"{where}spec")


def placements_of(printed: str) -> tuple[Placement, ...]:
    """The placements of a text of the library."""
    return tuple(_placement(item) for item in printed.split(", "))


def _placement(item: str) -> Placement:
    if item == "R":
        return Replicate()
    if item.startswith("P("):
        return Partial(item[2:-1])
    if not item.endswith(")"):  # "S(0)[1]"
        raise invalid(f"placements: axes cut a dim in another order than that of the mesh, {item}, which no placement "
                      "says: take the spec")
    return Shard(int(item[2:-1]))


def axes_text(axes: Axes) -> bytes | None:
    """The axes of a collective for the library; None stands for all."""
    if axes is None or isinstance(axes, str):
        return None if axes is None else text(axes, "axes")
    if not isinstance(axes, (tuple, list)):
        raise invalid(f"axes: the name of an axis, or a tuple of names, is wanted, not {axes!r}")
    return text(_listed([_axis(axis) for axis in axes]), "axes")


def _is_placement(item: Any) -> bool:
    """Ours, or torch's, which prints itself in a way that the library reads."""
    return isinstance(item, Placement) or hasattr(item, "is_replicate")


def _listed(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _item(item: Any, where: str) -> str:
    if item is None:
        return "None"
    return _listed([_axis(axis, where) for axis in item]) if isinstance(item, (tuple, list)) else _axis(item, where)


def _axis(axis: Any, where: str = "") -> str:
    if isinstance(axis, str) and axis.isidentifier():
        return f"'{axis}'"
    if not isinstance(axis, bool):
        with suppress(TypeError):  # also of an array of several, which has __index__
            return str(index(axis))
    raise invalid(f"{where}an item of a spec is None, the name or number of an axis, or a tuple of these, not {axis!r}")
