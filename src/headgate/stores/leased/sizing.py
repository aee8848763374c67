"""How much to borrow of a counter, and for how long: the numbers of one limit under its terms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from headgate.limits.accuracy import LEAST_CAP
from headgate.stores.leased.splitting import Split
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit

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
        "ledger_cap",
        "lends",
        "life_ns",
        "quota",
        "split",
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
        self.split = Split.of(limit, accuracy) if self.lends else None
        self.ledger_cap = self.cap if self.split is None else self.split.node_cap
        """What nodes may borrow of one counter: the rest is for its pots, if it has any."""
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
        if self.ledger_cap is not None:
            free = self.ledger_cap if spare is None else spare
            most = min(most, max(1, self.ledger_cap // max(1, holders)), max(1, free * 3 // 4))
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
