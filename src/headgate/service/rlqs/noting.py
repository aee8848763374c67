"""What gateways decided themselves, noted in the journal of this process when they report it.

Nobody can say how long that took, so it is not among the times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.observability import JOURNAL

if TYPE_CHECKING:
    from headgate.service.rlqs.reports import Usage
    from headgate.service.rlqs.terms import Terms

SOURCE: Final = "gateway"
"""Who decided."""


def note_usage(terms: Terms, usage: Usage) -> None:
    """A gateway has let requests pass and refused some, on *terms*: the tightest limit did that."""
    allowed, denied = usage.allowed, usage.denied
    JOURNAL.requests[True][0] += allowed
    JOURNAL.requests[False][0] += denied
    seen: set[str] = set()
    for place, binding in enumerate(terms.bindings):
        rule = binding.rule.id
        if rule in seen:
            continue
        seen.add(rule)
        JOURNAL.note_many(rule, "allowed", SOURCE, binding.check.key, allowed)
        if place == 0:
            JOURNAL.note_many(rule, "denied", SOURCE, binding.check.key, denied)
