"""Requests that are refused before anything else is asked: there is too much to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.enforcement.passage import Entry
from headgate.engine import Plan, RulePlan, RuleVerdict, Verdict
from headgate.engine.noting import note_refusal
from headgate.responses.answer import turned_away
from headgate.rules.model import Match, Rule
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.rules.soft import Priority
    from headgate.shaping import LoadShedder

SHEDDING: Final = Rule("load-shedding", Match(), (), {})
"""What callers are told has refused them."""


def shed_by(shedder: LoadShedder, priority: Priority) -> Entry | None:
    """That a request is refused as *shedder* says; None if it is let in."""
    if shedder.admits(priority):
        return None
    wait_ns = round(shedder.retry_after(priority) * SECOND)
    said = RuleVerdict(SHEDDING, "", 1, turned_away(SHEDDING.id, wait_ns).decision)
    plan = Plan(0, (RulePlan(SHEDDING, "", 1, (), (), sheds=True),))
    refusal = Verdict(allowed=False, revision=0, rules=(said,), plan=plan)
    return Entry(plan, refusal=note_refusal(refusal, "shedder"))
