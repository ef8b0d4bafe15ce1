"""Sharded tensors with the names that a user of torch.distributed.tensor (DTensor) and FSDP2 knows, where they mean the
same. docs/python-from-torch.md has a table of what stands for the rest."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from . import rpc
from ._arguments import double, flag, ints, invalid, mesh_of
from ._distribute import distribute_module
from ._dtypes import DType, float32
from ._sharded import deferred, distribute_tensor, mark_sharding
from ._specs import Partial, Placement, Replicate, Shard, Spec
from .errors import kind_of
from .mesh import Mesh
from .nn import Module
from .tensor import Tensor
from .worker import Worker

__all__ = ["ColwiseParallel", "Partial", "Replicate", "RowwiseParallel", "Shard", "distribute_module",
           "distribute_tensor", "full", "fully_shard", "init_device_mesh", "ones", "parallelize_module", "rand", "randn", "zeros"]

M = TypeVar("M", bound=Module)


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None,
                     worker: Worker | None = None) -> Mesh:
    """A mesh of all workers; `worker` is that of this process, unless rpc.init_rpc made it. Collective."""
    if not (isinstance(device_type, str) and device_type == "cpu"):
        raise invalid(f"init_device_mesh: device_type is \"cpu\", not {device_type!r}")
    if not isinstance(worker, (Worker, type(None))):
        raise invalid(f"init_device_mesh: a worker is wanted, not {kind_of(worker)}")
    return (rpc.worker() if worker is None else worker).mesh(ints(mesh_shape, "mesh_shape"), mesh_dim_names)


# ---- factories: each member makes its own part, nothing is sent ----

def zeros(*size: Any, dtype: DType = float32, requires_grad: bool = False, device_mesh: Mesh,
          placements: Spec | None = None) -> Tensor:
    """A sharded tensor filled with 0. Collective."""
    return full(_size(size), 0.0, dtype=dtype, requires_grad=requires_grad, device_mesh=device_mesh,
                placements=placements)


def ones(*size: Any, dtype: DType = float32, requires_grad: bool = False, device_mesh: Mesh,
         placements: Spec | None = None) -> Tensor:
    """A sharded tensor filled with 1. Collective."""
    return full(_size(size), 1.0, dtype=dtype, requires_grad=requires_grad, device_mesh=device_mesh,
                placements=placements)


def full(size: Sequence[int], fill_value: float, *, dtype: DType = float32, requires_grad: bool = False,
         device_mesh: Mesh, placements: Spec | None = None) -> Tensor:
    """A sharded tensor filled with a value. Collective."""
    return _lay(deferred(size, dtype, shift=double(fill_value, "fill_value")), requires_grad, device_mesh, placements)


def rand(*size: Any, seed: int, dtype: DType = float32, requires_grad: bool = False, device_mesh: Mesh,
         placements: Spec | None = None) -> Tensor:
    """A sharded tensor, uniform in [0, 1): the numbers of distag.rand with that seed, on any mesh. Collective."""
    return _lay(deferred(_size(size), dtype, init="rand", seed=seed), requires_grad, device_mesh, placements)


def randn(*size: Any, seed: int, dtype: DType = float32, requires_grad: bool = False, device_mesh: Mesh,
          placements: Spec | None = None) -> Tensor:
    """A sharded tensor, standard normal: the numbers of distag.randn with that seed, on any mesh. Collective."""
    return _lay(deferred(_size(size), dtype, init="randn", seed=seed), requires_grad, device_mesh, placements)


def _size(given: tuple[Any, ...]) -> Any:
    return given[0] if len(given) == 1 and not isinstance(given[0], int) else given


def _lay(made: Tensor, requires_grad: bool, mesh: Mesh, placements: Spec | None) -> Tensor:
    spec = (None,) * made.ndim if placements is None else placements
    return mark_sharding(made, mesh, spec).requires_grad_(flag(requires_grad, "requires_grad"))


# ---- modules ----

@dataclass(frozen=True)
class ParallelStyle:
    """How the tensors of a layer lie along the last axis of the mesh, by their names in the layer."""

    weight: Placement
    bias: Placement


def ColwiseParallel() -> ParallelStyle:
    """A Linear whose outputs are cut: rows of the weight, and the bias."""
    return ParallelStyle(Shard(0), Shard(0))


def RowwiseParallel() -> ParallelStyle:
    """A Linear whose inputs are cut: columns of the weight; its result is a sum, added up where it is needed."""
    return ParallelStyle(Shard(1), Replicate())


def parallelize_module(module: M, device_mesh: Mesh, parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle], *,
                       src_data_rank: int | None = 0) -> M:
    """Shards the layers of a module, by their paths (patterns as in distribute_module), along the last axis of the
    mesh. Inputs and results stay what they are, wholes that lie over the mesh. Collective."""
    styles = {"": parallelize_plan} if isinstance(parallelize_plan, ParallelStyle) else parallelize_plan
    if not isinstance(styles, Mapping) or not all(isinstance(style, ParallelStyle) for style in styles.values()):
        raise invalid("parallelize_module: the plan is ColwiseParallel(), RowwiseParallel(), or a map from paths to these")
    names = list(module.state_dict()) if isinstance(module, Module) else []
    before = _axes(device_mesh, "parallelize_module")[1:]
    rules: dict[str, Spec] = {}
    for path, style in styles.items():
        for part, placement in vars(style).items():
            pattern = f"{path}.{part}".removeprefix(".")
            left = [name for name in names if not any(_fits(name, earlier) for earlier in rules)]
            if part == "weight" or any(_fits(name, pattern) for name in left):  # a layer may have no bias
                rules[pattern] = [*before, placement]
    return distribute_module(module, device_mesh, rules, src_data_rank)


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and ("**" in pattern or name.count(".") == pattern.count("."))


def fully_shard(module: M, *, mesh: Mesh, src_data_rank: int | None = 0) -> M:
    """Cuts the first dim of each tensor over the last axis of the mesh (along others it is repeated, as FSDP2 does): it
    is gathered where it is used, its gradient is reduced and scattered. What has no dims is repeated. Collective."""
    whole = _axes(mesh, "fully_shard")
    tensors = module.state_dict() if isinstance(module, Module) else {}
    rules: dict[str, Spec] = {name: whole for name, tensor in tensors.items() if tensor.ndim == 0}
    if len(rules) < len(tensors) or not tensors:
        rules["**"] = [*whole[1:], Shard(0)]
    return distribute_module(module, mesh, rules, src_data_rank)


def _axes(mesh: Mesh, name: str) -> list[Placement]:
    """A placement that repeats, for each axis."""
    mesh_of(mesh, name)
    return [Replicate() for _ in mesh.axis_names]
