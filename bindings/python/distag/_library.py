"""Loads libdistag.so and binds its functions (`lib.distag_call`). A library older than this package is refused."""
from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import sys
from typing import Any, NoReturn

from . import _raw


class Api(ctypes.Structure):
    """The head of the function table."""

    _fields_ = (("struct_size", ctypes.c_uint32), ("abi_major", ctypes.c_uint32))


def candidates() -> list[str]:
    """The files to try, in their order: that of DISTAG_LIBRARY alone, else the system's and that of this prefix."""
    if os.environ.get("DISTAG_LIBRARY"):
        return [os.environ["DISTAG_LIBRARY"]]
    name = f"libdistag.so.{_raw.ABI_MAJOR}"
    return [name] + [os.path.join(prefix, "lib", name) for prefix in (sys.prefix, "/usr/local")]


def load() -> ctypes.CDLL:
    """The library, of which nothing is used yet."""
    failures = []
    for path in candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    raise ImportError("distag: libdistag is not found: install it, or name its file in DISTAG_LIBRARY ("
                      + "; ".join(failures) + ")")


def check(library: Any) -> None:
    """Raises ImportError unless the library has all that this package calls."""
    library.distag_get_version.restype = ctypes.c_char_p
    library.distag_get_api.restype = ctypes.POINTER(Api)
    library.distag_get_api.argtypes = (ctypes.c_uint32,)
    version = library.distag_get_version().decode()
    table = library.distag_get_api(_raw.ABI_MAJOR)
    if not table or table.contents.struct_size < _raw.API_SIZE:
        raise ImportError(f"distag: {library._name} is version {version}, and this package needs version "
                          f"{_raw.VERSION} with ABI {_raw.ABI_MAJOR} or a later one: install that library, or an "
                          "older package")


INTEGERS = {ctypes.c_int32: (-2**31, 2**31), ctypes.c_int64: (-2**63, 2**63), ctypes.c_uint64: (0, 2**64)}


def checked(function: Any, parameters: Any) -> Any:
    """A function whose integers may be NumPy's, and are refused where ctypes would cut them. (Converters of ctypes are
    no place for that: there Ctrl-C becomes an ArgumentError.)"""
    ranges = [(place, *INTEGERS[kind]) for place, kind in enumerate(parameters) if kind in INTEGERS]

    def call(*arguments: Any) -> Any:
        for place, begin, end in ranges:
            number = arguments[place]
            if not isinstance(number, int):
                number = integer(number)
                arguments = (*arguments[:place], number, *arguments[place + 1:])
            if not begin <= number < end:
                refuse(f"{number} does not fit: an integer from {begin} to {end - 1} is wanted")
        return function(*arguments)

    return call if ranges else function


def integer(given: Any) -> int:
    """An integer of NumPy, or whatever else says that it is one."""
    with contextlib.suppress(TypeError):  # also of an array of several, which has __index__
        return operator.index(given)
    refuse(f"an integer is wanted, or a dtype such as distag.float32, not {given!r}")


def refuse(message: str) -> NoReturn:
    """Raises the error of an argument."""
    from ._arguments import invalid  # which needs the library itself

    raise invalid(message)


def bind(library: Any) -> Any:
    """Gives each function the types of its result and parameters."""
    for name, result, parameters in _raw.PROTOTYPES:
        function = getattr(library, name)
        function.restype = result
        function.argtypes = parameters
        setattr(library, name, checked(function, parameters))
    return library


def load_checked() -> Any:
    """The library, ready to be called."""
    library = load()
    check(library)
    return bind(library)


lib: Any = load_checked()
