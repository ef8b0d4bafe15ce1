"""Optimizers with the rules and defaults of PyTorch. They step parameters where these live: tensors of this process, or
references to tensors, lists of tensors or objects with `parameters()`, anywhere."""
from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_double, c_void_p
from numbers import Real
from typing import TYPE_CHECKING, Any

from . import _raw
from ._arguments import Duration, double, invalid, text
from ._handles import OptimizerHandle, Owner, ValueHandle, WorkerHandle
from ._interrupts import call_and_hear
from ._library import lib
from ._raw import distag_error
from .calls import call_options
from .context import Context, copy_ranks
from .errors import UsageError, fail, kind_of
from .futures import Future, begin
from .rref import RRef
from .tensor import Tensor
from .values import from_value, to_value
from .worker import PARAMETERS

if TYPE_CHECKING:
    from .worker import Worker

# Two settings that PyTorch gives as one.
_PAIRS = {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("step_size_min", "step_size_max")}


class Optimizer(Owner):
    """An update rule and its state, for parameters anywhere. The worker may be None when all are tensors. Settings are
    those of PyTorch: `lr`, `momentum`, `weight_decay`, `betas` ..."""

    __slots__ = ("_has_worker", "parameters")
    kind = ""

    def __init__(self, worker: Worker | None, parameters: Iterable[Any], **settings: Any) -> None:
        if worker is not None and not isinstance(getattr(worker, "_h", None), WorkerHandle):
            raise invalid(f"worker: a worker or None is wanted, not {kind_of(worker)}")
        if isinstance(parameters, Tensor):
            raise invalid("parameters: a list is wanted, not one tensor")
        found = [each for parameter in parameters for each in _parameters(worker, parameter)]
        keep: list[Any] = []
        values = [to_value(each, keep, f"parameters[{index}]") for index, each in enumerate(found)]
        out, err = OptimizerHandle(), distag_error()
        if lib.distag_optimizer_create(None if worker is None else worker._h, self.kind.encode(),
                                       (c_void_p * len(values))(*values), len(values), byref(out), byref(err)):
            fail(err)
        self._h = out
        self._has_worker = worker is not None
        self.parameters = found  # tensors and references, in the order of the state that is saved
        self.set(**settings)

    def close(self) -> None:
        """Drops the handle now, and what it stepped."""
        self.parameters = []
        super().close()

    def set(self, **settings: Any) -> None:
        """Changes settings from the next step on."""
        for pair in _PAIRS.keys() & settings.keys():
            values = settings.pop(pair)
            if not isinstance(values, (tuple, list)) or len(values) != 2:
                raise invalid(f"{pair} are two numbers, not {values!r}")
            settings.update(zip(_PAIRS[pair], values))
        for name, value in settings.items():
            if not isinstance(value, Real):
                raise invalid(f"{name}: a number is wanted, not {value!r}")
            err = distag_error()
            if lib.distag_optimizer_set(self._h, text(name, "setting"), value, byref(err)):
                fail(err)

    def step(self, context: Context, timeout: Duration = None) -> None:
        """Updates each parameter with its gradient in the context, at all owners side by side."""
        _check_context(context, "step")
        if self._has_worker and not context.is_joint:
            self.step_async(context, timeout).result()
            return
        err = distag_error()
        step, arguments = lib.distag_optimizer_step, (self._h, context._h, call_options(timeout), byref(err))
        waits = context.is_joint and not all(isinstance(parameter, Tensor) for parameter in self.parameters)
        if context.is_joint and not waits:
            context.settle_async().result()  # then nothing is left to wait for: each member steps its own parts
        if call_and_hear(step, *arguments) if waits else step(*arguments):
            fail(err)

    def step_async(self, context: Context, timeout: Duration = None) -> Future[None]:
        """The same as a future."""
        _check_context(context, "step")
        return begin(lib.distag_optimizer_step_async, self._h, context._h, call_options(timeout))

    def stepped_ranks(self) -> list[int]:
        """The ranks of the owners that applied the last step."""
        return copy_ranks(lib.distag_optimizer_copy_stepped_ranks, self._h)

    def clip(self, context: Context, max_norm: float, timeout: Duration = None) -> float:
        """Scales the gradients of all parameters so that their joint 2-norm is at most max_norm; gives the norm that it
        found."""
        _check_context(context, "clip")
        if self._has_worker and not context.is_joint:
            return self.clip_async(context, max_norm, timeout).result()
        out, err = c_double(), distag_error()
        norm = double(max_norm, "max_norm")
        if call_and_hear(lib.distag_optimizer_clip, self._h, context._h, norm, call_options(timeout), byref(out),
                         byref(err)):
            fail(err)
        return out.value

    def clip_async(self, context: Context, max_norm: float, timeout: Duration = None) -> Future[float]:
        """The same as a future."""
        _check_context(context, "clip")
        return begin(lib.distag_optimizer_clip_async, self._h, context._h, double(max_norm, "max_norm"),
                     call_options(timeout))

    def save(self, timeout: Duration = None) -> dict[str, Any]:
        """The state at all owners and the settings."""
        if self._has_worker:
            return self.save_async(timeout).result()
        out, err = ValueHandle(), distag_error()
        if lib.distag_optimizer_save(self._h, call_options(timeout), byref(out), byref(err)):
            fail(err)
        state: dict[str, Any] = from_value(out)
        return state

    def save_async(self, timeout: Duration = None) -> Future[dict[str, Any]]:
        """The same as a future."""
        return begin(lib.distag_optimizer_save_async, self._h, call_options(timeout))

    def load(self, state: dict[str, Any], timeout: Duration = None) -> None:
        """Puts a saved state back."""
        if self._has_worker:
            self.load_async(state, timeout).result()
            return
        keep: list[Any] = []
        err = distag_error()
        if lib.distag_optimizer_load(self._h, to_value(state, keep, "state"), call_options(timeout), byref(err)):
            fail(err)

    def load_async(self, state: dict[str, Any], timeout: Duration = None) -> Future[None]:
        """The same as a future."""
        keep: list[Any] = []
        return begin(lib.distag_optimizer_load_async, self._h, to_value(state, keep, "state"), call_options(timeout))


