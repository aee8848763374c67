"""Estimates of when a slot is free, from how long slots were held of late. No I/O.

A slot under a concurrency limit is free when its holder releases it, usually long before its lease
expires. So the wait of a denial is the average time that slots of that limit were held, as counted
in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.decision import combine
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.decision import Decision
    from headgate.engine.verdict import Verdict
    from headgate.stores.operations import Check, ReleaseSlot

SHORTEST_NS: Final = 100 * MILLISECOND
"""The shortest estimate, unless a lease expires earlier."""

UNKNOWN_NS: Final = SECOND
"""The estimate while no slot of the limit has been released."""

WEIGHT: Final = 8
"""One part in this many of the average is the last hold."""

MOST: Final = 4096
"""Limits of which an average is kept."""


class HoldTimes:
    """The recent average hold time of each concurrency limit, by the group of its counters."""

    __slots__ = ("_averages",)

    def __init__(self) -> None:
        self._averages: dict[str, int] = {}

    def record(self, slots: ReleaseSlot, held_ns: int) -> None:
        """Count that *slots* are released after *held_ns*."""
        averages = self._averages
        for check in slots.checks:
            before = averages.pop(check.group, None)
            if before is None:
                if len(averages) >= MOST:
                    averages.pop(next(iter(averages)), None)  # of all, the one unused for longest
                before = held_ns
            averages[check.group] = before + (held_ns - before) // WEIGHT

    def estimate(self, verdict: Verdict) -> None:
        """Set the wait of each denial by a concurrency limit to an estimate."""
        decisions = list(verdict.decisions)
        for place, (one, decision) in enumerate(zip(verdict.plan.rules, decisions, strict=True)):
            if decision is not None and not decision.allowed and one.has_slots:
                pairs = zip(decision.limits, one.checks, strict=True)
                decisions[place] = combine([self._of_limit(*pair) for pair in pairs])
                verdict.decisions = decisions

    def _of_limit(self, decision: Decision, check: Check) -> Decision:
        exact_ns = decision.retry_after_ns
        if not decision.is_estimate or exact_ns is None:
            return decision
        average_ns = self._averages.get(check.group, UNKNOWN_NS)
        return decision._replace(retry_after_ns=min(max(average_ns, SHORTEST_NS), exact_ns))
