"""Regions in event loops, with real Redis servers, one of them a cluster."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter
from headgate.limits import TokenBucket
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.operations import Check, Take, TakeEach
from headgate.stores.redis import RedisStore
from headgate.units import MILLISECOND
from tests.support.faults.proxy import FaultyProxy
from tests.support.servers import ClusterSetup, RedisServer, is_installed
from tests.support.servers.urls import with_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

SLOW = TokenBucket(30, 0.001)
PATIENCE = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def other() -> Iterator[RedisServer]:
    with RedisServer() as other:
        yield other


@pytest.fixture(scope="module")
def link(other: RedisServer) -> Iterator[FaultyProxy]:
    with FaultyProxy(other.port) as link:
        link.delay_requests(ms=30)
        link.delay_replies(ms=30)
        yield link


@asynccontextmanager
async def region(local: str, peer: str) -> AsyncIterator[ReplicatedStore]:
    store = ReplicatedStore(
        RedisStore(local),
        region="eu",
        peers={"us": RedisStore(peer)},
        every_ns=20 * MILLISECOND,
    )
    try:
        yield store
    finally:
        await store.aclose()


async def used(url: str, key: str, count: int = 1) -> list[int]:
    """What is used of *key*, or of as many keys that begin so, in the store at *url*."""
    store = RedisStore(url)
    keys = [key] if count == 1 else [f"{key}{n}" for n in range(count)]
    looks = tuple(Take((Check("g", one, SLOW),), consume=False) for one in keys)
    found = await store.arun(TakeEach(looks))
    await store.aclose()
    return [SLOW.capacity - outcomes[0].remaining for outcomes in found]  # type: ignore[index] # no error


async def come_true(url: str, key: str, expected: int, count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while await used(url, key, count) != [expected] * count:  # noqa: ASYNC110 (a server's word)
            await asyncio.sleep(0.02)


def test_what_one_region_allows_counts_in_the_other(
    server: RedisServer, other: RedisServer, link: FaultyProxy
) -> None:
    async def scenario() -> None:
        async with region(server.url, with_options(link.url, timeout=5)) as store:
            take = TakeEach(tuple(Take((Check("g", f"k{n}", SLOW, 3),)) for n in range(300)))
            await store.arun(take)
            await come_true(other.url, "k", 3, count=300)
            limiter = AsyncRateLimiter("100/hour", store=store, name="api", namespace="asked")
            for _ in range(3):
                assert await limiter.hit("a")
            await store.aexchange()
            there = AsyncRateLimiter("100/hour", store=other.url, name="api", namespace="asked")
            assert (await there.peek("a")).remaining == 97
            await there.aclose()

    asyncio.run(scenario())


def test_a_partition_delays_no_decision_and_is_made_up_for(
    server: RedisServer, other: RedisServer, link: FaultyProxy
) -> None:
    async def scenario() -> None:
        async with region(server.url, with_options(link.url, timeout=60)) as store:
            link.partition()
            for _ in range(10):
                (outcome,) = await store.arun(Take((Check("g", "parted", SLOW, 2),)))
                assert outcome.allowed
                await asyncio.sleep(0.01)
            assert await used(other.url, "parted") == [0]
            link.heal()
            await come_true(other.url, "parted", 20)

    asyncio.run(scenario())


def test_a_store_that_is_closed_has_reported_everything(
    server: RedisServer, other: RedisServer
) -> None:
    async def scenario() -> None:
        async with region(server.url, other.url) as store:
            await store.arun(Take((Check("g", "last", SLOW, 9),)))
        assert await used(other.url, "last") == [9]

    asyncio.run(scenario())


def test_a_cluster_merges_counters_in_all_its_slots(server: RedisServer) -> None:
    async def scenario(cluster_url: str) -> None:
        async with region(server.url, cluster_url) as store:
            take = TakeEach(tuple(Take((Check("g", f"c{n}", SLOW, 4),)) for n in range(100)))
            await store.arun(take)
            await come_true(cluster_url, "c", 4, count=100)

    with ClusterSetup() as cluster:
        asyncio.run(scenario(cluster.url))
