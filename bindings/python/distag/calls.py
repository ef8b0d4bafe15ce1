"""Arguments that all calls share: the context they are recorded in, and their options."""
from __future__ import annotations

from contextvars import ContextVar
from ctypes import byref, sizeof
from typing import TYPE_CHECKING, Any, Union

from . import _raw
from ._arguments import Duration, invalid, limit_ns, text
from ._recording import is_grad_enabled
from .errors import kind_of

if TYPE_CHECKING:
    from .context import Context

current: ContextVar[Any] = ContextVar("distag_context", default=None)


class Current:
    """The default of `context` arguments: the context of the innermost `with`, or of the call being answered."""

    def __repr__(self) -> str:
        return "CURRENT"


CURRENT = Current()
ContextArgument = Union["Context", None, Current]


def current_context() -> Context | None:
    """The context that calls of this thread or coroutine are recorded in, unless they name another; none within
    `no_grad`."""
    context: Context | None = current.get() if is_grad_enabled() else None
    return context


def context_handle(context: ContextArgument) -> Any:
    """The handle that a call is given; None records nothing."""
    chosen = current_context() if isinstance(context, Current) else context
    if chosen is None:
        return None
    if not hasattr(type(chosen), "backward"):
        raise invalid(f"context: a Context is wanted, or None, not {kind_of(chosen)}")
    return chosen._h


def call_options(timeout: Duration = None, within: Any = None, label: str | None = None,
                 traceparent: str | None = None) -> Any:
    """A pointer to the options of a call, or None when all are defaults."""
    if timeout is None and within is None and label is None and traceparent is None:
        return None
    options = _raw.distag_call_options(struct_size=sizeof(_raw.distag_call_options), timeout_ns=limit_ns(timeout))
    options.within = within
    options.label = None if label is None else text(label, "label")
    options.traceparent = None if traceparent is None else text(traceparent, "traceparent")
    return byref(options)
