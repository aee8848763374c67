"""The demand for keys in this node, and used units that the store may not know of yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.observability.sketches import HeavyHitters
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.stores.layers.leases.lease import Lease, LeaseGroup
    from headgate.stores.operations import Check, GrantLease


class Demand:
    """The units that are requested of each key.

    Units from leases are counted when the lease is looked at again: the fast path has no time.
    """

    def __init__(self) -> None:
        self.heavy = HeavyHitters()
        self.served = 0
        """Units from leases, as far as they have been counted."""

    def count_used(self, lease: Lease) -> int:
        """Count, and return, the units of *lease* that were used since they were last counted."""
        used = max(0, lease.counted - lease.left)  # units that were put back had been counted
        lease.counted = lease.left
        self.served += used
        return used

    def of_check(self, group: LeaseGroup, check: Check, lease: Lease | None, now_ns: int) -> float:
        """The units per second that are requested of a key, *check* included."""
        used = 0
        lately = 0.0
        if lease is not None and lease.pending is None:
            used = self.count_used(lease)
            if used and not lease.left:
                lately = used * SECOND / max(1, now_ns - lease.sent_ns)
                lately = min(lately, group.growth(lease.requested))
        per_second = self.heavy.add(check.group, check.key, check.cost + used, now_ns)
        return max(per_second, lately)


REPEAT_NS: Final = 250 * MILLISECOND
"""The time after which a lost report is sent again."""
MOST: Final = 10_000

MOST_AT_ONCE: Final = 64
PAUSE_NS: Final = 25 * MILLISECOND
"""The time between two rounds of so many reports."""


class LostReports:
    """Reports of postpaid leases whose reply was lost.

    Each is repeated as it was: the store charges it once, however often it arrives. It is dropped
    when its limit would have forgotten the usage anyway.
    """

    def __init__(self) -> None:
        self._reports: dict[GrantLease, tuple[int, int]] = {}
        self.first_ns: int | None = None

    def __contains__(self, report: GrantLease) -> bool:
        return report in self._reports

    def add(self, request: GrantLease, now_ns: int, *, from_ns: int = 0) -> None:
        """Repeat the report in *request*, which was lost, from *from_ns* on."""
        cost_free = replace(request.check, cost=0)
        at_ns = max(now_ns + REPEAT_NS, from_ns)
        until_ns = max(now_ns, from_ns) + max(SECOND, request.check.limit.period_ns)
        if len(self._reports) >= MOST:
            del self._reports[next(iter(self._reports))]
        self._reports[replace(request, check=cost_free, most=0, unused=0)] = at_ns, until_ns
        self.first_ns = at_ns if self.first_ns is None else min(self.first_ns, at_ns)

    def confirm(self, report: GrantLease) -> bool:
        """Drop *report*, which has arrived; False if it is not one of these."""
        was_known = self._reports.pop(report, None) is not None
        if not self._reports:
            self.first_ns = None
        return was_known

    def due(self, now_ns: int) -> list[GrantLease]:
        """The reports to send now. Each is due again later unless it is confirmed.

        After an outage there may be thousands: they go out in rounds.
        """
        if self.first_ns is None or now_ns < self.first_ns:
            return []
        due: list[GrantLease] = []
        first_ns = now_ns + REPEAT_NS
        for report, (at_ns, until_ns) in list(self._reports.items()):
            if now_ns >= until_ns:
                del self._reports[report]
            elif now_ns < at_ns:
                first_ns = min(first_ns, at_ns)
            elif len(due) < MOST_AT_ONCE:
                due.append(report)
                self._reports[report] = now_ns + REPEAT_NS, until_ns
            else:
                first_ns = min(first_ns, now_ns + PAUSE_NS)
        self.first_ns = first_ns if self._reports else None
        return due

    def all(self) -> list[GrantLease]:
        """All of them."""
        return list(self._reports)
