"""Any op by name."""
from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any

from . import _raw
from ._arguments import flag, text
from ._dtypes import DType
from ._handles import TensorHandle
from ._interrupts import call_op
from ._library import lib
from ._raw import distag_error
from ._recording import handle_array, is_grad_enabled
from .errors import fail
from .values import to_value

if TYPE_CHECKING:
    from .tensor import Tensor


def apply(op: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], outputs: int = 1,
          record: bool = True) -> list[Tensor]:
    """Runs any op by name (distag_apply), and gives its outputs; with `record` false nothing is recorded. An attribute
    that is None is left out."""
    array, count = handle_array(inputs)
    results = (c_void_p * outputs)()
    err = distag_error()
    keep: list[Any] = []
    plain = {key: int(value) if isinstance(value, DType) else value for key, value in attributes.items()
             if value is not None}
    given = to_value(plain, keep, op) if plain else None
    flags = 0 if flag(record, "record") and is_grad_enabled() else _raw.APPLY_NO_GRAD
    owned: list[TensorHandle] = []  # also after Ctrl-C, behind which an op with a sharded input goes on

    def run(*arguments: Any) -> int:
        status: int = lib.distag_apply(*arguments)
        owned.extend(TensorHandle(result) for result in results if not status)
        return status

    if call_op(run, text(op), array, count, given, flags, byref(results), outputs, byref(err),
               attributes=plain):
        fail(err)
    return [Tensor(handle) for handle in owned]
