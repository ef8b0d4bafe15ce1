"""Remote references: values and objects that stay where they are made."""
from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any

from . import _raw, values
from ._arguments import TORCH_UNSET, Duration, torch_timeout
from ._handles import Owner, RRefHandle, handle_of_kind
from ._library import lib
from ._raw import distag_error
from .calls import CURRENT, ContextArgument, call_options, context_handle
from .errors import fail
from .futures import Future, begin


class RRef(Owner):
    """Names a value at its owner. It travels in any call, and the value goes when its last reference does."""

    __slots__ = ()
    _distag_as_value = lib.distag_rref_as_value

    def __init__(self, handle: RRefHandle) -> None:
        self._h = handle_of_kind(handle, RRefHandle, "worker.remote(...) or worker.rref(value)")

    def fetch(self, *, context: ContextArgument = CURRENT, timeout: Duration = None) -> Any:
        """Waits for the value and gives it: at its owner the value itself, elsewhere a copy."""
        return self.fetch_async(context=context, timeout=timeout).result()

    def fetch_async(self, *, context: ContextArgument = CURRENT, timeout: Duration = None) -> Future[Any]:
        """The same as a future."""
        return begin(lib.distag_rref_fetch_async, self._h, context_handle(context), call_options(timeout))

    def local(self) -> Any:
        """The value itself, at its owner: a tensor, an object."""
        out, err = c_void_p(), distag_error()
        handle = self._h
        if lib.distag_rref_get_local(handle, byref(out), byref(err)):
            fail(err)
        return values.from_value(out)

    @property
    def owner(self) -> str:
        """The name of the worker that has the value."""
        name: bytes = lib.distag_rref_get_owner(self._h)
        return name.decode()

    @property
    def is_owner(self) -> bool:
        """Whether the worker of this reference has the value."""
        return bool(lib.distag_rref_is_owner(self._h))

    @property
    def is_confirmed(self) -> bool:
        """Whether the owner knows of this reference."""
        return bool(lib.distag_rref_is_confirmed(self._h))

    @property
    def id(self) -> int:
        """The same for all references to one value."""
        return int(lib.distag_rref_get_id(self._h))

    def to_here(self, timeout: float = TORCH_UNSET, *, context: ContextArgument = CURRENT) -> Any:
        """torch's name for `fetch`, and its timeouts: -1 is the default, 0 for ever."""
        return self.fetch(context=context, timeout=torch_timeout(timeout))

    local_value = local  # torch's name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RRef) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return "<closed distag.RRef>" if self.is_closed else f"<distag.RRef {self.id:#x} at {self.owner}>"


def _read_rref(value: Any) -> RRef:
    lent = values.read(lib.distag_value_get_rref, c_void_p(), value)
    return RRef(RRefHandle.lent(lent))


values.READERS[_raw.VALUE_RREF] = _read_rref
