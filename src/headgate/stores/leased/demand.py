"""What is asked of keys in this node, and what of it was served from loans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.limits import FixedWindow
from headgate.observability.sketch import HeavyHitters
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.stores.leased.loans import Loan, Table
    from headgate.stores.operations import Check


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
