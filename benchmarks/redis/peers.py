"""The peers, each through its documented interface and with redis-py underneath.

From each the algorithm nearest to GCRA, and the fastest it has. Only the yes or no is asked for;
limits and pyrate-limiter need a second round trip for more, which is not counted against them.
"""

from __future__ import annotations

from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

import redis.asyncio
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter, SlidingWindowCounterRateLimiter
from pyrate_limiter import BucketFactory, Limiter, Rate, RateItem, RedisStateStore, StateBucket
from throttled.asyncio import RateLimiterType, RedisStore, Throttled, per_duration

from benchmarks.redis.bare import CONNECTIONS, pool
from benchmarks.redis.contestant import AsyncContestant, AsyncEntry, Quota, WrongAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    type_of_limits = type[FixedWindowRateLimiter] | type[SlidingWindowCounterRateLimiter]

MILLISECONDS = 1_000


class Limits(AsyncEntry):
    """limits: `hit`, which answers yes or no."""

    def __init__(self, url: str, quota: Quota, strategy: type_of_limits) -> None:
        self._pool = pool(url)
        storage = RedisStorage(
            f"async+{url}",
            implementation="redispy",  # quicker than coredis 5; with coredis 6 it does not work
            connection_pool=self._pool,  # type: ignore[arg-type]
        )
        self._limiter = strategy(storage)
        self._item = RateLimitItemPerSecond(quota.amount, quota.seconds)

    async def call(self, keys: Iterator[str], until: float) -> int:
        hit, item = self._limiter.hit, self._item
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if not await hit(item, key):
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        return await self._limiter.hit(self._item, key)

    async def aclose(self) -> None:
        await self._pool.disconnect()


class ThrottledPy(AsyncEntry):
    """throttled-py: `limit`, whose result has all the figures."""

    def __init__(self, url: str, quota: Quota, algorithm: RateLimiterType) -> None:
        options = {
            "CONNECTION_POOL_CLASS": "redis.asyncio.BlockingConnectionPool",
            "CONNECTION_POOL_KWARGS": {"max_connections": CONNECTIONS, "timeout": None},
        }
        self._store = RedisStore(server=url, options=options)
        self._limiter = Throttled(
            using=algorithm.value,
            quota=per_duration(timedelta(seconds=quota.seconds), quota.amount),
            store=self._store,
        )

    async def call(self, keys: Iterator[str], until: float) -> int:
        limit = self._limiter.limit
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if (await limit(key)).limited:
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        return not (await self._limiter.limit(key)).limited

    async def aclose(self) -> None:
        client: Any = self._store._backend.get_client()  # it has no way to close its store
        await client.connection_pool.disconnect()


class BucketPerKey(BucketFactory):
    """A bucket of pyrate-limiter for each key, made when the key is first seen."""

    def __init__(self, url: str, quota: Quota) -> None:
        self.client = redis.asyncio.Redis.from_pool(pool(url))
        self.buckets: dict[str, StateBucket] = {}
        self._rates = [Rate(quota.amount, quota.seconds * MILLISECONDS)]

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self.bucket(name).now(), weight)  # type: ignore[no-untyped-call]

    def get(self, item: RateItem) -> StateBucket:
        return self.bucket(item.name)

    def bucket(self, key: str) -> StateBucket:
        try:
            return self.buckets[key]
        except KeyError:
            bucket = StateBucket(self._rates, store=RedisStateStore(self.client, f"rate:{key}"))
            self.buckets[key] = bucket
            return bucket


class PyrateLimiter(AsyncEntry):
    """pyrate-limiter: `try_acquire_async`, which lets one caller pass at a time."""

    def __init__(self, url: str, quota: Quota) -> None:
        self._factory = BucketPerKey(url, quota)
        self._limiter = Limiter(self._factory)

    async def call(self, keys: Iterator[str], until: float) -> int:
        acquire = self._limiter.try_acquire_async
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if not await acquire(key, blocking=False):
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        return await self._limiter.try_acquire_async(key, blocking=False)

    async def aclose(self) -> None:
        await self._factory.client.aclose()


class PyrateBucket(AsyncEntry):
    """pyrate-limiter without its `Limiter`: each key's bucket by itself, which locks nobody out."""

    def __init__(self, url: str, quota: Quota) -> None:
        self._factory = BucketPerKey(url, quota)

    async def call(self, keys: Iterator[str], until: float) -> int:
        bucket_of, wrap = self._factory.bucket, self._factory.wrap_item
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if not await bucket_of(key).put(wrap(key)):  # type: ignore[misc]
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        return bool(await self._factory.bucket(key).put(self._factory.wrap_item(key)))  # type: ignore[misc]

    async def aclose(self) -> None:
        await self._factory.client.aclose()


def _limits(algorithm: str, strategy: type_of_limits) -> AsyncContestant:
    async def enter(url: str, quota: Quota) -> AsyncEntry:
        return Limits(url, quota, strategy)

    return AsyncContestant("limits", algorithm, "peer", enter)


def _throttled(algorithm: str, kind: RateLimiterType) -> AsyncContestant:
    async def enter(url: str, quota: Quota) -> AsyncEntry:
        return ThrottledPy(url, quota, kind)

    return AsyncContestant("throttled-py", algorithm, "peer", enter)


async def _pyrate_limiter(url: str, quota: Quota) -> AsyncEntry:
    return PyrateLimiter(url, quota)


async def _pyrate_bucket(url: str, quota: Quota) -> AsyncEntry:
    return PyrateBucket(url, quota)


PEERS = (
    _limits("sliding window counter", SlidingWindowCounterRateLimiter),
    _limits("fixed window", FixedWindowRateLimiter),
    _throttled("gcra", RateLimiterType.GCRA),
    _throttled("fixed window", RateLimiterType.FIXED_WINDOW),
    AsyncContestant("pyrate-limiter", "gcra", "peer", _pyrate_limiter),
    AsyncContestant(
        "pyrate-limiter", "gcra, a bare bucket a key", "peer", _pyrate_bucket, is_weighed=False
    ),
)
