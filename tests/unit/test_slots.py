"""Slots of a limiter: by part of the callers, and with a heartbeat."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter, Concurrency, RateLimiter, TokenBucket
from headgate.errors import OptionError, StoreError
from headgate.runtime.heartbeat import Beat
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import Operation, RenewSlot
from headgate.testing import ManualClock
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.heartbeats import listened

if TYPE_CHECKING:
    from headgate.stores.base import R

SHARED = Concurrency(2, 60, (("gold", 1), ("free", 1)), lends=False)
SOON = 30.0
"""Seconds after which a test gives up."""


class TestParts:
    def test_the_partition_chooses_whose_slots_they_are(self) -> None:
        limiter = RateLimiter(SHARED)
        assert not limiter.slot("key").take()
        assert limiter.slot("key", "gold").take()
        assert not limiter.slot("key", "gold").take()
        assert limiter.slot("key", partition="free").take()

    def test_the_partition_of_the_limit_counts_if_none_is_named(self) -> None:
        limiter = RateLimiter(Concurrency(1, 60, (("gold", 1),), "gold", lends=False))
        assert limiter.slot("key").take()

    def test_an_unknown_partition_is_an_error_that_names_those_there_are(self) -> None:
        for limiter in (RateLimiter(SHARED), AsyncRateLimiter(SHARED)):
            with pytest.raises(OptionError, match=r"'silver'; expected one of free, gold"):
                limiter.slot("key", "silver")
        with pytest.raises(OptionError, match="no limit here has shares"):
            RateLimiter(Concurrency(1, 60)).slot("key", "gold")

    def test_a_part_that_one_limit_of_a_stack_knows_has_no_share_of_another(self) -> None:
        other = Concurrency(9, 60, (("silver", 9),), lends=False)
        limiter = RateLimiter([SHARED, other, TokenBucket(5, 1)])
        decision = limiter.slot("key", "gold").take()
        assert [part.allowed for part in decision.limits] == [True, False, True]
        assert limiter.peek("key").limits[2].remaining == 5


class Telling(Store):
    """A memory store whose time stands still, and that tells of renewals."""

    def __init__(self) -> None:
        self.store = MemoryStore(clock=ManualClock())
        self.renewals = threading.Semaphore(0)

    def run(self, operation: Operation[R]) -> R:
        reply = self.store.run(operation)
        if isinstance(operation, RenewSlot):
            self.renewals.release()
        return reply


class TestHeartbeat:
    def test_a_slot_is_renewed_while_it_is_held(self) -> None:
        store = Telling()
        limiter = RateLimiter(Concurrency(1, 1.5), store=store)  # lost if a thread is so late
        with limiter.slot("key", heartbeat=True) as slot:
            for _ in range(2):
                assert store.renewals.acquire(timeout=SOON)
        assert not slot
        assert slot._beat is not None
        assert slot._beat.is_over

    def test_a_slot_that_was_lost_is_false_and_says_so(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heart, store = listened(monkeypatch), Telling()
        limiter = RateLimiter(Concurrency(1, 60), store=store)
        slot = limiter.slot("key", heartbeat=True)
        assert slot.take()
        assert bool(slot)
        limiter.reset("key")
        heart.renew_at(heart.begun[0].due_ns)
        assert slot.is_lost
        assert not slot
        assert not slot.renew()
        assert not slot.release()
        assert slot.is_lost

    def test_a_renewal_that_is_refused_says_so_without_a_heartbeat_too(self) -> None:
        limiter = RateLimiter(Concurrency(1, 60))
        with limiter.slot("key") as slot:
            assert not slot.is_lost
            limiter.reset("key")
            assert not slot.renew()
            assert slot.is_lost

    def test_a_slot_that_was_forgotten_is_not_renewed_for_ever(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heart, store = listened(monkeypatch), Telling()
        limiter = RateLimiter(Concurrency(1, 60), store=store)
        slot = limiter.slot("key", heartbeat=True)
        assert slot.take()
        beat = slot._beat
        del slot
        gc.collect()
        assert isinstance(beat, Beat)
        heart.renew_at(beat.due_ns)
        assert beat.is_over
        assert not store.renewals.acquire(blocking=False)

    def test_a_refused_slot_has_no_heartbeat(self) -> None:
        limiter = RateLimiter(Concurrency(1, 60))
        limiter.slot("key").take()
        with limiter.slot("key", heartbeat=True) as slot:
            assert not slot
            assert slot._beat is None
            assert not slot.is_lost

    def test_in_a_loop_a_slot_outlives_its_lease(self) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            store = MemoryStore(clock=loop.time_ns)
            limiter = AsyncRateLimiter(Concurrency(1, 6), store=store)
            async with limiter.slot("key", heartbeat=True) as slot:
                await asyncio.sleep(100)
                assert slot
                assert not await limiter.slot("key").take()
            assert await limiter.slot("key").take()
            lost = limiter.slot("other", heartbeat=True)
            assert await lost.take()
            await limiter.reset("other")
            await asyncio.sleep(2.5)
            assert lost.is_lost
            assert not lost
            assert not await lost.release()
            forgotten = limiter.slot("forgotten", heartbeat=True)
            assert await forgotten.take()
            del forgotten
            gc.collect()
            await asyncio.sleep(6)
            assert await limiter.slot("forgotten").take()

        run_virtually(main())


class Flaky(Store):
    """A memory store that cannot be asked while it *is_gone*."""

    waits = False

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.clock = store.clock
        self.is_gone = False

    def run(self, operation: Operation[R]) -> R:
        if self.is_gone:
            raise StoreError("it is gone", reason="refused")
        return self.store.run(operation)


@pytest.mark.parametrize(("outage", "is_lost"), [(4.5, False), (8, True)])
def test_a_heartbeat_survives_an_outage_that_ends_before_the_lease(
    outage: float, is_lost: bool
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        store = Flaky(MemoryStore(clock=loop.time_ns))
        limiter = AsyncRateLimiter(Concurrency(1, 6), store=store)
        async with limiter.slot("key", heartbeat=True) as slot:
            await asyncio.sleep(3)
            store.is_gone = True
            await asyncio.sleep(outage)
            store.is_gone = False
            await asyncio.sleep(100)
            assert slot.is_lost == is_lost
            assert bool(slot) != is_lost

    run_virtually(main())


def test_a_manual_clock_ends_a_lease_that_is_not_renewed() -> None:
    clock = ManualClock()
    limiter = RateLimiter(SHARED, clock=clock)
    slot = limiter.slot("key", "gold")
    assert slot.take()
    clock.advance(60)
    assert not slot.renew()
    assert slot.is_lost
