"""Tensors: dense arrays with a history. Operators and methods are ops of the library; values go in and out here."""
from __future__ import annotations

import builtins
import contextlib
import threading
from collections.abc import Iterable, Iterator
from ctypes import byref, c_char, c_double, c_uint64, c_void_p, sizeof
from numbers import Integral, Real
from typing import Any, Callable, Protocol, TypeGuard, Union

from . import _apply, _arguments, _callbacks, _dlpack, _parts, _raw, _sharded, _values_in, ops, values
from ._arguments import EXACT, Ints, flag, invalid
from ._dtypes import BY_NUMBER, FLOATING, DType, bool_, float32, float64, int64
from ._handles import Owner, TensorHandle, handle_of_kind
from ._library import lib
from ._raw import distag_error
from ._sharded import ShardedMethods
from .errors import DistagError, UnsupportedError, UsageError, fail, kind_of

TYPES = {float32: "<f4", float64: "<f8", int64: "<i8", bool_: "|b1"}  # as NumPy writes them


class Array(Protocol):
    """What this package uses of an array or a number of NumPy."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Scalar = Union[int, float, bool]
Operand = Union["Tensor", int, float, bool, list[Any], tuple[Any, ...], Array]


class Tensor(ShardedMethods, Owner):
    """A dense array of float32, float64, int64 or bool, with the history that gradients need.

    `a == b` tells whether both stand for one tensor, so that tensors can be keys; `a.eq(b)` compares elements."""

    __slots__ = ()
    _distag_as_value = lib.distag_tensor_as_value
    __array_ufunc__ = None  # an array at the left of an operator leaves it to the tensor, which records it

    def __init__(self, handle: TensorHandle) -> None:
        if type(handle) is not TensorHandle:
            handle_of_kind(handle, TensorHandle, "distag.tensor(data)")
        self._h = handle

    # ---- properties ----

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return BY_NUMBER[lib.distag_tensor_get_dtype(self._h)]

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return int(lib.distag_tensor_get_ndim(self._h))

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dim."""
        return _numbers(lib.distag_tensor_get_shape, self._h)

    @property
    def strides(self) -> tuple[int, ...]:
        """The step of each dim, in elements."""
        return _numbers(lib.distag_tensor_get_strides, self._h)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(lib.distag_tensor_get_count(self._h))

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return int(lib.distag_tensor_get_size(self._h))

    @property
    def id(self) -> int:
        """The same for all objects of one tensor, in this process."""
        return int(lib.distag_tensor_get_id(self._h))

    @property
    def requires_grad(self) -> bool:
        """Whether a backward pass gives a gradient for this tensor; also true for results of such tensors."""
        return bool(lib.distag_tensor_get_requires_grad(self._h))

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        err = distag_error()
        if lib.distag_tensor_set_requires_grad(self._h, flag(wanted, "requires_grad"), byref(err)):
            fail(err)

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        """Sets requires_grad and gives the tensor itself."""
        self.requires_grad = wanted
        return self

    @property
    def T(self) -> Tensor:
        """The matrix with its last two dims swapped."""
        return ops.transpose(self, -2, -1)

    # ---- values out ----

    def item(self) -> Scalar:
        """The only element."""
        out, err = c_double(), distag_error()
        dtype = self.dtype
        if dtype is int64 and self.size == 1:
            return int.from_bytes(self.tobytes(), "little", signed=True)
        if lib.distag_tensor_get_item(self._h, byref(out), byref(err)):
            fail(err)
        return builtins.bool(out.value) if dtype is bool_ else out.value

    def tobytes(self) -> bytearray:
        """A copy of all elements, row-major."""
        size = self.nbytes
        data = bytearray(size)
        err = distag_error()
        if lib.distag_tensor_copy_data(self._h, (c_char * size).from_buffer(data) if size else None, size, byref(err)):
            fail(err)
        return data

    def tolist(self) -> Any:
        """The elements as numbers in nested lists."""
        shape = self.shape
        if not shape:
            return self.item()
        if self.size == 0:
            return _empty_lists(shape)
        view: Any = memoryview(self.tobytes())
        return view.cast(self.dtype.format, shape).tolist()

    def snapshot(self) -> Tensor:
        """A tensor with the values of this moment and without history: no write to either shows in the other. Nothing
        is copied until one of them is written."""
        out, err = TensorHandle(), distag_error()
        if lib.distag_tensor_create_snapshot(self._h, byref(out), byref(err)):
            fail(err)
        return Tensor(out)

    def numpy(self) -> Any:
        """The values of this moment as a NumPy array, which shares the memory and cannot be written."""
        import numpy

        return numpy.asarray(_View(self.snapshot())) if self.size else numpy.empty(self.shape, self.dtype.name)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        """The values of this moment for another library: shared and read-only if it knows version 1, else a copy."""
        if dl_device is not None and tuple(dl_device) != _dlpack.CPU:
            raise BufferError("a tensor of distag is on the CPU")
        return _dlpack.export(self._h, max_version, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.CPU

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        array = array if dtype is None else array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with a copy of the values, which requires grad if this one does. Not for a tensor with a history."""
        if _sharded.info_of(self._h).flags & _raw.TENSOR_HAS_HISTORY:
            raise UsageError("deepcopy: the tensor has a history: copy tensor.detach()", _raw.E_INVALID_STATE)
        return ops.clone(ops.detach(self)).requires_grad_(self.requires_grad)

    # ---- values in ----

    def write(self, data: Any) -> None:
        """Sets all values in place, unrecorded, to numbers in nested lists, or to an array, of the same shape."""
        packed = _values_in.pack(data, self.dtype)
        if packed.shape != self.shape:
            raise invalid(f"write: the tensor has the shape {list(self.shape)}, the data {list(packed.shape)}")
        if self.spec is not None:  # each member writes its part
            self[...] = tensor(data, self.dtype)
            return
        err = distag_error()
        if lib.distag_tensor_write(self._h, packed.address, packed.size, byref(err)):
            fail(err)

    def assign(self, source: Operand) -> None:
        """Sets the values in place, unrecorded, to those of another tensor, cast and broadcast."""
        err = distag_error()
        if lib.distag_tensor_assign(self._h, as_tensor(source, self)._h, byref(err)):
            fail(err)

    def add_scaled(self, source: Operand, scale: float = 1.0) -> None:
        """Adds scale * source to the values in place, unrecorded, cast and broadcast."""
        err = distag_error()
        by = _arguments.double(scale, "scale")
        if lib.distag_tensor_add_scaled(self._h, as_tensor(source, self)._h, by, byref(err)):
            fail(err)

    # ---- hooks ----

    def add_hook(self, hook: Callable[[Tensor], Tensor | None]) -> int:
        """Adds a hook that sees the gradient of this tensor in a pass and may give another one; gives its id."""
        from . import custom

        _arguments.callable_of(hook, "add_hook")
        out, err = c_uint64(), distag_error()
        if lib.distag_tensor_add_hook(self._h, custom.HOOK, _callbacks.keep(hook), _callbacks.FORGET, byref(out),
                                      byref(err)):
            fail(err)
        return out.value

    def remove_hook(self, hook_id: int) -> None:
        """Removes a hook by its id."""
        err = distag_error()
        if lib.distag_tensor_remove_hook(self._h, hook_id, byref(err)):
            fail(err)

    # ---- operators ----

    def __add__(self, other: Operand) -> Tensor:
        if isinstance(other, Tensor):
            return ops.add(self, other)
        return ops.add_scalar(self, other) if _fits(other, self) else _with(ops.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Tensor:
        if isinstance(other, Tensor):
            return ops.sub(self, other)
        return ops.add_scalar(self, -other) if _fits(other, self) else _with(ops.sub, self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return _with(ops.sub, self, other, is_left=True)

    def __mul__(self, other: Operand) -> Tensor:
        if isinstance(other, Tensor):
            return ops.mul(self, other)
        return ops.mul_scalar(self, other) if _fits(other, self) else _with(ops.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Tensor:
        return _with(ops.div, self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return _with(ops.div, self, other, is_left=True)

    def __pow__(self, other: Operand) -> Tensor:
        return _with(ops.pow, self, other)

    def __rpow__(self, other: Operand) -> Tensor:
        return _with(ops.pow, self, other, is_left=True)

    def __matmul__(self, other: Operand) -> Tensor:
        return ops.matmul(self, other) if isinstance(other, Tensor) else _with(ops.matmul, self, other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return _with(ops.matmul, self, other, is_left=True)

    def __neg__(self) -> Tensor:
        return ops.neg(self)

    def __abs__(self) -> Tensor:
        return ops.abs(self)

    def __lt__(self, other: Operand) -> Tensor:
        return _with(ops.lt, self, other)

    def __le__(self, other: Operand) -> Tensor:
        return _with(ops.le, self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return _with(ops.gt, self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return _with(ops.ge, self, other)

    # Identity, as keys of a dict need it; distag.eq and distag.ne compare elements.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __bool__(self) -> bool:
        return builtins.bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    # ---- parts ----

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("a tensor without dims has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, key: Any) -> Tensor:
        if isinstance(key, Tensor):
            return ops.index_select(self, key)
        part: Tensor = _parts.part(self, key if isinstance(key, tuple) else (key,))
        return part

    def __setitem__(self, key: Any, value: Operand) -> None:
        if isinstance(key, Tensor):
            raise UnsupportedError("an index tensor selects a copy, which is not written: write to a slice",
                                   _raw.E_UNSUPPORTED)
        keys = key if isinstance(key, tuple) else (key,)
        if self.spec is not None:
            self._set_sharded(keys, as_tensor(value, self))
        else:
            (self if _parts.names_all(keys, self.shape) else _parts.part(self, keys)).assign(value)

    def _set_sharded(self, keys: _parts.Keys, value: Tensor) -> None:
        """Writes the part of this member; a value that is sharded another way is gathered first. Collective."""
        if value.spec is None:
            _parts.write_sharded(self, keys, value)
        elif value.mesh != self.mesh:
            raise UnsupportedError("the value is of another mesh: gather it first", _raw.E_UNSUPPORTED)
        elif value.spec == self.spec and _parts.names_all(keys, self.shape):
            self.assign(value)
        else:
            _parts.write_sharded(self, keys, value.gather())

    def reshape(self, *shape: Any) -> Tensor:
        """Gives a new shape, in which one size may be -1: reshape(2, 3) or reshape((2, 3))."""
        return ops.reshape(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, Integral)) else shape)

    def __repr__(self) -> str:
        if self.is_closed:
            return "<closed distag.Tensor>"
        elsewhere = _sharded.described(self._h)
        if elsewhere is not None:
            return f"distag.Tensor({elsewhere})"
        grad = ", requires_grad=True" if self.requires_grad else ""
        spec = lib.distag_tensor_get_spec(self._h)
        if spec is not None:  # the elements are not all here
            return f"distag.Tensor(shape {list(self.shape)}, {self.dtype.name}{grad}, sharded as {spec.decode()})"
        content = str(self.tolist()) if self.size <= 64 else f"shape {list(self.shape)}"
        return f"distag.Tensor({content}, {self.dtype.name}{grad})"


def _numbers(getter: Any, handle: TensorHandle) -> tuple[int, ...]:
    ndim = lib.distag_tensor_get_ndim(handle)
    if not ndim:
        return ()
    return tuple((_values_in.int64_type * ndim).from_address(getter(handle)))


def values_of(tensors: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Tensors with snapshots of their values."""
    return [(each, each.snapshot()) for each in tensors]


def put_back(before: list[tuple[Tensor, Tensor]]) -> None:
    """Restores the values of tensors after a failure. A tensor that cannot be written has its values still: that second
    failure is ignored, so that the first is raised."""
    for each, values in before:
        with contextlib.suppress(DistagError):
            each.assign(values)


def _empty_lists(shape: tuple[int, ...]) -> list[Any]:
    if len(shape) == 1:
        return []
    return [_empty_lists(shape[1:]) for _ in range(shape[0])]


def _fits(other: Operand, like: Tensor) -> TypeGuard[Scalar]:
    """Whether the tensor and a number are added and multiplied exactly by way of a float64, and keep the dtype."""
    if isinstance(other, float):
        return like.dtype in FLOATING
    return isinstance(other, int) and -EXACT <= other <= EXACT and like.dtype is not bool_


def _with(op: Callable[[Tensor, Tensor], Tensor], x: Tensor, other: Operand, is_left: bool = False) -> Tensor:
    """The op of a tensor and an operand at its right, or left. Python decides about an operand that is no number."""
    if not isinstance(other, (Tensor, int, float)) and not _is_numbers(other):
        return NotImplemented
    made = as_tensor(other, x)
    return op(made, x) if is_left else op(x, made)


def _is_numbers(value: Any) -> bool:
    known = isinstance(value, (list, tuple, Real))
    return known or hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")


def as_tensor(value: Operand, like: Tensor) -> Tensor:
    """The tensor of a number, or of a list of numbers, in the dtype that it takes beside `like`; of an array, in its
    own. A tensor is itself."""
    if isinstance(value, Tensor):
        return value
    if not _is_numbers(value):
        raise TypeError(f"a number, a tensor, an array or a list of numbers is wanted, not {kind_of(value)}")
    dtype = like.dtype
    if isinstance(value, (list, tuple)):
        return tensor(value, dtype if dtype in FLOATING else None)
    if not isinstance(value, Real):
        return tensor(value)
    if dtype in FLOATING:
        return ops.full(value if isinstance(value, Integral) else float(value), (), dtype)
    if isinstance(value, builtins.bool):
        return tensor(value)
    return tensor(int(value) if isinstance(value, Integral) else float(value))


def full(value: float, shape: Ints = (), dtype: DType = float32) -> Tensor:
    """A tensor of the shape, filled with value. Every integer of 64 bits is exact as int64; one that no float64 holds is
    refused as another dtype: give float(value) there."""
    given = value.item() if hasattr(value, "item") else value  # of NumPy, or a tensor
    if dtype is int64 and isinstance(given, Integral) and not -EXACT <= int(given) <= EXACT:
        return ops.clone(ops.expand(tensor(given, int64), shape))
    return ops.full(given, shape, dtype)


def tensor(data: Any, dtype: DType | None = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of the data: numbers in nested lists, a NumPy array, a tensor of another library, or
    anything with a buffer. Without a dtype floats become float32, integers int64."""
    if dtype is not None and not isinstance(dtype, DType):
        raise invalid(f"tensor: a dtype is distag.float32, float64, int64 or bool_, not {dtype!r}")
    if hasattr(data, "__dlpack__") and not hasattr(data, "__array_interface__"):
        source = data if isinstance(data, Tensor) else from_dlpack(data)
        result = ops.clone(ops.detach(source))
        result = result if dtype is None else ops.cast(result, dtype)
    else:
        packed = _values_in.pack(data, dtype)
        out, err = TensorHandle(), distag_error()
        shape, ndim = _arguments.int64_array(packed.shape)
        if lib.distag_tensor_create(packed.address, packed.size, packed.dtype, shape, ndim, byref(out), byref(err)):
            fail(err)
        result = Tensor(out)
    return result.requires_grad_() if flag(requires_grad, "requires_grad") else result


class _View:
    """The memory of a snapshot as NumPy reads it, for as long as this lives."""

    def __init__(self, snapshot: Tensor) -> None:
        self.snapshot = snapshot
        dtype = snapshot.dtype
        data = lib.distag_tensor_get_data(snapshot._h)
        if data is None:
            snapshot.tobytes()  # raises the reason: the tensor is sharded, for example
        self.__array_interface__ = {
            "version": 3, "shape": snapshot.shape, "typestr": TYPES[dtype],
            "strides": tuple(step * dtype.size for step in snapshot.strides),
            "data": (data, True)}


class _Locked:
    """An array that is locked against writes, and the number of tensors that read it in place."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.was_writable = array.flags.writeable
        self.readers = 0
        self.views: list[_Locked] = []  # views that become writable again after this array


def _owners(array: Any) -> Iterator[Any]:
    """The array, and the arrays that it is a view of; the last has the memory."""
    while hasattr(getattr(array, "flags", None), "writeable"):
        yield array
        array = array.base


class _Borrowed:
    """Keeps an array locked while a tensor reads it in place; the last of them to go makes it writable again. The array
    that it is a slice of is locked, too: a write there would show in the tensor."""

    locked: dict[int, _Locked] = {}
    guard = threading.RLock()  # reentrant: a collector may end one of these anywhere

    def __init__(self, array: Any) -> None:
        with self.guard:
            self.locks = [self.lock(owner) for owner in _owners(array)]

    def lock(self, array: Any) -> _Locked:
        lock = self.locked.get(id(array)) or self.locked.setdefault(id(array), _Locked(array))
        lock.readers += 1
        array.flags.writeable = False
        return lock

    def __del__(self) -> None:
        with self.guard:
            for lock in reversed(self.locks):  # a view is writable only after what it is a view of
                self.unlock(lock)

    def unlock(self, lock: _Locked) -> None:
        lock.readers -= 1
        if lock.readers:
            return
        del self.locked[id(lock.array)]
        if not lock.was_writable:
            return
        owner = self.locked.get(id(lock.array.base))
        if owner:
            owner.views.append(lock)
        else:
            self.give_back(lock)

    def give_back(self, lock: _Locked) -> None:
        try:
            lock.array.flags.writeable = True
        except ValueError:
            return  # the host has locked the array that it is a view of: it stays locked as well
        for view in lock.views:
            again = self.locked.get(id(view.array))
            if again:
                again.was_writable = True
                again.views += view.views
            else:
                self.give_back(view)


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of a NumPy array, without a copy. The array, and the one that it is a slice of, cannot
    be written until no tensor, graph or message needs it. NumPy does not lock other slices that were made before: do
    not write to them meanwhile. Such a tensor cannot be written or stepped: parameters are made by `tensor`."""
    if not hasattr(array, "__array_interface__") or not hasattr(array, "ctypes"):
        raise invalid(f"from_numpy: {kind_of(array)} is no NumPy array: distag.tensor copies lists and "
                      "buffers, from_dlpack borrows from other libraries")
    _values_in.check_plain(array)
    dtype = _values_in.dtype_of_numpy(array)
    if any(step % dtype.size for step in array.strides):
        raise invalid("from_numpy: the strides of the array are no whole elements: copy it first")
    shape, ndim = _arguments.int64_array(array.shape)
    strides, _ = _arguments.int64_array(tuple(step // dtype.size for step in array.strides))
    return Tensor(_dlpack.lend(_Borrowed(array), array.ctypes.data, dtype.dlpack, shape, strides, ndim))


def from_dlpack(source: Any) -> Tensor:
    """A tensor over the memory of another library's tensor, without a copy. That memory must not be written meanwhile.
    The tensor cannot be written or stepped: parameters are made by `tensor`."""
    return Tensor(_dlpack.borrow(source))


def _read_tensor(value: Any) -> Tensor:
    lent = values.read(lib.distag_value_get_tensor, c_void_p(), value)
    return Tensor(TensorHandle.lent(lent))


# These modules make tensors, too, and are imported before this one.
for _module in (ops, _apply, _sharded):
    setattr(_module, "Tensor", Tensor)
values.READERS[_raw.VALUE_TENSOR] = _read_tensor
