"""Throwing away what is as new, a few steps with each call, whichever counters the call is for.

Each table of counters is due for a round from time to time. The tables wait in order of when that
is; each call does a few steps on the first, if it is due. So no call stalls, no thread is needed,
and a table that nobody asks any more is emptied all the same, and then dropped.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.memory.counters import Counters
    from headgate.stores.memory.margin import Margin

    Table = Counters | Margin[Any]

NEVER: Final = 2**63


class Sweep:
    """The tables of a store, and when the next of them is due. The caller has the turn."""

    __slots__ = ("_drop", "_order", "_origin", "_waiting", "due")

    def __init__(self, drop: Callable[[Table], None], origin: int) -> None:
        self._drop = drop
        self._origin = origin
        self._order = count()
        self._waiting: list[tuple[int, int, Table]] = []
        self.due = NEVER
        """When there is something to do, in nanoseconds since *origin*; in the past, if now."""

    def add(self, table: Table, now: int) -> None:
        heappush(self._waiting, self._next_round(table, now))
        self.due = self._waiting[0][0]

    def step(self, now: int) -> None:
        """Do a few steps, if something is due."""
        since_origin = now - self._origin
        if since_origin >= self.due:
            self._step(now)
        if since_origin >= self.due:
            self._step(now)

    def _step(self, now: int) -> None:
        if not self._waiting:
            return
        table = self._waiting[0][2]
        if table.examine_some(now):
            return
        if table.is_of_use:
            heapreplace(self._waiting, self._next_round(table, now))
        else:
            heappop(self._waiting)
            self._drop(table)
        self.due = self._waiting[0][0] if self._waiting else NEVER

    def _next_round(self, table: Table, now: int) -> tuple[int, int, Table]:
        return now - self._origin + table.sweep_interval, next(self._order), table
