"""Headgate on the Redis store, through its public interface."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.redis.contestant import (
    AsyncContestant,
    AsyncEntry,
    Contestant,
    Entry,
    Quota,
    WrongAnswerError,
)
from headgate import AsyncRateLimiter, RateLimiter

if TYPE_CHECKING:
    from collections.abc import Iterator

ALGORITHMS = (
    "gcra",
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window_counter",
    "sliding_window_log",
)


def notation(quota: Quota, algorithm: str) -> str:
    return f"{quota.amount} per {quota.seconds} seconds {algorithm}"


class HeadgateAsync(AsyncEntry):
    """`AsyncRateLimiter.hit`."""

    def __init__(self, url: str, quota: Quota, algorithm: str) -> None:
        self._limiter = AsyncRateLimiter(
            notation(quota, algorithm),
            store=f"{url}?timeout=5",
            name="api",
            on_store_failure="fail_closed",
        )

    async def call(self, keys: Iterator[str], until: float) -> int:
        hit = self._limiter.hit
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if not await hit(key):
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        return (await self._limiter.hit(key)).allowed

    async def aclose(self) -> None:
        await self._limiter.aclose()


class Headgate(Entry):
    """`RateLimiter.hit`."""

    def __init__(self, url: str, quota: Quota, algorithm: str) -> None:
        self._limiter = RateLimiter(
            notation(quota, algorithm),
            store=f"{url}?timeout=5",
            name="api",
            on_store_failure="fail_closed",
        )

    def call(self, keys: Iterator[str], until: float) -> int:
        hit = self._limiter.hit
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if not hit(key):
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    def hit(self, key: str) -> bool:
        return self._limiter.hit(key).allowed

    def close(self) -> None:
        self._limiter.close()


def ours(algorithm: str) -> AsyncContestant:
    """Headgate in an event loop with *algorithm*."""

    async def enter(url: str, quota: Quota) -> AsyncEntry:
        return HeadgateAsync(url, quota, algorithm)

    return AsyncContestant("headgate", algorithm.replace("_", " "), "ours", enter)


OURS_ASYNC = ours("gcra")
OURS = Contestant("headgate", "gcra", "ours", lambda url, quota: Headgate(url, quota, "gcra"))
