"""How long to wait before a program that has ended is started again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST: Final = 0.1
LONGEST: Final = 10.0
STEADY: Final = 10.0
"""Who has run for so many seconds is started again as if it were the first time."""


class Pauses:
    """Twice as long from one end to the next, up to *longest* seconds, and never all at once."""

    def __init__(
        self,
        *,
        first: float = FIRST,
        longest: float = LONGEST,
        steady: float = STEADY,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first, self._longest, self._steady = first, longest, steady
        self._jitter = jitter
        self._next = first

    def after(self, lasted: float) -> float:
        """Seconds to wait after a run that *lasted* so many: from half of its turn to all of it."""
        if lasted >= self._steady:
            self._next = self._first
        turn, self._next = self._next, min(self._longest, 2 * self._next)
        return turn * (0.5 + self._jitter() / 2)
