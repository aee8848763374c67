"""The sliding window log: every allowed unit is recorded for exactly one window.

A cost fits at `now` when the units with `now - window < time <= now`, and the cost, are at most
the limit. A unit exactly one window old has left. Nothing is estimated: no interval of one
window's length, wherever it starts, ever sees more than the limit. The price is memory: one entry
per allowed request (requests of the same instant share one).

Debt: units charged beyond the limit wait outside the window. Whenever a unit leaves the window, a
unit of debt enters it in the same instant, so the window stays full until the debt is gone. Since
each unit of debt leaves one window after the unit that it replaced, departures repeat with the
period of the window, and the time of the n-th departure can be computed without simulating them.

`wait`, `remaining` and `used` do not change the log. Units that have left the window are removed at
the next charge or refund.

Clock: if the clock has stepped back, entries after now become one entry at now.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.algorithms.base import Algorithm, Taken

if TYPE_CHECKING:
    from headgate.limits import SlidingWindowLog


@dataclass(slots=True, eq=False)
class Log:
    """Units by time, oldest first; their sum; the debt still to enter; the time of the last change.

    Entries before `head` have left the window. Two lists take much less memory than two deques for
    a key with few entries, the common case.
    """

    high: int
    times: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    head: int = 0
    total: int = 0
    debt: int = 0

    def copy(self) -> Log:
        """Return a log with the same entries that can be changed on its own."""
        times, units = self.times[self.head :], self.units[self.head :]
        return Log(self.high, times, units, 0, self.total, self.debt)

    def add(self, time: int, units: int) -> None:
        """Append *units* at *time*, which is no earlier than the last entry."""
        if self.total and self.times[-1] == time:
            self.units[-1] += units
        else:
            self.times.append(time)
            self.units.append(units)
        self.total += units

    def drop(self, head: int, units: int) -> None:
        """Remove the entries before *head*, *units* in all."""
        self.total -= units
        self.head = head
        if 2 * head >= len(self.times):
            del self.times[:head], self.units[:head]
            self.head = 0

    def drop_at(self, time: int, units: int) -> None:
        """Take back *units* of the entry at *time*, first the debt that would replace it."""
        from_debt = min(units, self.debt)
        self.debt -= from_debt
        place = bisect_left(self.times, time, self.head)
        if place == len(self.times) or self.times[place] != time:
            return
        dropped = min(units - from_debt, self.units[place])
        self.units[place] -= dropped
        self.total -= dropped
        if not self.units[place]:
            del self.times[place], self.units[place]
        if not self.total:
            self.drop(len(self.times), 0)

    def drop_newest(self, units: int) -> None:
        """Remove *units*: debt first, then the newest entries."""
        from_debt = min(units, self.debt)
        self.debt -= from_debt
        units -= from_debt
        while units and self.total:
            dropped = min(units, self.units[-1])
            units -= dropped
            self.total -= dropped
            self.units[-1] -= dropped
            if not self.units[-1]:
                del self.times[-1], self.units[-1]
        if not self.total:
            self.drop(len(self.times), 0)


class SlidingWindowLogAlgorithm(Algorithm[Log]):
    """The arithmetic of `SlidingWindowLog(limit, window)`."""

    __slots__ = ("window_ns",)

    def __init__(self, limit: SlidingWindowLog) -> None:
        super().__init__(limit)
        self.window_ns = limit.window_ns

    def rebase(self, state: Log, now: int) -> Log:
        if state.high <= now:
            return state
        log = state.copy()
        place = bisect_right(log.times, now)
        ahead = sum(log.units[place:])
        del log.times[place:], log.units[place:]
        log.total -= ahead
        if ahead:
            log.add(now, ahead)
        log.high = now
        return log

    def quick_take(self, state: Log | None, cost: int, now: int) -> Taken[Log]:
        if state is None or state.high > now or state.debt or not cost:
            return super().quick_take(state, cost, now)
        log, window, head, total = state, self.window_ns, state.head, state.total
        times, begin = log.times, now - window
        if total and times[head] <= begin:
            head, total = self._live(log, now)
        free = self.quota - total - cost
        if free < 0:
            return super().quick_take(state, cost, now)
        if head != log.head:
            log.drop(head, log.total - total)
        log.add(now, cost)
        log.high = now
        return log, 0, free, window

    def wait(self, state: Log | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        if state is None:
            return 0
        log, head, total = self._seen(state, now)
        excess = total + log.debt + cost - self.quota
        return self._departure(log, head, total, excess) - now if excess > 0 else 0

    def charge(self, state: Log | None, amount: int, now: int) -> Log:
        log = Log(now) if state is None else self._advanced(state, now)
        room = min(amount, max(0, self.quota - log.total - log.debt))
        if room:
            log.add(now, room)
        log.debt += amount - room
        return log

    def refund(self, state: Log, amount: int, now: int) -> Log:
        log = self._advanced(state, now)
        log.drop_newest(amount)
        return log

    def give_back(self, state: Log, amount: int, since: int, now: int) -> Log:
        log = self._advanced(state, now)
        log.drop_at(since, amount)
        return log

    def copied(self, state: Log) -> Log:
        return state.copy()

    def remaining(self, state: Log | None, now: int) -> int:
        return max(0, self.quota - self.used(state, now))

    def fresh_in(self, state: Log | None, now: int) -> int:
        if state is None:
            return 0
        log, head, total = self._seen(state, now)
        return self._departure(log, head, total, total + log.debt) - now if total else 0

    def used(self, state: Log | None, now: int) -> int:
        if state is None:
            return 0
        log, _, total = self._seen(state, now)
        return total + log.debt

    def adopt(self, state: Log, old: Algorithm[Log], now: int) -> Log | None:
        if not isinstance(old, SlidingWindowLogAlgorithm) or old.window_ns != self.window_ns:
            return None
        log, _, total = old._seen(state, now)
        return None if log.debt or total > self.quota else log

    def _seen(self, state: Log, now: int) -> tuple[Log, int, int]:
        """Return the log as of *now*, the index of the first entry in the window, and the units
        from there on. *state* does not change."""
        log = self.rebase(state, now)
        if log.debt and log.times[log.head] + self.window_ns <= now:
            log = self._advanced(log.copy(), now)
        return log, *self._live(log, now)

    def _live(self, log: Log, now: int) -> tuple[int, int]:
        """Return the index of the first entry in the window, and the units from there on."""
        head, total, begin = log.head, log.total, now - self.window_ns
        while total and log.times[head] <= begin:
            total -= log.units[head]
            head += 1
        return head, total

    def _advanced(self, state: Log, now: int) -> Log:
        """Remove all entries that are a window old; debt takes their place."""
        log, window = self.rebase(state, now), self.window_ns
        log.high = now
        if log.debt > log.total and now - log.times[log.head] >= 2 * window:
            rounds = min((now - log.times[log.head]) // window - 1, log.debt // log.total)
            log.debt -= rounds * log.total
            log.times = [time + rounds * window for time in log.times]
        while log.total and (time := log.times[log.head]) + window <= now:
            units = log.units[log.head]
            log.drop(log.head + 1, units)
            entering = min(units, log.debt)
            if entering:
                log.debt -= entering
                log.add(time + window, entering)
        return log

    def _departure(self, log: Log, head: int, total: int, nth: int) -> int:
        """Return when the *nth* of *total* units from *head* on (counted from 1) has left."""
        rounds, place = divmod(nth - 1, total)
        index = len(log.times) - 1
        if place < total - log.units[index]:
            index = head
            while place >= log.units[index]:
                place -= log.units[index]
                index += 1
        return log.times[index] + (rounds + 1) * self.window_ns
