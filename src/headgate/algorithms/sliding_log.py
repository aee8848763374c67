"""The sliding window log: every admitted unit is remembered for exactly one window.

A cost fits at `now` when the units with `now - window < time <= now`, and the cost, are at most
the limit. A unit exactly one window old has left. Nothing is estimated: no interval of one
window's length, wherever it starts, ever sees more than the limit. The price is memory: one entry
per admitted request (requests of the same instant share one).

Debt: what was charged beyond the limit enters the window as soon as the limit lets it, that is,
takes the place of each unit that leaves, in the instant it leaves. So the window stays full until
the debt is gone. The units then leave in one endless order, `units[0], units[1], ...` and the same
again one window later, and the n-th departure can be computed without playing them through.

`high` is the latest time the log has seen. If the clock steps back, the log stays there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.algorithms.base import ALLOWED, Algorithm, Outcome

if TYPE_CHECKING:
    from headgate.limits import SlidingWindowLog


class Log:
    """Units in the window by time, oldest first; their sum; the debt still to enter.

    Two lists, of which what lies before `head` has left already: much less memory than two deques
    as long as a key has few entries, which is the common case.
    """

    __slots__ = ("debt", "head", "high", "times", "total", "units")

    def __init__(self, high: int) -> None:
        self.times: list[int] = []
        self.units: list[int] = []
        self.head = 0
        self.total = 0
        self.debt = 0
        self.high = high

    def add(self, time: int, units: int) -> None:
        if self.total and self.times[-1] == time:
            self.units[-1] += units
        else:
            self.times.append(time)
            self.units.append(units)
        self.total += units

    def drop_oldest(self) -> int:
        """Let the oldest entry leave; how much that was."""
        units = self.units[self.head]
        self.total -= units
        self.head += 1
        if 2 * self.head >= len(self.times):
            del self.times[: self.head], self.units[: self.head]
            self.head = 0
        return units

    def drop_newest(self, units: int) -> None:
        """Take back *units*, the latest first."""
        from_debt = min(units, self.debt)
        self.debt -= from_debt
        units = min(units - from_debt, self.total)
        self.total -= units
        while units:
            newest = self.units.pop()
            if newest > units:
                self.units.append(newest - units)
                return
            units -= newest
            self.times.pop()
        if not self.total:
            del self.times[:], self.units[:]
            self.head = 0


class SlidingWindowLogAlgorithm(Algorithm[Log]):
    """The arithmetic of `SlidingWindowLog(limit, window)`."""

    __slots__ = ("window_ns",)

    def __init__(self, limit: SlidingWindowLog) -> None:
        super().__init__(limit)
        self.window_ns = limit.window_ns

    def wait(self, state: Log | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        if state is None:
            return 0
        self._advance(state, now)
        excess = state.total + state.debt + cost - self.quota
        return self._departure(state, excess) - now if excess > 0 else 0

    def take(self, state: Log | None, cost: int, now: int) -> tuple[Log | None, Outcome]:
        log = Log(now) if state is None else state
        self._advance(log, now)
        free = self.quota - log.total - log.debt - cost
        if not cost or free < 0:
            return super().take(state, cost, now)
        log.add(log.high, cost)
        return log, Outcome(ALLOWED, free, 0, log.high + self.window_ns - now)

    def charge(self, state: Log | None, amount: int, now: int) -> Log:
        log = Log(now) if state is None else state
        self._advance(log, now)
        room = min(amount, max(0, self.quota - log.total - log.debt))
        if room:
            log.add(log.high, room)
        log.debt += amount - room
        return log

    def refund(self, state: Log, amount: int, now: int) -> Log:
        self._advance(state, now)
        state.drop_newest(amount)
        return state

    def remaining(self, state: Log | None, now: int) -> int:
        return max(0, self.quota - self.used(state, now))

    def fresh_in(self, state: Log | None, now: int) -> int:
        if state is None:
            return 0
        self._advance(state, now)
        return self._departure(state, state.total + state.debt) - now if state.total else 0

    def used(self, state: Log | None, now: int) -> int:
        if state is None:
            return 0
        self._advance(state, now)
        return state.total + state.debt

    def adopt(self, state: Log, old: Algorithm[Log], now: int) -> Log | None:
        if not isinstance(old, SlidingWindowLogAlgorithm) or old.window_ns != self.window_ns:
            return None
        old._advance(state, now)
        return None if state.debt or state.total > self.quota else state

    def _advance(self, log: Log, now: int) -> None:
        """Let everything that is a window old leave, and debt take its place."""
        log.high = high = max(log.high, now)
        window = self.window_ns
        if log.debt > log.total and high - log.times[log.head] >= 2 * window:
            rounds = min((high - log.times[log.head]) // window - 1, log.debt // log.total)
            log.debt -= rounds * log.total
            log.times = [time + rounds * window for time in log.times]
        while log.total and (time := log.times[log.head]) + window <= high:
            entering = min(log.drop_oldest(), log.debt)
            if entering:
                log.debt -= entering
                log.add(time + window, entering)

    def _departure(self, log: Log, nth: int) -> int:
        """When the *nth* unit from now on (counted from 1) will have left."""
        rounds, place = divmod(nth - 1, log.total)
        index = len(log.times) - 1
        if place < log.total - log.units[index]:
            index = log.head
            while place >= log.units[index]:
                place -= log.units[index]
                index += 1
        return log.times[index] + (rounds + 1) * self.window_ns
