"""Meshes: workers as a grid with named axes, over which tensors lie."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ctypes import addressof, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, sizeof
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _raw, _specs
from ._arguments import (Duration, Ints, fit, flag, int64_array, int64_pair, ints, invalid, limit_ns, mesh_of,
                         tensor_of, text)
from ._handles import ContextHandle, MeshHandle, Owner, TensorHandle, WorkerHandle
from ._interrupts import Meshes, call_and_hear
from ._library import lib
from ._raw import distag_error
from ._recording import input_of
from ._sharded import box_of, mark_sharding, mesh_info, numbers_at
from ._specs import Axes, Spec
from .context import Context, copy_ranks, copy_report, copy_text
from .errors import fail, kind_of
from .futures import Future, begin
from .tensor import Tensor

if TYPE_CHECKING:
    from .loader import Loader, Specs
    from .worker import Worker

HIDDEN_MOVES = {"allow": _raw.HIDDEN_ALLOW, "log": _raw.HIDDEN_LOG, "refuse": _raw.HIDDEN_REFUSE}
FORMS = {"tuple": _raw.SPEC_TUPLE, "placements": _raw.SPEC_PLACEMENTS, "hlo": _raw.SPEC_HLO,
         "hlo_iota": _raw.SPEC_HLO_IOTA, "shardy": _raw.SPEC_SHARDY}
FORMATS = {"text": _raw.PICTURE_TEXT, "json": _raw.PICTURE_JSON, "svg": _raw.PICTURE_SVG,
           "html": _raw.PICTURE_HTML}
REDUCTIONS = {"sum": _raw.SUM, "product": _raw.PRODUCT, "min": _raw.MIN, "max": _raw.MAX}


class Box(NamedTuple):
    """The part of a tensor that a member holds, and its number among the members with the same part."""

    offset: tuple[int, ...]
    extent: tuple[int, ...]
    replica: int

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index of an array."""
        return tuple(slice(start, start + count) for start, count in zip(self.offset, self.extent))


