"""What is to be done about loans, the earliest first."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.stores.leased.loans import Loan, Table

_Due = tuple[int, int, "Table", str, "Loan", int]


class Dues:
    """Loans and when to look at each again. One that was asked for anew since is passed over."""

    def __init__(self) -> None:
        self._heap: list[_Due] = []
        self._count = 0
        self._hastened = 0

    @property
    def first_ns(self) -> int | None:
        """When something is due; None: never."""
        if not self._heap:
            return None
        return 0 if self._hastened else self._heap[0][0]

    def add(self, due_ns: int, table: Table, key: str, loan: Loan) -> None:
        self._count += 1
        heappush(self._heap, (due_ns, self._count, table, key, loan, loan.serial))

    def hasten(self) -> None:
        """Have the first one be due now: there is no room for more."""
        self._hastened += 1

    def pop(self, now_ns: int) -> tuple[Table, str, Loan, bool] | None:
        """The next one that is due by *now_ns*, and whether it is to make way; None: there is
        none."""
        while self._heap and (self._hastened or self._heap[0][0] <= now_ns):
            _, _, table, key, loan, serial = heappop(self._heap)
            if loan.serial == serial:
                makes_way = self._hastened > 0
                self._hastened -= makes_way
                return table, key, loan, makes_way
        self._hastened = 0
        return None
