"""What tensors can do that lie over the members of a mesh, and what tensors of which nothing is made yet."""
from __future__ import annotations

from ctypes import POINTER, byref, c_char, c_int32, c_int64, c_uint64, cast, memmove, sizeof
from typing import TYPE_CHECKING, Any, Callable, overload

from . import _arguments, _callbacks, _raw, _recording, _specs, _values_in, ops
from ._arguments import Duration, Ints, invalid, nanoseconds
from ._dtypes import BY_NUMBER, DType, dtype_of, float32
from ._handles import MeshHandle, TensorHandle
from ._interrupts import call_and_hear
from ._library import lib
from ._methods import TensorMethods
from ._raw import distag_error
from ._specs import Placement, Spec
from .errors import fail
from .futures import Future, begin

if TYPE_CHECKING:
    from .mesh import Mesh
    from .tensor import Tensor

INITS = {"full": _raw.INIT_FULL, "rand": _raw.INIT_RAND, "randn": _raw.INIT_RANDN, "source": _raw.INIT_SOURCE,
         "shape": _raw.INIT_SHAPE}
Source = Callable[[tuple[int, ...], tuple[int, ...]], Any]


class ShardedMethods(TensorMethods):
    """The methods of a tensor that are about meshes, beside those that are ops."""

    __slots__ = ()
    _h: Any

    @property
    def spec(self) -> str | None:
        """How it lies on its mesh: "('data', None)". None for a tensor that is not sharded."""
        found: bytes | None = lib.distag_tensor_get_spec(self._h)
        return None if found is None else found.decode()

    @property
    def mesh(self) -> Mesh | None:
        """Its mesh, or the line of one. None for a tensor that is not sharded."""
        from .mesh import Mesh

        found = lib.distag_tensor_get_mesh(self._h)
        return Mesh._lent(found) if found else None

    device_mesh = mesh  # torch's name

    @property
    def placements(self) -> tuple[Placement, ...] | None:
        """How it lies along each axis of its mesh, as torch says it. None for a tensor that is not sharded."""
        mesh, spec = self.mesh, self.spec
        if mesh is None or spec is None:
            return None
        return _specs.placements_of(mesh.spec(spec, info_of(self._h).ndim, "placements"))

    @property
    def is_deferred(self) -> bool:
        """Whether its elements are not made yet."""
        return bool(info_of(self._h).flags & _raw.TENSOR_DEFERRED)

    @property
    def is_shape_only(self) -> bool:
        """Whether it never has elements: `deferred(..., init="shape")`, and what ops give for it."""
        return bool(info_of(self._h).flags & _raw.TENSOR_SHAPE_ONLY)

    def local(self, gradient_spec: Spec | None = None) -> Tensor:
        """The part of a sharded tensor that this member has, recorded and without a copy. Collective; sends nothing."""
        given = None if gradient_spec is None else _specs.text_of(gradient_spec)
        out, err = TensorHandle(), distag_error()
        if lib.distag_tensor_to_local(_recording.input_of(self._h), given, byref(out), byref(err)):
            fail(err)
        return Tensor(out)

    def to_local(self, *, grad_placements: Spec | None = None) -> Tensor:
        """torch's name for `local`."""
        return self.local(grad_placements)

    def full_tensor(self) -> Tensor:
        """The whole on all members, recorded; `gather` gives it without a history. Collective."""
        return self.redistribute((None,) * info_of(self._h).ndim).local()

    @overload  # type: ignore[override]  # the op says Tensor of itself
    def gather(self, index: Tensor, dim: int) -> Tensor: ...
    @overload
    def gather(self, index: None = None, dim: None = None, *, timeout: Duration = ...) -> Tensor: ...
    @overload
    def gather(self, index: int, dim: None = None, *, timeout: Duration = ...) -> Tensor | None: ...
    @overload
    def gather(self, *, rank: int | None, timeout: Duration = ...) -> Tensor | None: ...

    def gather(self, index: Any = None, dim: int | None = None, *, rank: int | None = None,
               timeout: Duration = _arguments.FOREVER) -> Any:
        """With a rank, or nothing: the whole of a sharded tensor as a plain one, on the member of that rank (None
        elsewhere) or on all. Collective. With an index tensor and a dim: the op of that name, see distag.ops."""
        if hasattr(index, "_h") or dim is not None:
            return ops.gather(self, index, dim)  # type: ignore[arg-type]
        out, err = TensorHandle(), distag_error()
        if call_and_hear(lib.distag_tensor_gather, self._h, _member(index if rank is None else rank),
                         nanoseconds(timeout), byref(out), byref(err)):
            fail(err)
        return Tensor(out) if out else None

    def gather_async(self, rank: int | None = None, timeout: Duration = _arguments.FOREVER) -> Future[Any]:
        """The whole of a sharded tensor, as a future."""
        return begin(lib.distag_tensor_gather_async, self._h, _member(rank), nanoseconds(timeout))

    def redistribute(self, spec: Spec | None = None, *, placements: Spec | None = None, gradient: bool = False,
                     keep: bool = False) -> Tensor:
        """The same values under another spec (`placements` is torch's name), recorded. `gradient` brings the gradient
        to that spec too; `keep` keeps a gathered parameter until its backward. Collective."""
        if (spec is None) is (placements is None):
            raise invalid("redistribute: give one spec")
        wanted = _specs.text_of(placements if spec is None else spec)
        flags = _raw.REDISTRIBUTE_GRADIENT if _arguments.flag(gradient, "gradient") else 0
        flags |= _raw.REDISTRIBUTE_KEEP if _arguments.flag(keep, "keep") else 0
        out, err = TensorHandle(), distag_error()
        if call_and_hear(lib.distag_redistribute, _recording.input_of(self._h), wanted, flags, byref(out),
                         byref(err)):
            fail(err)
        return Tensor(out)


