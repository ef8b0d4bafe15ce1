"""Numbers of the host as row-major memory: nested lists, NumPy arrays, buffers."""
from __future__ import annotations

import array
from ctypes import addressof, c_char, c_int64
from typing import Any

from . import _raw
from ._dtypes import BY_NAME, DType, bool_, float32, int64
from .errors import UnsupportedError, UsageError

int64_type = c_int64
PLAIN = (int, float, list, tuple)
CODES = {"f": "float32", "d": "float64", "q": "int64", "l": "int64", "?": "bool"}


class Packed:
    """Memory with its dtype and shape; `address` is good as long as this lives."""

    def __init__(self, dtype: DType, shape: tuple[int, ...], memory: Any, address: Any, size: int) -> None:
        self.dtype = dtype
        self.shape = shape
        self.memory = memory
        self.address = address
        self.size = size


def check_plain(data: Any) -> None:
    """Refuses an array that means more than its elements say, as that would be lost in silence."""
    kind = type(data).__name__
    cure = ""
    if hasattr(data, "mask") and hasattr(data, "filled"):
        cure = "its mask would be lost: give array.filled(value), or array.data and the mask as a tensor of its own"
    elif getattr(getattr(data, "dtype", None), "names", None):
        names = data.dtype.names
        cure = f"its elements have fields: give one of them, as array[{names[0]!r}], or a tensor for each"
    elif hasattr(data, "units") or hasattr(data, "unit"):
        cure = "its unit would be lost: convert it, and give its plain numbers (array.magnitude, array.value)"
    elif _is_of_own_kind(data):
        cure = "what its type means beyond the elements would be lost: give numpy.asarray(array)"
    if cure:
        raise UsageError(f"an array of type {kind}: {cure}", _raw.E_INVALID_ARGUMENT)


def _is_of_own_kind(data: Any) -> bool:
    """Whether it is of a class that others derived from NumPy's; a file that is mapped is plain memory."""
    import numpy

    return isinstance(data, numpy.ndarray) and type(data) not in (numpy.ndarray, numpy.memmap)


def pack(data: Any, dtype: DType | None) -> Packed:
    """The memory of the data in a dtype, or in that which fits it."""
    if hasattr(data, "__array_interface__"):
        check_plain(data)
        return _pack_numpy(data, dtype)
    if isinstance(data, (bytes, bytearray, memoryview, array.array)):
        return _pack_buffer(memoryview(data), dtype)
    shape: list[int] = []
    flat: list[Any] = []
    _flatten(data, 0, shape, flat)
    chosen = dtype or _dtype_of(flat)
    return _pack_numbers(flat, tuple(shape), chosen)


def _flatten(data: Any, depth: int, shape: list[int], flat: list[Any]) -> None:
    if hasattr(data, "__array_interface__"):
        check_plain(data)
    if not isinstance(data, PLAIN) and hasattr(data, "tolist"):  # of NumPy, or a tensor: within a list, numbers
        data = data.tolist()
    if not isinstance(data, (list, tuple)):
        if depth != len(shape):
            raise _ragged()
        flat.append(data)
        return
    if depth == len(shape):
        if flat:
            raise _ragged()
        shape.append(len(data))
    elif shape[depth] != len(data):
        raise _ragged()
    for item in data:
        _flatten(item, depth + 1, shape, flat)


def _ragged() -> UsageError:
    return UsageError("the lists have different lengths or depths", _raw.E_INVALID_ARGUMENT)


def _dtype_of(flat: list[Any]) -> DType:
    if flat and all(isinstance(item, bool) for item in flat):
        return bool_
    if flat and all(isinstance(item, int) for item in flat):
        return int64
    return float32


def _pack_numbers(flat: list[Any], shape: tuple[int, ...], dtype: DType) -> Packed:
    numbers: array.array[Any]
    try:
        if dtype is bool_:
            numbers = array.array("B", [_bit(item) for item in flat])
        else:
            numbers = array.array(dtype.format, flat)
    except (TypeError, OverflowError) as error:
        raise UsageError(f"no {dtype.name}: {error}", _raw.E_INVALID_ARGUMENT) from None
    address, count = numbers.buffer_info()
    return Packed(dtype, shape, numbers, address if count else None, count * numbers.itemsize)


def _bit(item: Any) -> int:
    if not isinstance(item, (int, float)):
        raise TypeError(f"must be a bool or a number, not {type(item).__name__}")
    return 1 if item else 0


def _pack_buffer(view: memoryview, dtype: DType | None) -> Packed:
    found = BY_NAME.get(CODES.get(view.format, ""))
    if found is None:
        raise UnsupportedError(f"a buffer of format {view.format!r}: make it float32, float64, int64 or bool, or say "
                               "what bytes are, as in memoryview(data).cast(\"f\")", _raw.E_UNSUPPORTED)
    if dtype is not None and dtype is not found:
        raise UnsupportedError(f"a buffer of {found.name} is not converted: make a tensor of it, and cast that to "
                               f"{dtype.name}", _raw.E_UNSUPPORTED)
    data = bytearray(view.tobytes())
    address = addressof(c_char.from_buffer(data)) if data else None
    return Packed(found, tuple(view.shape or ()), data, address, len(data))


def dtype_of_numpy(data: Any) -> DType:
    """The dtype of a NumPy array that has one of ours."""
    dtype = BY_NAME.get(data.dtype.name)
    if dtype is None or not data.dtype.isnative:
        raise UnsupportedError(f"arrays of {data.dtype}: convert it to float32, float64, int64 or bool",
                               _raw.E_UNSUPPORTED)
    return dtype


def _check_cast(data: Any, dtype: DType) -> None:
    """Refuses what NumPy would cut: fractions, imaginary parts, the highest bit."""
    kind = data.dtype.kind
    if kind not in ("biu" if dtype is int64 else "biuf"):
        raise UsageError(f"no {dtype.name}: an array of {data.dtype}: convert it by array.astype(\"{dtype.name}\")",
                         _raw.E_INVALID_ARGUMENT)
    if dtype is int64 and kind == "u" and data.size and data.max() >= 2**63:
        raise UsageError(f"no int64: {data.max()} is too large", _raw.E_INVALID_ARGUMENT)


def _pack_numpy(data: Any, dtype: DType | None) -> Packed:
    import numpy

    data = numpy.asarray(data)
    if dtype is None:
        dtype = dtype_of_numpy(data)
    _check_cast(data, dtype)
    rows = numpy.ascontiguousarray(data, dtype=dtype.name).reshape(data.shape)
    return Packed(dtype, tuple(rows.shape), rows, rows.ctypes.data if rows.size else None, rows.nbytes)
