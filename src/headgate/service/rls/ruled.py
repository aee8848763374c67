"""Descriptors under the rules of a policy: each is a request, as `requested` has it.

Not for this way in: places (`concurrency` limits are left out, since nothing would ever give one
back), turns (Envoy does not delay a request, so a queue only counts: what would have to wait passes
at once) and `idempotency`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.calls import Part
from headgate.limits import LeakyQueue
from headgate.policy.envoy_config.attributes import (
    DEBUG,
    DECIDED,
    GATEWAY_DOMAIN,
    LIMIT,
    OUTAGE,
    REFUSED,
    REPORT,
    request_of,
)
from headgate.policy.matcher import cost_after
from headgate.service.rls import messages
from headgate.service.rls.configured import closed_plan, window_of
from headgate.service.rls.descriptors import Line, amount_of
from headgate.service.rls.messages import Struct
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from headgate.engine.calls import Role, Verb
    from headgate.engine.plan import Plan, RulePlan
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.envoy_config.attributes import Entries
    from headgate.policy.model import Rule
    from headgate.service.rls.configured import Configured
    from headgate.service.rls.descriptors import Amounts
    from headgate.service.rls.reading import Call, Descriptor, Limit


# What Headgate's own gateway says in a descriptor besides the request: see
# `policy.envoy_config.attributes`.
#
# Only in its domain: in any other the same keys are ordinary entries. Rules do not see them.


_NOBODY: Final[frozenset[str]] = frozenset()
_WORDS: Final = frozenset({DEBUG, DECIDED, REPORT, REFUSED})


class Spoken(NamedTuple):
    """The *entries* of the request itself; the ids of rules that are *decided* elsewhere; the one
    to which the hits of the descriptor are a *report* of what a request has cost, unless it
    *is_refused*."""

    entries: Entries
    decided: frozenset[str] = _NOBODY
    report: str | None = None
    is_refused: bool = False
    debug: str | None = None
    """The token by which the client may hear how it was decided, unchecked."""


def spoken_in(domain: str, entries: Entries) -> Spoken:
    """What a descriptor with *entries* in *domain* says."""
    if domain != GATEWAY_DOMAIN:
        return Spoken(entries)
    words = {key: value for key, value in entries if key in _WORDS}
    if not words:
        return Spoken(entries)
    return Spoken(
        tuple([entry for entry in entries if entry[0] not in _WORDS]),
        frozenset(words.get(DECIDED, "").split(",")),
        words.get(REPORT),
        REFUSED in words,
        words.get(DEBUG),
    )


def refused_field(*, is_outage: bool) -> bytes:
    """What tells the gateway why a request is refused, as a field of the answer."""
    return _REFUSED_FIELDS[is_outage]


def cost_left(rule: Rule, reported: int, admitted: int) -> int:
    """What is still to be charged for a request that has cost *reported*, if *rule* is told such
    costs, and for which *admitted* was charged before; 0 for nothing."""
    after = rule.cost.after
    return 0 if after is None else max(0, cost_after(after, reported) - admitted)


def _refused(why: str) -> bytes:
    struct = Struct()
    struct.fields[REFUSED].string_value = why
    return messages.metadata(struct.SerializeToString(deterministic=True))


_REFUSED_FIELDS: Final = {False: _refused(LIMIT), True: _refused(OUTAGE)}


_LOG: Final = logging.getLogger("headgate.service.rls")


class Ruled:
    """Makes the lines of calls that rules decide about."""

    def __init__(self, amounts: Amounts, configured: Configured) -> None:
        self._amounts = amounts
        self._configured = configured
        self._left_out: set[str] = set()
        self._undelayed: set[str] = set()

    def lines(self, engine: CompiledPolicy, call: Call) -> tuple[Line, ...]:
        """What the policy of *engine* has for each descriptor of *call*."""
        return tuple([self._line(engine, call, one) for one in call.descriptors])

    def _line(self, engine: CompiledPolicy, call: Call, one: Descriptor) -> Line:
        spoken = spoken_in(call.domain, one.entries)
        request = request_of(call.domain, spoken.entries)
        if spoken.report is not None:
            if spoken.is_refused or one.is_refund:
                return Line(is_report=True)
            return self._report(engine.plan(request), one, spoken.report)
        asked = amount_of(one, call.hits)
        plan = engine.plan(request, cost=asked)
        if one.limit is not None and not plan.rules:
            hits = 1 if asked is None else asked
            return Line((self._configured.part_of_call(call.domain, one, one.limit, hits),))
        parts = []
        is_whole = plan.is_plain
        for planned in plan.rules:
            part = None
            if planned.rule.id not in spoken.decided:
                verb = self._amounts.verb(one, ("rule", planned.rule.id))
                part = self._part(planned, one, verb)
            if part is None or part.planned is not planned or part.verb != "take":
                is_whole = False
            if part is not None:
                parts.append(part)
        return Line(tuple(parts), debug=spoken.debug, plan=plan if is_whole else None)

    def _report(self, plan: Plan, one: Descriptor, rule_id: str) -> Line:
        """What a request has cost, to be charged to one of those rules that it is under."""
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
        if planned.has_slots:
            planned = _without_slots(planned)
            self._say_left_out(rule.id)
        if not planned.checks:
            return None
        if planned.marker is not None:
            planned = replace(planned, marker=None)
        for limit in planned.limits:
            if isinstance(limit, LeakyQueue):
                self._say_undelayed(rule.id)
        closed = None
        if one.limit is not None:
            planned = _with_limit(planned, one.limit)
            closed = None if planned.checks else one.limit.unit
        role: Role = "hidden" if rule.mode == "shadow" else "decides"
        return Part(planned, verb, role, rule.id, rule.id, closed)

    def _say_left_out(self, rule: str) -> None:
        if rule not in self._left_out:
            self._left_out.add(rule)
            told = "rule %r: its concurrency limit is left out for Envoy's rate limit service"
            _LOG.warning(told + ", where nothing gives a place back", rule)

    def _say_undelayed(self, rule: str) -> None:
        if rule not in self._undelayed:
            self._undelayed.add(rule)
            told = "rule %r: its queue only counts for Envoy's rate limit service"
            _LOG.warning(told + ", where nothing is delayed", rule)


def _without_slots(planned: RulePlan) -> RulePlan:
    rates = planned.rates
    return replace(planned, limits=tuple([check.limit for check in rates]), checks=rates)


def _with_limit(planned: RulePlan, limit: Limit) -> RulePlan:
    """*planned* with the numbers that a call brings with it, for the first of its limits."""
    if not limit.requests:
        return closed_plan(planned.rule, limit.unit)
    first, window = planned.checks[0], window_of(*limit)
    check = Check(first.group, first.key, window, first.cost)
    return replace(planned, limits=(window,), checks=(check,))
