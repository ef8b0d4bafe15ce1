"""Plans: how the tensors of a program lie on a mesh, by rules on their names, what follows, or a search."""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from ctypes import addressof, byref, c_char_p, c_int64, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any

from . import _arguments, _raw, _specs
from ._arguments import Duration, fit, flag, invalid, limit_ns, position, text
from ._handles import Handle, Owner
from ._interrupts import call_and_hear
from ._library import lib
from ._raw import distag_error
from ._specs import Spec
from .context import copy_text
from .errors import fail, kind_of
from .mesh import Mesh
from .tensor import Tensor


MODES: dict[str | None, int] = {None: 0, "complete": _raw.PLAN_COMPLETE, "auto": _raw.PLAN_AUTO}


def _costs_text(costs: Mapping[str, Any] | str | None) -> bytes | None:
    if costs is None or isinstance(costs, str):
        return None if costs is None else text(costs, "costs")
    if not isinstance(costs, Mapping):
        raise invalid(f"plan: costs are a dict or JSON, not {kind_of(costs)}")
    try:
        return text(json.dumps(dict(costs)), "costs")
    except (TypeError, ValueError) as error:
        raise invalid(f"plan: costs: {error}") from None


class PlanHandle(Handle, noun="plan"):
    __slots__ = ()


class Plan(Owner):
    """A spec for each of the named tensors. Immutable; may be used by any thread. Nothing is sent until `apply`.

    A tensor has the spec of the first rule whose pattern fits its name (* within dots, ** across them, ? one character);
    one without is repeated, and a rule that no tensor is left for is refused. With `roots`, the results of a program
    run with inputs of `deferred(..., init="shape")`, one without a rule gets the spec that follows from the others;
    with `mode="auto"` the one with which a step takes the least time, by `costs` (a dict of the header's names), found
    within `timeout`. Without a mode DISTAG_AUTO_SPMD=1 asks for that.
    `saved` is the `report` of a former plan, in the place of rules. `source` is the position of the member whose values
    all get; with None each keeps its part of its own. `memory_bytes` is what a member has for parts, gradients and the
    optimizer's copies: a plan that needs more is refused."""

    __slots__ = ()

    def __init__(self, mesh: Mesh, leaves: Mapping[str, Tensor], rules: Mapping[str, Spec] | None = None, *,
                 roots: Iterable[Tensor] = (), source: int | None = 0, saved: str | None = None, memory_bytes: int = 0,
                 optimizer_copies: int = 0, inference: bool = False, mode: str | None = None,
                 costs: Mapping[str, Any] | str | None = None, timeout: Duration = None) -> None:
        if not isinstance(mode, (str, type(None))) or mode not in MODES:
            raise invalid(f"plan: mode is \"complete\", \"auto\" or None, not {mode!r}")
        for what, items in (("leaves", leaves), ("rules", rules)):
            if not isinstance(items, (Mapping, type(None))) or items is leaves is None:
                raise invalid(f"plan: {what} are a dict, not {kind_of(items)}")
        given = dict(rules or {})
        handles = [_arguments.tensor_of(tensor, f"plan: leaf \"{name}\"") for name, tensor in leaves.items()]
        known: dict[int, str] = {}
        for name, tensor in leaves.items():
            if known.setdefault(tensor.id, name) != name:
                raise invalid(f"plan: the leaves \"{known[tensor.id]}\" and \"{name}\" are one tensor: name it once")
        names = (c_char_p * len(leaves))(*(text(name, "name") for name in leaves))
        tensors = (c_void_p * len(leaves))(*(handle.value for handle in handles))
        patterns = (c_char_p * len(given))(*(text(pattern, "pattern") for pattern in given))
        specs = (c_char_p * len(given))(*(_specs.text_of(spec, f"rule \"{pattern}\": ")
                                          for pattern, spec in given.items()))
        options = _raw.distag_plan_options(
            struct_size=sizeof(_raw.distag_plan_options), mode=MODES[mode], timeout_ns=limit_ns(timeout),
            costs=_costs_text(costs),
            inference=flag(inference, "inference"), optimizer_copies=fit(optimizer_copies, c_uint32, "optimizer_copies"),
            memory_bytes=fit(memory_bytes, c_uint64, "memory_bytes"),
            source=-1 if source is None else fit(position(source, "plan"), c_int64, "source"), names=addressof(names),
            leaves=addressof(tensors), leaf_count=len(leaves), patterns=addressof(patterns), specs=addressof(specs),
            rule_count=len(given), saved=None if saved is None else text(saved, "saved"))
        if isinstance(roots, Tensor) or not isinstance(roots, Iterable):
            raise invalid(f"plan: roots are a list of tensors, not {kind_of(roots)}")
        results, result_count = _arguments.array_of(
            [_arguments.tensor_of(root, "plan: an item of roots") for root in roots])
        out, err = PlanHandle(), distag_error()
        if lib.distag_plan_create(_arguments.mesh_of(mesh, "plan"), results, result_count, byref(options), byref(out),
                                  byref(err)):
            fail(err)
        self._h = out
        self._check_rules(given)

    def _check_rules(self, rules: Mapping[str, Spec]) -> None:
        """A rule that fits only what earlier ones fit says nothing: it stands in the wrong place."""
        used = {leaf["why"] for leaf in json.loads(self.report)["leaves"]} if rules else set()
        for pattern in rules:
            if f"rule \"{pattern}\"" not in used:
                raise invalid(f"plan: the rule \"{pattern}\" is hidden: all that it fits has the spec of an earlier "
                              "rule, as the first that fits counts: move it to the front, or leave it out")

    def apply(self, mesh: Mesh) -> None:
        """Marks the tensors as planned, in place, in one exchange. Members compare their plans. Collective."""
        err = distag_error()
        if call_and_hear(lib.distag_plan_apply, self._h, _arguments.mesh_of(mesh, "plan"), byref(err)):
            fail(err)

    def spec(self, name: str) -> str | None:
        """The spec of the tensor of that name; None where the plan has no such tensor."""
        found: bytes | None = lib.distag_plan_get_spec(self._h, text(name, "name"))
        return None if found is None else found.decode()

    @property
    def report(self) -> str:
        """In JSON, as the header says of distag_plan_copy_report: equal arguments give equal texts."""
        return copy_text(lib.distag_plan_copy_report, self._h)

    def __repr__(self) -> str:
        if self.is_closed:
            return "<distag.Plan: closed>"
        found: dict[str, Any] = json.loads(self.report)
        return f"<distag.Plan of {len(found['leaves'])} tensors: {found['memory']} bytes of a member>"
