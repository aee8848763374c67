"""Limits without a counter: deny everything, or allow everything.

The state is always None. Nothing is counted, so no clock matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.algorithms.base import Algorithm
from headgate.limits import Unlimited

if TYPE_CHECKING:
    from headgate.limits import ConstantLimit


class ConstantAlgorithm(Algorithm[None]):
    """The arithmetic of `DenyAll()` and `Unlimited()`."""

    __slots__ = ("allows",)

    def __init__(self, limit: ConstantLimit) -> None:
        super().__init__(limit)
        self.allows = isinstance(limit, Unlimited)

    def rebase(self, state: None, now: int) -> None:
        return None

    def wait(self, state: None, cost: int, now: int) -> int | None:
        return 0 if self.allows else None

    def charge(self, state: None, amount: int, now: int) -> None:
        return None

    def refund(self, state: None, amount: int, now: int) -> None:
        return None

    def remaining(self, state: None, now: int) -> int:
        return self.quota

    def fresh_in(self, state: None, now: int) -> int:
        return 0

    def used(self, state: None, now: int) -> int:
        return 0

    def adopt(self, state: None, old: Algorithm[None], now: int) -> None:
        return None
