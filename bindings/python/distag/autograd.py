"""Distributed autograd with the names that a user of torch.distributed.autograd knows. The context itself stands where
torch has its id."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import rpc
from .context import Context, Gradients, Root
from .optim import Optimizer

__all__ = ["DistributedOptimizer", "backward", "context", "get_gradients"]


def context() -> Context:
    """A context of the worker of this process: `with autograd.context() as context_id:`."""
    return rpc.worker().context()


def backward(context_id: Context, roots: Root | Sequence[Root], retain_graph: bool = False,
             create_graph: bool = False) -> None:
    """Runs a backward pass from the roots through every worker they depend on."""
    context_id.backward(roots, retain_graph=retain_graph, create_graph=create_graph)


def get_gradients(context_id: Context) -> Gradients:
    """The gradients of this worker, by tensor."""
    return context_id.gradients()


def DistributedOptimizer(optimizer_class: type[Optimizer], params_rref: Sequence[Any], **settings: Any) -> Optimizer:
    """An optimizer that steps the parameters at their owners."""
    return optimizer_class(rpc.worker(), params_rref, **settings)
