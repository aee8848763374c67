"""The store of a region, for event loops."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter
from headgate.errors import OptionError, StoreError
from headgate.limits import TokenBucket
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.layers.replication.tally import MOST_AT_ONCE, MOST_CHECKS
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Take
from headgate.testing import ManualClock
from headgate.units import HOUR, MILLISECOND
from tests.support.region_fakes import AsyncPeer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.stores.base import Asker, Store

    Places = Sequence[tuple[str, Limit]]

LIMIT = TokenBucket(10, 1)
PATIENCE = 30.0


def regional(peers: dict[str, Store], *, every_ns: int = HOUR) -> ReplicatedStore:
    clock = ManualClock(1_000)
    local = MemoryStore(clock=clock)
    return ReplicatedStore(local, region="eu", peers=peers, every_ns=every_ns, clock=clock)


def check(key: str, cost: int = 1) -> Check:
    return Check("g", key, LIMIT, cost)


def test_what_is_admitted_is_told_and_what_is_refused_is_not() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        store = regional({"us": peer})
        await store.arun(Take((check("a", 8),)))
        await store.arun(Take((check("a", 8),)))
        limiter = AsyncRateLimiter("10/minute", store=store)
        for _ in range(12):
            await limiter.hit("b")
        await store.exchange()
        assert peer.totals == {"a": 8, "b": 10}
        await store.aclose()

    asyncio.run(scenario())


def test_an_asker_is_told() -> None:
    class Asked(MemoryStore):
        def hitter(self, places: Places) -> None:
            return None

        def asker(self, places: Places) -> Asker:
            hit = self.store.hitter(places)
            assert hit is not None

            async def ask(key: str, cost: int) -> Decision:
                return hit(key, cost)

            return ask

    async def scenario() -> None:
        peer = AsyncPeer()
        local = Asked(MemoryStore())
        store = ReplicatedStore(local, region="eu", peers={"us": peer}, every_ns=HOUR)
        assert store.hitter([("g", LIMIT)]) is None
        ask = store.asker([("g", LIMIT)])
        assert ask is not None
        assert [bool(await ask("a", 4)) for _ in range(3)] == [True, True, False]
        await store.exchange()
        assert peer.totals == {"a": 8}

    asyncio.run(scenario())


def test_regions_are_told_in_the_background_and_again_when_there_is_more() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        store = regional({"us": peer}, every_ns=MILLISECOND)
        for n in (1, 2):
            peer.has_heard.clear()
            await store.arun(Take((check("a"),)))
            await asyncio.wait_for(peer.has_heard.wait(), PATIENCE)
            assert peer.totals == {"a": n}
        await store.aclose()

    asyncio.run(scenario())


def test_a_region_that_hangs_delays_no_decision_and_no_other_region() -> None:
    async def scenario() -> None:
        hung, peer = AsyncPeer(), AsyncPeer()
        hung.hangs = True
        store = regional({"us": hung, "ap": peer}, every_ns=MILLISECOND)
        for n in range(1, 4):
            peer.has_heard.clear()
            assert (await store.arun(Take((check("a"),))))[0].allowed
            await asyncio.wait_for(peer.has_heard.wait(), PATIENCE)
            assert peer.totals == {"a": n}
        assert hung.asked_at_once == 1
        hung.hangs = False
        await store.aclose()
        assert hung.is_closed

    asyncio.run(scenario())


def test_several_messages_make_one_round_trip() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        peer.takes = 100
        store = regional({"us": peer})
        for n in range(2 * MOST_CHECKS + 1):
            await store.arun(Take((check(f"k{n}"),)))
        await store.exchange()
        assert len(peer.heard) == peer.asked_at_once == 3
        assert len(peer.totals) == 2 * MOST_CHECKS + 1

    asyncio.run(scenario())


def test_a_region_that_was_gone_is_told_when_it_is_back() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        store = regional({"us": peer}, every_ns=MILLISECOND)
        peer.error = StoreError("gone", reason="unreachable")
        await store.arun(Take((check("a", 2),)))
        await store.exchange()
        peer.error = None
        await asyncio.wait_for(peer.has_heard.wait(), PATIENCE)
        assert peer.totals == {"a": 2}
        await store.aclose()

    asyncio.run(scenario())


def test_a_store_tells_what_is_left_when_it_is_closed() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        store = regional({"us": peer})
        await store.arun(Take((check("a", 4),)))
        await store.aclose()
        await store.aclose()
        assert peer.totals == {"a": 4}
        assert peer.is_closed

    asyncio.run(scenario())


def test_a_store_serves_one_loop_after_another() -> None:
    peer = AsyncPeer()
    store = regional({"us": peer}, every_ns=MILLISECOND)

    async def scenario(n: int) -> None:
        peer.has_heard = asyncio.Event()
        await store.arun(Take((check("a"),)))
        await asyncio.wait_for(peer.has_heard.wait(), PATIENCE)
        assert peer.totals == {"a": n}

    for n in (1, 2, 3):
        asyncio.run(scenario(n))


def test_a_store_that_nobody_has_any_more_is_collected_while_a_region_is_gone() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        peer.error = StoreError("gone", reason="unreachable")
        store = regional({"us": peer})
        await store.arun(Take((check("a"),)))
        await asyncio.sleep(0)
        gone = weakref.ref(store)
        del store
        gc.collect()
        assert gone() is None

    asyncio.run(scenario())


def test_only_groups_that_are_shared_are_told() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        store = regional({"us": peer})
        store.share(["other"])
        await store.arun(Take((check("a"),)))
        store.share(None)
        await store.arun(Take((check("b"),)))
        await store.exchange()
        assert peer.totals == {"b": 1}

    asyncio.run(scenario())


def test_a_region_among_its_own_peers_is_refused() -> None:
    with pytest.raises(OptionError, match="among its own peers"):
        regional({"eu": AsyncPeer()})


def test_a_region_that_does_not_hear_is_tried_with_one_message() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        store = regional({"us": peer})
        peer.error = StoreError("gone", reason="unreachable")
        peer.takes = 100
        for n in range(2 * MOST_CHECKS + 1):
            await store.arun(Take((check(f"k{n}"),)))
        await store.exchange()
        peer.asked_at_once = 0
        await store.exchange()
        assert peer.asked_at_once == 1
        peer.error = None
        await store.exchange()
        assert len(peer.totals) == 2 * MOST_CHECKS + 1

    asyncio.run(scenario())


def test_the_last_words_are_as_many_as_there_are() -> None:
    async def scenario() -> None:
        peer = AsyncPeer()
        store = regional({"us": peer})
        for n in range(MOST_AT_ONCE + 10):
            await store.arun(Take((check(f"k{n}"),)))
        await store.aclose()
        assert len(peer.totals) == MOST_AT_ONCE + 10

    asyncio.run(scenario())


def test_a_loop_that_stands_still_does_not_keep_another_from_telling() -> None:
    peer = AsyncPeer()
    store = regional({"us": peer}, every_ns=MILLISECOND)
    still = asyncio.new_event_loop()
    still.run_until_complete(store.run(Take((check("a"),))))

    async def scenario() -> None:
        await store.arun(Take((check("b"),)))
        await asyncio.wait_for(peer.has_heard.wait(), PATIENCE)

    asyncio.run(scenario())
    assert peer.totals == {"a": 1, "b": 1}
    pending = asyncio.all_tasks(still)
    for task in pending:
        task.cancel()
    still.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    still.close()
