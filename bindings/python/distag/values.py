"""Values of calls: to the library and back. None, bool, int, float, str, bytes, tensors, references, lists and maps; an
object of the host stays where it is, behind a reference."""
from __future__ import annotations

from ctypes import byref, c_double, c_int32, c_int64, c_char_p, c_size_t, c_void_p, string_at
from typing import Any, Callable

from . import _callbacks, _raw
from ._arguments import invalid, text
from ._handles import ValueHandle
from ._library import lib
from ._raw import distag_error
from ._values_in import check_plain
from .errors import ClosedError, fail, kind_of

OBJECT_TYPE = b"python.object"
MAX_DEPTH = 16


# ---- to the library ----

def to_value(item: Any, keep: list[Any], path: str) -> Any:
    """The value of a Python object, as an address or a handle. `keep` gets what must live as long as it is used;
    `path` names the place in errors."""
    return _convert(item, keep, path, ())


def to_result(item: Any, keep: list[Any]) -> Any:
    """The value of a function's answer, which may be an object of the host: that answers a remote call only."""
    if isinstance(item, KINDS) or hasattr(item, "_distag_as_value"):
        return to_value(item, keep, "result")
    number = plain(item)
    if isinstance(number, KINDS) or hasattr(number, "__index__") and not hasattr(number, "ndim"):
        return to_value(number, keep, "result")
    return keep_value(object_value(item), keep)


def plain(item: Any) -> Any:
    """A number of NumPy as Python's; anything else as it is."""
    if hasattr(item, "__array_interface__"):
        check_plain(item)
    return item.tolist() if getattr(item, "ndim", None) == 0 and hasattr(item, "tolist") else item


def keep_value(handle: Any, keep: list[Any]) -> Any:
    keep.append(handle)
    return handle.value


def object_value(item: Any) -> ValueHandle:
    """A value that stands for an object of this process; it goes when no reference to it is left anywhere."""
    out, err = ValueHandle(), distag_error()
    if lib.distag_value_create_object(OBJECT_TYPE, _callbacks.keep(item), _callbacks.FORGET, byref(out), byref(err)):
        fail(err)
    return out


def _convert(item: Any, keep: list[Any], path: str, parents: tuple[int, ...]) -> Any:
    as_value = getattr(type(item), "_distag_as_value", None)
    if as_value is not None:
        try:
            handle = item._h
        except ClosedError as closed:
            raise ClosedError(f"{path}: {closed.message}", closed.code) from None
        keep.append(handle)
        return as_value(handle)
    if isinstance(item, (list, tuple, dict)):
        if id(item) in parents:
            raise invalid(f"{path} holds itself")
        if len(parents) >= MAX_DEPTH:
            raise invalid(f"{path} is nested deeper than {MAX_DEPTH}")
        convert = _convert_map if isinstance(item, dict) else _convert_list
        return keep_value(convert(item, keep, path, parents + (id(item),)), keep)
    return keep_value(_scalar(item if isinstance(item, KINDS) else plain(item), path), keep)


def _scalar(item: Any, path: str) -> ValueHandle:
    out, err = ValueHandle(), distag_error()
    if item is None:
        status = lib.distag_value_create_null(byref(out), byref(err))
    elif isinstance(item, bool):
        status = lib.distag_value_create_bool(item, byref(out), byref(err))
    elif isinstance(item, float):
        status = lib.distag_value_create_float64(item, byref(out), byref(err))
    elif isinstance(item, str):
        status = lib.distag_value_create_text(_text(item, path), byref(out), byref(err))
    elif isinstance(item, (bytes, bytearray, memoryview)):
        data = bytes(item)
        status = lib.distag_value_create_bytes(data, len(data), byref(out), byref(err))
    else:
        status = lib.distag_value_create_int64(_int64(item, path), byref(out), byref(err))
    if status:
        fail(err)
    return out


def _text(item: str, path: str) -> bytes:
    try:
        return text(item, path)
    except UnicodeEncodeError as error:
        raise invalid(f"{path}: a text that is no UTF-8: {error}") from None


def _int64(item: Any, path: str) -> int:
    try:
        number = int(item.__index__())
    except (AttributeError, TypeError):
        raise invalid(f"{path}: an object of type {type(item).__name__} is no value: give None, bool, int, float, str, "
                      "bytes, a Tensor, an RRef, a list or a dict of these; an object stays, behind an RRef") from None
    if not -2**63 <= number < 2**63:
        raise invalid(f"{path}: {number} does not fit into 64 bits")
    return number


