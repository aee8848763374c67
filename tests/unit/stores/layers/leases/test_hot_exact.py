"""Keys that are kept exactly are found to be hot as well."""

from __future__ import annotations

import asyncio

from headgate.limits import TokenBucket
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Take, TakeEach
from headgate.testing import ManualClock

LIMIT = TokenBucket(100, 100)
HOT = Take((Check("g", "hot", LIMIT, 3),))


def test_takes_and_hits_are_counted() -> None:
    store = LeasedStore(MemoryStore(clock=ManualClock(1_000)))
    hit = store.hitter([("g", LIMIT)])
    assert hit is not None
    hit("warm", 2)
    store.run(HOT)
    store.run(TakeEach((HOT, Take((Check("g", "looked at", LIMIT, 50),), consume=False))))
    assert [one.key for one in store.hot_keys()] == ["hot", "warm"]


def test_the_same_in_an_event_loop() -> None:
    async def main() -> None:
        store = LeasedStore(MemoryStore(clock=ManualClock(1_000)))
        await store.arun(HOT)
        assert [one.key for one in store.hot_keys()] == ["hot"]

    asyncio.run(main())
