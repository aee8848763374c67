"""A loan: units of one counter that this node may use by itself, and what it knows of the rest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.algorithms import Outcome
from headgate.limits import FixedWindow, PacedLimit, SlidingWindowLog
from headgate.limits.accuracy import LEAST_CAP
from headgate.stores.layers.leases.served import Bound
from headgate.stores.operations import GrantLease
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit
    from headgate.stores.operations import Check, LeaseGrant


# How much to borrow of a counter, and for how long: the numbers of one limit under its terms.


LONGEST_LIFE_NS: Final = 500 * MILLISECOND
"""What was borrowed is used or given back within this time."""

SHORTEST_LIFE_NS: Final = 5 * MILLISECOND
"""No loan is worth its while for less."""

SYNCS_OF_A_LICENCE: Final = 4
"""A licence outlives as many exchanges, so that three of them may fail."""

HOT_UNITS: Final = 2
"""A key is worth a loan when at least as many units are asked of it while the loan lasts."""

GROWTH: Final = 4
"""What was used up within a moment calls for so many times as much at most: that may have been all,
and what is borrowed for nothing others lack."""

UNDER_WAY_NS: Final = 50 * MILLISECOND
"""How long an exchange takes at most."""

LEAST_OF_LIFE: Final = 8
"""Just before its window ends a loan is of as much as for an eighth of its time."""

DRIFT: Final = 100
"""A loan is given up a hundredth of its time early: the clocks of two machines differ less."""


class Size:
    """The numbers of *limit* under *accuracy*."""

    __slots__ = (
        "batch",
        "cap",
        "is_charged",
        "keep_ns",
        "lends",
        "life_ns",
        "quota",
        "sync_ns",
    )

    def __init__(self, limit: Limit, accuracy: Accuracy) -> None:
        self.quota = limit.quota
        self.cap = accuracy.cap(limit.quota)
        self.batch = accuracy.batch
        self.sync_ns = accuracy.sync_ns
        self.is_charged = accuracy.sync_ns is None
        self.keep_ns = accuracy.remembers_ns
        self.lends = not accuracy.is_exact and limit.is_divisible
        if self.cap is not None and self.cap < LEAST_CAP:
            self.lends = False
        if accuracy.sync_ns is not None:
            self.life_ns = SYNCS_OF_A_LICENCE * accuracy.sync_ns
        else:
            self.life_ns = max(min(LONGEST_LIFE_NS, limit.period_ns // 2), SHORTEST_LIFE_NS)

    def growth(self, before: int) -> float:
        """The largest demand, in units a second, to go by when *before* was asked for last."""
        return GROWTH * before * SECOND / self.life_ns

    def most(
        self,
        cost: int,
        per_second: float,
        holders: int,
        *,
        lasts_ns: int | None = None,
        spare: int | None = None,
    ) -> int:
        """What to borrow besides *cost* for a key of which *per_second* units are asked; 0: it is
        not worth it. A loan is known to last no longer than *lasts_ns*; the other nodes leave
        *spare* units of what may be lent. Of that a part is left for who comes next: nobody would
        know of a node that finds nothing."""
        demand = per_second * self.life_ns / SECOND
        if not self.lends or demand < HOT_UNITS:
            return 0
        if lasts_ns is not None and lasts_ns < self.life_ns:
            demand = per_second * max(lasts_ns, self.life_ns // LEAST_OF_LIFE) / SECOND
        most = min(math.ceil(demand), self.quota - cost)
        if self.batch is not None:
            most = min(most, self.batch)
        if self.cap is not None:
            free = self.cap if spare is None else spare
            most = min(most, max(1, self.cap // max(1, holders)), max(1, free * 3 // 4))
        return max(0, most)

    def ahead(self, per_second: float) -> int:
        """What may be used of a licence while the store is being told, *per_second* being asked.

        The next licence has to be as large, whether that fits or not: so no more.
        """
        return math.ceil(per_second * UNDER_WAY_NS / SECOND) + 1

    def bound(self, holders: int) -> int:
        """By how much *holders* together may overshoot the limit."""
        if not self.lends:
            return 0
        if self.cap is not None:
            return self.cap if self.batch is None else min(self.cap, self.batch * holders)
        return (self.quota if self.batch is None else self.batch) * holders


def lasts_until(sent_ns: int, lasts_ns: int) -> int:
    """When a loan is over for its holder, who asked for it at *sent_ns* by its own clock."""
    return sent_ns + lasts_ns - lasts_ns // DRIFT


class Facts(NamedTuple):
    """What the store told when it lent."""

    elsewhere: int
    """Units left in the store besides the loan."""
    lent: int
    told_ns: int
    reset_ns: int
    """In how long the counter would have been as new, had nothing been lent."""


NOTHING = Facts(0, 0, 0, 0)


class Loan:
    """What is lent of one counter. The holder of a turn changes it; *left* and *lapses_ns* are all
    that the quick way looks at."""

    __slots__ = (
        "ahead",
        "counted",
        "dry_cost",
        "dry_until_ns",
        "facts",
        "flight",
        "holder",
        "lapses_ns",
        "left",
        "lent",
        "retry_at_ns",
        "sent_ns",
        "serial",
        "sharers",
        "spare",
        "told",
        "wanted",
    )

    def __init__(self, holder: str, told: int, sharers: int = 1) -> None:
        self.holder = holder
        self.sharers = sharers
        """How many have had a loan of the counter lately, this node included."""
        self.spare: int | None = None
        """What the others left of what may be lent, as the store last told; None: no bound."""
        self.left = 0
        """Units to be used before `lapses_ns`."""
        self.lapses_ns = 0
        self.lent = 0
        """What was left when the store had answered,"""
        self.counted = 0
        """and when it was last counted what was used."""
        self.wanted = 0
        """How much was asked for."""
        self.sent_ns = 0
        self.facts = NOTHING
        self.flight: GrantLease | None = None
        """What is being asked of the store."""
        self.serial = 0
        """How often the store was asked: what was taken before cannot be put back after."""
        self.dry_until_ns = 0
        self.dry_cost = 0
        self.retry_at_ns = 0
        self.told = told
        """Of a licence: what the store knows to be used,"""
        self.ahead = 0
        """and what of its units is told under another name."""

    def send(self, size: Size, check: Check, most: int, now_ns: int, ahead: int = 0) -> GrantLease:
        """*check* and a loan of *most* units, asked for now; what is unused is gone with it.

        Of a licence up to *ahead* units may be used until the answer comes.
        """
        used = told = unused = 0
        if size.is_charged:
            ahead = 0
            unused = self.left if now_ns < self.lapses_ns else 0
        else:
            ahead = min(self.left, most, ahead) if now_ns < self.lapses_ns else 0
            told = self.told
            used = max(told, self.used)
            unused = ahead
        self.left = self.lent = self.counted = ahead
        self.wanted = most or self.wanted
        self.serial += 1
        self.flight = GrantLease(
            check,
            self.holder,
            most,
            size.life_ns,
            unused=unused,
            used=used,
            told=told,
            cap=size.cap,
            is_charged=size.is_charged,
        )
        return self.flight

    def hear(self, lend: GrantLease, lent: LeaseGrant, sent_ns: int, now_ns: int) -> None:
        """*lend*, which was sent at *sent_ns*, was answered."""
        outcome = lent.outcome
        self.flight = None
        used = 0
        if not lend.is_charged:
            used = lend.unused - self.left  # since it was sent
            self.ahead = 0
            self.told = lend.used
        self.lent = max(lent.amount, used)
        self.left = self.counted = self.lent - used
        # One less at a time: when a window begins nobody has a loan, and all are about to have one.
        self.sharers = max(1, lent.holders, self.sharers - 1)
        self.spare = None if lend.cap is None else max(0, lend.cap - (lent.lent - lent.amount))
        self.sent_ns = sent_ns
        self.lapses_ns = lasts_until(sent_ns, lent.lasts_ns)
        elsewhere = max(0, outcome.remaining - lent.amount)
        self.facts = Facts(elsewhere, lent.amount, now_ns, outcome.reset_after_ns)
        self._note_drought(lend, lent, now_ns)

    def _note_drought(self, lend: GrantLease, lent: LeaseGrant, now_ns: int) -> None:
        """Refuse by itself for a while if the store has too little for a loan."""
        outcome = lent.outcome
        self.dry_until_ns = 0
        if lent.amount >= lend.most or lent.amount < outcome.remaining or lent.wait_ns is None:
            return  # all that was asked for, or no more because of the others' loans
        self.dry_until_ns = now_ns + dry_for(lend, lent.wait_ns, self.sharers)
        self.retry_at_ns = now_ns + lent.wait_ns if _ends_at_once(lend.check.limit) else 0
        self.dry_cost = 1
        if not outcome.allowed and outcome.retry_after_ns is not None:
            self.retry_at_ns = now_ns + outcome.retry_after_ns
            self.dry_cost = lend.check.cost

    @property
    def used(self) -> int:
        """Of a licence: all that was used under its holder's name."""
        return self.told - self.ahead + self.lent - self.left

    def has(self, cost: int, now_ns: int) -> bool:
        """Whether *cost* can be served from it."""
        return cost <= self.left and now_ns < self.lapses_ns

    def refuses(self, cost: int, now_ns: int) -> bool:
        """Whether the store is known to have too little for *cost*, and for a loan."""
        return now_ns < self.dry_until_ns and cost >= self.dry_cost


