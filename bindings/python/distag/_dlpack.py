"""DLPack: tensors shared with other libraries of this process, through capsules of both forms."""
from __future__ import annotations

from ctypes import (CFUNCTYPE, Structure, byref, cast, c_char_p, c_int, c_int32, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p, py_object, pythonapi)
from typing import Any

from . import _raw
from ._arguments import invalid
from ._callbacks import FORGET, immortal, keep
from ._handles import TensorHandle
from ._library import lib
from ._raw import distag_error
from ._values_in import check_plain
from .errors import UnsupportedError, fail

CPU = (1, 0)
# The names are compared and kept by address: these live as long as the module.
LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
USED = {LEGACY: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}

Deleter = CFUNCTYPE(None, c_void_p)


class DLTensor(Structure):
    """A tensor of DLPack."""

    _fields_ = (("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p),
                ("byte_offset", c_uint64))


class Legacy(Structure):
    """DLManagedTensor, from before version 1."""

    _fields_ = (("tensor", DLTensor), ("context", c_void_p), ("deleter", Deleter))


class Versioned(Structure):
    """DLManagedTensorVersioned, since version 1."""

    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", Deleter),
                ("flags", c_uint64), ("tensor", DLTensor))


MANAGED = {LEGACY: Legacy, VERSIONED: Versioned}


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the interpreter's own C interface."""
    function = pythonapi[name]
    function.restype, function.argtypes = result, arguments
    return function


_new = _python("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
_is_valid = _python("PyCapsule_IsValid", c_int, py_object, c_char_p)
_get_pointer = _python("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_set_name = _python("PyCapsule_SetName", c_int, py_object, c_char_p)
# The same of a capsule that is being freed: it is an address then, and no object.
_freed_is_valid = _python("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
_freed_get_pointer = _python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)


def _end(capsule: int) -> None:
    """Ends an export that nobody took."""
    for name, kind in MANAGED.items():
        if _freed_is_valid(capsule, name):
            address = _freed_get_pointer(capsule, name)
            kind.from_address(address).deleter(address)


END = immortal(CFUNCTYPE(None, c_void_p)(_end))


def export(handle: TensorHandle, max_version: Any, copy: bool | None) -> Any:
    """A capsule with the values of this moment: read-only and shared for who knows version 1, else a copy."""
    is_versioned = max_version is not None and max_version[0] >= 1
    if copy is False and not is_versioned:
        raise BufferError("an export without a copy is read-only, which needs max_version=(1, 0)")
    function = lib.distag_tensor_export_dlpack if is_versioned else lib.distag_tensor_export_dlpack_legacy
    out, err = c_void_p(), distag_error()
    if function(handle, _raw.DLPACK_COPY if copy else 0, byref(out), byref(err)):
        fail(err)
    return _new(out, VERSIONED if is_versioned else LEGACY, END)


class _Lent:
    """Memory of the host, whose strides may be negative, as a tensor of DLPack; `owner` goes with it."""

    def __init__(self, owner: Any, address: int, code: tuple[int, int], shape: Any, strides: Any, ndim: int) -> None:
        self.owner, self.shape, self.strides = owner, shape, strides
        self.managed = Legacy()
        told = self.managed.tensor
        told.data, told.ndim = address, ndim
        told.device_type, told.device_id = CPU
        told.code, told.bits, told.lanes = *code, 1
        told.shape, told.strides = cast(shape, c_void_p), cast(strides, c_void_p)
        self.managed.deleter = RETURN


RETURN = immortal(Deleter(lambda managed: FORGET(Legacy.from_address(managed).context)))


def lend(owner: Any, address: int, code: tuple[int, int], shape: Any, strides: Any, ndim: int) -> TensorHandle:
    """A tensor over memory of the host; `address` is that of its first element, `code` kind and bits of an element."""
    lent = _Lent(owner, address, code, shape, strides, ndim)
    lent.managed.context = keep(lent)
    out, err = TensorHandle(), distag_error()
    if lib.distag_tensor_import_dlpack_legacy(byref(lent.managed), byref(out), byref(err)):
        FORGET(lent.managed.context)
        fail(err)
    return out


def _capsule(source: Any) -> Any:
    """The capsule of an object; of the newest form that it knows."""
    if not hasattr(source, "__dlpack__"):
        return source
    device = source.__dlpack_device__()
    if int(device[0]) != CPU[0]:
        raise UnsupportedError(f"from_dlpack: the tensor is on device {device}: move it to the CPU", _raw.E_UNSUPPORTED)
    try:
        return source.__dlpack__(max_version=(1, 0))
    except TypeError:
        return source.__dlpack__()


def borrow(source: Any) -> TensorHandle:
    """A tensor over the memory of a capsule, or of an object that gives one."""
    if hasattr(source, "__array_interface__"):
        check_plain(source)
    capsule = _capsule(source)
    out, err = TensorHandle(), distag_error()
    functions = {VERSIONED: lib.distag_tensor_import_dlpack, LEGACY: lib.distag_tensor_import_dlpack_legacy}
    for name in functions:
        if _is_valid(capsule, name):
            if functions[name](_get_pointer(capsule, name), byref(out), byref(err)):
                fail(err)
            _set_name(capsule, USED[name])
            return out
    raise invalid(f"from_dlpack: an object of type {type(source).__name__} has no __dlpack__, and is no full capsule")
