"""What requests have cost beyond what they took to enter, charged when they are over. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.engine.plan import RulePlan
from headgate.stores.operations import Charge, Check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.engine.verdict import Verdict

Owed = Sequence[tuple[RulePlan, int]]
"""Rules, and how much more each is to be charged."""


def charged_after(rules: Iterable[RulePlan]) -> tuple[RulePlan, ...]:
    """Those of *rules* that have to be told what a request has cost."""
    return tuple([one for one in rules if one.rule.cost.after is not None])


def admitting(rules: Iterable[RulePlan], verdict: Verdict) -> Iterator[RulePlan]:
    """Those of *rules* that have admitted the request that *verdict* is on.

    If it is allowed, all that decide have; a shadow has if it would have. A rule that has seen the
    request before says nothing: it admitted it then, and what it costs this time is charged too.
    """
    said = {one.rule.id: one.decision.allowed for one in verdict.rules}
    for one in rules if verdict.allowed else ():
        if one.rule.mode == "enforce" or said.get(one.rule.id, True):
            yield one


def charge_of(owed: Owed) -> Charge | None:
    """What records all that is *owed*, fitting or not; None if it is nothing."""
    checks = [
        Check(check.group, check.key, check.limit, more)
        for one, more in owed
        if more > 0
        for check in one.rates
    ]
    return Charge(tuple(checks)) if checks else None
