"""Whom this process calls, and until when each of them wants to be left alone.

Once a server has said "not before", all calls to it wait, not only the one that was refused: the
others would be refused as well, and be one more request that the server has to answer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.clients.retry_policy import Courtesy
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.clients.signals import Signal


# A bound on how much of the traffic is retries.
#
# When everything fails, retries multiply the load on a server that cannot carry the plain load.
# With a budget they add a share of it at most.


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


class Closure(NamedTuple):
    """Until when a destination is closed, for how long in all, after so many refusals in a row."""

    until_ns: int
    length_ns: int
    refusals: int


class Destination:
    """One of those we call. Thread-safe; times are nanoseconds of a clock that goes forward."""

    __slots__ = ("_budget", "_closure", "_courtesy", "_lock")

    def __init__(self, courtesy: Courtesy) -> None:
        self._courtesy = courtesy
        self._budget = RetryBudget(courtesy.retry_share, courtesy.retries_per_second)
        self._closure = Closure(0, 0, 0)
        self._lock = threading.Lock()

    @property
    def closure(self) -> Closure:
        """Until when it is closed, now or in the past."""
        return self._closure

    def add_request(self, now_ns: int) -> None:
        """A request is about to be sent for the first time."""
        with self._lock:
            self._budget.add_request(now_ns)

    def take_retry(self, now_ns: int) -> bool:
        """Whether the retry budget has one left; if so, it is taken."""
        with self._lock:
            return self._budget.take_retry(now_ns)

    def hear(self, status: int, signal: Signal, now_ns: int, chance: float) -> None:
        """Close for as long as *signal* says. An open one that serves forgets its refusals.

        A 429 that names no time, or one that is over, closes too, for a random part of the
        backoff. A 503 that names none is the trouble of one request: others may fare better.
        """
        with self._lock:
            until_ns, length_ns, refusals = self._closure
            if now_ns >= until_ns:
                # A herd that is refused together counts once: those after it find it closed.
                refusals = refusals + 1 if signal.refused else 0
            wait_ns = signal.wait_ns if signal.refused or self._courtesy.look_ahead else None
            if not wait_ns and status == 429:
                wait_ns = self._courtesy.backoff.pause_ns(refusals, chance)
            wait_ns = min(wait_ns or 0, self._courtesy.max_closed_ns)
            if wait_ns and now_ns + wait_ns > until_ns:
                until_ns, length_ns = now_ns + wait_ns, wait_ns
            self._closure = Closure(until_ns, length_ns, refusals)


class Destinations:
    """All destinations of one or more clients. Give several clients one, and they wait together.

    Thread-safe. At most `Courtesy.max_destinations` are remembered; those that are closed are
    forgotten last.
    """

    def __init__(self, courtesy: Courtesy | None = None) -> None:
        self.courtesy = courtesy or Courtesy()
        self._by_key: OrderedDict[str, Destination] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_key)

    def at(self, key: str, now_ns: int) -> Destination:
        """The destination of that name."""
        with self._lock:
            known = self._by_key.get(key)
            if known is not None:
                self._by_key.move_to_end(key)
                return known
            if len(self._by_key) >= self.courtesy.max_destinations:
                del self._by_key[self._dispensable(now_ns)]
            destination = self._by_key[key] = Destination(self.courtesy)
            return destination

    def _dispensable(self, now_ns: int) -> str:
        """The one not called for longest that is open; if none is, the one that opens first."""
        for key, destination in self._by_key.items():
            if destination.closure.until_ns <= now_ns:
                return key
        return min(self._by_key, key=lambda key: self._by_key[key].closure.until_ns)
