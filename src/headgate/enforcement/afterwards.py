"""What requests have cost when they are over: what a response says of it, and what gets lost.

A rule with `cost: {after: ...}` goes by what the app has reported under its id, else by a header of
the response, else by the bytes of its body. What cannot be charged is never the response's fault:
it is counted, and told in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headgate.engine.afterwards import admitting
from headgate.rules.matching import cost_after, cost_said_after
from headgate.rules.reading.tree import shown
from headgate.units import MINUTE

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.enforcement.passage import Grant, Passage, Responded
    from headgate.engine import RulePlan
    from headgate.engine.afterwards import Owed
    from headgate.rules.model import Rule

LOG: Final = logging.getLogger("headgate.enforcement")

EVERY_NS: Final = MINUTE
"""How long nothing is said of what is lost once something has been."""


class Afterwards:
    """What an app could not charge afterwards.

    Threads may share it: the worst that two at a time do is to say something twice.
    """

    __slots__ = ("_clock", "_quiet_until_ns", "_unsaid", "lost")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ns: int | None = None
        self._unsaid: set[str] = set()
        self.lost = 0
        """How often the store could not be told what a request had cost under a rule."""

    def note_lost(self, left: Owed) -> None:
        """Count what nobody was told, and say so once in a while."""
        if not left:
            return
        self.lost += len(left)
        now = self._clock()
        if self._quiet_until_ns is None or now >= self._quiet_until_ns:
            self._quiet_until_ns = now + EVERY_NS
            rules = ", ".join(sorted({one.rule.id for one, _ in left}))
            told = "the store is gone: what requests had cost was not charged (%s); %d so far"
            LOG.warning(told, rules, self.lost)

    def note_unsaid(self, rule: Rule, header: str, lines: list[str]) -> None:
        """Say, once for each rule, that a response does not say what its request has cost."""
        if rule.id in self._unsaid:
            return
        self._unsaid.add(rule.id)
        found = "nothing" if not lines else "several lines" if lines[1:] else shown(lines[0])
        told = "rule %s: a response has %s in the header %s, so nothing was charged afterwards; %s"
        LOG.warning(told, rule.id, found, header, "expected one whole number")


def owed(grant: Grant, passage: Passage, responded: Responded) -> Owed:
    """What the rules that were *granted* are to be charged, now that the response is over."""
    found = []
    for one in admitting(grant.entry.after, grant.verdict):
        cost = _cost(one, grant, passage, responded)
        if cost is not None and cost > one.cost:
            found.append((one, cost - one.cost))
    return found


def _cost(one: RulePlan, grant: Grant, passage: Passage, responded: Responded) -> int | None:
    """What the request has cost under a rule; None if nobody says it."""
    after = one.rule.cost.after
    assert after is not None  # noqa: S101 (mypy: an entry has no others)
    reported = passage.used.get(one.rule.id)
    if reported is not None:
        return cost_after(after, reported)
    if after.header is None:
        return cost_after(after, passage.sent)
    lines = responded.header_lines(after.header)
    cost = cost_said_after(after, lines)
    is_good = responded.status < 400 and responded.error is None
    if cost is None and (lines or is_good):  # an error need not say what it has cost
        grant.gate.afterwards.note_unsaid(one.rule, after.header, lines)
    return cost
