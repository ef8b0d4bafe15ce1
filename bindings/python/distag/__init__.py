"""distag: distributed autograd. Workers call each other's functions, and one backward pass runs through all of them."""
from __future__ import annotations

from typing import Any

from . import _raw, checkpoint, init, nn, ops, optim
from ._apply import apply
from ._arguments import FOREVER
from ._dtypes import DType, bool_, float32, float64, int64
from ._library import lib as _lib
from ._distribute import distribute_module
from ._sharded import deferred, distribute_tensor, from_local, mark_sharding
from ._recording import is_grad_enabled, no_grad
from ._specs import Partial, Replicate, Shard, Spec
from .calls import CURRENT, current_context
from .context import Context, Gradients, copy_report
from .custom import CustomOp
from .environment import Environment, get_environment
from .errors import (ClosedError, DistagError, GaveUpError, OtherError, ReconnectError, RetryError, Status,
                     UnsupportedError, UsageError, UserError)
from .functions import Invocation, Reply, current_call, function
from .futures import Future, wait_all
from .loader import Loader, LoaderInfo
from .mesh import Box, HybridMesh, Mesh, visualize_sharding, visualize_tensor_sharding
from .ops import *  # noqa: F401,F403
from .ops import __all__ as _op_names
from .plan import Plan
from .rref import RRef
from .security import KeyPair, create_keys
from .tensor import Tensor, from_dlpack, from_numpy, full, tensor  # this full stands for that of ops
from .worker import OPEN_WORLD, Member, Worker
from . import dtensor

__version__ = _raw.VERSION
__all__ = ["Box", "CURRENT", "ClosedError", "Context", "CustomOp", "DType", "DistagError", "Environment", "FOREVER", "Future",
           "GaveUpError", "Gradients", "HybridMesh", "Invocation", "KeyPair", "Loader", "LoaderInfo", "Member", "Mesh", "OPEN_WORLD",
           "OtherError", "Partial", "Plan", "RRef", "ReconnectError", "Replicate", "Reply", "RetryError", "Shard", "Spec",
           "Status", "Tensor", "UnsupportedError", "UsageError", "UserError", "Worker", "apply", "bool_",
           "checkpoint", "create_keys", "current_call", "current_context", "deferred", "distribute_module",
           "distribute_tensor", "dtensor", "float32", "float64", "from_dlpack", "from_local", "from_numpy", "function", "get_environment",
           "handle_count", "handle_report", "init", "int64", "is_grad_enabled", "mark_sharding", "nn", "no_grad", "ops", "optim", "tensor",
           "visualize_sharding", "visualize_tensor_sharding", "wait_all", *_op_names]


def handle_count() -> int:
    """Handles of this process that are not released yet."""
    return int(_lib.distag_get_handle_count())


def handle_report() -> dict[str, Any]:
    """The live handles by kind; with DISTAG_VALIDATE=1 in the environment also the function that made each."""
    return copy_report(_lib.distag_copy_handle_report)