class Mesh(Owner):
    """Workers as a grid, row-major, whose axes have names: `worker.mesh((2, -1), ("data", "model"))`. All members make
    the same calls on it. Without a worker it serves for specs, boxes and pictures. A `with` releases it at its end.

    `outer_shape` makes it hybrid: `shape` is then within a granule (a host, unless `granules` gives the granule of each
    member). `hidden_moves` is "allow", "log" or "refuse". `a == b` tells whether both are one mesh, on any lines."""

    __slots__ = ()

    def __init__(self, shape: Ints | None = None, axes: Sequence[str] | None = None,
                 ranks: Sequence[int] | None = None, *, worker: Worker | None = None, outer_shape: Ints | None = None,
                 granules: Sequence[int] | None = None, name: str | None = None, timeout: Duration = None,
                 hidden_moves: str = "allow", keep_gathered: bool = False, check_replicas: bool = False,
                 bucket_bytes: int = 0) -> None:
        if worker is not None and not isinstance(getattr(worker, "_h", None), WorkerHandle):
            raise invalid(f"mesh: a worker is wanted, not {kind_of(worker)}")
        ranks = None if ranks is None else ints(ranks, "ranks")
        sizes, ndim = (None, 0) if shape is None else int64_array(shape, "shape")
        outer = None if outer_shape is None else int64_array(outer_shape, "outer_shape")[0]
        if ranks is None and worker is None:
            ranks = range(_product(sizes) * _product(outer))
        elif ranks is None and granules is not None and worker is not None:
            # Named here: the library reads a granule for each of the ranks that it finds, and more may have joined.
            ranks = copy_ranks(lib.distag_worker_copy_ranks, worker._h, b"")
        options = _raw.distag_mesh_options(
            struct_size=sizeof(_raw.distag_mesh_options), hidden_moves=_choice("hidden_moves", hidden_moves,
                                                                               HIDDEN_MOVES),
            check_replicas=flag(check_replicas, "check_replicas"), keep_gathered=flag(keep_gathered, "keep_gathered"),
            timeout_ns=limit_ns(timeout), bucket_bytes=fit(bucket_bytes, c_uint64, "bucket_bytes"),
            name=None if name is None else text(name, "name"))
        near = None if granules is None else int64_array(granules, "granules")[0]
        _point(options, "outer_shape", outer, "shape", ndim)
        _point(options, "granules", near, "ranks", len(ranks) if ranks is not None else None)
        self._h = _create(worker, ranks, sizes, axes, ndim, options)

    @classmethod
    def _lent(cls, lent: int) -> Mesh:
        return cls._of(MeshHandle.lent(lent))

    @classmethod
    def _of(cls, handle: MeshHandle) -> Mesh:
        self = Mesh.__new__(Mesh)
        self._h = handle
        return self

    def __enter__(self) -> Mesh:
        self._h  # a closed one says so
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and bool(mesh_info(self._h).ranks == mesh_info(other._h).ranks)

    def __hash__(self) -> int:
        return hash(mesh_info(self._h).ranks)

    def __repr__(self) -> str:
        if self.is_closed:
            return "<closed distag.Mesh>"
        sizes = ", ".join(f"{axis}={size}" for axis, size in self.shape.items())
        return f"<distag.Mesh \"{self.name}\" {sizes}>"

    # ---- its members ----

    @property
    def name(self) -> str:
        """Its name, which shows in errors."""
        return str(mesh_info(self._h).name.decode())

    @property
    def shape(self) -> dict[str, int]:
        """The size of each axis, in order."""
        info = mesh_info(self._h)
        names = (c_char_p * info.ndim).from_address(info.axis_names)
        return {name.decode(): size for name, size in zip(names, numbers_at(info.shape, info.ndim)) if name}

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(self.shape)

    mesh_dim_names = axis_names  # torch's name

    def get_coordinate(self) -> list[int] | None:
        """The index of this member along each axis; None without a worker."""
        rest, found = self.position, []
        for size in reversed(self.shape.values()):
            if rest is None:
                return None
            rest, index = divmod(rest, size)
            found.append(index)
        return found[::-1]

    @property
    def size(self) -> int:
        """The number of members."""
        return int(mesh_info(self._h).count)

    @property
    def position(self) -> int | None:
        """The place of this worker in `ranks`; None without a worker."""
        position = int(mesh_info(self._h).position)
        return None if position < 0 else position

    @property
    def ranks(self) -> list[int]:
        """The members, row-major."""
        info = mesh_info(self._h)
        return list((c_int32 * info.count).from_address(info.ranks))

    @property
    def granules(self) -> list[int]:
        """The granule of each member."""
        info = mesh_info(self._h)
        return list(numbers_at(info.granules, info.count))

    def line(self, name: str) -> Mesh:
        """Another line: a mesh with the same members whose calls have an order of their own. Lines of one name meet."""
        out, err = MeshHandle(), distag_error()
        if lib.distag_mesh_open_line(self._h, text(name, "name"), byref(out), byref(err)):
            fail(err)
        return Mesh._of(out)

    def stats(self) -> dict[str, int]:
        """The counters of this worker on this mesh: calls, communications, bytes."""
        raw, err = _raw.distag_mesh_stats(struct_size=sizeof(_raw.distag_mesh_stats)), distag_error()
        if lib.distag_mesh_get_stats(self._h, byref(raw), byref(err)):
            fail(err)
        return {name: getattr(raw, name) for name, *_ in raw._fields_[2:]}

    def report(self) -> dict[str, Any]:
        """The mesh for people and tools: its lines, and the last 1,000 communications."""
        return copy_report(lib.distag_mesh_copy_report, self._h)

    # ---- specs ----

    def box(self, spec: Spec, shape: Ints, position: int | None = None) -> Box:
        """The part of a tensor of this shape that the member at a position holds; here, unless told."""
        own = self.position or 0
        place = own if position is None else fit(position, c_int64, "position")
        return Box(*box_of(self._h, _specs.text_of(spec), shape, place))

    def spec(self, spec: Spec, ndim: int, form: str = "tuple") -> str:
        """A spec in another form: "tuple", "placements", "hlo", "hlo_iota" or "shardy"."""
        return copy_text(lib.distag_mesh_copy_spec, self._h, _specs.text_of(spec), fit(ndim, c_size_t, "ndim"),
                         _choice("form", form, FORMS))

    def visualize(self, spec: Spec, shape: Ints | None = None, **options: Any) -> str:
        """Draws which members hold which part; options as for distag.visualize_sharding."""
        return visualize_sharding(spec, shape, mesh=self, **options)

    # ---- tensors ----

    def shard(self, tensor: Tensor, spec: Spec, source_rank: int = -1) -> Tensor:
        """Turns a tensor, in place, into a sharded one; see distag.mark_sharding."""
        return mark_sharding(tensor, self, spec, source_rank)

    def context(self) -> Context:
        """A context that all members share: its backward pass is one of all of them. Collective."""
        out, err = ContextHandle(), distag_error()
        if lib.distag_context_create_joint(self._h, byref(out), byref(err)):
            fail(err)
        return Context._joint(out)

    def loader(self, source: Any, batch_rows: int | None = None, specs: Specs = None, *, mode: str | None = None,
               shuffle: bool = False, seed: int = 0, epochs: float = 1, drop_last: bool = False, prefetch: int = 2,
               concurrency: int = 1, state: Any = None, timeout: Duration = None) -> Loader:
        """Batches that the source makes ahead: `for batch in mesh.loader(images, batch_rows=64)`. With `batch_rows` the
        loader chooses the rows, and the source is anything with len() and [rows]: an array, a list or dict of arrays;
        each member is asked for its rows only. Without, the source gives batches one after the other, or is a function
        of their number; `mode` is then "global" (each member has the whole batch), "local" (its part) or "root" (the
        first member has it). `specs` is one spec, or a dict of them; without, the first axis cuts the first dim.
        `epochs` may be distag.FOREVER. With `concurrency` the source makes several batches at the same time, which one
        that gives them one after the other cannot. Collective."""
        from .loader import Loader

        return Loader(self, source, batch_rows, specs, mode=mode, shuffle=shuffle, seed=seed, epochs=epochs,
                      drop_last=drop_last, prefetch=prefetch, concurrency=concurrency, state=state, timeout=timeout)

    # ---- collectives on plain tensors ----

    def all_reduce(self, x: Tensor, axes: Axes = None, op: str = "sum", timeout: Duration = None) -> Tensor:
        """The sum (or "product", "min", "max") over the members that differ in `axes` only; over all of them."""
        return self._collective(_raw.ALL_REDUCE, x, axes, timeout, op=op)

    def all_reduce_async(self, x: Tensor, axes: Axes = None, op: str = "sum",
                         timeout: Duration = None) -> Future[Tensor]:
        """The same as a future."""
        return self._collective_async(_raw.ALL_REDUCE, x, axes, timeout, op=op)

    def all_gather(self, x: Tensor, axes: Axes = None, dim: int = 0, timeout: Duration = None) -> Tensor:
        """The tensors of all, one after the other along a dim, whose sizes may differ."""
        return self._collective(_raw.ALL_GATHER, x, axes, timeout, dim=dim)

    def all_gather_async(self, x: Tensor, axes: Axes = None, dim: int = 0, timeout: Duration = None) -> Future[Tensor]:
        """The same as a future."""
        return self._collective_async(_raw.ALL_GATHER, x, axes, timeout, dim=dim)

    def reduce_scatter(self, x: Tensor, axes: Axes = None, dim: int = 0, op: str = "sum",
                       timeout: Duration = None) -> Tensor:
        """The own block along a dim of what all_reduce gives."""
        return self._collective(_raw.REDUCE_SCATTER, x, axes, timeout, dim=dim, op=op)

    def reduce_scatter_async(self, x: Tensor, axes: Axes = None, dim: int = 0, op: str = "sum",
                             timeout: Duration = None) -> Future[Tensor]:
        """The same as a future."""
        return self._collective_async(_raw.REDUCE_SCATTER, x, axes, timeout, dim=dim, op=op)

    def all_to_all(self, x: Tensor, axes: Axes = None, dim: int = 0, dim_to: int = 0,
                   timeout: Duration = None) -> Tensor:
        """Block i along `dim` goes to member i; the blocks that come are joined along `dim_to`."""
        return self._collective(_raw.ALL_TO_ALL, x, axes, timeout, dim=dim, dim_to=dim_to)

    def all_to_all_async(self, x: Tensor, axes: Axes = None, dim: int = 0, dim_to: int = 0,
                         timeout: Duration = None) -> Future[Tensor]:
        """The same as a future."""
        return self._collective_async(_raw.ALL_TO_ALL, x, axes, timeout, dim=dim, dim_to=dim_to)

    def broadcast(self, x: Tensor, axes: Axes = None, root: int = 0, timeout: Duration = None) -> Tensor:
        """The tensor of the member at the position `root` among those that take part."""
        return self._collective(_raw.BROADCAST, x, axes, timeout, root=root)

    def broadcast_async(self, x: Tensor, axes: Axes = None, root: int = 0, timeout: Duration = None) -> Future[Tensor]:
        """The same as a future."""
        return self._collective_async(_raw.BROADCAST, x, axes, timeout, root=root)

    def reduce(self, x: Tensor, axes: Axes = None, root: int = 0, op: str = "sum",
               timeout: Duration = None) -> Tensor | None:
        """What all_reduce gives, on the member at the position `root`; None elsewhere."""
        return self._collective(_raw.REDUCE, x, axes, timeout, root=root, op=op)

    def reduce_async(self, x: Tensor, axes: Axes = None, root: int = 0, op: str = "sum",
                     timeout: Duration = None) -> Future[Tensor | None]:
        """The same as a future."""
        return self._collective_async(_raw.REDUCE, x, axes, timeout, root=root, op=op)

    def permute(self, x: Tensor, axes: Axes = None, shift: int = 1, timeout: Duration = None) -> Tensor:
        """The tensor of the member `shift` positions before, in a circle."""
        return self._collective(_raw.PERMUTE, x, axes, timeout, shift=shift)

    def permute_async(self, x: Tensor, axes: Axes = None, shift: int = 1, timeout: Duration = None) -> Future[Tensor]:
        """The same as a future."""
        return self._collective_async(_raw.PERMUTE, x, axes, timeout, shift=shift)

    def _collective(self, kind: int, x: Tensor, axes: Axes, timeout: Duration, **given: Any) -> Tensor:
        """Waits for room where 256 calls are under way; a future could not, as each call is numbered when it is made."""
        out, err = TensorHandle(), distag_error()
        if call_and_hear(lib.distag_collective, self._h, kind, *_collective_arguments(x, axes, timeout, **given),
                         byref(out), byref(err)):
            fail(err)
        return Tensor(out) if out else None  # type: ignore[return-value]  # a reduce to another member

    def _collective_async(self, kind: int, x: Tensor, axes: Axes, timeout: Duration, **given: Any) -> Future[Any]:
        return begin(lib.distag_collective_async, self._h, kind, *_collective_arguments(x, axes, timeout, **given))


