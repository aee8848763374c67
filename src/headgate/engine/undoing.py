"""Giving back what a request was charged after all. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.operations import Refund

if TYPE_CHECKING:
    from headgate.engine.verdict import RuleVerdict, Verdict


def refund_of(verdict: Verdict, source: str) -> Refund | None:
    """What gives back all that the rules of *verdict* charged in the store that is *source*.

    The marks of requests that must not be charged twice go too: a retry has to pay. Places are not
    charged, and what is held in the store was not either: that is settled.
    """
    if verdict.plan is None:
        return None
    charged = {one.rule.id for one in verdict.rules if _is_charged(one, verdict, source)}
    if verdict.held is not None and source == "store":
        charged -= set(verdict.held.ids)
    planned = [one for one in verdict.plan.rules if one.rule.id in charged]
    checks = [check for one in planned for check in one.rates if check.cost]
    checks += [one.marker for one in planned if one.marker is not None and source == "store"]
    return Refund(tuple(checks)) if checks else None


def _is_charged(one: RuleVerdict, verdict: Verdict, source: str) -> bool:
    """A rule that decides charges if all of them admit; one in shadow if it does itself."""
    granted = one.decision.allowed if one.is_shadow else verdict.allowed
    return granted and one.decision.source == source
