"""Modules whose parameters are distributed by rules: patterns of their names, and specs."""
from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TypeVar

from ._arguments import invalid
from ._sharded import distribute_tensor
from ._specs import Spec, text_of
from .errors import UsageError
from .mesh import Mesh
from .nn import Module
from .tensor import Tensor

M = TypeVar("M", bound=Module)


def distribute_module(module: M, mesh: Mesh, rules: Mapping[str, Spec], src_data_rank: int | None = 0) -> M:
    """Shards the parameters of a module, in place, and gives it. A parameter has the spec of the first pattern that
    fits its name (* within dots, ** across them, ? one character); one without is repeated. All members get the values
    of the one at the position `src_data_rank`, so that a model made with other random numbers on each is one model;
    with None each keeps its part of its own. Rules that fit nothing, or do not suit, are refused before anything is
    sharded. Collective."""
    parameters = dict(module.named_parameters())
    _check(rules, list(parameters))
    specs = {name: _spec_of(name, parameter, mesh, rules) for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        distribute_tensor(parameter, mesh, specs[name], src_data_rank)
    return module


def fits(pattern: str, name: str) -> bool:
    """Whether a name is one of a pattern."""
    parts = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    expression = "".join(parts.get(part) or re.escape(part) for part in re.split(r"(\*\*|\*|\?)", pattern))
    return re.fullmatch(expression, name, re.S) is not None


def _check(rules: Mapping[str, Spec], names: list[str]) -> None:
    for pattern in rules:
        if not any(fits(pattern, name) for name in names):
            near = difflib.get_close_matches(pattern, names, 3, 0.3) or names[:3]
            raise invalid(f"distribute_module: the pattern \"{pattern}\" fits no parameter: there are "
                          f"{', '.join(near) or 'none'}")


def _spec_of(name: str, parameter: Tensor, mesh: Mesh, rules: Mapping[str, Spec]) -> str:
    for pattern, spec in rules.items():
        if fits(pattern, name):
            try:
                return mesh.spec(spec, parameter.ndim)
            except UsageError as failure:
                raise invalid(f"distribute_module: rule \"{pattern}\" {text_of(spec).decode()} does not suit {name}: "
                              f"{failure.message}") from None
    return mesh.spec((None,) * parameter.ndim, parameter.ndim)
