"""Costs that are known when a response has ended: rules with `cost: {after: ...}`.

Such a rule charges what the app has reported under its id, else a header of the response, else the
bytes of its body. A response never fails because a charge is lost: it is counted and logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headgate.engine.holds import allowing
from headgate.policy.conditions import cost_after, cost_in_response
from headgate.policy.problems import quoted
from headgate.units import MINUTE

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.engine.holds import ExtraCosts
    from headgate.engine.plan import CompiledRule, RulePlan
    from headgate.integrations.request_context import (
        CheckResult,
        CompletedResponse,
        RequestContext,
    )
    from headgate.policy.model import Rule

LOG: Final = logging.getLogger("headgate.integrations")

EVERY_NS: Final = MINUTE
"""The time between two warnings about lost charges."""


class LateCharges:
    """The late charges that an app has lost.

    Threads may share it: at worst two of them log the same.
    """

    __slots__ = ("_clock", "_quiet_until_ns", "_warned", "lost")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ns: int | None = None
        self._warned: set[str] = set()
        self.lost = 0
        """The charges under a rule that did not reach the store."""

    def record_lost(self, left: ExtraCosts) -> None:
        """Count charges that did not reach the store, and log that now and then."""
        if not left:
            return
        self.lost += len(left)
        now = self._clock()
        if self._quiet_until_ns is None or now >= self._quiet_until_ns:
            self._quiet_until_ns = now + EVERY_NS
            rules = ", ".join(sorted({one.rule.id for one, _ in left}))
            text = "the store is gone: what requests had cost was not charged (%s); %d so far"
            LOG.warning(text, rules, self.lost)

    def warn_missing(self, rule: CompiledRule, header: str, lines: list[str]) -> None:
        """Log, once for each rule, that a response does not say its cost."""
        if rule.id in self._warned:
            return
        self._warned.add(rule.id)
        found = "nothing" if not lines else "several lines" if lines[1:] else quoted(lines[0])
        text = "rule %s: a response has %s in the header %s, so nothing was charged afterwards; %s"
        LOG.warning(text, rule.id, found, header, "expected one whole number")


def goes_by_bytes(rule: Rule) -> bool:
    """True if *rule* charges the bytes of responses."""
    return rule.cost.after is not None and rule.cost.after.header is None


def charges_of(
    result: CheckResult, context: RequestContext, response: CompletedResponse
) -> ExtraCosts:
    """The amounts that the rules of *result* charge, at the end of the response."""
    found = []
    for one in allowing(result.planned.after, result.verdict):
        cost = _cost(one, result, context, response)
        if cost is not None and cost > one.cost:
            found.append((one, cost - one.cost))
    return found


def _cost(
    one: RulePlan, result: CheckResult, context: RequestContext, response: CompletedResponse
) -> int | None:
    """The cost of the request under a rule; None if it is unknown."""
    after = one.rule.declared.cost.after
    reported = context.used.get(one.rule.id)
    if reported is not None:
        return cost_after(after, reported)
    if after.header is None:
        return cost_after(after, context.sent)
    lines = response.header_lines(after.header)
    cost = cost_in_response(after, lines)
    is_success = response.status_code < 400 and response.error is None
    if cost is None and (lines or is_success):  # an error need not have it
        result.limiter.late_charges.warn_missing(one.rule, after.header, lines)
    return cost
