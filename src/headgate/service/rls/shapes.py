"""Calls of callers not seen before, planned like an earlier call of the same shape.

Most messages of a gateway differ in one value only, that of the caller. If the limits use this
value for nothing but the key of a counter, it is *free*. The shape of a message is the rest of it:
its length, and the bytes before and after the value. The second message of a shape adds the shape
to the cache. The plan of each later one is a copy with another key, made without decoding the
message: in a third of the time.

Shapes are a security boundary, like the plan cache: the plan of a call must always be the one that
would be made without shapes. So a value is free only if nothing but the key depends on it:

- In a policy, some rule counts by the value (`attribute:NAME`), and no rule, identity or priority
  reads it in another way: as an attribute, as the header of that name, or as the path, method or
  host of a request.
- In a configuration of envoyproxy/ratelimit, all entries of its level with its key are one entry.
- The value is in the key unchanged, and nothing else in the key depends on it.

A message has a shape if it has one descriptor, without a limit or hits of its own, and one limit or
rule applies to it. Before a shape is added, the message is planned once more with another value in
the same place: call and plan must differ in the value only. A test compares the plans with those
made without shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.calls import CallPlan, Part
from headgate.llm.attributes import ATTRIBUTES
from headgate.policy.envoy_config.attributes import WELL_KNOWN, attribute_names
from headgate.policy.identity.parts import is_plain
from headgate.policy.limit_adjustment import LimitAdjustment
from headgate.policy.path import ROUTE
from headgate.policy.plan_cache import headers_of_interest
from headgate.runtime.bounded_cache import BoundedCache
from headgate.service.grpc.method import CallError
from headgate.service.rls.descriptors import PlannedCall
from headgate.service.rls.messages import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.engine.plan import Plan
    from headgate.policy.envoy_config.config import EnvoyConfig
    from headgate.policy.model import Policy
    from headgate.service.rls.requests import Call

MAX_BYTES: Final = 8 << 20
"""The bytes of all shapes in the cache: clients can cause new ones by values that are not free."""

_SHAPE_BYTES: Final = 8 << 10
"""The bytes that are counted for a shape: an upper bound, since messages are short."""

MAX_PLACES: Final = 16
"""The positions of values that are tried in messages of one length."""

_VALUE_TAG: Final = b"\x12"
_FILLERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_ATTRIBUTE: Final = "attribute:"
_PEER: Final = "peer"


class Shape(NamedTuple):
    """The first call of a shape, its *plan*, and its key *before* and *after* the value."""

    planned: PlannedCall
    plan: Plan
    before: str
    after: str

    def planned_for(self, value: str) -> PlannedCall:
        """The same call with another *value*."""
        plan = self.plan.for_key(f"{self.before}{value}{self.after}")
        call, lines, first, tokens, shown, is_configured, protocol, _, _ = self.planned
        parts = (Part(plan.rules[0], *first.parts[0][1:]),)
        plan_of_call = CallPlan(plan.revision, parts, each_alone=first.each_alone, plan=plan)
        return PlannedCall(call, lines, plan_of_call, tokens, shown, is_configured, protocol)


class Shapes:
    """The shapes of messages under *policy*, and *envoy* for its domains."""

    def __init__(self, policy: Policy, envoy: EnvoyConfig | None) -> None:
        self._free = _free_attributes(policy)
        self._envoy = envoy
        self._places: dict[int, dict[tuple[int, int], None]] = {}
        self._shapes: BoundedCache[Shape] = BoundedCache(MAX_BYTES)

    def planned(self, message: bytes) -> PlannedCall | None:
        """The planned call of *message*, copied from that of its shape; None without a known
        shape."""
        length = len(message)
        for start, end in self._places.get(length, ()):
            known = self._shapes.get((length, message[:start], message[end:]))
            if known is not None:
                value = message[start:end].decode("latin-1")
                return known[0].planned_for(value) if is_plain(value) else None
        return None

    def learn(
        self, message: bytes, planned: PlannedCall, plan: Callable[[bytes], PlannedCall]
    ) -> None:
        """Add the shape of *message*, whose planned call is *planned*, if it has one and was seen
        before. *plan* plans a message without shapes."""
        for place, start, end in self._values(message, planned):
            name = len(message), message[:start], message[end:]
            if self._shapes.is_offered_again(name):
                value = _other_value(message[start:end])
                try:
                    other = plan(message[:start] + value + message[end:])
                except CallError:  # the bytes found are not the value
                    continue
                shape = _shape_of(planned, other, place, value.decode())
                if shape is not None:
                    self._shapes.put(name, shape, _SHAPE_BYTES)
                    self._add_place(len(message), start, end)
                    return

    def _values(self, message: bytes, planned: PlannedCall) -> Iterator[tuple[int, int, int]]:
        """The free values in the key of *planned*: the index of the entry, and where the value may
        begin and end in *message*."""
        if not _may_have_shape(planned):
            return
        key = planned.plan.plan.rules[0].key
        for place in self._free_places(planned.call):
            value = planned.call.descriptors[0].entries[place][1]
            if is_plain(value) and value in key:
                field = _VALUE_TAG + sized(value.encode())
                at = message.find(field)
                while at >= 0:
                    end = at + len(field)
                    yield place, end - len(value), end
                    at = message.find(field, at + 1)

    def _free_places(self, call: Call) -> list[int]:
        """The indexes of the entries of *call* whose values are free."""
        entries = call.descriptors[0].entries
        if self._envoy is not None and call.domain in self._envoy.domains:
            return self._envoy.free_places(call.domain, entries)
        keys = [key for key, _ in entries]
        return [
            place
            for place, (key, name) in enumerate(zip(keys, attribute_names(keys), strict=True))
            if key == name and key in self._free and WELL_KNOWN.get(key, _PEER) == _PEER
        ]

    def _add_place(self, length: int, start: int, end: int) -> None:
        places = self._places.setdefault(length, {})
        if len(places) >= MAX_PLACES:
            del places[next(iter(places))]
        places[start, end] = None


def _may_have_shape(planned: PlannedCall) -> bool:
    call, plan = planned.call, planned.plan
    one = call.descriptors[0]
    if len(call.descriptors) != 1 or one.limit is not None or one.hits is not None:
        return False
    if not plan.is_plain or len(plan.parts) != 1 or planned.debug_tokens:
        return False
    if planned.is_configured:
        return True
    if planned.lines[0].plan is None:
        return False
    (rule,) = plan.plan.rules
    declared = rule.rule.declared
    reads_address = "ip" in declared.key_by or "!" in rule.key  # the address may be free
    return not reads_address and not LimitAdjustment.concerns(declared)


def _other_value(value: bytes) -> bytes:
    """A plain value of the same length as *value*, with no byte in common if there is any."""
    other = next((one for one in _FILLERS if one not in value), _FILLERS[0])
    return bytes([other]) * len(value)


def _shape_of(
    planned: PlannedCall, other: PlannedCall, place: int, other_value: str
) -> Shape | None:
    """The shape of *planned*, if *other* differs in the value of the entry *place* only."""
    one = planned.call.descriptors[0]
    entries = list(one.entries)
    key, value = entries[place]
    entries[place] = key, other_value
    call = planned.call._replace(descriptors=(one._replace(entries=tuple(entries)),))
    if other.call != call or not _may_have_shape(other):
        return None
    plan = planned.plan.plan
    counter, other_counter = plan.rules[0].key, other.plan.plan.rules[0].key
    pairs = enumerate(zip(counter, other_counter, strict=False))
    at = next((at for at, (mine, its) in pairs if mine != its), 0)
    shape = Shape(planned, plan, counter[:at], counter[at + len(value) :])
    is_same = (
        shape.planned_for(value).plan.plan == plan
        and shape.planned_for(other_value).plan.plan == other.plan.plan
    )
    return shape if is_same else None


def _free_attributes(policy: Policy) -> frozenset[str]:
    """The attributes that rules of *policy* count by, and that nothing else reads."""
    if policy.overrides:  # of single keys
        return frozenset()
    parts = [part for rule in policy.rules for part in rule.key_by if part.startswith(_ATTRIBUTE)]
    counted = {part.removeprefix(_ATTRIBUTE) for part in parts}
    matches = [*(rule.match for rule in policy.rules), *(one.match for one in policy.priorities)]
    read = {ROUTE, *ATTRIBUTES, *(name for match in matches for name, _ in match.attributes)}
    read |= {source.attribute for source in policy.identity.sources.values() if source.attribute}
    headers = headers_of_interest(policy)
    return frozenset(name for name in counted - read if name.lower() not in headers)
