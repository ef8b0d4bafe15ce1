"""Arguments of C calls made of those of Python: arrays of numbers and of handles, texts, times."""
from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_int64, c_void_p, sizeof
from numbers import Integral, Real
from operator import index
from typing import TYPE_CHECKING, Any, Union

from . import _raw
from .errors import UsageError, kind_of

if TYPE_CHECKING:
    from datetime import timedelta

    from .mesh import Mesh
    from .tensor import Tensor

Ints = Union[int, Sequence[int]]
Duration = Union[float, "timedelta", None]
INFINITY = math.inf
EXACT = 2**53  # up to it a float64 holds every integer
FOREVER = math.inf
TORCH_UNSET = -1.0
LONGEST = 2**62 / _raw.SECOND  # seconds, some 146 years: longer is for ever


def invalid(message: str) -> UsageError:
    """The error of an argument that does not reach the library."""
    return UsageError(message, _raw.E_INVALID_ARGUMENT)


def ints(values: Ints, what: str = "sizes and dims") -> list[int]:
    """A list of one integer or several, of Python's or NumPy's."""
    try:
        if not isinstance(values, (bytes, bytearray, dict)):  # whose items are integers, or may be
            return [index(values)] if isinstance(values, (int, Integral)) else list(map(index, values))
    except TypeError:
        pass
    raise invalid(f"{what}: integers are wanted, not {values!r}")


def integer(number: Any, what: str, wanted: str = "an integer is wanted") -> int:
    """An integer, of Python's or NumPy's. (An array of several has __index__, too, and fails in it.)"""
    try:
        return index(number)
    except TypeError:
        raise invalid(f"{what}: {wanted}, not {number!r}") from None


def fit(number: int, kind: Any, what: str) -> int:
    """An integer as it is; one that does not fit into the type of C, which would cut it, is refused."""
    given = integer(number, what)
    if kind(given).value != given:
        raise invalid(f"{what}: {given} does not fit into {8 * sizeof(kind)} bits")
    return given


def flag(given: bool, what: str) -> bool:
    """An answer yes or no, of Python's or NumPy's. An integer is none: 7 and -1 would be a yes."""
    kind = type(given)
    if kind is bool or kind.__module__ == "numpy" and kind.__name__ in ("bool_", "bool"):  # of NumPy 1 and 2
        return bool(given)
    raise TypeError(f"{what}: True or False is wanted, not {given!r}")


def callable_of(given: Any, what: str) -> Any:
    """A function, which is called later: another thread would fail then."""
    if not callable(given):
        raise invalid(f"{what}: a function is wanted, not {kind_of(given)}")
    return given


def position(number: Any, name: str) -> int:
    """The place of a member in a mesh."""
    return integer(number, name, "the position of a member is an integer, or None")


def double(number: Any, what: str) -> Any:
    """A number that C takes as a float64; a whole one that none holds, and would be rounded, is refused."""
    if isinstance(number, float) or (isinstance(number, int) and -EXACT <= number <= EXACT):
        return number
    given = number
    try:
        given = number.item() if hasattr(number, "item") else number  # of NumPy, or a tensor
        if not hasattr(given, "__float__") and not hasattr(given, "__index__"):
            raise TypeError  # float() reads texts, and buffers as texts
        nearest = float(given)
    except OverflowError:
        nearest = INFINITY
    except (TypeError, ValueError):
        raise invalid(f"{what}: a number is wanted, not {given!r}") from None
    if abs(nearest) >= EXACT and nearest != given:
        raise invalid(f"{what}: {given} would be rounded: no float64 holds it; a float is taken as it is")
    return given


def int64_array(values: Ints, what: str = "sizes and dims") -> tuple[Any, int]:
    """An array and its length, of one number or several."""
    numbers = ints(values, what)
    array = (c_int64 * len(numbers))(*numbers)
    if list(array) != numbers:
        raise invalid(f"{what}: numbers of at most 64 bits are wanted, not {numbers}")
    return array, len(numbers)


