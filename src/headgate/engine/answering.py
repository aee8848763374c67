"""From a verdict to what its caller is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.responses import Answer, Told

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict


def answer_of(verdict: Verdict, *, jitter: float = 0.0) -> Answer:
    """What `headgate.responses` needs: the rules that decide, never those in shadow.

    *jitter*, from 0 to 1, is how much of the permitted extra wait this caller is told.
    """
    return Answer(verdict.allowed, told_of(verdict), jitter)


def told_of(verdict: Verdict) -> tuple[Told, ...]:
    """What each rule that decides has to say."""
    if not verdict.allowed and verdict.plan is not None:
        shedding = {one.rule.id for one in verdict.plan.rules if one.sheds}
        if shedding:
            return tuple(
                Told(one.rule.id, one.decision, one.rule.headers, one.rule.id in shedding)
                for one in verdict.rules
                if one.rule.mode != "shadow"
            )
    return tuple(
        [
            Told(one.rule.id, one.decision, one.rule.headers)
            for one in verdict.rules
            if one.rule.mode != "shadow"
        ]
    )