class HybridMesh(Mesh):
    """A mesh over several granules: `ici_mesh_shape` is the grid within one, `dcn_mesh_shape` the one over them; each
    axis has the product of both. Granules are the hosts, or as `granules` says."""

    __slots__ = ()

    def __init__(self, worker: Worker | None, ici_mesh_shape: Ints, dcn_mesh_shape: Ints,
                 axis_names: Sequence[str] | None = None, **options: Any) -> None:
        super().__init__(ici_mesh_shape, axis_names, worker=worker, outer_shape=dcn_mesh_shape, **options)


def _collective_arguments(x: Tensor, axes: Axes, timeout: Duration, dim: int = 0, dim_to: int = 0, root: int = 0,
                          shift: int = 0, op: str = "sum") -> tuple[Any, ...]:
    options = _raw.distag_collective_options(
        struct_size=sizeof(_raw.distag_collective_options), reduction=_choice("op", op, REDUCTIONS),
        dim=fit(dim, c_int64, "dim"), dim_to=fit(dim_to, c_int64, "dim_to"), root=fit(root, c_int64, "root"),
        shift=fit(shift, c_int64, "shift"), timeout_ns=limit_ns(timeout))
    given = input_of(tensor_of(x, "collective"))
    return _specs.axes_text(axes), given, byref(options)


