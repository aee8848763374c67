"""What a limit is: value objects and the text notation."""

from headgate.limits.accuracy import EXACT, Accuracy
from headgate.limits.credits import burst_credits
from headgate.limits.enlarging import with_extra
from headgate.limits.model import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    PacedLimit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    WindowedLimit,
)
from headgate.limits.notation import parse_limit, parse_limits, parse_rate
from headgate.limits.pace import Pace
from headgate.limits.queues import LeakyQueue
from headgate.limits.scaling import scaled

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
