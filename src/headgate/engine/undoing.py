"""Giving back what a request was charged after all. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.fallback import ELSEWHERE
from headgate.limits import LeakyQueue
from headgate.stores.operations import Refund, Vacate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.engine.plan import RulePlan
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.stores.operations import Check


def refund_of(verdict: Verdict) -> Refund | None:
    """What gives back all that the rules of *verdict* charged in the store.

    The marks of requests that must not be charged twice go too: a retry has to pay. Places are not
    charged, and what is held in the store was not either: that is settled. Turns in queues are
    given up (`vacating`), if they have not come.
    """
    held = () if verdict.held is None else verdict.held.ids
    planned = [one for one in _charged(verdict, _is_stores) if one.rule.id not in held]
    checks = [check for one in planned for check in one.amounts if check.cost]
    checks += [one.marker for one in planned if one.marker is not None]
    return Refund(tuple(checks)) if checks else None


def vacating(verdict: Verdict) -> Vacate | None:
    """What gives up the turns of a request in queues that the store keeps; None if it has none."""
    found = list(turns_of(verdict, _charged(verdict, _is_stores)))
    if not found:
        return None
    return Vacate(tuple(check for _, check, _ in found), tuple(turn for _, _, turn in found))


def turns_of(
    verdict: Verdict, planned: Iterable[RulePlan]
) -> Iterator[tuple[RulePlan, Check, int]]:
    """The turns that a request has under *planned* rules: rule, queue, and when it is."""
    said = {one.rule.id: one.decision for one in verdict.rules}
    for one in planned:
        for check, decision in zip(one.checks, said[one.rule.id].limits, strict=True):
            if isinstance(check.limit, LeakyQueue) and decision.turn_ns:
                yield one, check, decision.turn_ns


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
