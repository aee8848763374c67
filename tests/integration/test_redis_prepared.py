"""Prepared takes of the Redis store decide as `run` does."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from headgate.limits import (
    FixedWindow,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores.operations import Charge, Check, Hold, Take
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND
from tests.support.servers import RedisServer, is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMITS: list[Limit] = [
    TokenBucket(5, 1),
    TokenBucket(4, 3),
    FixedWindow(6, 2),
    SlidingWindowCounter(6, 2),
    SlidingWindowLog(4, 1),
    LeakyQueue(rate=5, queue=3),
]


@pytest.mark.parametrize("seed", range(8))
def test_a_stack_decides_alike_prepared_or_not_in_threads_and_loops(seed: int) -> None:
    random, clock = Random(seed), ManualClock(1_800_000_000)
    limits = random.sample(LIMITS, random.randint(1, 3))
    groups = list(range(len(limits)))
    if seed % 2:  # two limits share a counter
        limits, groups = [*limits, limits[0]], [*groups, 0]

    async def main(store: RedisStore) -> None:
        prepared = [
            store.prepare([(f"{way}{n}", limit) for n, limit in zip(groups, limits, strict=True)])
            for way in "ab"
        ]
        for _ in range(80):
            clock.advance_ns(random.choice((0, 1, 300, 900)) * MILLISECOND)
            costs = [random.choice((0, 1, 1, 2, 9)) for _ in limits]
            keys = [random.choice("xy")] * len(limits)
            parts = list(zip(groups, keys, limits, costs, strict=True))
            checks = tuple(Check(f"c{n}", key, limit, cost) for n, key, limit, cost in parts)
            if random.random() < 0.15:
                n, key, limit, _ = parts[0]
                is_charge = random.random() < 0.5
                for way in "abc":
                    check = Check(f"{way}{n}", key, limit, 3)
                    store.run(Charge((check,)) if is_charge else Hold((check,), "h", SECOND))
            expected = store.run(Take(checks))
            assert prepared[0].take(keys, costs) == expected
            taken = prepared[1].atake(keys, costs)
            assert (taken if isinstance(taken, tuple) else await taken) == expected
        await store.aclose()

    with RedisServer() as server:
        asyncio.run(main(RedisStore(server.url, clock=clock)))
