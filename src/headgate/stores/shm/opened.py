"""A counter in shared memory in the hands of one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.counting import Counting
from headgate.stores.shm.records import Entry

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.shm.transaction import Spot, Transaction


class Opened(Counting):
    """The counter at *spot* under *limit*."""

    __slots__ = ("_spot", "_transaction")

    def __init__(self, transaction: Transaction, spot: Spot, limit: Limit) -> None:
        state, holds = transaction.load(spot, limit)
        super().__init__(transaction.algorithm(limit), state, holds, transaction.now)
        self._transaction = transaction
        self._spot = spot

    def close(self) -> None:
        if self._is_changed:
            entry = Entry(self._state, self._holds)
            self._transaction.put(self._spot, self._algorithm.limit, entry)
