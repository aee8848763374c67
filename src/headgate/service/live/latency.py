"""How long decisions took in the last minute, as far as a histogram can tell."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from headgate.observability.journal import BOUNDS_NS
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

LASTING: Final = 60
"""Seconds."""


class LatencyMinute:
    """The differences of a histogram that only grows, over the last `LASTING` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, list[int]]] = deque()

    def look(self, second: int, counts: Sequence[int]) -> None:
        """At *second* the histogram says *counts*."""
        if self._seen and second < self._seen[-1][0]:
            self._seen.clear()  # the clock was set back
        self._seen.append((second, list(counts)))
        while self._seen[0][0] < second - LASTING:
            self._seen.popleft()

    def counts(self) -> list[int]:
        """How many took how long, by `BOUNDS_NS`."""
        if not self._seen:
            return [0] * (len(BOUNDS_NS) + 1)
        first, last = self._seen[0][1], self._seen[-1][1]
        return [after - before for before, after in zip(first, last, strict=True)]


def quantile_ns(counts: Sequence[int], share: float) -> float | None:
    """How long *share* of the decisions took at the most; None if there were none.

    Within a bucket they are taken to be spread evenly. Of those that took longer than the largest
    bound nothing more is known: then it is that bound.
    """
    total = sum(counts)
    if total == 0:
        return None
    wanted = share * total
    before, lower_ns = 0, 0
    for count, upper_ns in zip(counts, BOUNDS_NS, strict=False):
        if count and before + count >= wanted:
            within = max(0.0, wanted - before) / count
            return lower_ns + (upper_ns - lower_ns) * within
        before, lower_ns = before + count, upper_ns
    return float(BOUNDS_NS[-1])


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The same in seconds."""
    found = quantile_ns(counts, share)
    return None if found is None else found / SECOND
