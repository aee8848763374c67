"""Headgate: decide for every request whether it may go on now, and if not, when.

from headgate import RateLimiter

limiter = RateLimiter("100/minute")
decision = limiter.hit("user:42")
if not decision:
    print(decision.retry_after)
"""

from headgate.decision import Decision, OnFailure, PartialHit, RateLimitedError
from headgate.errors import (
    CostError,
    HeadgateError,
    KeyInvalidError,
    LimitError,
    NotationError,
    OptionError,
    SettledError,
    StoreError,
    StoreURLError,
    UsageError,
)
from headgate.limiter import AsyncRateLimiter, RateLimiter
from headgate.limiter.holds import AsyncReservation, AsyncSlot, Reservation, Slot
from headgate.limits import (
    GCRA,
    Accuracy,
    Concurrency,
    DenyAll,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    Unlimited,
    burst_credits,
    parse_limit,
    parse_limits,
)
from headgate.stores import Hit, MemoryStore, Store

__version__ = "0.2.0"

__all__ = [
    "GCRA",
    "Accuracy",
    "AsyncRateLimiter",
    "AsyncReservation",
    "AsyncSlot",
    "Concurrency",
    "CostError",
    "Decision",
    "DenyAll",
    "FixedWindow",
    "HeadgateError",
    "Hit",
    "KeyInvalidError",
    "LeakyBucket",
    "LeakyQueue",
    "Limit",
    "LimitError",
    "MemoryStore",
    "NotationError",
    "OnFailure",
    "OptionError",
    "PartialHit",
    "RateLimitedError",
    "RateLimiter",
    "Reservation",
    "SettledError",
    "SlidingWindowCounter",
    "SlidingWindowLog",
    "Slot",
    "Store",
    "StoreError",
    "StoreURLError",
    "TokenBucket",
    "Unlimited",
    "UsageError",
    "__version__",
    "burst_credits",
    "parse_limit",
    "parse_limits",
]
