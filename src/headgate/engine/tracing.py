"""The trace of a verdict, for callers that may see all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.decision import OVERRIDE
from headgate.limits import Concurrency
from headgate.responses.answer import GATE, WITHOUT_FIGURES, named_limits
from headgate.responses.debug import Traced, decision_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.decision import Decision
    from headgate.engine.plan import Queueing, RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.limits import Limit

_UNCOUNTED: Final = WITHOUT_FIGURES | {OVERRIDE}
REPLAY: Final = "replay"
"""The source in the trace of a rule that has charged the same request before."""


def traced_lines(
    verdicts: Iterable[Verdict], show_key: Callable[[str], str], places: Iterable[Traced] = ()
) -> list[tuple[str, str]]:
    """The headers with the traces of *verdicts* and *places*; *show_key* makes keys presentable."""
    return decision_lines(
        [each for verdict in verdicts for each in _all_traced(verdict, show_key)] + [*places]
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
    """The trace of the *decision* of one limit of *rule*."""
    is_place = decision.source == GATE  # which has no limit
    return Traced(
        rule,
        allowed=decision.allowed,
        mode=mode,
        key=key,
        counter=counter,
        limit="" if is_place else limit_in_words(decision.limit),
        quota=decision.limit.quota,
        remaining=None if decision.source in _UNCOUNTED else decision.remaining,
        cost=cost,
        source=decision.source,
        revision=revision,
    )


def traced_place(queueing: Queueing, revision: int, show_key: Callable[[str], str]) -> Traced:
    """The trace of a request that had its place in a fair queue."""
    return Traced(
        queueing.rule.id,
        allowed=True,
        mode=queueing.rule.mode,
        key=show_key(queueing.key),
        cost=queueing.cost,
        source=GATE,
        revision=revision,
    )


def limit_in_words(limit: Limit) -> str:
    """*limit* as it is written in rules, or in words if it has no notation."""
    if isinstance(limit, Concurrency):
        return f"{limit.quota} at the same time"
    return str(limit)


def _all_traced(verdict: Verdict, show_key: Callable[[str], str]) -> Iterator[Traced]:
    pairs = list(zip(verdict.plan.rules, verdict.decisions, strict=True))
    for one, decision in pairs:
        if decision is not None:
            yield from _traced(one, decision, verdict.revision, show_key)
    if verdict.is_replay:  # under the others, as far as they look out for that
        for one, decision in pairs:
            if decision is None and one.marker is not None:
                yield _replayed(one, verdict.revision, show_key)


def _traced(
    one: RulePlan, decision: Decision, revision: int, show_key: Callable[[str], str]
) -> Iterator[Traced]:
    for place, (name, part) in enumerate(named_limits(one.rule.id, decision)):
        yield traced(
            name,
            one.rule.mode,
            part,
            key=show_key(one.key) if one.key else "",
            counter=one.checks[place].group if place < len(one.checks) else "",
            cost=one.cost,
            revision=revision,
        )


def _replayed(plan: RulePlan, revision: int, show_key: Callable[[str], str]) -> Traced:
    """The trace of a rule that has charged the request before."""
    return Traced(
        plan.rule.id,
        allowed=True,
        mode=plan.rule.mode,
        key=show_key(plan.key),
        counter=plan.checks[0].group if plan.checks else "",
        limit=limit_in_words(plan.limits[0]) if plan.limits else "",
        cost=0,
        source=REPLAY,
        revision=revision,
    )
