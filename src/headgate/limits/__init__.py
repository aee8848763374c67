"""Limit types and the text notation. Read `model` first."""

from headgate.limits.accuracy import EXACT, Accuracy
from headgate.limits.model import (
    GCRA,
    LARGEST_QUOTA,
    Concurrency,
    ConstantLimit,
    DenyAll,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    PacedLimit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    Unlimited,
    WindowedLimit,
)
from headgate.limits.notation import burst_credits, parse_limit, parse_limits, parse_rate
from headgate.limits.scaling import scaled, with_extra

__all__ = [
    "EXACT",
    "GCRA",
    "LARGEST_QUOTA",
    "Accuracy",
    "Concurrency",
    "ConstantLimit",
    "DenyAll",
    "FixedWindow",
    "LeakyBucket",
    "LeakyQueue",
    "Limit",
    "PacedLimit",
    "SlidingWindowCounter",
    "SlidingWindowLog",
    "TokenBucket",
    "Unlimited",
    "WindowedLimit",
    "burst_credits",
    "parse_limit",
    "parse_limits",
    "parse_rate",
    "scaled",
    "with_extra",
]
