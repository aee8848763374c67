"""Headgate's own entries, each in two forms: the figures of the decision unread, and read.

A figure may be worked out only when it is read, so the form that reads them all is the one to
set beside the peers.
"""

from __future__ import annotations

from fractions import Fraction
from time import thread_time_ns
from typing import TYPE_CHECKING

from benchmarks.inprocess.contestant import AsyncEntry, Contestant, Entry, Quota
from headgate import (
    GCRA,
    AsyncRateLimiter,
    FixedWindow,
    LeakyBucket,
    RateLimiter,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate import Limit


class Hit(Entry):
    """`limiter.hit(key)`, and the decision let go."""

    def __init__(self, *limits: Limit) -> None:
        self._limiter = RateLimiter(limits)

    def run(self, keys: Iterable[str]) -> int:
        limiter = self._limiter
        start = thread_time_ns()
        for key in keys:
            limiter.hit(key)
        return thread_time_ns() - start

    def hit(self, key: str) -> bool:
        return self._limiter.hit(key).allowed

    def close(self) -> None:
        self._limiter.close()


class HitAndRead(Hit):
    """`limiter.hit(key)`, and every figure of the decision read."""

    def run(self, keys: Iterable[str]) -> int:
        limiter = self._limiter
        start = thread_time_ns()
        for key in keys:
            decision = limiter.hit(key)
            _allowed = decision.allowed
            _remaining = decision.remaining
            _retry_after = decision.retry_after
            _reset_after = decision.reset_after
        return thread_time_ns() - start


class AsyncHit(AsyncEntry):
    """`await limiter.hit(key)`, and the decision let go."""

    def __init__(self, limit: Limit) -> None:
        super().__init__()
        self._limiter = AsyncRateLimiter(limit)

    async def run_async(self, keys: Iterable[str]) -> int:
        limiter = self._limiter
        start = thread_time_ns()
        for key in keys:
            await limiter.hit(key)
        return thread_time_ns() - start

    async def hit_async(self, key: str) -> bool:
        return (await self._limiter.hit(key)).allowed

    def close(self) -> None:
        self._loop.run_until_complete(self._limiter.aclose())
        super().close()


class AsyncHitAndRead(AsyncHit):
    """`await limiter.hit(key)`, and every figure of the decision read."""

    async def run_async(self, keys: Iterable[str]) -> int:
        limiter = self._limiter
        start = thread_time_ns()
        for key in keys:
            decision = await limiter.hit(key)
            _allowed = decision.allowed
            _remaining = decision.remaining
            _retry_after = decision.retry_after
            _reset_after = decision.reset_after
        return thread_time_ns() - start


def _per_second(quota: Quota) -> Fraction:
    return Fraction(quota.amount, quota.seconds)


def _token_bucket(quota: Quota) -> Limit:
    return TokenBucket(quota.amount, _per_second(quota))


def _gcra(quota: Quota) -> Limit:
    return GCRA(rate=_per_second(quota), burst=quota.amount)


def _leaky_bucket(quota: Quota) -> Limit:
    return LeakyBucket(quota.amount, _per_second(quota))


def _fixed_window(quota: Quota) -> Limit:
    return FixedWindow(quota.amount, quota.seconds)


def _sliding_window_counter(quota: Quota) -> Limit:
    return SlidingWindowCounter(quota.amount, quota.seconds)


def _sliding_window_log(quota: Quota) -> Limit:
    return SlidingWindowLog(quota.amount, quota.seconds)


def _both_forms(
    algorithm: str, limit_for: Callable[[Quota], Limit], *, logs_every_hit: bool = False
) -> tuple[Contestant, Contestant]:
    def unread(quota: Quota) -> Entry:
        return Hit(limit_for(quota))

    def read(quota: Quota) -> Entry:
        return HitAndRead(limit_for(quota))

    return (
        Contestant("headgate", algorithm, "hit", unread, logs_every_hit, weighed=False),
        Contestant("headgate", algorithm, "full", read, logs_every_hit),
    )


def _async_hit(quota: Quota) -> Entry:
    return AsyncHit(_token_bucket(quota))


def _async_hit_and_read(quota: Quota) -> Entry:
    return AsyncHitAndRead(_token_bucket(quota))


TOKEN_BUCKET_HIT, TOKEN_BUCKET = _both_forms("token bucket", _token_bucket)
GCRA_HIT, GCRA_FULL = _both_forms("gcra", _gcra)


def _two_limits(quota: Quota) -> Entry:
    return HitAndRead(
        _token_bucket(quota), _token_bucket(Quota(10 * quota.amount, 2 * quota.seconds))
    )


STACKED = Contestant("headgate", "two token buckets", "full", _two_limits, weighed=False)

OURS = (
    TOKEN_BUCKET_HIT,
    TOKEN_BUCKET,
    GCRA_HIT,
    GCRA_FULL,
    *_both_forms("leaky bucket", _leaky_bucket),
    *_both_forms("fixed window", _fixed_window),
    *_both_forms("sliding window counter", _sliding_window_counter),
    *_both_forms("sliding window log", _sliding_window_log, logs_every_hit=True),
    Contestant("headgate", "token bucket, async", "hit", _async_hit, weighed=False),
    Contestant("headgate", "token bucket, async", "full", _async_hit_and_read, weighed=False),
)
