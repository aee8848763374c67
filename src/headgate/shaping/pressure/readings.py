"""How the requests fared that ended lately: how many, how long they took, how many failed.

Noting one is on the way of every request, so it is two steps: the latency falls into one of a fixed
number of bins, and a failure is counted. The bins are parts of the latency that counts as too long,
which is the edge between two of them: whether it is exceeded is told exactly, by how much to within
a thirty-second part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.units import SECOND

if TYPE_CHECKING:
    from fractions import Fraction

FEWEST: Final = 20
"""Fewer requests say nothing about how requests fare."""
PATIENCE: Final = 5
"""For as many intervals it waits for more; what it has got by then is too old to be judged."""

_BINS: Final = 32
"""Up to the latency that counts as too long."""
_LAST: Final = 8 * _BINS
"""In the last one is all that took at least eight times as long."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What *requests* that ended came to: at the quantile they took *latency* times as long as
    they may (None: nobody asks), and the share *failed* of them failed."""

    requests: int
    latency: float | None
    failed: float


class Readings:
    """The requests that ended since they were last looked at, enough of them to say something.

    `note` takes no lock: threads that note at the same instant may count one request for two.
    """

    __slots__ = ("_bins", "_counted", "_failed", "_looks", "_quantile", "_width")

    def __init__(self, latency_ns: int | None, quantile: Fraction) -> None:
        self._quantile = None if latency_ns is None else quantile
        # Rounded up: what takes exactly as long as it may has not taken too long.
        self._width = SECOND if latency_ns is None else latency_ns // _BINS + 1
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all that was noted."""
        self._bins = [0] * (_LAST + 1)
        self._failed = 0
        self._counted = 0
        self._looks = 0

    def note(self, latency_ns: int, *, failed: bool) -> None:
        """A request has ended."""
        place = latency_ns // self._width
        self._bins[place if 0 <= place < _LAST else _LAST if place > 0 else 0] += 1
        if failed:
            self._failed += 1

    def fresh(self) -> int:
        """How many have ended since this was last asked."""
        count = sum(self._bins)
        fresh, self._counted = count - self._counted, count
        return fresh

    def look(self) -> Reading | None:
        """How they fared, if there are enough of them; they are forgotten then."""
        bins, failed = self._bins, self._failed
        count = sum(bins)
        if count >= FEWEST:
            self.begin_anew()
            return Reading(count, self._at_quantile(bins, count), min(1.0, failed / count))
        self._looks += 1
        if self._looks == PATIENCE:
            looks = self._looks
            self.begin_anew()
            self._looks = looks
        return None

    @property
    def is_quiet(self) -> bool:
        """Whether for a long time there have not been enough to say anything."""
        return self._looks >= PATIENCE

    def _at_quantile(self, bins: list[int], count: int) -> float | None:
        if self._quantile is None:
            return None
        wanted, found = self._quantile * count, 0
        for place, many in enumerate(bins):
            found += many
            if found >= wanted:
                return (place + 0.5) / _BINS
        return (_LAST + 0.5) / _BINS