class Table:
    """All loans of one group under one limit and its terms."""

    __slots__ = ("group", "holders", "limit", "loans", "number", "size", "source", "tag")

    def __init__(self, group: str, limit: Limit, accuracy: Accuracy, number: int) -> None:
        self.group = group
        self.limit = limit
        self.number = number
        self.tag = ""
        """What its refusals are remembered by: those under another limit are not true of this."""
        self.size = Size(limit, accuracy)
        self.source = "lease" if self.size.is_charged else "sync"
        self.loans: dict[str, Loan] = {}
        self.holders = 1

    def bound(self) -> Bound:
        """By how much any of its counters may overshoot: that which most have a loan of."""
        sharers = [loan.sharers for loan in self.loans.values()]
        holders, size = max(sharers, default=self.holders), self.size
        return Bound(self.group, holders, size.cap, size.batch, size.bound(holders))

    def outcome(self, loan: Loan, now_ns: int) -> Outcome:
        """What *loan* tells of a cost that was served from it."""
        facts = loan.facts
        return Outcome(
            allowed=True,
            remaining=loan.left + facts.elsewhere,
            retry_after_ns=0,
            reset_after_ns=reset_after(self.limit, facts, loan.left, now_ns),
            source=self.source,
        )

    def refusal(self, loan: Loan, now_ns: int) -> Outcome:
        """What it tells of a cost that it refuses."""
        facts = loan.facts
        return Outcome(
            allowed=False,
            remaining=loan.left if now_ns < loan.lapses_ns else 0,
            retry_after_ns=max(loan.retry_at_ns, loan.dry_until_ns) - now_ns,
            reset_after_ns=reset_after(self.limit, facts, loan.left, now_ns),
            source=self.source,
        )


def dry_for(lend: GrantLease, wait_ns: int, sharers: int) -> int:
    """How long to leave the store alone in which *lend* would fit after *wait_ns*.

    What comes back to a paced counter is not lost while it is not full. So of many *sharers* each
    waits for a loan for all of them: else all would come, and all but one in vain.
    """
    limit = lend.check.limit
    if isinstance(limit, PacedLimit):
        wait_ns = max(wait_ns, min(wait_ns * sharers, limit.period_ns // 2))
    return min(wait_ns, lend.ttl_ns)


def _ends_at_once(limit: Limit) -> bool:
    """Whether nothing comes back before the end of a window, and all of it then."""
    return isinstance(limit, FixedWindow)


def reset_after(limit: Limit, facts: Facts, left: int, now_ns: int) -> int:
    """In how long the counter is as new when all but *left* units of a loan have been used."""
    if isinstance(limit, SlidingWindowLog):
        return limit.period_ns
    reset_ns = facts.reset_ns - (now_ns - facts.told_ns)
    if isinstance(limit, PacedLimit):
        pace = limit.pace
        reset_ns += pace.to_ns((facts.lent - left) * pace.ticks_per_unit)
    return max(0, reset_ns)
