"""Arguments of C calls made of those of Python: arrays of numbers and of handles, texts, times."""
from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING, Any, Union

from . import _raw
from .errors import UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from .tensor import Tensor

Ints = Union[int, Sequence[int]]
Duration = Union[float, "timedelta", None]
INFINITY = math.inf
FOREVER = math.inf


def invalid(message: str) -> UsageError:
    """The error of an argument that does not reach the library."""
    return UsageError(message, _raw.E_INVALID_ARGUMENT)


def int64_array(values: Ints) -> tuple[Any, int]:
    """An array and its length, of one number or several."""
    if isinstance(values, int):
        values = (values,)
    count = len(values)
    return (c_int64 * count)(*values), count


def int64_pair(values: Ints) -> Any:
    """An array of two numbers; one number stands for both."""
    if isinstance(values, int):
        return (c_int64 * 2)(values, values)
    if len(values) != 2:
        raise invalid(f"two numbers are wanted (rows, columns), not {len(values)}")
    return (c_int64 * 2)(*values)


def ints(values: Ints) -> list[int]:
    """A list of one number or several."""
    return [values] if isinstance(values, int) else list(values)


def length(values: Ints) -> int:
    """How many numbers there are."""
    return 1 if isinstance(values, int) else len(values)


def handle_of(tensor: Tensor | None) -> Any:
    """The handle, or nothing."""
    return None if tensor is None else tensor._h


def handle_array(tensors: Sequence[Tensor | None]) -> tuple[Any, int]:
    """An array of the handles, which it keeps alive, and its length."""
    handles = [None if tensor is None else tensor._h for tensor in tensors]
    array = (c_void_p * len(handles))(*[None if handle is None else handle.value for handle in handles])
    array.keep = handles  # type: ignore[attr-defined]
    return array, len(handles)


def text(value: str, what: str = "text") -> bytes:
    """UTF-8 for the library, which would end it at a NUL."""
    encoded = value.encode()
    if b"\0" in encoded:
        raise invalid(f"{what}: a text cannot hold a NUL: give bytes")
    return encoded


def nanoseconds(duration: Duration, default: int = 0) -> int:
    """A duration in seconds, or as a timedelta; None is the default, FOREVER is for ever."""
    if duration is None:
        return default
    if not isinstance(duration, (int, float)):
        duration = duration.total_seconds()
    if duration == math.inf:
        return _raw.FOREVER
    if not duration >= 0:
        raise invalid(f"a duration is a number of seconds from 0 on, or FOREVER, not {duration}")
    return min(int(duration * _raw.SECOND), 2**63 - 1)


def limit_ns(duration: Duration) -> int:
    """The timeout in options, where 0 is the default: a duration of 0 is the shortest one there."""
    return 0 if duration is None else nanoseconds(duration) or 1
