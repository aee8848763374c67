"""The fixed window: a count that starts again with each window.

Windows are numbered from the epoch, `index = now // window`, so every process agrees on them
without talking. A cost fits when `count + cost <= limit`. Known and accepted: a burst at the end
of one window and another at the start of the next pass both, twice the limit within an instant.

What was charged beyond the limit is carried: each window that begins works off one limit's worth,
`count = max(0, count - limit)`. Counts that were admitted never exceed the limit, so for them this
is the plain "start at zero".

If the clock steps back into an earlier window, the later one stays in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.algorithms.base import ALLOWED, Algorithm, Outcome

if TYPE_CHECKING:
    from headgate.limits import FixedWindow

Window = tuple[int, int]
"""Which window, and the count in it."""


class FixedWindowAlgorithm(Algorithm[Window]):
    """The arithmetic of `FixedWindow(limit, window)`."""

    __slots__ = ("window_ns",)

    def __init__(self, limit: FixedWindow) -> None:
        super().__init__(limit)
        self.window_ns = limit.window_ns

    def wait(self, state: Window | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        index, count = self._at(state, now)
        if count + cost <= self.quota:
            return 0
        windows = -(-(count + cost) // self.quota) - 1
        return (index + windows) * self.window_ns - now

    def take(self, state: Window | None, cost: int, now: int) -> tuple[Window | None, Outcome]:
        index, count = self._at(state, now)
        count += cost
        if not 0 < cost <= self.quota >= count:
            return super().take(state, cost, now)
        window_ends_in = (index + 1) * self.window_ns - now
        return (index, count), Outcome(ALLOWED, self.quota - count, 0, window_ends_in)

    def charge(self, state: Window | None, amount: int, now: int) -> Window:
        index, count = self._at(state, now)
        return index, count + amount

    def refund(self, state: Window, amount: int, now: int) -> Window:
        index, count = self._at(state, now)
        return index, max(0, count - amount)

    def remaining(self, state: Window | None, now: int) -> int:
        return max(0, self.quota - self._at(state, now)[1])

    def fresh_in(self, state: Window | None, now: int) -> int:
        index, count = self._at(state, now)
        windows = -(-count // self.quota)
        return (index + windows) * self.window_ns - now if windows else 0

    def used(self, state: Window | None, now: int) -> int:
        return self._at(state, now)[1]

    def adopt(self, state: Window, old: Algorithm[Window], now: int) -> Window | None:
        if not isinstance(old, FixedWindowAlgorithm) or old.window_ns != self.window_ns:
            return None
        return old._at(state, now)

    def _at(self, state: Window | None, now: int) -> Window:
        """The window in force and what counts in it."""
        current = now // self.window_ns
        if state is None:
            return current, 0
        index, count = state
        if current <= index:
            return state
        return current, max(0, count - self.quota * (current - index))
