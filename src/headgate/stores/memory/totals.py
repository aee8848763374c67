"""How much of one counter was used elsewhere, as far as it was told here.

Each origin tells totals of numbered windows that only grow. The largest so far is kept of the
latest window and of the one before, so what is told twice, late or in another order is counted
once, and what is told of older windows not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_ORIGINS: Final = 1000
"""Origins that are known of one counter. What further ones tell is not charged."""


@dataclass(slots=True)
class _Told:
    """What one origin has told of *window* and of the one before it."""

    window: int
    total: int
    before: int
    forgotten_at: int


class Totals:
    """What all origins have told of one counter."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def is_over(self, now: int) -> bool:
        """Whether all of it may be forgotten."""
        return all(told.forgotten_at <= now for told in self._told.values())

    def absorb(self, origin: str, window: int, total: int, *, until: int, now: int) -> int:
        """Put down the *total* of *window*; how much of it had not been told before."""
        told = self._told.get(origin)
        if told is None or told.forgotten_at <= now:
            if told is None and not self._make_room(now):
                return 0
            self._told[origin] = _Told(window, total, 0, until)
            return total
        told.forgotten_at = max(told.forgotten_at, until)
        if window > told.window:
            told.before = told.total if window == told.window + 1 else 0
            told.window, told.total = window, 0
        if window == told.window:
            fresh = max(0, total - told.total)
            told.total += fresh
        elif window == told.window - 1:
            fresh = max(0, total - told.before)
            told.before += fresh
        else:
            fresh = 0
        return fresh

    def _make_room(self, now: int) -> bool:
        if len(self._told) >= MOST_ORIGINS:
            self._told = {
                origin: told for origin, told in self._told.items() if told.forgotten_at > now
            }
        return len(self._told) < MOST_ORIGINS
