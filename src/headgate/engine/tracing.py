"""From a verdict to how it came about, for who may hear all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.limits import Concurrency
from headgate.responses.answer import WITHOUT_FIGURES
from headgate.responses.debugging import Traced, decision_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.decisions import Decision
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.limits import Limit


def traced_line(verdicts: Iterable[Verdict], show_key: Callable[[str], str]) -> tuple[str, str]:
    """The header that tells how *verdicts* came about; *show_key* is how keys may be told."""
    return decision_line(
        each
        for verdict in verdicts
        for one in verdict.rules
        for each in _traced(one, verdict, show_key)
    )


def traced(
    rule: str,
    mode: str,
    decision: Decision,
    *,
    key: str,
    counter: str,
    cost: int,
    revision: int,
) -> Traced:
    """What one limit of *rule* said in *decision*."""
    return Traced(
        rule,
        decision.allowed,
        mode,
        key,
        counter,
        limit_in_words(decision.limit),
        decision.limit.quota,
        None if decision.source in WITHOUT_FIGURES else decision.remaining,
        cost,
        decision.source,
        revision,
    )


def limit_in_words(limit: Limit) -> str:
    """*limit* as it is written in rules, or in words if it has no notation."""
    if isinstance(limit, Concurrency):
        return f"{limit.quota} at the same time"
    return str(limit)


def _traced(one: RuleVerdict, verdict: Verdict, show_key: Callable[[str], str]) -> Iterator[Traced]:
    planned = verdict.plan.rules if verdict.plan is not None else ()
    checks = next((plan.checks for plan in planned if plan.rule.id == one.rule.id), ())
    for place, decision in enumerate(one.decision.limits):
        name = one.rule.id if place == 0 else f"{one.rule.id}/{place + 1}"
        counter = checks[place].group if place < len(checks) else ""
        yield traced(
            name,
            one.rule.mode,
            decision,
            key=show_key(one.key) if one.key else "",
            counter=counter,
            cost=one.cost,
            revision=verdict.revision,
        )
