"""The sliding window counter: the sliding window, estimated from a few counts.

Time is cut into cells, `subwindows` of them to a window, aligned to the epoch. The window that
ends now covers the current cell so far, the full cells before it, and the tail of one more, the
oldest, of which it is assumed that its units were spread evenly:

    estimate(now)  =  oldest * overlap + sum of the younger cells
    allow when        estimate(now) + cost <= limit

With one subwindow that is the well-known `previous * overlap + current`: 30% into the minute, with
80 in the last one and 20 in this one, 80 * 0.7 + 20 = 76. With more subwindows the assumption
concerns a smaller part of the window, and the error shrinks in proportion.

The comparison is made in integers: with time scaled by `subwindows`, a cell is as long as the
window is in nanoseconds, and `oldest * (cell - elapsed) + younger * cell` needs no division.
The estimate falls steadily while nothing comes in, so the first instant at which a cost fits is
found by solving one linear inequality in each of the next few cells.

Debt: no window's worth of finished cells holds more than the limit. What does not fit moves on to
the next cell as time does. Units that were allowed never exceed the limit there, so for them
nothing moves.

Clock: cells in the future of the clock are added to the cell that the clock shows; the other cells
keep their place. The oldest cell, which counted in part, counts whole then, as far as the limit
has room for it: nothing becomes debt that was none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.algorithms.base import Algorithm, Taken

if TYPE_CHECKING:
    from headgate.limits import SlidingWindowCounter

Cells = tuple[int, tuple[int, ...]]
"""The number of the current cell, and the counts: the oldest first, the current one last."""


class SlidingWindowCounterAlgorithm(Algorithm[Cells]):
    """The arithmetic of `SlidingWindowCounter(limit, window, subwindows)`."""

    __slots__ = ("cell", "empty", "subwindows")

    def __init__(self, limit: SlidingWindowCounter) -> None:
        super().__init__(limit)
        self.subwindows = limit.subwindows
        self.cell = limit.window_ns  # the length of a cell, in nanoseconds times subwindows
        self.empty = (0,) * (limit.subwindows + 1)

    def rebase(self, state: Cells, now: int) -> Cells:
        index, counts = state
        current = now * self.subwindows // self.cell
        if current >= index:
            return state
        free = max(0, self.quota - sum(counts[1:]))
        kept = (min(counts[0], free), *counts[1:])
        ahead = index - current
        if ahead >= len(kept):
            return current, (*self.empty[1:], sum(kept))
        moved = (*self.empty[:ahead], *kept[: len(kept) - ahead])
        return current, (*moved[:-1], moved[-1] + sum(kept[len(kept) - ahead :]))

    def wait(self, state: Cells | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        (index, counts), elapsed = self._at(state, now)
        start = self._fits_from(counts, cost)
        if start is not None and start <= elapsed:
            return 0
        while start is None:
            ahead = self._cells_in_debt(counts) or 1
            index, counts = self._roll((index, counts), index + ahead)
            start = self._fits_from(counts, cost)
        return -(-(index * self.cell + start) // self.subwindows) - now

    def quick_take(self, state: Cells | None, cost: int, now: int) -> Taken[Cells]:
        if self.subwindows == 1 and cost:
            cell = self.cell
            index, (oldest, count) = state or (now // cell, (0, 0))
            left = (index + 1) * cell - now
            if 0 < left <= cell:
                count += cost
                free = self.quota - count
                if oldest:
                    free += -oldest * left // cell
                if free >= 0:
                    return (index, (oldest, count)), 0, free, left + cell
        return super().quick_take(state, cost, now)

    def charge(self, state: Cells | None, amount: int, now: int) -> Cells:
        (index, counts), _ = self._at(state, now)
        return index, (*counts[:-1], counts[-1] + amount)

    def refund(self, state: Cells, amount: int, now: int) -> Cells:
        (index, counts), _ = self._at(state, now)
        lowered = list(counts)
        for place in reversed(range(len(lowered))):
            taken = min(amount, lowered[place])
            lowered[place] -= taken
            amount -= taken
        return index, tuple(lowered)

    def give_back(self, state: Cells, amount: int, since: int, now: int) -> Cells:
        (index, counts), _ = self._at(state, now)
        place = len(counts) - 1 - (index - since * self.subwindows // self.cell)
        if not 0 <= place < len(counts):
            return index, counts
        left = max(0, counts[place] - amount)
        return index, (*counts[:place], left, *counts[place + 1 :])

    def remaining(self, state: Cells | None, now: int) -> int:
        (_, counts), elapsed = self._at(state, now)
        return max(0, self.quota - self._estimate(counts, elapsed))

    def fresh_in(self, state: Cells | None, now: int) -> int:
        (index, counts), _ = self._at(state, now)
        while sum(counts[1:]) > self.quota:
            ahead = self._cells_in_debt(counts) or 1
            index, counts = self._roll((index, counts), index + ahead)
        place = len(counts)
        while place and not counts[place - 1]:
            place -= 1
        return -(-(index + place) * self.cell // self.subwindows) - now if place else 0

    def used(self, state: Cells | None, now: int) -> int:
        (_, counts), elapsed = self._at(state, now)
        return self._estimate(counts, elapsed)

    def adopt(self, state: Cells, old: Algorithm[Cells], now: int) -> Cells | None:
        if not isinstance(old, SlidingWindowCounterAlgorithm):
            return None
        if (old.cell, old.subwindows) != (self.cell, self.subwindows):
            return None
        return old._at(state, now)[0]

    def _estimate(self, counts: tuple[int, ...], elapsed: int) -> int:
        """Return what counts *elapsed* into the current cell, rounded up."""
        oldest = counts[0]
        if not oldest:
            return sum(counts)
        return sum(counts) - oldest - (-oldest * (self.cell - elapsed) // self.cell)

    def _fits_from(self, counts: tuple[int, ...], cost: int) -> int | None:
        """Return the point of the current cell from which *cost* fits; None if there is none."""
        free = self.quota - sum(counts[1:]) - cost
        if free < 0:
            return None
        if free >= counts[0]:
            return 0
        start = self.cell - free * self.cell // counts[0]
        return start if start < self.cell else None

    def _cells_in_debt(self, counts: tuple[int, ...]) -> int:
        """Return how many cells can be skipped: nothing fits before debt is worked off."""
        return (counts[-1] // self.quota - 1) * self.subwindows if counts[-1] > self.quota else 0

    def _at(self, state: Cells | None, now: int) -> tuple[Cells, int]:
        """Return the counts as of *now*, and how far into the current cell that is."""
        current, elapsed = divmod(now * self.subwindows, self.cell)
        if state is None:
            return (current, self.empty), elapsed
        if current == state[0]:
            return state, elapsed
        if current < state[0]:
            return self.rebase(state, now), elapsed
        return self._roll(state, current), elapsed

    def _roll(self, state: Cells, to: int) -> Cells:
        """Move on to cell *to* and take along what does not fit.

        Once something was taken along, the finished cells of a window add up to the limit. From
        then on each window of cells repeats the last one and works off one limit of the rest.
        """
        index, counts = state
        while index < to and any(counts):
            excess = max(0, sum(counts[1:]) - self.quota)
            index += 1
            windows = min((to - index) // self.subwindows, excess // self.quota)
            index += windows * self.subwindows
            counts = (*_without(counts[1:], excess), excess - windows * self.quota)
        return to, counts


def _without(counts: tuple[int, ...], excess: int) -> tuple[int, ...]:
    """Take *excess* out of *counts*, the latest first.

    It may be older than the last cell if the limit was lowered.
    """
    if excess <= counts[-1]:
        return (*counts[:-1], counts[-1] - excess)
    return (*_without(counts[:-1], excess - counts[-1]), 0)
