"""The sentence on top of a report: what it all comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.simulator.report.words import clipped, count, counted, share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.simulator.results import Outcome, RuleResult


def in_backticks(name: str) -> str:
    """A name as it stands in a plain text."""
    return f"`{clipped(name)}`"


def conclusion(outcomes: Sequence[Outcome], *, named: Callable[[str], str] = in_backticks) -> str:
    """What one policy, or a change from the first to the second, would have done, in a sentence.

    *named* makes the names in it harmless where it is shown; all other words are plain ASCII.
    """
    if len(outcomes) == 1:
        return _of_one(outcomes[0], named)
    before, after = outcomes
    return _of_two(before, after, named)


def enforced(outcome: Outcome) -> list[RuleResult]:
    """The rules that refuse, those that refused most first; without those in shadow."""
    return [rule for rule in ordered(outcome) if rule.mode == "enforce"]


def refused_by(rule: RuleResult) -> str:
    """The word for what *rule* did: one in shadow only would have."""
    return "refused" if rule.mode == "enforce" else "would be refused"


def ordered(outcome: Outcome) -> list[RuleResult]:
    """All rules: those that refuse before those in shadow, then those that refused most first."""
    return sorted(outcome.rules, key=lambda rule: (rule.mode != "enforce", -rule.denied))


def _of_one(outcome: Outcome, named: Callable[[str], str]) -> str:
    if not outcome.requests:
        return "There was no request to decide on."
    asked = f"Of {counted(outcome.requests, 'request')} of {counted(outcome.callers, 'caller')}, "
    if not outcome.denied:
        return f"{asked}none would have been refused."
    return f"{asked}{_refused(outcome)} would have been refused{_blame(outcome, named)}."


def _refused(outcome: Outcome) -> str:
    part = share(outcome.denied, outcome.requests)
    return f"{count(outcome.denied)} ({part}) of {counted(outcome.callers_denied, 'caller')}"


def _blame(outcome: Outcome, named: Callable[[str], str]) -> str:
    refusing = [rule for rule in enforced(outcome) if rule.denied]
    if not refusing:
        return ""
    return f"; {'most' if len(refusing) > 1 else 'all'} by {named(refusing[0].rule_id)}"


def _of_two(before: Outcome, after: Outcome, named: Callable[[str], str]) -> str:
    if not before.requests and not after.requests:
        return "There was no request to decide on."
    old, new = named(before.policy_name), named(after.policy_name)
    more = after.denied - before.denied
    if not more:
        same = "none" if not after.denied else f"as many, {_refused(after)},"
        return (
            f"Of {counted(after.requests, 'request')} of {counted(after.callers, 'caller')}, "
            f"{same} would have been refused with {new} and with {old}."
        )
    word = "more" if more > 0 else "fewer"
    return (
        f"With {new} instead of {old}, {count(abs(more))} {word} of "
        f"{counted(after.requests, 'request')} would have been refused: "
        f"{_refused(after)}, not {_refused(before)}."
    )
