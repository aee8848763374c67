"""A lease: units of one counter that this node may use, and what it knows of the counter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.algorithms import Outcome
from headgate.limits import FixedWindow, PacedLimit, SlidingWindowLog
from headgate.limits.accuracy import LEAST_CAP
from headgate.observability.sketches import HeavyHitters
from headgate.stores.layers.leases.denials import Denial
from headgate.stores.operations import GrantLease
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit
    from headgate.limits.model import Pace
    from headgate.stores.operations import Check, LeaseGrant


# The size of leases: how many units, and for how long.


LONGEST_LIFE_NS: Final = 500 * MILLISECOND
"""The units of a lease are used or returned within this time."""

SHORTEST_LIFE_NS: Final = 5 * MILLISECOND
"""A shorter lease is not worth an exchange."""

SYNCS_IN_A_LIFE: Final = 4
"""A postpaid lease outlives as many exchanges, so that three of them may fail."""

HOT_UNITS: Final = 2
"""A key is worth a lease if at least as many units are requested of it while the lease lasts."""

GROWTH: Final = 4
"""A lease that is used up at once grows by this factor at most: the burst may be over, and other
nodes lack what this one holds for nothing."""

LONGEST_EXCHANGE_NS: Final = 50 * MILLISECOND
"""The time that an exchange takes at most."""

LEAST_OF_LIFE: Final = 8
"""Just before its window ends a lease has as many units as for an eighth of its life."""

DRIFT: Final = 100
"""A lease ends a hundredth of its life early: the clocks of two machines drift less."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The units by which a group may overshoot, by what the store replied last."""

    group: str
    holders: int
    cap: int | None
    batch: int | None
    bound: int


class Snapshot(NamedTuple):
    """The counter in the store when it granted a lease."""

    elsewhere: int
    """Units left besides the lease."""
    granted: int
    at_ns: int
    reset_ns: int
    """The time to a fresh counter, had nothing been granted."""


