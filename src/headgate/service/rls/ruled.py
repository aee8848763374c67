"""Descriptors under the rules of a policy.

Each descriptor is a request. What rules can rely on are its attributes, as `rules.envoy.attributes`
has them: the domain, the keys in a row, each entry by its key. So that ordinary rules work too,

- `remote_address` and `masked_remote_address` are the address of the caller, `path` (`:path`) its
  path, `method` (`:method`) its method, `host` (`:authority`) its host;
- every entry is also a header of that name: an entry `x-api-key` is found where a policy looks for
  keys. Keys of entries are chosen by whoever configures the gateway, so no client can forge one.

What a descriptor does not say, nobody knows: a rule for a method is not for a descriptor without
one; the path of one without is `/`.

Not for this way in: places (`concurrency` limits are left out, since nothing would ever give one
back) and `idempotency`.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.rules.envoy.attributes import DESCRIPTOR, DOMAIN, attribute_names, joined
from headgate.rules.request import Request
from headgate.service.rls.amounts import amount_of
from headgate.service.rls.asked import Line, Part
from headgate.service.rls.configured import window_of
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from headgate.engine import Engine, RulePlan
    from headgate.service.rls.amounts import Amounts
    from headgate.service.rls.configured import Configured
    from headgate.service.rls.reading import Call, Descriptor, Entries, Limit

_LOG: Final = logging.getLogger("headgate.service.rls")

_WELL_KNOWN: Final = {
    "remote_address": "peer",
    "masked_remote_address": "peer",
    "path": "path",
    ":path": "path",
    "method": "method",
    ":method": "method",
    "host": "host",
    ":authority": "host",
}


class Ruled:
    """Makes the lines of calls that rules decide about."""

    def __init__(self, amounts: Amounts, configured: Configured) -> None:
        self._amounts = amounts
        self._configured = configured
        self._left_out: set[str] = set()

    def lines(self, engine: Engine, call: Call) -> tuple[Line, ...]:
        """What the policy of *engine* has for each descriptor of *call*."""
        return tuple([self._line(engine, call, one) for one in call.descriptors])

    def _line(self, engine: Engine, call: Call, one: Descriptor) -> Line:
        asked = amount_of(one, call.hits)
        plan = engine.plan(request_of(call.domain, one.entries), cost=asked)
        if one.limit is not None and not plan.rules:
            hits = 1 if asked is None else asked
            return Line((self._configured.part_of_call(call.domain, one, one.limit, hits),))
        parts = [self._part(rule_plan, one) for rule_plan in plan.rules]
        return Line(tuple([part for part in parts if part is not None]))

    def _part(self, planned: RulePlan, one: Descriptor) -> Part | None:
        rule = planned.rule
        checks = planned.checks
        if planned.has_slots:
            checks = planned.rates
            self._say_left_out(rule.id)
            if not checks:
                return None
        closed = None
        if one.limit is not None:
            checks = _with_limit(checks, one.limit)
            closed = None if checks else one.limit.unit
        return Part(
            checks,
            rule.id,
            rule.id,
            self._amounts.verb(one, ("rule", rule.id)),
            "hidden" if rule.mode == "shadow" else "decides",
            rule.on_store_failure,
            rule.headers,
            None if planned.block is None else planned.block.wait_ns,
            closed,
        )

    def _say_left_out(self, rule: str) -> None:
        if rule not in self._left_out:
            self._left_out.add(rule)
            told = "rule %r: its concurrency limit is left out for Envoy's rate limit service"
            _LOG.warning(told + ", where nothing gives a place back", rule)


def request_of(domain: str, entries: Entries) -> Request:
    """The request that a descriptor with *entries* in *domain* is to rules."""
    keys, values = tuple(zip(*entries, strict=True)) if entries else ((), ())
    shape = _shape(keys)
    attributes = {DOMAIN: domain, DESCRIPTOR: shape.descriptor}
    attributes.update(zip(shape.names, values, strict=True))
    if not shape.known:
        return Request("", "/", "", entries, "", attributes)
    known = {field: values[place] for field, place in shape.known}
    return Request(
        known.get("method", ""),
        known.get("path", "/").partition("?")[0],
        known.get("host", ""),
        entries,
        known.get("peer", "").partition("/")[0],
        attributes,
    )


class _Shape(NamedTuple):
    """What descriptors with the same keys have in common."""

    descriptor: str
    names: tuple[str, ...]
    known: tuple[tuple[str, int], ...]
    """Which of a request's fields there are, and in which entry."""


@lru_cache(maxsize=1024)
def _shape(keys: tuple[str, ...]) -> _Shape:
    known: dict[str, int] = {}
    for place, key in enumerate(keys):
        field = _WELL_KNOWN.get(key)
        if field is not None:
            known.setdefault(field, place)
    return _Shape(joined(keys), tuple(attribute_names(keys)), tuple(known.items()))


def _with_limit(checks: tuple[Check, ...], limit: Limit) -> tuple[Check, ...]:
    """The first of *checks* with the numbers that a call brings with it; none if they are 0."""
    if not limit.requests:
        return ()
    first = checks[0]
    return (Check(first.group, first.key, window_of(*limit), first.cost),)
