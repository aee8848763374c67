"""What a plot shows, in words, for whoever does not see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.simulator.report.scales import bars
from headgate.simulator.report.words import clipped, count, moment, period, span

if TYPE_CHECKING:
    from headgate.simulator.report.scales import Bars
    from headgate.simulator.results import Outcome, RuleResult

_COARSE: Final = 24
"""In how many parts a time is looked at to say when something was at its worst."""


def course_in_words(outcome: Outcome) -> str:
    """The plot of all requests."""
    coarse = bars(outcome, outcome.allowed_series, outcome.denied_series, most=_COARSE)
    return (
        f"Requests over time with {clipped(outcome.policy_name)}, "
        f"{period(outcome.began_ns, outcome.ended_ns)}: {count(outcome.allowed)} admitted, "
        f"{count(outcome.denied)} refused. {_worst(coarse, outcome)}"
    )


def refusals_in_words(outcome: Outcome, rule: RuleResult) -> str:
    """The plot of what a rule refused."""
    coarse = bars(outcome, rule.allowed_series, rule.denied_series, most=_COARSE)
    return (
        f"Refused over time by {clipped(rule.rule_id)} with {clipped(outcome.policy_name)}: "
        f"{count(rule.denied)} of {count(rule.requests)}. {_worst(coarse, outcome)}"
    )


def _worst(coarse: Bars, outcome: Outcome) -> str:
    if not any(coarse.denied):
        return "None was refused at any time."
    place = max(range(len(coarse.denied)), key=lambda at: coarse.denied[at])
    asked = coarse.allowed[place] + coarse.denied[place]
    began = moment(coarse.began_ns + place * coarse.step_ns, outcome.began_ns)
    return (
        f"Most in the {span(coarse.step_ns)} from {began}: "
        f"{count(coarse.denied[place])} of {count(asked)}."
    )
