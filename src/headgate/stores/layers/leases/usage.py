"""What is asked of keys in this node, and what of it was served from loans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.limits import FixedWindow
from headgate.observability.sketches import HeavyHitters
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.stores.layers.leases.lease import Loan, Table
    from headgate.stores.operations import Check, GrantLease


class Demand:
    """Counts what was asked for. What is served from a loan is counted when the loan is looked at
    again: the quick way has no time for it."""

    def __init__(self) -> None:
        self.heavy = HeavyHitters()
        self.served = 0
        """Units served from loans so far, as far as they have been counted."""

    def counted(self, loan: Loan) -> int:
        """What was used of *loan* since it was last counted."""
        used = max(0, loan.counted - loan.left)  # what was put back since had been counted
        loan.counted = loan.left
        self.served += used
        return used

    def count(self, group: str, key: str, loan: Loan, now_ns: int) -> float:
        """Count what was used of *loan* so far; the units per second that are asked of its key."""
        return self.heavy.add(group, key, self.counted(loan), now_ns)

    def of_check(self, table: Table, check: Check, loan: Loan | None, now_ns: int) -> float:
        """Units per second that are asked of a key, *check* included."""
        used = 0
        lately = 0.0
        if loan is not None and loan.flight is None:
            used = self.counted(loan)
            if used and not loan.left:
                lately = used * SECOND / max(1, now_ns - loan.sent_ns)
                lately = min(lately, table.size.growth(loan.wanted))
        per_second = self.heavy.add(check.group, check.key, check.cost + used, now_ns)
        return max(per_second, lately)


def lasts_at_most(table: Table, loan: Loan | None, now_ns: int) -> int | None:
    """How long a loan can last that is asked for now; None: as long as any.

    A fixed window ends for all at once: what cannot be used by then would be lost.
    """
    if loan is None or not isinstance(table.limit, FixedWindow):
        return None
    left_ns = loan.facts.told_ns + loan.facts.reset_ns - now_ns
    return left_ns if left_ns > 0 else None


# What was used under a licence and told, but not heard: to be told again until it is.


EVERY_NS: Final = 250 * MILLISECOND
"""How long to wait before a debt is told once more."""
MOST: Final = 10_000

MOST_AT_ONCE: Final = 64
PAUSE_NS: Final = 25 * MILLISECOND
"""So many are told, and then none for that long."""


class Debts:
    """Exchanges to be repeated, each as what it told and no more: it is charged once, however often
    it is told. One is given up when its limit would have forgotten it anyway."""

    def __init__(self) -> None:
        self._lends: dict[GrantLease, tuple[int, int]] = {}
        self.first_ns: int | None = None

    def __contains__(self, lend: GrantLease) -> bool:
        return lend in self._lends

    def add(self, lend: GrantLease, now_ns: int, *, from_ns: int = 0) -> None:
        """What *lend* told was lost. It is not told again before *from_ns*."""
        cost_free = replace(lend.check, cost=0)
        at_ns = max(now_ns + EVERY_NS, from_ns)
        until_ns = max(now_ns, from_ns) + max(SECOND, lend.check.limit.period_ns)
        if len(self._lends) >= MOST:
            del self._lends[next(iter(self._lends))]
        self._lends[replace(lend, check=cost_free, most=0, unused=0)] = at_ns, until_ns
        self.first_ns = at_ns if self.first_ns is None else min(self.first_ns, at_ns)

    def settle(self, lend: GrantLease) -> bool:
        """*lend* was heard; whether it was one of these."""
        was_known = self._lends.pop(lend, None) is not None
        if not self._lends:
            self.first_ns = None
        return was_known

    def due(self, now_ns: int) -> list[GrantLease]:
        """Those to be told now, of which each is to be told again later if it is not settled.

        After an outage there may be thousands: they are told bit by bit.
        """
        if self.first_ns is None or now_ns < self.first_ns:
            return []
        due: list[GrantLease] = []
        first_ns = now_ns + EVERY_NS
        for lend, (at_ns, until_ns) in list(self._lends.items()):
            if now_ns >= until_ns:
                del self._lends[lend]
            elif now_ns < at_ns:
                first_ns = min(first_ns, at_ns)
            elif len(due) < MOST_AT_ONCE:
                due.append(lend)
                self._lends[lend] = now_ns + EVERY_NS, until_ns
            else:
                first_ns = min(first_ns, now_ns + PAUSE_NS)
        self.first_ns = first_ns if self._lends else None
        return due

    def all(self) -> list[GrantLease]:
        """All of them."""
        return list(self._lends)
