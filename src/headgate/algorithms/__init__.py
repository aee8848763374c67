"""Pure arithmetic, one module per algorithm: (state, cost, now) -> (state, outcome)."""

from __future__ import annotations

from typing import Any

from headgate.algorithms.base import Algorithm, Outcome, carry
from headgate.algorithms.concurrency import ConcurrencyAlgorithm
from headgate.algorithms.fixed_window import FixedWindowAlgorithm
from headgate.algorithms.gcra import (
    GCRAAlgorithm,
    LeakyBucketAlgorithm,
    Paced,
    TokenBucketAlgorithm,
)
from headgate.algorithms.leaky_queue import LeakyQueueAlgorithm
from headgate.algorithms.sliding_counter import SlidingWindowCounterAlgorithm
from headgate.algorithms.sliding_log import SlidingWindowLogAlgorithm
from headgate.errors import UsageError
from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)


def algorithm_for(limit: Limit, origin: int = 0) -> Algorithm[Any]:
    """The arithmetic of *limit*. *origin* makes the numbers small where their size matters."""
    match limit:
        case TokenBucket():
            return TokenBucketAlgorithm(limit, origin)
        case GCRA():
            return GCRAAlgorithm(limit, origin)
        case LeakyBucket():
            return LeakyBucketAlgorithm(limit, origin)
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
        case _:
            raise UsageError(f"no algorithm for {limit!r}; expected one of the Limit types")


__all__ = [
    "Algorithm",
    "ConcurrencyAlgorithm",
    "FixedWindowAlgorithm",
    "GCRAAlgorithm",
    "LeakyBucketAlgorithm",
    "LeakyQueueAlgorithm",
    "Outcome",
    "Paced",
    "SlidingWindowCounterAlgorithm",
    "SlidingWindowLogAlgorithm",
    "TokenBucketAlgorithm",
    "algorithm_for",
    "carry",
]