def visualize_sharding(spec: Spec, shape: Ints | None = None, *, mesh: Mesh | None = None, format: str = "text",
                       label: str | None = None, width: int = 0, color: bool = False,
                       dims: tuple[int, int] = (0, 0)) -> str:
    """Draws which members hold which part, as "text", "json", "svg" or "html". Without a mesh the spec is HLO text, such
    as "{devices=[2,2]0,1,2,3}"; without a shape all parts are drawn alike. `dims` are the two that are drawn."""
    row, column = int64_pair(dims, "dims")
    options = _raw.distag_picture_options(
        struct_size=sizeof(_raw.distag_picture_options), format=_choice("format", format, FORMATS),
        color=flag(color, "color"), width=fit(width, c_uint32, "width"), row_dim=row, column_dim=column,
        label=None if label is None else text(label, "label"))
    sizes, ndim = (None, _dims_of(spec)) if shape is None else int64_array(shape, "shape")
    on = None if mesh is None else mesh_of(mesh, "visualize_sharding")
    return copy_text(lib.distag_visualize_sharding, on, _specs.text_of(spec), sizes, ndim, byref(options))


def visualize_tensor_sharding(tensor: Tensor, **options: Any) -> str:
    """Draws which members hold which part of a sharded tensor; options as for visualize_sharding."""
    tensor_of(tensor, "visualize_tensor_sharding")
    spec, mesh = tensor.spec, tensor.mesh
    if spec is None or mesh is None:
        raise invalid("visualize_tensor_sharding: the tensor is not sharded: mark it first")
    return visualize_sharding(spec, tensor.shape, mesh=mesh, **options)


