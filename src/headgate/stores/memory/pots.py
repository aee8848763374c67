"""Pots: numbers that are poured into and drawn from, and gone after a while."""

from __future__ import annotations


class Pot:
    """So many units, until it lapses."""

    __slots__ = ("_amount", "_lapses")

    def __init__(self) -> None:
        self._amount = 0
        self._lapses = 0

    def is_over(self, now: int) -> bool:
        """Whether it has lapsed, and is as good as empty."""
        return self._lapses <= now

    def pour(self, amount: int, ttl_ns: int, now: int) -> int:
        """Add *amount*; what is in it. What had lapsed before is gone."""
        if self.is_over(now):
            self._amount = 0
        self._amount += amount
        self._lapses = max(self._lapses, now + ttl_ns)
        return self._amount

    def draw(self, amount: int, now: int) -> int | None:
        """Take *amount* out if it is there; what is left, None if it was not there."""
        left = (0 if self.is_over(now) else self._amount) - amount
        if left < 0:
            return None
        if amount:
            self._amount = left
        return left
