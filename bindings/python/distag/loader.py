"""Loaders: batches that a source makes ahead of the program, as tensors that lie over the members of a mesh."""
from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from ctypes import addressof, byref, c_char_p, c_int64, c_uint32, c_uint64, sizeof
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Callable, Union

from . import _arguments, _callbacks, _raw, _specs, ops
from ._arguments import Duration, fit, flag, invalid, mesh_of, nanoseconds
from ._handles import Handle, Owner, ValueHandle
from ._library import lib
from ._raw import distag_error
from ._specs import Spec
from .errors import fail, kind_of
from .futures import Future, begin
from .tensor import Tensor, tensor
from .values import from_value, to_value

if TYPE_CHECKING:
    from .mesh import Mesh

MODES = {"global": _raw.BATCH_GLOBAL, "local": _raw.BATCH_LOCAL, "root": _raw.BATCH_ROOT, "rows": _raw.BATCH_ROWS}
Specs = Union[None, Spec, Mapping[str, Spec]]


class LoaderHandle(Handle, noun="loader"):
    __slots__ = ()


@dataclass(frozen=True)
class LoaderInfo:
    """The progress of a loader on this member: batches that wait for the program, the number of the next, batches in
    all (None: unknown), those dropped because the data of another member had ended, seconds that the program waited
    for batches, and seconds in the source."""

    ready: int
    next: int
    count: int | None
    dropped: int
    waited: float
    in_source: float


class Loader(Owner):
    """Batches of a mesh, one after the other: `for batch in mesh.loader(source, batch_rows=64)`. A `with` ends it at
    its end; else it goes with the object."""

    __slots__ = ("_timeout",)

    def __init__(self, mesh: Mesh, source: Any, batch_rows: int | None = None, specs: Specs = None, *,
                 mode: str | None = None, shuffle: bool = False, seed: int = 0, epochs: float = 1,
                 drop_last: bool = False, prefetch: int = 2, concurrency: int = 1, state: Any = None,
                 timeout: Duration = None) -> None:
        handle = mesh_of(mesh, "loader")
        chosen = mode if mode is not None else "global" if batch_rows is None else "rows"
        if not isinstance(chosen, str) or chosen not in MODES:
            raise invalid(f"mode is one of {', '.join(MODES)}, not {mode!r}")
        if (chosen == "rows") is (batch_rows is None):
            raise invalid("batch_rows is of mode \"rows\", which needs it: other modes take batches as the source "
                          "gives them")
        shuffle, drop_last = flag(shuffle, "shuffle"), flag(drop_last, "drop_last")
        keep: list[Any] = []
        options = _raw.distag_loader_options(
            struct_size=sizeof(_raw.distag_loader_options), mode=MODES[chosen],
            prefetch=fit(prefetch, c_uint32, "prefetch"), concurrency=fit(concurrency, c_uint32, "concurrency"))
        if chosen == "rows":
            reader = _rows_of(source)
            assert batch_rows is not None
            options.row_count, options.batch_rows = reader.count, fit(batch_rows, c_int64, "batch_rows")
            options.epochs = fit(_epochs(epochs), c_int64, "epochs")
            options.seed, options.shuffle, options.drop_last = fit(seed, c_uint64, "seed"), shuffle, drop_last
            make: Callable[[int, list[int] | None], Any] = lambda number, rows: reader.read(rows or [])
        else:
            if shuffle or seed or epochs != 1 or drop_last:
                raise invalid("shuffle, seed, epochs and drop_last are of mode \"rows\"")
            make = _batches_of(source, options.concurrency)
        _set_specs(options, specs, keep)
        if state is not None:
            options.state = to_value(state, keep, "state")
        self._timeout = nanoseconds(timeout, _raw.FOREVER)
        out, err = LoaderHandle(), distag_error()
        if lib.distag_loader_create(handle, SOURCE, _callbacks.keep(make), _callbacks.FORGET, byref(options),
                                    byref(out), byref(err)):
            fail(err)
        self._h = out

    def __enter__(self) -> Loader:
        self._h  # a closed one says so
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._begin(self._timeout).result()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: Duration = None) -> Any:
        """The next batch; None at the end. A timeout that is over loses no batch."""
        return self.next_async(timeout).result()

    def next_async(self, timeout: Duration = None) -> Future[Any]:
        """The same as a future."""
        return self._begin(nanoseconds(timeout, _raw.FOREVER))

    def _begin(self, timeout: int) -> Future[Any]:
        return begin(lib.distag_loader_next_async, self._h, timeout)

    def __len__(self) -> int:
        """Batches in all, those of the past included."""
        count = self.info().count
        if count is None:
            raise TypeError("this loader does not know how many batches its source has")
        return count

    def state(self) -> dict[str, int]:
        """Its position, to be saved in a checkpoint: a loader made with it as `state=`, on any mesh, begins with the
        next batch."""
        out, err = ValueHandle(), distag_error()
        if lib.distag_loader_save(self._h, byref(out), byref(err)):
            fail(err)
        found: dict[str, int] = from_value(out)
        return found

    def info(self) -> LoaderInfo:
        """Its progress on this member."""
        raw, err = _raw.distag_loader_info(struct_size=sizeof(_raw.distag_loader_info)), distag_error()
        if lib.distag_loader_get_info(self._h, byref(raw), byref(err)):
            fail(err)
        return LoaderInfo(raw.ready, raw.next, None if raw.count < 0 else raw.count, raw.dropped,
                          raw.waited_ns / _raw.SECOND, raw.source_ns / _raw.SECOND)

    def __repr__(self) -> str:
        if self.is_closed:
            return "<closed distag.Loader>"
        info = self.info()
        return f"<distag.Loader at batch {info.next} of {'?' if info.count is None else info.count}>"