def _dims_of(spec: Any) -> int:
    """The number of dims, where the spec has an item for each; 0 leaves it to the library."""
    return len(spec) if isinstance(spec, tuple) else 0


def _choice(what: str, given: str, choices: Mapping[str, int]) -> int:
    if not isinstance(given, str) or given not in choices:
        raise invalid(f"{what} is one of {', '.join(choices)}, not {given!r}")
    return choices[given]


def _product(sizes: Any) -> int:
    numbers: list[int] = [] if sizes is None else list(sizes)
    return math.prod(numbers) if all(number > 0 for number in numbers) else 1


def _point(options: Any, field: str, array: Any, other: str, count: int | None) -> None:
    """Lets a field point to an array of as many numbers as the library reads there: that of another argument."""
    if array is None:
        return
    if count is not None and len(array) != count:
        raise invalid(f"{field}: as many numbers as {other} has are wanted, {count}, not {len(array)}")
    setattr(options, field, addressof(array))


def _create(worker: Worker | None, ranks: Sequence[int] | None, sizes: Any, axes: Sequence[str] | None, ndim: int,
            options: Any) -> MeshHandle:
    if axes is not None and (not isinstance(axes, (tuple, list)) or len(axes) != ndim):
        raise invalid(f"axes: as many names as the shape has sizes are wanted, {ndim}, not {axes!r}")
    names = None if axes is None else (c_char_p * ndim)(*[text(axis, "axes") for axis in axes])
    members = None if ranks is None else (c_int32 * len(ranks))(*[fit(rank, c_int32, "rank") for rank in ranks])
    arguments = (members, 0 if ranks is None else len(ranks), sizes, names, ndim, byref(options))
    out, err = MeshHandle(), distag_error()
    if worker is not None:
        begin(lib.distag_mesh_create_async, worker._h, *arguments, byref(out)).result()
        Meshes.note_new()
    elif lib.distag_mesh_create(None, *arguments, byref(out), byref(err)):
        fail(err)
    return out

