"""Limit types and the text notation. Read `model` first."""

from headgate.limits.accuracy import EXACT, Accuracy
from headgate.limits.model import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    Pace,
    PacedLimit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    WindowedLimit,
)
from headgate.limits.notation import burst_credits, parse_limit, parse_limits, parse_rate
from headgate.limits.queues import LeakyQueue
from headgate.limits.scaling import scaled, with_extra

__all__ = [
    "EXACT",
    "GCRA",
    "Accuracy",
    "Concurrency",
    "FixedWindow",
    "LeakyBucket",
    "LeakyQueue",
    "Limit",
    "Pace",
    "PacedLimit",
    "SlidingWindowCounter",
    "SlidingWindowLog",
    "TokenBucket",
    "WindowedLimit",
    "burst_credits",
    "parse_limit",
    "parse_limits",
    "parse_rate",
    "scaled",
    "with_extra",
]