def _member(rank: int | None) -> int:
    return -1 if rank is None else _arguments.fit(rank, c_int32, "rank")


def info_of(handle: Any) -> Any:
    """The properties of a tensor at once."""
    info, err = _raw.distag_tensor_info(struct_size=sizeof(_raw.distag_tensor_info)), distag_error()
    if lib.distag_tensor_get_info(handle, byref(info), byref(err)):
        fail(err)
    return info


def numbers_at(address: Any, count: int) -> tuple[int, ...]:
    """So many int64 of memory that is lent."""
    return tuple((c_int64 * count).from_address(address)) if count else ()


def mesh_info(handle: Any) -> Any:
    """The description of a mesh, whose pointers live as long as it does."""
    info, err = _raw.distag_mesh_info(struct_size=sizeof(_raw.distag_mesh_info)), distag_error()
    if lib.distag_mesh_get_info(handle, byref(info), byref(err)):
        fail(err)
    return info


def box_of(mesh: Any, spec: bytes, shape: Ints, position: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Offset, extent and replica number of the box of a member."""
    array, ndim = _arguments.int64_array(shape, "shape")
    offset, extent, replica, err = (c_int64 * ndim)(), (c_int64 * ndim)(), c_int64(), distag_error()
    if lib.distag_mesh_copy_box(mesh, spec, array, ndim, position, offset, extent, byref(replica), byref(err)):
        fail(err)
    return tuple(offset), tuple(extent), replica.value


def described(handle: Any) -> str | None:
    """A tensor whose elements are not all here, for people; nothing is sent or made. None for any other."""
    info = info_of(handle)
    shape = numbers_at(info.shape, info.ndim)
    parts = [f"shape {list(shape)}", BY_NUMBER[info.dtype].name]
    spec: bytes | None = lib.distag_tensor_get_spec(handle)
    if spec is not None:
        mesh = MeshHandle.lent(lib.distag_tensor_get_mesh(handle))
        place = mesh_info(mesh)
        offset, extent, _ = box_of(mesh, spec, shape, max(place.position, 0))
        box = ", ".join(f"{start}:{start + count}" for start, count in zip(offset, extent))
        parts += [f"spec {spec.decode()}", f"mesh \"{place.name.decode()}\"", f"here [{box}]"]
    elif info.flags & _raw.TENSOR_DEFERRED:
        parts.append("deferred")
    elif info.flags & _raw.TENSOR_SHAPE_ONLY:
        parts.append("without elements")
    else:
        return None
    return ", ".join(parts + ["requires_grad=True"] * bool(info.requires_grad))


def mark_sharding(tensor: Tensor, mesh: Mesh, spec: Spec, source_rank: int = -1) -> Tensor:
    """Turns a tensor, in place, into a sharded one, and gives it. With a source all get the values of the member of
    that rank; without one (-1) each member has all of it, or it is deferred, and nothing is sent. Collective."""
    err = distag_error()
    arguments = (_arguments.tensor_of(tensor, "mark_sharding"), _arguments.mesh_of(mesh, "mark_sharding"),
                 _specs.text_of(spec), _arguments.fit(source_rank, c_int32, "source_rank"), byref(err))
    mark = lib.distag_tensor_mark_sharding
    if mark(*arguments) if source_rank == -1 else call_and_hear(mark, *arguments):
        fail(err)
    return tensor


def distribute_tensor(tensor: Tensor, mesh: Mesh, placements: Spec, src_data_rank: int | None = 0) -> Tensor:
    """mark_sharding with the arguments of torch: all members get the values of the one at the position `src_data_rank`;
    with None each has all of them. A deferred one has no values yet: each member makes its part. In place.
    Collective."""
    name = "distribute_tensor"
    _arguments.tensor_of(tensor, name)
    _arguments.mesh_of(mesh, name)
    if src_data_rank is not None and not 0 <= _arguments.position(src_data_rank, name) < mesh.size:
        raise invalid(f"{name}: src_data_rank {src_data_rank} is no position of {mesh!r}")
    source = -1 if src_data_rank is None or tensor.is_deferred else mesh.ranks[src_data_rank]
    return mark_sharding(tensor, mesh, placements, source)


def from_local(local: Tensor, mesh: Mesh, spec: Spec, *, shape: Ints | None = None,
               gradient_spec: Spec | None = None) -> Tensor:
    """A sharded tensor of which `local` is the part of this member. Without a shape it is the one that the parts make
    up. Collective."""
    array, ndim = (None, 0) if shape is None else _arguments.int64_array(shape, "shape")
    given = None if gradient_spec is None else _specs.text_of(gradient_spec)
    out, err = TensorHandle(), distag_error()
    part = _recording.input_of(_arguments.tensor_of(local, "from_local"))
    given_mesh = _arguments.mesh_of(mesh, "from_local")
    if call_and_hear(lib.distag_tensor_from_local, given_mesh, part, _specs.text_of(spec), array, ndim, given, byref(out),
                     byref(err)):
        fail(err)
    return Tensor(out)


def deferred(shape: Ints, dtype: DType = float32, *, init: str | None = None, seed: int = 0, scale: float = 1.0,
             shift: float = 0.0, source: Source | None = None) -> Tensor:
    """A tensor that has a dtype, a shape and no memory yet: mark it, and each member makes its own part only. `init` is
    "full" (of `shift`), "rand" or "randn" (times scale, plus shift), or the `source` makes the elements of a box:
    `source(offset, extent)` gives an array or nested lists. With "shape" it never has elements: ops note what they
    would do, for the roots of a `Plan`."""
    kind = dtype_of(dtype)
    chosen = ("full" if source is None else "source") if init is None else init
    if not isinstance(chosen, str) or chosen not in INITS or (source is None) is (chosen == "source"):
        raise invalid(f"deferred: init is one of {', '.join(INITS)}, and \"source\" goes with a source: not {init!r}")
    options = _raw.distag_deferred_options(struct_size=sizeof(_raw.distag_deferred_options), init=INITS[chosen])
    if chosen in ("rand", "randn"):
        options.seed, options.scale = _arguments.fit(seed, c_uint64, "seed"), _arguments.double(scale, "scale")
        if options.scale == 0:
            raise invalid(f"deferred: scale=0 leaves no random numbers: take init=\"full\" with shift={shift!r}")
    if source is None:
        options.shift = _arguments.double(shift, "shift")
    else:
        options.source, options.destroy = SOURCE, _callbacks.FORGET
        options.user_data = _callbacks.keep((source, kind))
    array, ndim = _arguments.int64_array(shape, "shape")
    out, err = TensorHandle(), distag_error()
    if lib.distag_tensor_create_deferred(kind, array, ndim, byref(options), byref(out), byref(err)):
        fail(err)
    return Tensor(out)


def _fill(number: int, offset: int, extent: int, ndim: int, buffer: int, capacity: int) -> None:
    source, dtype = _callbacks.get(number)
    wanted = numbers_at(extent, ndim)
    packed = _values_in.pack(source(numbers_at(offset, ndim), wanted), dtype)
    if packed.shape != wanted or packed.size != capacity:
        raise invalid(f"the source gives the shape {list(packed.shape)}, and {list(wanted)} is wanted: give the box")
    if capacity:
        memmove(buffer, cast(packed.address, POINTER(c_char)), capacity)


@_callbacks.uninterrupted
def _source(number: int, offset: int, extent: int, ndim: int, buffer: int, capacity: int, err: int) -> int:
    return _callbacks.answer(err, lambda: _fill(number, offset, extent, ndim, buffer, capacity))


SOURCE = _callbacks.immortal(_raw.distag_box_source(_source))