def _convert_list(items: Any, keep: list[Any], path: str, parents: tuple[int, ...]) -> ValueHandle:
    out, err = ValueHandle(), distag_error()
    count = len(items)
    if count and all(type(item) is int for item in items):
        numbers = [_int64(item, f"{path}[{index}]") for index, item in enumerate(items)]
        status = lib.distag_value_create_int64_list((c_int64 * count)(*numbers), count, byref(out), byref(err))
    elif count and all(type(item) is float for item in items):
        status = lib.distag_value_create_float64_list((c_double * count)(*items), count, byref(out), byref(err))
    else:
        values = [_convert(item, keep, f"{path}[{index}]", parents) for index, item in enumerate(items)]
        status = lib.distag_value_create_list((c_void_p * count)(*values), count, byref(out), byref(err))
    if status:
        fail(err)
    return out


def _convert_map(items: Any, keep: list[Any], path: str, parents: tuple[int, ...]) -> ValueHandle:
    keys, values = [], []
    for key, item in items.items():
        if not isinstance(key, str):
            raise invalid(f"{path}: the key {key!r} is {kind_of(key)}: keys are texts")
        keys.append(_text(key, path))
        values.append(_convert(item, keep, f"{path}.{key}", parents))
    out, err = ValueHandle(), distag_error()
    count = len(keys)
    if lib.distag_value_create_map((c_char_p * count)(*keys), (c_void_p * count)(*values), count, byref(out),
                                   byref(err)):
        fail(err)
    return out


# ---- from the library ----

def from_value(value: Any) -> Any:
    """The Python object of a value that is lent."""
    return READERS[lib.distag_value_get_kind(value)](value)


def read(function: Any, out: Any, value: Any) -> Any:
    err = distag_error()
    if function(value, byref(out), byref(err)):
        fail(err)
    return out.value


def _read_null(value: Any) -> None:
    return None


def _read_bool(value: Any) -> bool:
    return bool(read(lib.distag_value_get_bool, c_int32(), value))


def _read_int64(value: Any) -> int:
    number: int = read(lib.distag_value_get_int64, c_int64(), value)
    return number


def _read_float64(value: Any) -> float:
    number: float = read(lib.distag_value_get_float64, c_double(), value)
    return number


def _read_text(value: Any) -> str:
    encoded: bytes = read(lib.distag_value_get_text, c_char_p(), value)
    return encoded.decode()


def _read_bytes(value: Any) -> bytes:
    data, size, err = c_void_p(), c_size_t(), distag_error()
    if lib.distag_value_get_bytes(value, byref(data), byref(size), byref(err)):
        fail(err)
    return string_at(data.value or 0, size.value) if size.value else b""


def _read_list(value: Any) -> list[Any]:
    count = lib.distag_value_get_count(value)
    if count and lib.distag_value_get_kind(_item(value, 0)) == _raw.VALUE_INT64:
        numbers, found = (c_int64 * count)(), c_size_t()
        if not lib.distag_value_copy_int64s(value, numbers, count, byref(found), None):
            return list(numbers)
    return [from_value(_item(value, index)) for index in range(count)]


def _read_map(value: Any) -> dict[str, Any]:
    count = lib.distag_value_get_count(value)
    return {lib.distag_value_get_key(value, index).decode(): from_value(_item(value, index)) for index in range(count)}


def _item(value: Any, index: int) -> Any:
    item = lib.distag_value_get_item(value, index)
    if item is None:
        raise MemoryError("no memory for an item of a value")
    return item


def _read_object(value: Any) -> Any:
    out, err = c_void_p(), distag_error()
    if lib.distag_value_get_object(value, OBJECT_TYPE, byref(out), byref(err)):
        fail(err)
    return _callbacks.get(out.value)


# Tensors and references are added by the modules that define them.
READERS: dict[int, Callable[[Any], Any]] = {
    _raw.VALUE_NULL: _read_null, _raw.VALUE_BOOL: _read_bool, _raw.VALUE_INT64: _read_int64,
    _raw.VALUE_FLOAT64: _read_float64, _raw.VALUE_TEXT: _read_text, _raw.VALUE_BYTES: _read_bytes,
    _raw.VALUE_LIST: _read_list, _raw.VALUE_MAP: _read_map, _raw.VALUE_OBJECT: _read_object,
}
KINDS = (type(None), bool, int, float, str, bytes, bytearray, memoryview, list, tuple, dict)
