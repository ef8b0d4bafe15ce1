"""Whether ops and calls are recorded for gradients: the block `no_grad`, and the inputs of ops within it."""
from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from ctypes import byref
from functools import wraps
from typing import TYPE_CHECKING, Any, Callable, TypeVar, cast

from . import _arguments
from ._handles import TensorHandle
from ._library import lib
from ._raw import distag_error
from .errors import fail

if TYPE_CHECKING:
    from .tensor import Tensor

class _Block:
    """One entry into a block `no_grad`."""

    __slots__ = ("token", "is_over")

    def __init__(self) -> None:
        self.is_over = False  # left in another context than it was entered in
        self.token: Token[tuple[_Block, ...]] = _blocks.set((*_blocks.get(), self))


_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("distag_no_grad", default=())
_is_used = False  # by this process, ever: an op of one that never leaves anything out asks no further
_requires_grad = lib.distag_tensor_get_requires_grad
Function = TypeVar("Function", bound=Callable[..., Any])


class no_grad(ContextDecorator):
    """Within the block nothing is recorded: results of ops have no history, and calls belong to no context unless they
    name one. Of this thread and coroutine alone; also a decorator of functions and coroutine functions. A generator
    takes the block inside, around what it does between two values."""

    def __init__(self) -> None:
        self._entered: list[_Block] = []

    def __call__(self, function: Function) -> Function:
        kinds = (function, type(function).__call__)
        if any(inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind) for kind in kinds):
            raise TypeError(f"no_grad: {getattr(function, '__name__', function)} is a generator, whose body runs later, "
                            "in turn with the program: write `with distag.no_grad():` inside it")
        if any(map(inspect.iscoroutinefunction, kinds)):
            @wraps(function)
            async def run_later(*arguments: Any, **named: Any) -> Any:
                with no_grad():
                    return await function(*arguments, **named)

            return cast(Function, run_later)

        @wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            with no_grad():
                return function(*arguments, **named)

        return cast(Function, run)

    def __enter__(self) -> no_grad:
        global _is_used
        _is_used = True
        self._entered.append(_Block())
        return self

    def __exit__(self, *_: Any) -> None:
        here = _blocks.get()
        block = next((block for block in reversed(here) if block in self._entered), None) or self._entered[-1]
        self._entered.remove(block)
        try:
            _blocks.reset(block.token)
        except ValueError:  # an event loop closes a generator in another context than that of its caller
            block.is_over = True
        else:
            _blocks.set(tuple(other for other in here if other is not block and not other.is_over))


def is_grad_enabled() -> bool:
    """Whether ops here are recorded: false within a `no_grad` block."""
    blocks = _blocks.get()
    return not blocks or all(block.is_over for block in blocks)


def input_of(handle: Any) -> Any:
    """The handle as something recorded is given it: within `no_grad` that of the same values without history."""
    if not _is_used or not _blocks.get() or handle is None or not _requires_grad(handle) or is_grad_enabled():
        return handle
    out, err = TensorHandle(), distag_error()
    if lib.distag_detach(handle, byref(out), byref(err)):
        fail(err)
    return out


def _op_input(handle: Any) -> Any:
    """As input_of, but a sharded one stays: ops are placed with regard to which inputs are parameters."""
    if handle is None or not _requires_grad(handle) or lib.distag_tensor_get_mesh(handle):
        return handle
    return input_of(handle)


def tensor_of(tensor: Tensor, name: str) -> Any:
    """The handle of an input of an op."""
    handle = _arguments.tensor_of(tensor, name)
    return _op_input(handle) if _is_used and _blocks.get() else handle


def handle_of(tensor: Tensor | None) -> Any:
    """The handle of an input that may be missing, or nothing."""
    handle = _arguments.handle_of(tensor)
    return _op_input(handle) if _is_used and _blocks.get() else handle


def handle_array(tensors: Sequence[Tensor | None]) -> tuple[Any, int]:
    """An array of the handles of inputs, which it keeps alive, and its length."""
    if _is_used and _blocks.get():
        return _arguments.array_of([_op_input(handle) for handle in _arguments.handles_of(tensors)])
    return _arguments.handle_array(tensors)


def output_of(handle: Any) -> Any:
    """The handle of an output of an op: within `no_grad` without the history that it has of sharded inputs."""
    return input_of(handle) if _is_used and _blocks.get() else handle
