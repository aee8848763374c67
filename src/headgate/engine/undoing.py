"""Giving back what a request was charged after all. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.fallback import ELSEWHERE
from headgate.stores.operations import Refund

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.engine.plan import RulePlan
    from headgate.engine.verdict import RuleVerdict, Verdict


def refund_of(verdict: Verdict) -> Refund | None:
    """What gives back all that the rules of *verdict* charged in the store.

    The marks of requests that must not be charged twice go too: a retry has to pay. Places are not
    charged, and what is held in the store was not either: that is settled.
    """
    held = () if verdict.held is None else verdict.held.ids
    planned = [one for one in _charged(verdict, _is_stores) if one.rule.id not in held]
    checks = [check for one in planned for check in one.rates if check.cost]
    checks += [one.marker for one in planned if one.marker is not None]
    return Refund(tuple(checks)) if checks else None


def charged_rules(verdict: Verdict, sources: frozenset[str]) -> list[RulePlan]:
    """The rules of *verdict* that decided by one of *sources*, and charged something there."""
    return _charged(verdict, sources.__contains__)


def _charged(verdict: Verdict, is_meant: Callable[[str], bool]) -> list[RulePlan]:
    if verdict.plan is None:
        return []
    charged = {one.rule.id for one in verdict.rules if _is_charged(one, verdict, is_meant)}
    return [one for one in verdict.plan.rules if one.rule.id in charged]


def _is_charged(one: RuleVerdict, verdict: Verdict, is_meant: Callable[[str], bool]) -> bool:
    """A rule that decides charges if all of them admit; one in shadow if it does itself, and only
    in the store."""
    source = one.decision.source
    if one.is_shadow:
        return one.decision.allowed and is_meant(source) and _is_stores(source)
    return verdict.allowed and is_meant(source)


def _is_stores(source: str) -> bool:
    """Whether the store knows of what was decided by *source*, itself or what it had lent."""
    return source not in ELSEWHERE
