"""Limits at a fraction of their size, or larger by some units."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from headgate.errors import LimitError
from headgate.limits.model import FINEST_RATE, Concurrency, LeakyQueue, PacedLimit, WindowedLimit
from headgate.units import CENTURY, MICROSECOND, SECOND

if TYPE_CHECKING:
    from headgate.limits.model import Limit


def scaled(limit: Limit, factor: Fraction) -> Limit:
    """Return *limit* at *factor* of its size, above 0 and at most 1; at 1 the same object.

    Rates, capacities, window quotas and slots are multiplied and rounded down; at least one unit is
    left, and one slot of each share. A queue keeps its length and drains more slowly. Windows,
    times to live and refill times stay, and so does a limit without a counter. A rate that would be
    too fine or too slow for a store becomes the nearest one that a store can keep.
    """
    if factor == 1:
        return limit
    if not 0 < factor < 1:
        raise LimitError(f"the factor is {factor}; it must be more than 0 and at most 1")
    match limit:
        case PacedLimit():
            size = _part(limit.quota, factor)
            return limit.of(size, _slower(limit.per_second, factor, size))
        case LeakyQueue():
            return replace(limit, rate=_slower(limit.per_second, factor, limit.queue + 1))
        case WindowedLimit():
            return replace(limit, limit=_part(limit.limit, factor))
        case Concurrency():
            shares = tuple((name, _part(slots, factor)) for name, slots in limit.shares)
            guaranteed = sum(slots for _, slots in shares)
            slots = max(_part(limit.limit, factor), guaranteed)
            return replace(limit, limit=slots, shares=shares)
    return limit  # it has no counter


def _part(units: int, factor: Fraction) -> int:
    return max(1, units * factor.numerator // factor.denominator)


def _slower(per_second: Fraction, factor: Fraction, units: int) -> Fraction:
    """Return *per_second* times *factor*, rounded down to a rate that every store can keep, but no
    slower than *units* in a century."""
    per_microsecond = per_second * factor * MICROSECOND / SECOND
    most, finest = FINEST_RATE
    coarser = max(-(-per_microsecond.numerator // most), -(-per_microsecond.denominator // finest))
    if coarser > 1:  # rounded down, so that the limit never allows more
        whole = per_microsecond.numerator // coarser
        per_microsecond = Fraction(whole, -(-per_microsecond.denominator // coarser))
    slowest = Fraction(units * SECOND, CENTURY)
    return max(per_microsecond * SECOND / MICROSECOND, slowest)


def with_extra(limit: Limit, extra: int) -> Limit:
    """Return *limit* with *extra* units more: of capacity, burst, window quota, slots or queue.

    Rates, windows and times stay, so that the state of a counter keeps its meaning. A limit without
    a counter is returned as it is. Raises `LimitError` if no limit can be that large.
    """
    match limit:
        case PacedLimit():
            return limit.of(limit.quota + extra, limit.per_second)
        case WindowedLimit() | Concurrency():
            return replace(limit, limit=limit.limit + extra)
        case LeakyQueue():
            return replace(limit, queue=limit.queue + extra)
    return limit  # it has no counter
