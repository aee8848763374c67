"""A limit at a part of its size."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from headgate.errors import LimitError
from headgate.limits.model import (
    FINEST_RATE,
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.limits.queues import LeakyQueue
from headgate.units import CENTURY, MICROSECOND, SECOND

if TYPE_CHECKING:
    from headgate.limits.model import Limit


def scaled(limit: Limit, factor: Fraction) -> Limit:
    """*limit* at *factor* of its size, more than 0 and at most 1; at 1 the very same object.

    Rates, capacities, the units of a window and slots are multiplied, whole numbers rounded down;
    one unit is always left, and one slot of each share. Of a queue the rate is, not its length:
    it is worked off more slowly. Windows, times to live and the time in which a bucket fills stay.
    Every limit can be scaled: where its rate would become too fine, or too slow, for a store, the
    nearest that can be kept is taken.
    """
    if factor == 1:
        return limit
    if not 0 < factor < 1:
        raise LimitError(f"the factor is {factor}; it must be more than 0 and at most 1")
    match limit:
        case TokenBucket():
            size = _part(limit.capacity, factor)
            return TokenBucket(size, _slower(limit.per_second, factor, size))
        case LeakyBucket():
            size = _part(limit.capacity, factor)
            return LeakyBucket(size, _slower(limit.per_second, factor, size))
        case GCRA():
            size = _part(limit.burst, factor)
            return GCRA(_slower(limit.per_second, factor, size), size)
        case LeakyQueue():
            rate = _slower(limit.per_second, factor, limit.queue + 1)
            return replace(limit, rate=rate)
        case FixedWindow() | SlidingWindowLog() | SlidingWindowCounter():
            return replace(limit, limit=_part(limit.limit, factor))
        case Concurrency():
            shares = tuple((name, _part(slots, factor)) for name, slots in limit.shares)
            guaranteed = sum(slots for _, slots in shares)
            slots = max(_part(limit.limit, factor), guaranteed)
            return replace(limit, limit=slots, shares=shares)
    raise AssertionError(f"{limit!r} is of no type there is")


def _part(units: int, factor: Fraction) -> int:
    return max(1, units * factor.numerator // factor.denominator)


def _slower(per_second: Fraction, factor: Fraction, units: int) -> Fraction:
    """*per_second* times *factor*, as every store can keep it, with *units* in a century."""
    per_microsecond = per_second * factor * MICROSECOND / SECOND
    most, finest = FINEST_RATE
    coarser = max(-(-per_microsecond.numerator // most), -(-per_microsecond.denominator // finest))
    if coarser > 1:  # rounded down, so that it is never more than was meant
        whole = per_microsecond.numerator // coarser
        per_microsecond = Fraction(whole, -(-per_microsecond.denominator // coarser))
    slowest = Fraction(units * SECOND, CENTURY)
    return max(per_microsecond * SECOND / MICROSECOND, slowest)


# A limit that is larger by some units, and otherwise the same.


def with_extra(limit: Limit, extra: int) -> Limit:
    """*limit* with *extra* units more: of capacity, of burst, in each window, at the same time, or
    in the queue.

    Rates, windows and times stay as they are, so that what a counter holds stays what it is. Raises
    `LimitError` if no limit can be so large.
    """
    match limit:
        case TokenBucket() | LeakyBucket():
            return replace(limit, capacity=limit.capacity + extra)
        case GCRA():
            return replace(limit, burst=limit.burst + extra)
        case FixedWindow() | SlidingWindowLog() | SlidingWindowCounter() | Concurrency():
            return replace(limit, limit=limit.limit + extra)
        case LeakyQueue():
            return replace(limit, queue=limit.queue + extra)
    raise AssertionError(f"{limit!r} is of no type there is")
