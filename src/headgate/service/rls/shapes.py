"""Calls of callers not seen before, planned like an earlier call of the same shape.

Most calls of a gateway differ in one value, that of the caller, and rules use it for nothing but
the key of a counter: it is *free*. The shape of a call is everything else: its domain, its amount,
the keys of its descriptor and all values that are not free. The first call of a shape is planned as
usual; for others its plan is copied with another key, in half of the time.

Shapes are a security boundary, like the plan cache: a call must never be decided by a plan that the
rules would not make for it. So a value is free only if

- some rule counts by it (`attribute:NAME`), and no rule, identity or priority reads it otherwise:
  as an attribute, as the header of that name, or as the path, method or host of a request;
- it is written into a key as it is.

A shape has one descriptor, without a limit or amount of its own, and one rule, whose key has
nothing else that depends on a free value. A test compares the plans with those made without shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.engine.calls import CallPlan, Part
from headgate.policy.envoy_config.attributes import WELL_KNOWN, attribute_names
from headgate.policy.identity.parts import is_plain
from headgate.policy.limit_adjustment import LimitAdjustment
from headgate.policy.path import ROUTE
from headgate.policy.plan_cache import headers_of_interest
from headgate.service.rls.descriptors import PlannedCall

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headgate.engine.plan import Plan
    from headgate.policy.model import Policy

MAX_SHAPES: Final = 1024
"""Shapes that are kept, and combinations of keys: clients may choose values that are not free."""

_ATTRIBUTE: Final = "attribute:"
_PEER: Final = "peer"


Places = tuple[tuple[int, ...], tuple[int, ...]]
"""The places of the values that are free in descriptors with the same keys, and of the others."""

CallShape = tuple["Hashable", tuple[int, ...], list[str]]
"""The shape of a call, the places of its free values, and all its values."""


class Shape(NamedTuple):
    """The first call of a shape, and the texts of its key, each with the place of a value."""

    planned: PlannedCall
    plan: Plan
    texts: tuple[tuple[str, int | None], ...]


class Shapes:
    """The shapes of calls under *policy*."""

    def __init__(self, policy: Policy) -> None:
        self._free = _free_attributes(policy)
        self._places: dict[tuple[str, ...], Places] = {}
        self._shapes: dict[Hashable, Shape | None] = {}

    def planned(self, request: Any) -> PlannedCall | None:
        """The call of *request*, a `RateLimitRequest`, planned like the first of its shape; None if
        it is the first, or has no shape."""
        call_shape = self._call_shape(request)
        shape = None if call_shape is None else self._shapes.get(call_shape[0])
        if call_shape is None or shape is None:
            return None
        values = call_shape[2]
        texts = [text if place is None else text + values[place] for text, place in shape.texts]
        plan = shape.plan.for_key(texts[0] if len(texts) == 1 else "&".join(texts))
        call, lines, first, tokens, shown, _ = shape.planned
        parts = (Part(plan.rules[0], *first.parts[0][1:]),)
        return PlannedCall(call, lines, CallPlan(plan.revision, parts, plan=plan), tokens, shown)

    def learn(self, request: Any, planned: PlannedCall) -> None:
        """Keep *planned*, the call of *request*, if others of its shape can be planned like it."""
        call_shape = self._call_shape(request)
        if call_shape is not None and call_shape[0] not in self._shapes:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[call_shape[0]] = _shape_of(call_shape, planned)

    def _call_shape(self, request: Any) -> CallShape | None:
        descriptors = request.descriptors
        if not self._free or len(descriptors) != 1 or not isinstance(request.domain, str):
            return None
        one = descriptors[0]
        if one.HasField("limit") or one.HasField("hits_addend") or one.is_negative_hits:
            return None
        entries = one.entries
        keys = tuple([entry.key for entry in entries])
        free, fixed = self._places.get(keys) or self._places_in(keys)
        values = [entry.value for entry in entries]
        for place in free:
            if not is_plain(values[place]):
                return None
        shape = request.domain, request.hits_addend, keys, *[values[place] for place in fixed]
        return (shape, free, values) if free else None

    def _places_in(self, keys: tuple[str, ...]) -> Places:
        if len(self._places) >= MAX_SHAPES:
            self._places.clear()
        is_free = [
            key == name and key in self._free and WELL_KNOWN.get(key, _PEER) == _PEER
            for key, name in zip(keys, attribute_names(keys), strict=True)
        ]
        free = tuple([place for place, is_it in enumerate(is_free) if is_it])
        fixed = tuple([place for place, is_it in enumerate(is_free) if not is_it])
        self._places[keys] = free, fixed
        return free, fixed


def _shape_of(call_shape: CallShape, planned: PlannedCall) -> Shape | None:
    """The shape of which *planned* is the first call; None if others may be planned differently."""
    plan, call = planned.lines[0].plan, planned.call
    if plan is None or len(plan.rules) != 1 or planned.debug_tokens:
        return None
    (one,) = plan.rules
    rule = one.rule.declared
    if LimitAdjustment.concerns(rule):
        return None
    _, places, values = call_shape
    names = [name for name, _ in call.descriptors[0].entries]
    free = {f"{_ATTRIBUTE}{names[place]}": place for place in places}
    texts: list[tuple[str, int | None]] = []
    for part, text in zip(rule.key_by, one.key.split("&"), strict=True):
        place = free.get(part)
        if place is None and (part == "ip" or "!" in text):  # the address, which may be free
            return None
        if place is not None and not text.endswith(f"={values[place]}"):
            return None
        texts.append((text if place is None else text.removesuffix(values[place]), place))
    return Shape(planned, plan, tuple(texts))


def _free_attributes(policy: Policy) -> frozenset[str]:
    """The attributes that rules of *policy* count by, and that nothing else reads."""
    if policy.overrides:  # of single keys
        return frozenset()
    parts = [part for rule in policy.rules for part in rule.key_by if part.startswith(_ATTRIBUTE)]
    counted = {part.removeprefix(_ATTRIBUTE) for part in parts}
    matches = [*(rule.match for rule in policy.rules), *(one.match for one in policy.priorities)]
    read = {ROUTE, *(name for match in matches for name, _ in match.attributes)}
    read |= {source.attribute for source in policy.identity.sources.values() if source.attribute}
    headers = headers_of_interest(policy)
    return frozenset(name for name in counted - read if name.lower() not in headers)
