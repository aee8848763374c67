"""The fixed window: a count that starts again with each window.

Windows are aligned to the epoch, `start = now - now % window`, so every process agrees on them
without communication. A cost fits when `count + cost <= limit`. Known and accepted: a burst at the
end of one window and another at the start of the next fit both, twice the limit within an instant.

What was charged beyond the limit is carried: each window that begins works off one limit,
`count = max(0, count - limit)`. Counts that were allowed never exceed the limit, so for them this
is the plain "start at zero".

Clock: a window that starts in the future of the clock starts now, with its count. It stays in force
for the length of a window; after that windows are aligned again. (To move the count to the window
that the clock shows would mint a limit whenever the clock jitters around a boundary.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.algorithms.base import Algorithm, Taken

if TYPE_CHECKING:
    from headgate.limits import FixedWindow

Window = tuple[int, int]
"""The start of a window in nanoseconds, and the count in it."""


class FixedWindowAlgorithm(Algorithm[Window]):
    """The arithmetic of `FixedWindow(limit, window)`."""

    __slots__ = ("window_ns",)

    def __init__(self, limit: FixedWindow) -> None:
        super().__init__(limit)
        self.window_ns = limit.window_ns

    def rebase(self, state: Window, now: int) -> Window:
        start, count = state
        if now >= start:
            return state
        return (now, count) if count else (now - now % self.window_ns, 0)

    def quick_take(self, state: Window | None, cost: int, now: int) -> Taken[Window]:
        start, count = state or (now - now % self.window_ns, 0)
        ends = start + self.window_ns
        count += cost
        if start <= now < ends and count <= self.quota and cost:
            return (start, count), 0, self.quota - count, ends - now
        return super().quick_take(state, cost, now)

    def wait(self, state: Window | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        start, count = self._at(state, now)
        if count + cost <= self.quota:
            return 0
        return self._start(start, -(-(count + cost) // self.quota) - 1) - now

    def charge(self, state: Window | None, amount: int, now: int) -> Window:
        start, count = self._at(state, now)
        return start, count + amount

    def refund(self, state: Window, amount: int, now: int) -> Window:
        start, count = self._at(state, now)
        return start, max(0, count - amount)

    def give_back(self, state: Window, amount: int, since: int, now: int) -> Window:
        start, count = self._at(state, now)
        return start, max(0, count - amount) if since >= start else count

    def remaining(self, state: Window | None, now: int) -> int:
        return max(0, self.quota - self._at(state, now)[1])

    def fresh_in(self, state: Window | None, now: int) -> int:
        start, count = self._at(state, now)
        return self._start(start, -(-count // self.quota)) - now if count else 0

    def used(self, state: Window | None, now: int) -> int:
        return self._at(state, now)[1]

    def adopt(self, state: Window, old: Algorithm[Window], now: int) -> Window | None:
        if not isinstance(old, FixedWindowAlgorithm) or old.window_ns != self.window_ns:
            return None
        return old._at(state, now)

    def _at(self, state: Window | None, now: int) -> Window:
        """Return the window in force and the count in it."""
        window = self.window_ns
        if state is None:
            return now - now % window, 0
        start, count = state
        if now < start:
            return self.rebase(state, now)
        if now < start + window:
            return state
        passed = now // window - start // window
        return now - now % window, max(0, count - self.quota * passed)

    def _start(self, start: int, nth: int) -> int:
        """Return the start of the *nth* window after the one that starts at *start*."""
        if nth == 1:
            return start + self.window_ns
        return (start // self.window_ns + nth) * self.window_ns