def _epochs(number: Any) -> int:
    if isinstance(number, Real) and number == _arguments.FOREVER:
        return _raw.FOREVER
    if not isinstance(number, Real) or not math.isfinite(number) or number != int(number):
        raise invalid(f"epochs: a whole number, or FOREVER, is wanted, not {number!r}")
    return int(number)


def _set_specs(options: Any, specs: Specs, keep: list[Any]) -> None:
    if specs is None:
        return
    given: list[tuple[str | None, Any]] = list(specs.items()) if isinstance(specs, Mapping) else [(None, specs)]
    names = [None if key is None else _arguments.text(key, "specs") for key, _ in given]
    keys, texts = (c_char_p * len(given))(*names), (c_char_p * len(given))(*[
        _specs.text_of(spec, "" if key is None else f"specs \"{key}\": ") for key, spec in given])
    keep += [keys, texts]
    options.keys, options.specs = addressof(keys), addressof(texts)
    options.spec_count = len(given)


# ---- sources ----

@dataclass(frozen=True)
class _Rows:
    count: int
    read: Callable[[list[int]], Any]


def _rows_of(source: Any) -> _Rows:
    """How rows are read of an array, a list or dict of arrays, or anything with len() and [rows]."""
    if isinstance(source, Mapping) or _is_arrays(source):
        parts = dict(source) if isinstance(source, Mapping) else dict(enumerate(source))
        readers = {key: _rows_of(part) for key, part in parts.items()}
        counts = {key: reader.count for key, reader in readers.items()}
        if len(set(counts.values())) != 1:
            raise invalid(f"the arrays of a source have one number of rows, not {counts}")
        count = next(iter(counts.values()))
        if isinstance(source, Mapping):
            return _Rows(count, lambda rows: {key: reader.read(rows) for key, reader in readers.items()})
        return _Rows(count, lambda rows: [reader.read(rows) for reader in readers.values()])
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise invalid(f"a source of rows has len() and [rows], which {type(source).__name__} has not")
    if isinstance(source, Tensor):
        return _Rows(source.shape[0], lambda rows: ops.index_select(source, tensor(rows)))
    if hasattr(source, "__getitems__"):
        return _Rows(len(source), source.__getitems__)
    if isinstance(source, (list, tuple)):
        return _Rows(len(source), lambda rows: [source[row] for row in rows])
    return _Rows(len(source), lambda rows: source[rows])


def _is_arrays(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and bool(source) and all(
        hasattr(part, "shape") and hasattr(part, "__getitem__") for part in source)


def _batches_of(source: Any, concurrency: int) -> Callable[[int, list[int] | None], Any]:
    """How batches are read of a function of their number, a list, or anything that gives one after the other."""
    if isinstance(source, (list, tuple)):
        return lambda number, rows: source[number] if number < len(source) else None
    if not isinstance(source, Iterable):
        if not callable(source):
            raise invalid(f"a source is a function of the number of a batch, or gives batches one after the other, "
                          f"which {type(source).__name__} does not")
        return lambda number, rows: source(number)
    if concurrency > 1:
        raise invalid(f"loader: {kind_of(source)} gives batches one after the other, and concurrency="
                      f"{concurrency} asks for several at once: give a list or a function of the number of a batch, or "
                      "concurrency=1")
    items, lock = enumerate(source), threading.Lock()

    def read(number: int, rows: list[int] | None) -> Any:
        with lock:  # a loader that goes on from a state passes over those before it
            return next((batch for index, batch in items if index >= number), None)

    return read


def _as_batch(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {key: _as_tensor(item) for key, item in given.items()}
    if isinstance(given, (list, tuple)) and any(hasattr(item, "shape") for item in given):
        return [_as_tensor(item) for item in given]
    return _as_tensor(given)


def _as_tensor(given: Any) -> Tensor:
    return given if isinstance(given, Tensor) else tensor(given)


def _make(kept: int, number: int, rows: int | None, row_count: int, out: int) -> None:
    wanted = list((c_int64 * row_count).from_address(rows)) if rows else None
    given = _callbacks.get(kept)(number, wanted)
    if given is None:
        return
    keep: list[Any] = []
    _callbacks.pass_on(out, ValueHandle.lent(to_value(_as_batch(given), keep, "batch")))


@_callbacks.uninterrupted
def _source(kept: int, number: int, rows: int | None, row_count: int, out: int, err: int) -> int:
    return _callbacks.answer(err, lambda: _make(kept, number, rows, row_count, out))


SOURCE = _callbacks.immortal(_raw.distag_batch_source(_source))
