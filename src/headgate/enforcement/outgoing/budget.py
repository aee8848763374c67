"""A bound on how much of the traffic is retries.

When everything fails, retries multiply the load on a server that cannot carry the plain load. With
a budget they add a share of it at most.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from headgate.units import SECOND

WINDOW: Final = 10
"""Seconds over which requests and retries are compared."""


@dataclass(slots=True)
class _Cell:
    second: int
    requests: int = 0
    retries: int = 0


class RetryBudget:
    """In any ten seconds at most *share* of the requests, and *per_second* more, are retries.

    Not thread-safe: its destination holds a lock. A clock that steps back frees nothing.
    """

    __slots__ = ("_cells", "_floor", "_share")

    def __init__(self, share: float, per_second: float) -> None:
        self._share = share
        self._floor = per_second * WINDOW
        self._cells: deque[_Cell] = deque()

    def add_request(self, now_ns: int) -> None:
        """A request is about to be sent for the first time."""
        self._cell(now_ns).requests += 1

    def take_retry(self, now_ns: int) -> bool:
        """Whether there is a retry left; if so, it is taken."""
        cell = self._cell(now_ns)
        requests = sum(one.requests for one in self._cells)
        retries = sum(one.retries for one in self._cells)
        if retries + 1 > self._floor + self._share * requests:
            return False
        cell.retries += 1
        return True

    def _cell(self, now_ns: int) -> _Cell:
        """The cell of this second; those that are too old are forgotten."""
        cells, second = self._cells, now_ns // SECOND
        if not cells or second > cells[-1].second:
            cells.append(_Cell(second))
        while cells[0].second <= cells[-1].second - WINDOW:
            cells.popleft()
        return cells[-1]