NOTHING: Final = Snapshot(0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class Lease:
    """The units of one counter that *holder*, a name of this node, may use."""

    holder: str
    reported: int
    """Of a postpaid lease: the used units that the store knows of."""
    holders: int = 1
    """The nodes that have had a lease of the counter lately, this one included."""
    carried: int = 0
    """Of a postpaid lease: the units that are reported under the name of another lease."""
    left: int = 0
    """Units to use before `expires_ns`."""
    expires_ns: int = 0
    granted: int = 0
    """The units that were left after the last grant, and"""
    counted: int = 0
    """when the used ones were last counted."""
    requested: int = 0
    others_leave: int | None = None
    """The units of the cap that the other nodes leave; None: there is no cap."""
    sent_ns: int = 0
    snapshot: Snapshot = NOTHING
    pending: GrantLease | None = None
    """The request in flight."""
    serial: int = 0
    """The number of requests: units taken before one cannot be put back after it."""
    dry_until_ns: int = 0
    """Before this the store has too little for a lease, and"""
    dry_cost: int = 0
    """costs from this one on are denied here."""
    denied_cost: int = 0
    """The cost that the store denied, which fits at `retry_at_ns`; 0: none."""
    retry_at_ns: int = 0

    def request(
        self, group: LeaseGroup, check: Check, units: int, now_ns: int, keeps: int = 0
    ) -> GrantLease:
        """Request *units* besides *check*. What is unused goes back with it.

        Of a postpaid lease up to *keeps* units may be used until the reply comes.
        """
        left = self.left if now_ns < self.expires_ns else 0
        if group.is_prepaid:
            used = reported = kept = 0
        else:
            reported, used = self.reported, max(self.reported, self.used)
            kept = left = min(left, units, keeps)
        self.left = self.granted = self.counted = kept
        self.requested = units or self.requested
        self.serial += 1
        self.pending = GrantLease(
            check,
            self.holder,
            units,
            group.life_ns,
            unused=left,
            used=used,
            reported=reported,
            cap=group.cap,
            is_charged=group.is_prepaid,
        )
        return self.pending

    def grant(self, request: GrantLease, grant: LeaseGrant, sent_ns: int, now_ns: int) -> None:
        """Record the reply to *request*, which was sent at *sent_ns*."""
        outcome = grant.outcome
        self.pending = None
        used = 0
        if not request.is_charged:
            used = request.unused - self.left  # while it was in flight
            self.carried = 0
            self.reported = request.used
        self.granted = max(grant.amount, used)
        self.left = self.counted = self.granted - used
        # One less at a time: when a window begins no node has a lease, and all soon have one.
        self.holders = max(1, grant.holders, self.holders - 1)
        others = grant.leased - grant.amount
        self.others_leave = None if request.cap is None else max(0, request.cap - others)
        self.sent_ns = sent_ns
        self.expires_ns = sent_ns + grant.lasts_ns - grant.lasts_ns // DRIFT
        elsewhere = max(0, outcome.remaining - grant.amount)
        self.snapshot = Snapshot(elsewhere, grant.amount, now_ns, outcome.reset_after_ns)
        self._record_dryness(request, grant, now_ns)

    def _record_dryness(self, request: GrantLease, grant: LeaseGrant, now_ns: int) -> None:
        """Deny here for a while if the store has too little for a lease."""
        outcome, wait_ns, before_ns = grant.outcome, grant.wait_ns, self.dry_until_ns
        self.dry_until_ns = self.denied_cost = 0
        if grant.amount >= request.most or grant.amount < outcome.remaining or wait_ns is None:
            return  # the store granted all, or less because of the cap
        self.dry_until_ns = now_ns + dry_for(request, wait_ns, self.holders)
        if now_ns < before_ns:  # callers retry then
            self.dry_until_ns = min(self.dry_until_ns, before_ns)
        self.dry_cost = 1
        self.retry_at_ns = now_ns + wait_ns
        if not outcome.allowed and outcome.retry_after_ns is not None:
            self.retry_at_ns = now_ns + outcome.retry_after_ns
            self.dry_cost = self.denied_cost = request.check.cost
            if not isinstance(request.check.limit, PacedLimit):
                self.dry_until_ns = min(self.dry_until_ns, self.retry_at_ns)

    @property
    def used(self) -> int:
        """Of a postpaid lease: all units that were used under its holder's name."""
        return self.reported - self.carried + self.granted - self.left

    def has(self, cost: int, now_ns: int) -> bool:
        """True if *cost* can be taken from it."""
        return cost <= self.left and now_ns < self.expires_ns


class LeaseGroup:
    """The leases of one group of counters under one limit and accuracy, and their sizes."""

    def __init__(self, name: str, limit: Limit, accuracy: Accuracy) -> None:
        self.name = name
        self.limit = limit
        self.number = 0
        self.tag = ""
        """The name of its denials: one under another limit does not hold here."""
        self.pace: Pace | None = limit.pace if isinstance(limit, PacedLimit) else None
        self.cap = accuracy.cap(limit.quota)
        self.batch = accuracy.batch
        self.sync_ns = accuracy.sync_ns
        self.is_prepaid = accuracy.sync_ns is None
        self.source = "lease" if self.is_prepaid else "sync"
        self.is_split = accuracy.split > 1
        self.denials_ns = accuracy.remembers_ns if limit.is_divisible else 0
        self.is_leased = not accuracy.is_exact and limit.is_divisible
        if self.cap is not None and self.cap < LEAST_CAP:
            self.is_leased = False
        if accuracy.sync_ns is not None:
            self.life_ns = SYNCS_IN_A_LIFE * accuracy.sync_ns
        else:
            self.life_ns = max(min(LONGEST_LIFE_NS, limit.period_ns // 2), SHORTEST_LIFE_NS)
        self.leases: dict[str, Lease] = {}
        self.holders = 1

    def bound(self) -> Bound:
        """The overshoot of that counter which most nodes have a lease of."""
        holders = max([one.holders for one in self.leases.values()], default=self.holders)
        bound = (self.limit.quota if self.batch is None else self.batch) * holders
        bound = bound if self.cap is None else min(bound, self.cap)
        return Bound(self.name, holders, self.cap, self.batch, bound)

    def is_hot(self, per_second: float) -> bool:
        """True if a key with a demand of *per_second* is worth a lease."""
        return self.is_leased and per_second * self.life_ns / SECOND >= HOT_UNITS

    def growth(self, before: int) -> float:
        """The largest demand, in units a second, to expect after a lease of *before* units."""
        return GROWTH * before * SECOND / self.life_ns

    def units(self, lease: Lease | None, per_second: float, now_ns: int, cost: int = 0) -> int:
        """The units to request besides *cost* for a key with a demand of *per_second*; 0: a lease
        is not worth it.

        A fixed window ends for all at once: units that are not used by then would be lost. Of the
        cap a part stays for the next node: one that finds nothing stays unknown to the others.
        """
        if not self.is_hot(per_second):
            return 0
        lasts_ns, holders, free = self.life_ns, self.holders, self.cap
        if lease is not None:
            holders = lease.holders
            free = self.cap if lease.others_leave is None else lease.others_leave
            left_ns = lease.snapshot.at_ns + lease.snapshot.reset_ns - now_ns
            if isinstance(self.limit, FixedWindow) and 0 < left_ns < lasts_ns:
                lasts_ns = max(left_ns, lasts_ns // LEAST_OF_LIFE)
        units = min(math.ceil(per_second * lasts_ns / SECOND), self.limit.quota - cost)
        if self.batch is not None:
            units = min(units, self.batch)
        if self.cap is not None and free is not None:
            units = min(units, max(1, self.cap // max(1, holders)), max(1, free * 3 // 4))
        return max(0, units)

    def units_in_exchange(self, per_second: float) -> int:
        """The units of a postpaid lease that may be used while a report is in flight.

        The next lease has to be as large, whether it fits or not: so no more than are needed.
        """
        return math.ceil(per_second * LONGEST_EXCHANGE_NS / SECOND) + 1

    def outcome(self, lease: Lease, now_ns: int) -> Outcome:
        """The outcome of a cost that was taken from *lease*."""
        remaining = lease.left + lease.snapshot.elsewhere
        reset_ns = self._reset_after(lease, lease.left, now_ns)
        return Outcome(True, remaining, 0, reset_ns, 0, 0, self.source)  # noqa: FBT003 (cheaper)

    def denial(self, lease: Lease, cost: int, now_ns: int) -> Denial | None:
        """The denial of *cost* by a dry *lease*; None if only the store knows when it fits."""
        if not lease.dry_cost <= cost <= self.limit.quota:
            return None
        left = lease.left if now_ns < lease.expires_ns else 0
        pace = self.pace
        if cost == lease.denied_cost:
            retry_at_ns = lease.retry_at_ns
        elif pace is not None:
            _, granted, at_ns, reset_ns = lease.snapshot
            needed = (granted - left + cost) * pace.ticks_per_unit - pace.span
            retry_at_ns = at_ns + reset_ns - needed // -pace.ticks_per_ns
        elif isinstance(self.limit, FixedWindow) and cost <= lease.requested:
            retry_at_ns = lease.retry_at_ns
        else:
            return None
        retry_at_ns = max(retry_at_ns, lease.dry_until_ns)
        reset_at_ns = now_ns + self._reset_after(lease, left, now_ns)
        until_ns = now_ns + 1 if left else lease.dry_until_ns  # smaller costs change what is left
        return Denial(cost, until_ns, left, retry_at_ns, reset_at_ns, self.source)

    def _reset_after(self, lease: Lease, left: int, now_ns: int) -> int:
        """The time to a fresh counter if all but *left* units of *lease* have been used."""
        if isinstance(self.limit, SlidingWindowLog):
            return self.limit.period_ns
        _, granted, at_ns, reset_ns = lease.snapshot
        reset_ns -= now_ns - at_ns
        pace = self.pace
        if pace is not None and granted > left:
            reset_ns -= (granted - left) * pace.ticks_per_unit // -pace.ticks_per_ns
        return max(0, reset_ns)


def dry_for(request: GrantLease, wait_ns: int, holders: int) -> int:
    """The time to leave a store alone in which *request* would fit after *wait_ns*.

    A paced counter that is not full loses nothing while it is left alone. So each of many *holders*
    waits for leases for all of them: else all would come at once, and all but one in vain.
    """
    limit = request.check.limit
    if isinstance(limit, PacedLimit):
        wait_ns = max(wait_ns, min(wait_ns * holders, limit.period_ns // 2))
    return min(wait_ns, request.ttl_ns)


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
