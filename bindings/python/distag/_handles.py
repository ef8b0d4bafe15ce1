"""Owned handles: each is one reference of the C interface, dropped when its object goes.

An object of this package holds its handle in `_h`, and gives the handle object, not its number, to each C call. So the
arguments of a call keep their handles alive until it returns, whatever another thread closes or collects meanwhile."""
from __future__ import annotations

import gc
import os
from ctypes import c_void_p, py_object, pythonapi
from typing import Any, NoReturn, Self

from . import _raw
from ._library import lib
from .errors import ClosedError, kind_of


class Uncopied:
    """Something that stands for one reference, or for a call: a copy made by Python would drop it a second time."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{kind_of(self)} is not copied or pickled: it is one reference of this process. "
                        "Values travel in calls, objects behind an RRef; of a tensor tolist(), clone() and snapshot() "
                        "give the values")


def as_method(function: Any) -> Any:
    """A C function as a method. As a destructor it runs no bytecode, so that Ctrl-C is never raised in it, where it
    would be lost."""
    make = pythonapi.PyInstanceMethod_New
    make.restype, make.argtypes = py_object, (py_object,)
    return make(function)


class Handle(Uncopied, c_void_p):
    """One reference to a `noun` of the C interface."""

    __slots__ = ()
    retain: Any

    def __init_subclass__(cls, noun: str) -> None:
        cls.retain = getattr(lib, f"distag_{noun}_retain")
        cls.__del__ = as_method(getattr(lib, f"distag_{noun}_release"))  # type: ignore[attr-defined]

    @classmethod
    def lent(cls, address: int) -> Self:
        """A reference of our own to what is lent."""
        cls.retain(address)
        return cls(address)


class TensorHandle(Handle, noun="tensor"):
    __slots__ = ("dims",)
    dims: tuple[int, bytes]  # see _interrupts


class ValueHandle(Handle, noun="value"):
    __slots__ = ()


class WorkerHandle(Handle, noun="worker"):
    __slots__ = ()


class FutureHandle(Handle, noun="future"):
    __slots__ = ()


class ContextHandle(Handle, noun="context"):
    __slots__ = ()


class GradientsHandle(Handle, noun="gradients"):
    __slots__ = ()


class RRefHandle(Handle, noun="rref"):
    __slots__ = ()


class OptimizerHandle(Handle, noun="optimizer"):
    __slots__ = ()


class MeshHandle(Handle, noun="mesh"):
    __slots__ = ()


class ReplyHandle(Handle, noun="reply"):
    __slots__ = ()


_home = os.getpid()  # the process that loaded the library


def close_all() -> None:
    """Closes every object: in a forked child the handles of the parent are dead."""
    gc.unfreeze()  # what a parent freezes before it forks is not listed
    for item in gc.get_objects():
        if issubclass(type(item), Owner):
            Owner.close(item)


def handle_of_kind(given: Any, kind: type[Handle], maker: str) -> Any:
    """The handle that an object is made of; the library would take a plain number for an address."""
    if not isinstance(given, kind):
        raise TypeError(f"{kind_of(given)} is no handle: {maker} makes such objects, not the class")
    return given


class Owner(Uncopied):
    """An object with a handle in `_h`, which goes when the object is closed or collected."""

    __slots__ = ("_h", "__weakref__")
    _h: Any

    def close(self) -> None:
        """Drops the handle now. Again does nothing; any other use of the object raises ClosedError."""
        try:
            del self._h
        except AttributeError:
            pass  # closed already

    def __enter__(self) -> Any:
        self._h  # a closed one says so
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the object was closed."""
        try:
            self._h
        except ClosedError:
            return True
        return False

    def __getattr__(self, name: str) -> NoReturn:
        # Called for what is not there: after close that is the handle.
        if name == "_h" and os.getpid() != _home:
            raise ClosedError(f"this {type(self).__name__} is closed, or was made before the process forked",
                              _raw.E_INVALID_STATE)
        if name == "_h":
            raise ClosedError(f"this {type(self).__name__} is closed", _raw.E_INVALID_ARGUMENT)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
