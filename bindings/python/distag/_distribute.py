"""Modules whose parameters are distributed by rules: patterns of their names, and specs."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ._arguments import invalid
from ._specs import Spec
from .errors import kind_of
from .mesh import Mesh
from .nn import Module
from .plan import Plan

M = TypeVar("M", bound=Module)


def distribute_module(module: M, mesh: Mesh, rules: Mapping[str, Spec], src_data_rank: int | None = 0) -> M:
    """Shards the tensors of a module, frozen ones too, in place, and gives it: `Plan` says how rules fit names, those
    of `state_dict`. All members get the values of the one at the position `src_data_rank`, so that a model made with
    other random numbers on each is one model; with None each keeps its part of its own. Rules that fit nothing, or do
    not suit, are refused before anything is sharded. Collective."""
    if not isinstance(module, Module):
        raise invalid(f"distribute_module: a module is wanted, not {kind_of(module)}")
    with Plan(mesh, module.state_dict(), rules, source=src_data_rank) as plan:
        plan.apply(mesh)
    return module
