"""Ctrl-C in calls that wait for other members and have no form without a wait."""
from __future__ import annotations

import contextlib
import contextvars
import os
import select
import threading
import weakref
from ctypes import Array, byref, sizeof, string_at
from functools import partial
from numbers import Number
from queue import SimpleQueue
from typing import Any, Callable

from . import _raw
from ._handles import TensorHandle, ValueHandle, WorkerHandle
from ._library import lib
from ._raw import distag_error
from .errors import raise_interrupt

SLICE_S = 0.05  # a wait ends this often: a signal that came just before it, or on another thread, wakes nothing
_get_spec, _get_mesh = lib.distag_tensor_get_spec, lib.distag_tensor_get_mesh
Signature = tuple[Any, ...]
OutArgument = type(byref(distag_error()))


class HostExecutor:
    """The workers of this process whose callbacks run where the host polls, each with the thread that did so last: they
    run there also while it waits in a call."""

    _pollers: dict[int, tuple[weakref.ref[WorkerHandle], int]] = {}

    @classmethod
    def polls_here(cls, worker: WorkerHandle) -> None:
        """From now on the calling thread is the one that polls."""
        known = cls._pollers
        gone = [key for key, (reference, _) in list(known.items()) if reference() is None]
        for key in gone:
            known.pop(key, None)
        known[id(worker)] = weakref.ref(worker), threading.get_ident()

    @classmethod
    def polled_here(cls) -> list[WorkerHandle]:
        """The workers that the calling thread polls."""
        here = threading.get_ident()
        found = [reference() for reference, poller in list(cls._pollers.values()) if poller == here]
        return [worker for worker in found if worker is not None and lib.distag_worker_get_fd(worker) >= 0]


class Meshes:
    """The calls of ops on sharded tensors that were seen to send nothing, so that they wait for no other member. A later
    call with the same signature sends nothing either: mesh, op, attributes, and the dtypes, shapes and specs of its
    inputs decide what is sent."""

    made = 0  # before this process has made a mesh of workers no tensor is sharded, and no op asks
    MOST_LOCAL = 4096
    _local: set[Signature] = set()

    @classmethod
    def note_new(cls) -> None:
        """A mesh was made. It may have the address of one that is gone."""
        cls.made += 1
        cls._local.clear()

    @classmethod
    def call(cls, signature: Signature, sharded: TensorHandle, function: Callable[..., int],
             arguments: tuple[Any, ...]) -> int:
        """What a function answers to a call with this signature, one of whose inputs is sharded."""
        if cls.made > 1:
            signature = _address_of(_get_mesh(sharded)), signature
        if signature in cls._local:
            return function(*arguments)
        mesh = _get_mesh(sharded)
        before = _communications(mesh)
        answer = call_and_hear(function, *arguments)
        if not answer and _communications(mesh) == before:
            if len(cls._local) >= cls.MOST_LOCAL:
                cls._local.clear()
            cls._local.add(signature)
        return answer


def call_and_hear(function: Callable[..., int], *arguments: Any) -> int:
    """What a function of the library answers. On the main thread, which alone hears signals, another thread makes the
    call, and this one waits for it; after Ctrl-C the call goes on there, with its arguments, until it ends."""
    if not _is_main():
        return function(*arguments)
    caller = Caller.take()
    return function(*arguments) if caller is None else caller.call(function, arguments)


def work_and_hear(work: Callable[[], Any]) -> Any:
    """What work of several calls gives. After Ctrl-C all of it goes on behind: its later calls are made, too."""
    results: list[Any] = []

    def run() -> int:
        results.append(work())
        return 0

    call_and_hear(run)
    return results[0]


def call_op(op: Callable[..., int], *arguments: Any, attributes: Any = None) -> int:
    """What an op answers. Ctrl-C is heard where an input is sharded and the op may need elements of other members.
    `attributes` are those that are not among the arguments as numbers."""
    if not (Meshes.made and _is_main()):
        return op(*arguments)
    signature: list[Any] = [id(op) if attributes is None else repr(attributes)]
    sharded = None
    for argument in arguments:
        kind = type(argument)
        if kind is OutArgument or kind is ValueHandle:  # results, and `attributes`
            continue
        is_tensor = kind is TensorHandle
        if not is_tensor and not hasattr(argument, "keep"):
            signature.append(tuple(argument) if isinstance(argument, Array) else argument)
            continue
        for tensor in (argument,) if is_tensor else argument.keep:
            spec = _get_spec(tensor)
            if spec is not None:
                sharded = tensor
            signature += (tensor, spec)
    if sharded is None:
        return op(*arguments)
    if attributes is not None and not _is_shown_whole(list(attributes.values())):
        return call_and_hear(op, *arguments)
    like = tuple([_dims(item) if type(item) is TensorHandle else item for item in signature])
    return Meshes.call(like, sharded, op, arguments)


