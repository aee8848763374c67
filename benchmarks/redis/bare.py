"""redis-py by itself, which sends the plain script once for each check."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import Sentinel

from benchmarks.redis.contestant import (
    AsyncContestant,
    AsyncEntry,
    Contestant,
    Entry,
    Quota,
    WrongAnswerError,
)
from benchmarks.redis.script import SINGLE, arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 50
"""For whoever uses redis-py: its own pool of 100 fails 200 callers, and more make none faster."""


def pool(url: str) -> redis.asyncio.BlockingConnectionPool:
    """Connections of redis-py for any number of callers, who wait for one if need be."""
    return redis.asyncio.BlockingConnectionPool.from_url(
        url, max_connections=CONNECTIONS, timeout=None
    )


class BareAsync(AsyncEntry):
    """`evalsha` of any of redis-py's asyncio clients."""

    def __init__(self, client: Any, sha: str, quota: Quota) -> None:
        self._client = client
        self._sha = sha
        self._increment, self._tolerance = arguments(quota.amount, quota.seconds)

    async def call(self, keys: Iterator[str], until: float) -> int:
        evalsha, sha = self._client.evalsha, self._sha
        increment, tolerance = self._increment, self._tolerance
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if await evalsha(sha, 1, key, increment, tolerance) < 0:
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    async def hit(self, key: str) -> bool:
        client, sha = self._client, self._sha
        return bool(await client.evalsha(sha, 1, key, self._increment, self._tolerance) >= 0)

    async def aclose(self) -> None:
        await self._client.aclose()


class Bare(Entry):
    """`evalsha` of redis-py, from threads."""

    def __init__(self, url: str, quota: Quota) -> None:
        self._client = redis.Redis.from_url(url)
        self._sha = str(self._client.script_load(SINGLE))
        self._increment, self._tolerance = arguments(quota.amount, quota.seconds)

    def call(self, keys: Iterator[str], until: float) -> int:
        evalsha, sha = self._client.evalsha, self._sha
        increment, tolerance = self._increment, self._tolerance
        checks = 0
        while perf_counter() < until:
            key = next(keys)
            if evalsha(sha, 1, key, increment, tolerance) < 0:
                raise WrongAnswerError(f"{key} was refused")
            checks += 1
        return checks

    def hit(self, key: str) -> bool:
        client, sha = self._client, self._sha
        return bool(client.evalsha(sha, 1, key, self._increment, self._tolerance) >= 0)

    def close(self) -> None:
        self._client.close()


async def _enter_many(url: str, quota: Quota) -> AsyncEntry:
    return await _enter(redis.asyncio.Redis.from_pool(pool(url)), quota)


async def _enter_lone(url: str, quota: Quota) -> AsyncEntry:
    return await _enter(redis.asyncio.Redis.from_url(url), quota)


async def _enter_cluster(url: str, quota: Quota) -> AsyncEntry:
    nodes = [ClusterNode(host, port) for host, port in _places(url)]
    return await _enter(RedisCluster(startup_nodes=nodes, max_connections=CONNECTIONS * 20), quota)


async def _enter_sentinel(url: str, quota: Quota) -> AsyncEntry:
    service = urlsplit(url).path.split("/")[1]
    sentinel = Sentinel(_places(url))  # type: ignore[no-untyped-call]
    return await _enter(sentinel.master_for(service, max_connections=CONNECTIONS * 20), quota)


async def _enter(client: Any, quota: Quota) -> AsyncEntry:
    return BareAsync(client, str(await client.script_load(SINGLE)), quota)


def _places(url: str) -> list[tuple[str, int]]:
    places = [place.rsplit(":", 1) for place in urlsplit(url).netloc.split(",")]
    return [(host, int(port)) for host, port in places]


BARE_ASYNC = AsyncContestant("redis-py asyncio", "bare EVALSHA", "bare", _enter_many)
BARE_LONE = AsyncContestant("redis-py asyncio", "bare EVALSHA", "bare", _enter_lone)
"""With redis-py's own pool, which is the quicker one for a lone caller."""
BARE_CLUSTER = AsyncContestant("redis-py asyncio", "bare EVALSHA", "bare", _enter_cluster)
BARE_SENTINEL = AsyncContestant("redis-py asyncio", "bare EVALSHA", "bare", _enter_sentinel)
BARE = Contestant("redis-py", "bare EVALSHA", "bare", Bare)
