"""Ops of the host's own, with their gradients, and hooks of tensors."""
from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_void_p, sizeof
from typing import Any, Union

from . import _callbacks, _raw
from ._arguments import invalid, text
from ._handles import TensorHandle
from ._library import lib
from ._raw import distag_error
from ._recording import handle_array, output_of
from .errors import fail
from .tensor import Tensor

Outputs = Union[Tensor, Sequence[Union[Tensor, None]], None]


class CustomOp:
    """An op with forward and backward of its own. Derive a class; each object is one application of it:

        class Scale(distag.CustomOp):
            def forward(self, x):
                return x * 3
            def backward(self, gradient):
                return gradient * 3

        y = Scale()(x)

    `self` keeps what backward needs. An output kept there must be detached, or the graph keeps itself alive."""

    name: str | None = None  # shows in errors and graphs; the name of the class unless set
    output_count = 1

    def forward(self, *inputs: Tensor) -> Outputs:
        """Computes the outputs, each a new tensor. Inputs come without history, so nothing is recorded."""
        raise NotImplementedError

    def backward(self, *gradients: Tensor | None) -> Outputs:
        """Computes the gradient of each input from that of each output; None stands for zeros."""
        raise NotImplementedError

    def __call__(self, *inputs: Tensor) -> Any:
        op = _raw.distag_custom_op(struct_size=sizeof(_raw.distag_custom_op),
                                   name=text(self.name or type(self).__name__, "name"), forward=FORWARD)
        if type(self).backward is not CustomOp.backward:
            op.backward = BACKWARD
        op.user_data, op.destroy = _callbacks.keep(self), _callbacks.FORGET
        array, count = handle_array(inputs)
        results, err = (c_void_p * self.output_count)(), distag_error()
        if lib.distag_apply_custom(byref(op), array, count, byref(results), self.output_count, byref(err)):
            fail(err)
        outputs = [Tensor(output_of(TensorHandle(result))) for result in results]
        return outputs[0] if self.output_count == 1 else outputs


def _lent_tensors(address: int, count: int) -> list[Tensor | None]:
    if not count:
        return []
    return [Tensor(TensorHandle.lent(lent)) if lent else None
            for lent in (c_void_p * count).from_address(address)]


def _write_tensors(results: Outputs, address: int, count: int, what: str) -> None:
    if isinstance(results, Tensor) or results is None:
        results = [results]
    if not isinstance(results, (list, tuple)) or not all(each is None or isinstance(each, Tensor) for each in results):
        raise invalid(f"{what} gives a tensor, or a list of tensors and None, not {results!r}")
    if len(results) != count:
        raise invalid(f"{what} gives {count} tensors, not {len(results)}")
    for index, result in enumerate(results):
        if result is not None:
            _callbacks.pass_on(address + index * sizeof(c_void_p), result._h)


def _run_forward(op: CustomOp, inputs: list[Any], out: int, count: int) -> None:
    _write_tensors(op.forward(*inputs), out, count, "forward")


def _run_backward(op: CustomOp, gradients: list[Any], out: int, count: int) -> None:
    _write_tensors(op.backward(*gradients), out, count, "backward")


@_callbacks.uninterrupted
def _forward(number: int, inputs: int, input_count: int, out: int, output_count: int, err: int) -> int:
    return _callbacks.answer(err, lambda: _run_forward(_callbacks.get(number), _lent_tensors(inputs, input_count),
                                                       out, output_count))


@_callbacks.uninterrupted
def _backward(number: int, gradients: int, output_count: int, out: int, input_count: int, err: int) -> int:
    return _callbacks.answer(err, lambda: _run_backward(_callbacks.get(number), _lent_tensors(gradients, output_count),
                                                        out, input_count))


def _run_hook(number: int, gradient: int, out: int) -> None:
    result = _callbacks.get(number)(Tensor(TensorHandle.lent(gradient)))
    if result is not None:
        if not isinstance(result, Tensor):
            raise invalid(f"a hook gives a tensor or None, not {result!r}")
        _callbacks.pass_on(out, result._h)


@_callbacks.uninterrupted
def _hook(number: int, gradient: int, out: int, err: int) -> int:
    return _callbacks.answer(err, lambda: _run_hook(number, gradient, out))


FORWARD = _callbacks.immortal(_raw.distag_custom_forward(_forward))
BACKWARD = _callbacks.immortal(_raw.distag_custom_backward(_backward))
HOOK = _callbacks.immortal(_raw.distag_tensor_hook(_hook))