def int64_pair(values: Ints, what: str = "sizes and dims") -> Any:
    """An array of two numbers; one number stands for both."""
    array, count = int64_array(values, what)
    if count == 1 and isinstance(values, (int, Integral)):
        return (c_int64 * 2)(array[0], array[0])
    if count != 2:
        raise invalid(f"{what}: two numbers are wanted (rows, columns), not {count}")
    return array


def length(values: Ints) -> int:
    """How many numbers there are."""
    return len(ints(values))


def handle_of(tensor: Tensor | None) -> Any:
    """The handle, or nothing."""
    if tensor is not None and not hasattr(tensor, "_h"):
        raise invalid(f"a tensor or None is wanted, not {kind_of(tensor)}")
    return None if tensor is None else tensor._h


def tensor_of(tensor: Tensor, name: str) -> Any:
    """The handle of an argument that is a tensor."""
    try:
        return tensor._h
    except AttributeError:
        raise invalid(f"{name}: a tensor is wanted, not {kind_of(tensor)}") from None


def mesh_of(mesh: Mesh, name: str) -> Any:
    """The handle of an argument that is a mesh."""
    if not hasattr(type(mesh), "axis_names"):
        raise invalid(f"{name}: a mesh is wanted, not {kind_of(mesh)}")
    return mesh._h


def handles_of(tensors: Sequence[Tensor | None]) -> list[Any]:
    """The handles of a list of tensors, some of which may be missing."""
    if hasattr(tensors, "_h"):
        raise invalid("a list of tensors is wanted, not one tensor")
    if not isinstance(tensors, (list, tuple)):  # a generator gives them once only
        try:
            tensors = list(tensors)
        except TypeError:
            raise invalid(f"a list of tensors is wanted, not {kind_of(tensors)}") from None
    for position, tensor in enumerate(tensors):
        if tensor is not None and not hasattr(tensor, "_h"):
            raise invalid(f"a list of tensors is wanted, and item {position} is {kind_of(tensor)}")
    return [None if tensor is None else tensor._h for tensor in tensors]


def array_of(handles: list[Any]) -> tuple[Any, int]:
    """An array of handles, which it keeps alive, and its length."""
    array = (c_void_p * len(handles))(*[None if handle is None else handle.value for handle in handles])
    array.keep = handles  # type: ignore[attr-defined]
    return array, len(handles)


def handle_array(tensors: Sequence[Tensor | None]) -> tuple[Any, int]:
    """An array of the handles, which it keeps alive, and its length."""
    return array_of(handles_of(tensors))


def text(value: str, what: str = "text") -> bytes:
    """UTF-8 for the library, which would end it at a NUL."""
    if not isinstance(value, str):
        raise invalid(f"{what}: a text is wanted, not {kind_of(value)}")
    encoded = value.encode()
    if b"\0" in encoded:
        raise invalid(f"{what}: a text cannot hold a NUL: give bytes")
    return encoded


def nanoseconds(duration: Duration, default: int = 0) -> int:
    """A duration in seconds, or as a timedelta; None is the default, FOREVER is for ever."""
    if duration is None:
        return default
    if hasattr(duration, "total_seconds"):
        duration = duration.total_seconds()
    if not isinstance(duration, Real) or not duration >= 0:
        raise invalid("a duration is a number of seconds from 0 on, a timedelta, None for the default, or FOREVER, "
                      f"not {duration!r}")
    return _raw.FOREVER if duration >= LONGEST else int(duration * _raw.SECOND)


def torch_timeout(timeout: float) -> Duration:
    """A timeout as torch says it: -1 is the default, 0 for ever."""
    return None if timeout == TORCH_UNSET else FOREVER if timeout == 0 else timeout


def limit_ns(duration: Duration) -> int:
    """The timeout in options, where 0 is the default: a duration of 0 is the shortest one there."""
    return 0 if duration is None else nanoseconds(duration) or 1
