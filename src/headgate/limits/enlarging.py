"""A limit that is larger by some units, and otherwise the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.limits.model import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.limits.queues import LeakyQueue

if TYPE_CHECKING:
    from headgate.limits.model import Limit


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