def _check_context(context: Any, name: str) -> None:
    if not isinstance(context, Context):
        raise invalid(f"{name}: a context is wanted, not {kind_of(context)}")


def _parameters(worker: Worker | None, parameter: Any) -> list[Any]:
    """The tensors and references that a parameter of an optimizer stands for."""
    if isinstance(parameter, RRef):
        return [parameter] if worker is None else _parameters_behind(worker, parameter)
    if isinstance(parameter, Tensor):
        return [parameter]
    if hasattr(parameter, "parameters"):
        return list(parameter.parameters())
    if isinstance(parameter, (list, tuple)):
        return [each for item in parameter for each in _parameters(worker, item)]
    raise invalid(f"{kind_of(parameter)} is no parameter: give tensors, rrefs, or objects with parameters()")


def _parameters_behind(worker: Worker, reference: RRef) -> list[Any]:
    """References to the parameters of an object; an owner that is no Python has tensors or lists of them only."""
    try:
        return list(worker.call(reference.owner, PARAMETERS, reference, context=None))
    except UsageError as failure:
        if failure.code != _raw.E_NOT_FOUND:
            raise
        return [reference]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum."""

    __slots__ = ()
    kind = "sgd"


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011)."""

    __slots__ = ()
    kind = "adagrad"


class Adam(Optimizer):
    """Adam (Kingma and Ba 2014)."""

    __slots__ = ()
    kind = "adam"


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    __slots__ = ()
    kind = "adamw"


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012)."""

    __slots__ = ()
    kind = "adadelta"


class RMSprop(Optimizer):
    """RMSprop (Hinton 2012)."""

    __slots__ = ()
    kind = "rmsprop"


class Adamax(Optimizer):
    """Adamax (Kingma and Ba 2014)."""

    __slots__ = ()
    kind = "adamax"


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller and Braun 1993)."""

    __slots__ = ()
    kind = "rprop"