def hearing(op: Callable[..., int]) -> Callable[..., int]:
    """The op as a function that hears Ctrl-C."""
    return partial(call_op, op)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_shown_whole(attribute: Any) -> bool:
    """Whether `repr` tells an attribute from any other. It abbreviates a large array."""
    if isinstance(attribute, (list, tuple)):
        return all(map(_is_shown_whole, attribute))
    return attribute is None or isinstance(attribute, (str, Number))


def _dims(tensor: TensorHandle) -> tuple[int, bytes]:
    """Dtype and shape of a tensor, which never change: a handle keeps them."""
    try:
        return tensor.dims
    except AttributeError:
        info = _raw.distag_tensor_info(sizeof(_raw.distag_tensor_info))
        lib.distag_tensor_get_info(tensor, byref(info), None)
        tensor.dims = info.dtype, string_at(info.shape, 8 * info.ndim)
        return tensor.dims


def _address_of(mesh: int) -> int | None:
    """The same for all handles and lines of a mesh."""
    info = _raw.distag_mesh_info(sizeof(_raw.distag_mesh_info))
    lib.distag_mesh_get_info(mesh, byref(info), None)
    address: int | None = info.ranks
    return address


def _communications(mesh: int) -> int:
    """A number that grows with each communication of this mesh, also where this member only receives."""
    stats = _raw.distag_mesh_stats(sizeof(_raw.distag_mesh_stats))
    lib.distag_mesh_get_stats(mesh, byref(stats), None)
    return int(stats.all_reduces + stats.all_gathers + stats.reduce_scatters + stats.all_to_alls + stats.broadcasts
               + stats.moves + stats.bytes_received)


class Caller:
    """A thread that makes calls for the main thread, which may leave one that is not over: then the caller is free
    again once it is."""

    free: list[Caller] = []
    _is_polling = False  # whether the main thread runs callbacks meanwhile

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Call, Caller] | None] = SimpleQueue()
        self._ended, self._end = os.pipe()
        os.set_blocking(self._end, False)
        self._thread = threading.Thread(target=_serve, args=[self._calls], name="distag call", daemon=True)
        self._thread.start()

    def __del__(self) -> None:
        if hasattr(self, "_end"):
            os.close(self._end)
            os.close(self._ended)
            self._calls.put(None)

    @classmethod
    def take(cls) -> Caller | None:
        """One that is free, or a new one; None where a thread or a descriptor is lacking."""
        while cls.free:
            caller = cls.free.pop()
            if caller._thread.is_alive():  # not in a forked child
                return caller
        try:
            return cls()
        except (OSError, RuntimeError):
            return None

    def release(self) -> None:
        """The call is over."""
        self.free.append(self)
        if self._is_polling:
            with contextlib.suppress(BlockingIOError):  # it is readable
                os.write(self._end, b"1")

    def call(self, function: Callable[..., int], arguments: tuple[Any, ...]) -> int:
        call = Call(function, arguments)
        self._is_polling = bool(HostExecutor.polled_here())
        self._calls.put((call, self))
        while self._is_polling and not call.is_over:
            self._poll()
        return call.result()

    def _poll(self) -> None:
        """Waits for something to run here, or for the end of a call, and runs it."""
        workers = HostExecutor.polled_here()
        descriptors = [lib.distag_worker_get_fd(worker) for worker in workers]
        looked_at = select.poll()  # select.select refuses descriptors from 1,024 on
        for descriptor in (self._ended, *descriptors):
            looked_at.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in looked_at.poll(SLICE_S * 1000)]
        if self._ended in ready:
            os.read(self._ended, 4096)
        for worker, descriptor in zip(workers, descriptors):
            if descriptor in ready:
                lib.distag_worker_poll(worker, 1, -1, None, byref(distag_error()))
                raise_interrupt()


def _serve(calls: SimpleQueue[tuple[Call, Caller] | None]) -> None:
    """Of a caller, which it knows only while a call of it runs: one that is forgotten ends it."""
    while given := calls.get():
        call, caller = given
        call.run(caller)
        del given, call, caller


class Call:
    """A call that another thread makes for the main thread."""

    def __init__(self, function: Callable[..., int], arguments: tuple[Any, ...]) -> None:
        self._work: Any = contextvars.copy_context().run, function, *arguments
        self._running = threading.Lock()
        self._running.acquire()
        self.is_over = False
        self._result: int | None = None
        self._failure: BaseException | None = None

    def run(self, caller: Caller) -> None:
        (run, *arguments), self._work = self._work, None
        try:
            self._result = run(*arguments)
        except BaseException as failure:  # an argument that ctypes refuses
            self._failure = failure
        del run, arguments  # what they hold is the main thread's to release
        self.is_over = True
        self._running.release()
        caller.release()

    def result(self) -> int:
        """Waits for the result."""
        while not self._running.acquire(timeout=SLICE_S):
            pass
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # whose traceback holds this frame
        assert self._result is not None
        return self._result
