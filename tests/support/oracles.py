"""Slow, obvious models of the algorithms: what they mean, not how they are computed.

Nothing here is shared with `src`. Each oracle keeps the textbook's variables, or the list of what
happened, in integers and `Fraction`s, and answers every question by playing time forward on a copy,
step by step. Time only moves forward here; what a clock that steps back may do is bounded, not
predicted (`test_backward_clock_property`).

Debt is what the module docstrings of `headgate.algorithms` say it is:

- paced limits: tokens below zero, a level above the capacity;
- fixed window: each window that begins works off one limit's worth;
- log: a unit that is owed enters the window in the instant in which another one leaves;
- counter: what a window's worth of finished cells cannot hold moves on to the next cell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from fractions import Fraction

SECOND = 1_000_000_000


class Oracle(ABC):
    """One counter. Times are nanoseconds and never step back."""

    def __init__(self, quota: int) -> None:
        self.quota = quota

    @abstractmethod
    def add(self, units: int, now: int) -> None:
        """Record *units*, fitting or not."""

    @abstractmethod
    def give_back(self, units: int, now: int) -> None:
        """Take *units* back, the newest first, never beyond as new."""

    @abstractmethod
    def used(self, now: int) -> Fraction:
        """What is in use, debt included. Changes nothing."""

    def fits(self, cost: int, now: int) -> bool:
        return self.used(now) + cost <= self.quota

    def largest_fitting(self, now: int) -> int:
        """The largest cost that fits, by trying them; 0 if none does."""
        return max((cost for cost in range(1, self.quota + 1) if self.fits(cost, now)), default=0)


class TokenBucketOracle(Oracle):
    """How many tokens there were, and when that was counted."""

    def __init__(self, capacity: int, refill_rate: Fraction) -> None:
        super().__init__(capacity)
        self.rate = refill_rate / SECOND
        self.tokens = Fraction(capacity)
        self.last: int | None = None

    def count(self, now: int) -> Fraction:
        elapsed = 0 if self.last is None else now - self.last
        return min(Fraction(self.quota), self.tokens + elapsed * self.rate)

    def add(self, units: int, now: int) -> None:
        self.tokens, self.last = self.count(now) - units, now

    def give_back(self, units: int, now: int) -> None:
        self.tokens, self.last = min(Fraction(self.quota), self.count(now) + units), now

    def used(self, now: int) -> Fraction:
        return self.quota - self.count(now)

    def fits(self, cost: int, now: int) -> bool:
        return self.count(now) >= cost


class GCRAOracle(Oracle):
    """The theoretical arrival time, and a tolerance that admits exactly the burst."""

    def __init__(self, rate: Fraction, burst: int) -> None:
        super().__init__(burst)
        self.interval = SECOND / rate
        self.tolerance = (burst - 1) * self.interval
        self.tat = Fraction(0)

    def add(self, units: int, now: int) -> None:
        self.tat = max(self.tat, Fraction(now)) + units * self.interval

    def give_back(self, units: int, now: int) -> None:
        self.tat = max(self.tat - units * self.interval, Fraction(now))

    def used(self, now: int) -> Fraction:
        return max(self.tat - now, Fraction(0)) / self.interval

    def fits(self, cost: int, now: int) -> bool:
        """Whether the last of *cost* cells that arrive together conforms."""
        last_cell = max(self.tat, Fraction(now)) + (cost - 1) * self.interval
        return now >= last_cell - self.tolerance


class LeakyBucketOracle(Oracle):
    """How high the water stood, and when that was measured."""

    def __init__(self, capacity: int, leak_rate: Fraction) -> None:
        super().__init__(capacity)
        self.rate = leak_rate / SECOND
        self.level = Fraction(0)
        self.last: int | None = None

    def add(self, units: int, now: int) -> None:
        self.level, self.last = self.used(now) + units, now

    def give_back(self, units: int, now: int) -> None:
        self.level, self.last = max(Fraction(0), self.used(now) - units), now

    def used(self, now: int) -> Fraction:
        elapsed = 0 if self.last is None else now - self.last
        return max(Fraction(0), self.level - elapsed * self.rate)


class FixedWindowOracle(Oracle):
    """All that happened, as (time, units); what came back has negative units."""

    def __init__(self, limit: int, window: int) -> None:
        super().__init__(limit)
        self.window = window
        self.events: list[tuple[int, int]] = []

    def add(self, units: int, now: int) -> None:
        self.events.append((now, units))

    def give_back(self, units: int, now: int) -> None:
        self.events.append((now, -min(units, self.count(now))))

    def count(self, now: int) -> int:
        if not self.events:
            return 0
        owed = 0
        for index in range(self.events[0][0] // self.window, now // self.window):
            owed = max(0, owed + self._in_window(index) - self.quota)
        return owed + self._in_window(now // self.window)

    def _in_window(self, index: int) -> int:
        return sum(units for time, units in self.events if time // self.window == index)

    def used(self, now: int) -> Fraction:
        return Fraction(self.count(now))


class LogOracle(Oracle):
    """The time of every single unit in the window, and how many are owed."""

    def __init__(self, limit: int, window: int) -> None:
        super().__init__(limit)
        self.window = window
        self.times: list[int] = []
        self.owed = 0

    def pass_time(self, now: int) -> None:
        while self.times and self.times[0] <= now - self.window:
            left_at = self.times.pop(0) + self.window
            if self.owed:
                self.owed -= 1
                self.times.append(left_at)

    def add(self, units: int, now: int) -> None:
        self.pass_time(now)
        for _ in range(units):
            if len(self.times) < self.quota:
                self.times.append(now)
            else:
                self.owed += 1

    def give_back(self, units: int, now: int) -> None:
        self.pass_time(now)
        for _ in range(units):
            if self.owed:
                self.owed -= 1
            elif self.times:
                self.times.pop()

    def used(self, now: int) -> Fraction:
        later = deepcopy(self)
        later.pass_time(now)
        in_window = [time for time in later.times if now - self.window < time <= now]
        return Fraction(len(in_window) + later.owed)


class PlainLogOracle(Oracle):
    """All that was admitted, as (time, units). For limits too large to count unit by unit."""

    def __init__(self, limit: int, window: int) -> None:
        super().__init__(limit)
        self.window = window
        self.events: list[tuple[int, int]] = []

    def add(self, units: int, now: int) -> None:
        self.events.append((now, units))

    def give_back(self, units: int, now: int) -> None:
        raise NotImplementedError("the plain log only grows")

    def used(self, now: int) -> Fraction:
        return Fraction(
            sum(units for time, units in self.events if now - self.window < time <= now)
        )


class CounterOracle(Oracle):
    """A count for each cell there ever was, by the number of the cell."""

    def __init__(self, limit: int, window: int, subwindows: int) -> None:
        super().__init__(limit)
        self.cell = Fraction(window, subwindows)
        self.subwindows = subwindows
        self.counts: dict[int, int] = {}
        self.current: int | None = None

    def pass_time(self, now: int) -> None:
        current = now // self.cell
        for finished in range(current if self.current is None else self.current, current):
            window = range(finished - self.subwindows + 1, finished + 1)
            excess = max(0, sum(self.counts.get(cell, 0) for cell in window) - self.quota)
            if excess:
                self.counts[finished] -= excess
                self.counts[finished + 1] = self.counts.get(finished + 1, 0) + excess
        self.current = current

    def add(self, units: int, now: int) -> None:
        self.pass_time(now)
        cell = now // self.cell
        self.counts[cell] = self.counts.get(cell, 0) + units

    def give_back(self, units: int, now: int) -> None:
        self.pass_time(now)
        newest = now // self.cell
        for cell in range(newest, newest - self.subwindows - 1, -1):
            taken = min(units, self.counts.get(cell, 0))
            self.counts[cell] = self.counts.get(cell, 0) - taken
            units -= taken

    def used(self, now: int) -> Fraction:
        later = deepcopy(self)
        later.pass_time(now)
        current = now // self.cell
        overlap = 1 - (now - current * self.cell) / self.cell
        oldest = later.counts.get(current - self.subwindows, 0)
        younger = range(current - self.subwindows + 1, current + 1)
        return oldest * overlap + sum(later.counts.get(cell, 0) for cell in younger)


class ConcurrencyOracle:
    """The leases, as (name, end)."""

    def __init__(self, limit: int, ttl: int) -> None:
        self.quota = limit
        self.ttl = ttl
        self.leases: list[tuple[str, int]] = []

    def live(self, now: int) -> list[tuple[str, int]]:
        return [(name, end) for name, end in self.leases if now < end]

    def enter(self, name: str, now: int) -> None:
        self.leave(name)
        self.leases.append((name, now + self.ttl))

    def leave(self, name: str) -> None:
        self.leases = [(other, end) for other, end in self.leases if other != name]

    def has(self, name: str, now: int) -> bool:
        return name in [lease for lease, _ in self.live(now)]

    def fits(self, cost: int, now: int) -> bool:
        return len(self.live(now)) + cost <= self.quota
