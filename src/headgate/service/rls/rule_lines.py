"""Descriptors under the rules of a policy: each is a request (`request_of`).

Not available here: delays, so a queue only counts; `idempotency`; and, except for Headgate's own
gateway, `concurrency` limits, since no call would release a slot.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.struct_pb2 import Struct

from headgate.engine.calls import Part
from headgate.engine.request import NOTHING
from headgate.limits import Concurrency, LeakyQueue
from headgate.llm.attributes import attributes_of
from headgate.policy.conditions import cost_after
from headgate.policy.envoy_config.attributes import (
    DEBUG,
    DECIDED,
    GATEWAY_DOMAIN,
    LIMIT,
    LLM,
    MODEL_FIELDS,
    OUTAGE,
    REFUSED,
    REPORT,
    RESERVATION,
    SETTLE,
    SETTLES,
    TOO_LONG,
    request_of,
)
from headgate.runtime.heartbeat import new_name
from headgate.service.rls import messages
from headgate.service.rls.descriptors import Line, amount_of
from headgate.service.rls.envoy_lines import closed_plan, window_of
from headgate.service.rls.held_calls import read_end, read_request
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.calls import Role, Verb
    from headgate.engine.plan import Plan, RulePlan
    from headgate.engine.request import Request
    from headgate.llm.protocol import Protocol
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.envoy_config.attributes import Entries
    from headgate.policy.model import Rule
    from headgate.service.rls.descriptors import Amounts
    from headgate.service.rls.envoy_lines import EnvoyLines
    from headgate.service.rls.requests import Call, Descriptor, Limit


# Entries that Headgate's own gateway adds to a descriptor: see `policy.envoy_config.attributes`.
#
# Only in its domain: in any other the same keys are ordinary entries. Rules do not see them.


_FIELDS: Final = {f"{LLM}{name}": name for name in MODEL_FIELDS}
_WORDS: Final = frozenset({DEBUG, DECIDED, REPORT, REFUSED, SETTLES, SETTLE, RESERVATION, *_FIELDS})


class GatewayEntries(NamedTuple):
    """The *entries* of the request itself; the ids of rules that are *decided* elsewhere; the rule
    to which the hits of the descriptor *report* the cost of a request, unless that *is_denied*."""

    entries: Entries
    decided: frozenset[str] = frozenset()
    report: str | None = None
    is_denied: bool = False
    debug: str | None = None
    """The debug token of the client, unchecked."""
    fields: Mapping[str, str] = NOTHING
    """What the gateway has read in the bodies of a call of a language model."""
    settles: bool = False
    """True if the gateway will report the end of the request."""
    is_end: bool = False
    """True if it reports the end of the request, for which it has the *reservation*."""
    reservation: str | None = None


def gateway_entries(domain: str, entries: Entries) -> GatewayEntries:
    """Separate the *entries* of a descriptor in *domain*."""
    if domain != GATEWAY_DOMAIN:
        return GatewayEntries(entries)
    words = {key: value for key, value in entries if key in _WORDS}
    if not words:
        return GatewayEntries(entries)
    return GatewayEntries(
        tuple([entry for entry in entries if entry[0] not in _WORDS]),
        frozenset(words.get(DECIDED, "").split(",")),
        words.get(REPORT),
        REFUSED in words,
        words.get(DEBUG),
        {_FIELDS[key]: value for key, value in words.items() if key in _FIELDS},
        SETTLES in words,
        SETTLE in words,
        words.get(RESERVATION),
    )


def cost_left(rule: Rule, reported: int, charged: int) -> int:
    """The rest to be charged for a request that cost *reported* and was charged *charged* before;
    0 if *rule* charges nothing afterwards."""
    after = rule.cost.after
    return 0 if after is None else max(0, cost_after(after, reported) - charged)


def _denial_field(why: str) -> bytes:
    struct = Struct()
    struct.fields[REFUSED].string_value = why
    return messages.metadata(struct.SerializeToString(deterministic=True))


OUTAGE_FIELD: Final = _denial_field(OUTAGE)
DENIAL_FIELDS: Final = {429: _denial_field(LIMIT), 414: _denial_field(TOO_LONG)}
"""The reason of a denial for the gateway, as a field of the reply, by its status; of others it is
an outage."""

_LOG: Final = logging.getLogger("headgate.service.rls")


class RuleLines:
    """The lines of calls that rules decide."""

    def __init__(self, amounts: Amounts, envoy_lines: EnvoyLines) -> None:
        self._amounts = amounts
        self._envoy_lines = envoy_lines
        self._warned: set[tuple[str, str]] = set()

    def lines(self, engine: CompiledPolicy, call: Call, *, is_kept: bool) -> tuple[Line, ...]:
        """The line of each descriptor of *call* under the policy of *engine*.

        A call that *is_kept* by its message needs no place among the plans of equal requests.
        """
        return tuple([self._line(engine, call, one, is_kept=is_kept) for one in call.descriptors])

    def _line(self, engine: CompiledPolicy, call: Call, one: Descriptor, *, is_kept: bool) -> Line:
        added = gateway_entries(call.domain, one.entries)
        request, protocol = _request_of(call.domain, added)
        if added.is_end:
            end = read_end(request, added.fields, added.reservation)
            return Line(is_report=True, end=end)
        if added.report is not None:
            if added.is_denied or one.is_refund:
                return Line(is_report=True)
            return self._report(engine.plan(request), one, added.report)
        amount = amount_of(one, call.hits)
        settles = added.settles and amount is None and len(call.descriptors) == 1
        lease = new_name() if settles and engine.has_slots else None
        plan = engine.plan(request, cost=amount, lease=lease, is_shared=not is_kept)
        if settles and (plan.open or plan.lease is not None) and not plan.is_denied:
            return self._held(plan, added)._replace(protocol=protocol)
        if one.limit is not None and not plan.rules:
            hits = 1 if amount is None else amount
            return Line((self._envoy_lines.part_of_call(call.domain, one, one.limit, hits),))
        parts = []
        is_whole = plan.is_plain
        for planned in plan.rules:
            part = None
            if planned.rule.id not in added.decided:
                verb = self._amounts.verb(one, ("rule", planned.rule.id))
                part = self._part(planned, one, verb)
            if part is None or part.planned is not planned or part.verb != "take":
                is_whole = False
            if part is not None:
                parts.append(part)
        whole = plan if is_whole else None
        return Line(tuple(parts), debug=added.debug, plan=whole, protocol=protocol)

    def _held(self, plan: Plan, added: GatewayEntries) -> Line:
        """The request of *plan*, which holds something until it is over."""
        own = [one for one in plan.rules if one.rule.id not in added.decided]
        rules = [one if one.marker is None else replace(one, marker=None) for one in own]
        parts = []
        for one in rules:
            if any(isinstance(limit, LeakyQueue) for limit in one.limits):
                self._warn_of_queue(one.rule.id)
            parts.append(Part(one, "take", _role_of(one), one.rule.id, one.rule.id))
        held = replace(plan, rules=tuple(rules))
        return Line(tuple(parts), debug=added.debug, plan=held, is_held=True)

    def _report(self, plan: Plan, one: Descriptor, rule_id: str) -> Line:
        """The report of the cost of a request to one of its rules."""
        for planned in plan.rules:
            rule = planned.rule
            if rule.id == rule_id:
                amount = cost_left(rule.declared, one.hits or 0, planned.cost)
                rates = _without_slots(planned)
                checks = tuple([replace(check, cost=amount) for check in rates.checks])
                part = self._part(replace(rates, cost=amount, checks=checks), one, "report")
                return Line((part,) if amount and part is not None else (), is_report=True)
        return Line(is_report=True)

    def _part(self, planned: RulePlan, one: Descriptor, verb: Verb) -> Part | None:
        rule = planned.rule
        kinds = set(map(type, planned.limits))
        if Concurrency in kinds:
            planned = _without_slots(planned)
            self._warn(rule.id, "concurrency limit is left out", "no call releases a slot")
        if LeakyQueue in kinds:
            self._warn_of_queue(rule.id)
        if not planned.checks:
            return None
        if planned.marker is not None:
            planned = replace(planned, marker=None)
        closed = None
        if one.limit is not None:
            planned = _with_limit(planned, one.limit)
            closed = None if planned.checks else one.limit.unit
        return Part(planned, verb, _role_of(planned), rule.id, rule.id, closed)

    def _warn_of_queue(self, rule: str) -> None:
        self._warn(rule, "queue only counts", "no request is delayed")

    def _warn(self, rule: str, what: str, why: str) -> None:
        if (rule, what) not in self._warned:
            self._warned.add((rule, what))
            _LOG.warning("rule %r: its %s in Envoy's rate limit service: %s", rule, what, why)


def _request_of(domain: str, added: GatewayEntries) -> tuple[Request, Protocol | None]:
    """The request of a descriptor, and the protocol of a call of a language model."""
    request = request_of(domain, added.entries)
    if not added.fields:
        return request, None
    asked = read_request(request.path, added.fields)
    return request_of(domain, added.entries, attributes_of(asked)), asked.protocol


def _role_of(planned: RulePlan) -> Role:
    return "hidden" if planned.rule.mode == "shadow" else "decides"


def _without_slots(planned: RulePlan) -> RulePlan:
    rates = planned.rates
    return replace(planned, limits=tuple([check.limit for check in rates]), checks=rates)


def _with_limit(planned: RulePlan, limit: Limit) -> RulePlan:
    """*planned* with the limit of a call in place of its first limit."""
    if not limit.requests:
        return closed_plan(planned.rule, limit.unit)
    first, window = planned.checks[0], window_of(*limit)
    check = Check(first.group, first.key, window, first.cost)
    return replace(planned, limits=(window,), checks=(check,))
