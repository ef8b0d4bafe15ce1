"""Modules whose parameters are distributed by rules: patterns of their names, and specs."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ._specs import Spec
from .mesh import Mesh
from .nn import Module
from .plan import Plan

M = TypeVar("M", bound=Module)


def distribute_module(module: M, mesh: Mesh, rules: Mapping[str, Spec], src_data_rank: int | None = 0) -> M:
    """Shards the parameters of a module, in place, and gives it: `Plan` says how rules fit names. All members get the
    values of the one at the position `src_data_rank`, so that a model made with other random numbers on each is one
    model; with None each keeps its part of its own. Rules that fit nothing, or do not suit, are refused before anything
    is sharded. Collective."""
    with Plan(mesh, dict(module.named_parameters()), rules, source=src_data_rank) as plan:
        plan.apply(mesh)
    return module
