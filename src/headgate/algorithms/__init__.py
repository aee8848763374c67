"""Pure arithmetic, one module per algorithm: `take(state, cost, now) -> (state, outcome)`.

Read `base` first: the questions that every algorithm answers, and the rule for clocks that step
back. Then `gcra`, which most limits use.
"""

from __future__ import annotations

from typing import Any

from headgate.algorithms.base import Algorithm, Outcome, carry
from headgate.algorithms.concurrency import ConcurrencyAlgorithm
from headgate.algorithms.constant import ConstantAlgorithm
from headgate.algorithms.fixed_window import FixedWindowAlgorithm
from headgate.algorithms.gcra import GCRAAlgorithm
from headgate.algorithms.leaky_queue import LeakyQueueAlgorithm
from headgate.algorithms.sliding_counter import SlidingWindowCounterAlgorithm
from headgate.algorithms.sliding_log import SlidingWindowLogAlgorithm
from headgate.errors import UsageError
from headgate.limits import (
    Concurrency,
    ConstantLimit,
    FixedWindow,
    LeakyQueue,
    Limit,
    PacedLimit,
    SlidingWindowCounter,
    SlidingWindowLog,
)


def algorithm_for(limit: Limit, origin: int = 0) -> Algorithm[Any]:
    """Return the arithmetic of *limit*.

    Ticks are counted from *origin*, for stores that keep them in few bytes.
    """
    match limit:
        case PacedLimit():
            return GCRAAlgorithm(limit, origin)
        case LeakyQueue():
            return LeakyQueueAlgorithm(limit, origin)
        case FixedWindow():
            return FixedWindowAlgorithm(limit)
        case SlidingWindowLog():
            return SlidingWindowLogAlgorithm(limit)
        case SlidingWindowCounter():
            return SlidingWindowCounterAlgorithm(limit)
        case Concurrency():
            return ConcurrencyAlgorithm(limit)
        case ConstantLimit():
            return ConstantAlgorithm(limit)
        case _:
            raise UsageError(f"no algorithm for {limit!r}; expected one of the Limit types")


__all__ = [
    "Algorithm",
    "ConcurrencyAlgorithm",
    "GCRAAlgorithm",
    "LeakyQueueAlgorithm",
    "Outcome",
    "algorithm_for",
    "carry",
]
