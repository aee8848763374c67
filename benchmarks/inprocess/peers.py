"""The peers, each used in the fastest way that its own source offers for a full result.

What a caller needs is whether the request is allowed, how much remains, and how long to wait.
"""

from __future__ import annotations

from datetime import timedelta
from time import thread_time_ns
from typing import TYPE_CHECKING

from aiolimiter import AsyncLimiter
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)
from rust_py_rate_limit import RateLimiter as RustLimiter  # type: ignore[import-untyped]
from throttled import MemoryStore, RateLimiterType, Throttled, per_duration

from benchmarks.inprocess.contestant import AsyncEntry, Contestant, Entry, Quota
from benchmarks.inprocess.pyrate import PYRATE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from limits.strategies import KnownStrategy

MOST_KEYS = 2_000_000


class Limits(Entry):
    """limits: `hit` answers yes or no, so the figures take a second call."""

    def __init__(self, quota: Quota, strategy: KnownStrategy) -> None:
        self._storage = MemoryStorage()
        self._limiter = strategy(self._storage)
        self._item = RateLimitItemPerSecond(quota.amount, quota.seconds)

    def run(self, keys: Iterable[str]) -> int:
        limiter, item = self._limiter, self._item
        start = thread_time_ns()
        for key in keys:
            _allowed = limiter.hit(item, key)
            _reset_time, _remaining = limiter.get_window_stats(item, key)
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        return self._limiter.hit(self._item, key)

    def settle(self) -> None:
        """Its hits start a thread that looks through all keys for expired ones."""
        self._storage.timer.join()


class ThrottledPy(Entry):
    """throttled-py: one call; the figures are put together when `state` is read."""

    def __init__(self, quota: Quota, algorithm: RateLimiterType) -> None:
        self._limiter = Throttled(
            using=algorithm.value,
            quota=per_duration(timedelta(seconds=quota.seconds), quota.amount),
            store=MemoryStore(options={"MAX_SIZE": MOST_KEYS}),
        )

    def run(self, keys: Iterable[str]) -> int:
        limiter = self._limiter
        start = thread_time_ns()
        for key in keys:
            result = limiter.limit(key)
            _limited = result.limited
            state = result.state
            _remaining = state.remaining
            _retry_after = state.retry_after
            _reset_after = state.reset_after
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        return not self._limiter.limit(key).limited


class RustPyRateLimit(Entry):
    """rust-py-rate-limit: fixed windows in Rust; `check` returns a dict of all figures."""

    def __init__(self, quota: Quota) -> None:
        self._limiter = RustLimiter(limit=quota.amount, window_seconds=quota.seconds)

    def run(self, keys: Iterable[str]) -> int:
        limiter = self._limiter
        start = thread_time_ns()
        for key in keys:
            result = limiter.check(key)
            _allowed = result["allowed"]
            _remaining = result["remaining"]
            _retry_after = result["retry_after_seconds"]
            _reset_after = result["reset_after_seconds"]
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        return bool(self._limiter.allow(key))


class Aiolimiter(AsyncEntry):
    """aiolimiter: a limiter for each key, which says yes or no and nothing else."""

    def __init__(self, quota: Quota) -> None:
        super().__init__()
        self._quota = quota
        self._limiters: dict[str, AsyncLimiter] = {}

    async def run_async(self, keys: Iterable[str]) -> int:
        limiters = self._limiters
        start = thread_time_ns()
        for key in keys:
            try:
                limiter = limiters[key]
            except KeyError:
                limiter = self._limiter(key)
            if limiter.has_capacity():
                await limiter.acquire()
        return thread_time_ns() - start

    async def hit_async(self, key: str) -> bool:
        limiter = self._limiter(key)
        allowed = limiter.has_capacity()
        if allowed:
            await limiter.acquire()
        return allowed

    def _limiter(self, key: str) -> AsyncLimiter:
        if key not in self._limiters:
            self._limiters[key] = AsyncLimiter(self._quota.amount, self._quota.seconds)
        return self._limiters[key]


def _limits(algorithm: str, strategy: KnownStrategy, *, logs_every_hit: bool = False) -> Contestant:
    return Contestant(
        "limits", algorithm, "full", lambda quota: Limits(quota, strategy), logs_every_hit
    )


def _throttled(algorithm: str, kind: RateLimiterType) -> Contestant:
    return Contestant("throttled-py", algorithm, "full", lambda quota: ThrottledPy(quota, kind))


PEERS = (
    _limits("fixed window", FixedWindowRateLimiter),
    _limits("sliding window counter", SlidingWindowCounterRateLimiter),
    _limits("sliding window log", MovingWindowRateLimiter, logs_every_hit=True),
    _throttled("token bucket", RateLimiterType.TOKEN_BUCKET),
    _throttled("gcra", RateLimiterType.GCRA),
    _throttled("leaky bucket", RateLimiterType.LEAKING_BUCKET),
    _throttled("fixed window", RateLimiterType.FIXED_WINDOW),
    _throttled("sliding window counter", RateLimiterType.SLIDING_WINDOW),
    Contestant("rust-py-rate-limit", "fixed window", "full", RustPyRateLimit),
    *PYRATE,
    Contestant("aiolimiter", "leaky bucket, async", "yes/no", Aiolimiter),
)
