"""What was allowed, held against what may be: the simplest code that can be seen to be right."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from headgate.limits import PacedLimit, SlidingWindowLog
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.limits import Limit


class Allowed(NamedTuple):
    """One unit that was charged at some time between *asked_ns* and *granted_ns*."""

    asked_ns: int
    granted_ns: int


def excess(allowed: Iterable[Allowed], limits: Sequence[Limit], units: int = 0) -> float:
    """By how much, in the worst interval of any length t, more was allowed than *limits* allow
    together within t, and *units* besides; at most 0 if the bound holds."""
    events = sorted(allowed, key=lambda one: one.granted_ns)
    worst = float("-inf")
    for begin_ns in {one.asked_ns for one in events}:
        count = 0
        for asked_ns, granted_ns in events:
            if asked_ns >= begin_ns:
                count += 1
                most = sum([most_in(limit, granted_ns - begin_ns) for limit in limits])
                worst = max(worst, count - most - units)
    return worst


def most_in(limit: Limit, span_ns: int) -> float:
    """The most that *limit* allows in any interval of *span_ns*, both ends included."""
    if isinstance(limit, PacedLimit):
        return limit.quota * (1 + span_ns / limit.period_ns)
    windows = span_ns // limit.period_ns
    return limit.quota * (windows + (1 if isinstance(limit, SlidingWindowLog) else 2))


def most_over_bucket(
    allowed: Iterable[tuple[int, int]], capacity: int, rate: Fraction | float
) -> Fraction:
    """By how much some interval of length t had more than *capacity* + *rate* t; below 0: by how
    much none had.

    A bucket that starts full and is never denied: how far it goes below empty.
    """
    exact = Fraction(rate)
    unit = exact.denominator * SECOND  # levels are integers: units of so many
    full = level = lowest = capacity * unit
    last_ns = None
    for when_ns, amount in sorted(allowed):
        if last_ns is not None:
            level = min(full, level + exact.numerator * (when_ns - last_ns))
        last_ns = when_ns
        level -= amount * unit
        lowest = min(lowest, level)
    return Fraction(-lowest, unit)


def most_in_a_window(allowed: Iterable[tuple[int, int]], window_ns: int) -> int:
    """The most in any window that is aligned to the epoch."""
    by_window: dict[int, int] = {}
    for when_ns, amount in allowed:
        number = when_ns // window_ns
        by_window[number] = by_window.get(number, 0) + amount
    return max(by_window.values(), default=0)


def most_in_any_span(allowed: Iterable[tuple[int, int]], span_ns: int) -> int:
    """The most in any span of that length, the earlier end excluded."""
    events = sorted(allowed)
    most = total = begin = 0
    for when_ns, amount in events:
        total += amount
        while events[begin][0] <= when_ns - span_ns:
            total -= events[begin][1]
            begin += 1
        most = max(most, total)
    return most
