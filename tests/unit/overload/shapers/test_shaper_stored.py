"""Shapers over a store: what is given up, what is lost, and what happens while it is gone."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate import MemoryStore
from headgate.decision import OnFailure
from headgate.errors import StoreError
from headgate.observability import MEASURES
from headgate.overload import AsyncShaper, Shaper
from headgate.stores.base import Store
from headgate.stores.operations import CancelQueued, Take
from headgate.testing import ManualClock
from headgate.testing.virtual_loop import run_virtually
from headgate.units import MILLISECOND, SECOND
from tests.support.async_stores import LoopStore
from tests.support.virtual_shaper import Run, now_ns

if TYPE_CHECKING:
    from headgate.stores.operations import Operation

TENTH = SECOND // 10


class FarStore(LoopStore):
    """A store that takes a while to be asked and to answer."""

    def __init__(self, there: float = 0.01, back: float = 0.02) -> None:
        self.memory = MemoryStore(clock=now_ns)
        self.there, self.back = there, back
        self.is_gone = False
        self.asked: list[Operation[Any]] = []

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(self.there)
        if self.is_gone:
            raise StoreError("gone", reason="unreachable", is_undone=True)
        self.asked.append(operation)
        reply = self.memory.run(operation)
        await asyncio.sleep(self.back)
        return reply

    def expected_wait_ns(self, shaper: AsyncShaper) -> int:
        check = shaper._terms.check("key", 1)
        return self.memory.run(Take((check,), consume=False))[0].reset_after_ns


def test_nobody_goes_before_its_turn_and_all_are_late_by_the_way_back_alone() -> None:
    async def story() -> None:
        run = Run(AsyncShaper("10/s", queue=9, store=FarStore(there=0.01, back=0.02)))
        await asyncio.gather(*[run.come(name) for name in "abcd"])
        # The store gave the first turn after 10 ms; each leaves 20 ms after its own.
        assert run.times == [30 * MILLISECOND + n * TENTH for n in range(4)]

    run_virtually(story())


@pytest.mark.parametrize("after_ms", [0, 5, 15, 29, 31, 60])
def test_a_caller_that_is_cancelled_gives_its_turn_up_wherever_it_is(after_ms: int) -> None:
    """Before the question is sent, on its way, on the way of the reply, and while it waits."""

    async def story() -> None:
        store = FarStore()
        async with AsyncShaper("10/s", queue=9, store=store) as shaper:
            run = Run(shaper)
            await run.come("first")
            cancelled = run.come("second")
            await asyncio.sleep(after_ms / 1000)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        # The first turn was at 10 ms; nothing else is queued.
        assert store.expected_wait_ns(shaper) == max(TENTH + 10 * MILLISECOND - now_ns(), 0)
        assert all(isinstance(one, Take | CancelQueued) for one in store.asked)

    run_virtually(story())


def test_a_turn_in_the_middle_that_is_given_up_goes_to_who_asks_next() -> None:
    async def story() -> None:
        run = Run(AsyncShaper("10/s", queue=9, store=MemoryStore(clock=now_ns)))
        run.come("a")
        second, third = run.come("b"), run.come("c")
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.sleep(0.01)
        run.come("d")
        await third
        assert run.left == [("a", 0), ("d", TENTH), ("c", 2 * TENTH)]

    run_virtually(story())


def test_a_crashed_caller_costs_its_turn_and_no_more() -> None:
    async def story() -> None:
        store = FarStore(0, 0)
        crashed, living = (AsyncShaper("10/s", queue=9, store=store) for _ in range(2))
        for _ in range(4):
            await crashed.book("key")  # and nobody ever comes
        run = Run(living)
        await asyncio.gather(*[run.come(name) for name in "abc"])
        assert run.times == [4 * TENTH, 5 * TENTH, 6 * TENTH]

    run_virtually(story())


def test_a_fleet_on_one_store_leaves_evenly_spaced() -> None:
    async def story() -> None:
        store = FarStore(0.001, 0.001)
        runs = [Run(AsyncShaper("10/s", queue=50, store=store)) for _ in range(3)]
        await asyncio.gather(*[run.come(str(n)) for n in range(10) for run in runs])
        times = sorted(at for run in runs for at in run.times)
        assert times == [2 * MILLISECOND + n * TENTH for n in range(30)]

    run_virtually(story())


def test_a_booking_is_given_up_to_the_end_even_if_its_holder_is_cancelled() -> None:
    async def story() -> None:
        store = FarStore()
        async with AsyncShaper("1/s", queue=9, store=store) as shaper:
            await shaper.book("key")
            booking = await shaper.book("key", 3)
            giving_up = asyncio.ensure_future(booking.cancel())
            await asyncio.sleep(0)
            giving_up.cancel()
        assert store.expected_wait_ns(shaper) < SECOND

    run_virtually(story())


# ---- while the store is gone ----------------------------------------------------------------


def test_without_the_store_a_share_of_the_rate_goes_on_being_shaped() -> None:
    async def story() -> None:
        store = FarStore(0, 0)
        store.is_gone = True
        on_failure = OnFailure("local", share=Fraction(1, 2))
        run = Run(AsyncShaper("10/s", queue=8, store=store, on_store_failure=on_failure))
        fallback = run.shaper._way._stored.fallback  # type: ignore[attr-defined] # not public
        fallback.local = MemoryStore(clock=now_ns)
        await asyncio.gather(*[run.come(str(n)) for n in range(8)])
        assert run.times == [n * 2 * TENTH for n in range(5)]
        assert {one.source for one in run.said.values()} == {"local"}
        store.is_gone = False
        assert (await run.shaper.acquire("key")).source == "store"
        await run.shaper.aclose()

    run_virtually(story())


def test_a_turn_of_this_process_is_given_up_in_this_process() -> None:
    async def story() -> None:
        store = FarStore(0, 0)
        store.is_gone = True
        shaper = AsyncShaper("10/s", queue=8, store=store, on_store_failure="local")
        shaper._way._stored.fallback.local = MemoryStore(clock=now_ns)  # type: ignore[attr-defined] # not public
        await shaper.book("key")
        booking = await shaper.book("key")
        assert booking.delay == 0.1
        assert await booking.cancel()
        assert await shaper.expected_wait("key") == 0.1
        await shaper.aclose()

    run_virtually(story())


class GoneStore(Store):
    """A store that answers a given number of times."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)

    def run(self, operation: Operation[Any]) -> Any:
        self.answers -= 1
        if self.answers < 0:
            raise StoreError("gone", reason="unreachable", is_undone=True)
        return self.memory.run(operation)


def test_failing_closed_refuses() -> None:
    shaper = Shaper("10/s", store=GoneStore(1), on_store_failure="fail_closed")
    assert shaper.acquire("key")
    refused = shaper.acquire("key")
    assert (refused.allowed, refused.source, refused.retry_after) == (False, "fail_closed", 1.0)
    shaper.close()


def test_failing_open_goes_on_shaping() -> None:
    shaper = Shaper("10/s", queue=2, store=GoneStore(0))
    bookings = [shaper.book("key") for _ in range(4)]
    assert [one.delay for one in bookings[:3]] == [0.0, 0.1, 0.2]
    assert not bookings[3]
    assert bookings[2].cancel()
    assert shaper.book("key").delay == 0.2
    shaper.close()


def test_a_turn_that_nobody_can_be_told_of_is_lost() -> None:
    store = GoneStore(2)
    shaper = Shaper("10/s", store=store)
    shaper.book("key")
    booking = shaper.book("key")
    assert not booking.cancel()
    store.answers = 1
    assert shaper.peek("key").delay == 0.2
    shaper.close()


def test_reset_says_if_the_store_could_not_be_reached() -> None:
    shaper = Shaper("10/s", store=GoneStore(0))
    with pytest.raises(StoreError):
        shaper.reset("key")
    shaper.close()


def test_a_wait_of_months_is_slept_a_day_at_a_time() -> None:
    naps: list[float] = []

    class Watched(ManualClock):
        def sleep(self, seconds: float) -> None:
            naps.append(seconds)
            super().sleep(seconds)

    clock = Watched()
    shaper = Shaper("1/w", store=MemoryStore(clock=clock))
    for _ in range(2):
        shaper.acquire("key")
    assert naps == [86_400.0] * 7
    assert clock.now == 7 * 86_400


# ---- what is counted ------------------------------------------------------------------------


def test_what_becomes_of_requests_is_counted() -> None:
    def counted() -> list[float]:
        by = [MEASURES.value("shaped", outcome=one) for one in ("at_once", "delayed", "refused")]
        return [*by, MEASURES.value("shaped_given_up")]

    async def story() -> None:
        before = counted()
        run = Run(AsyncShaper("10/s", queue=2, clock=now_ns))
        tasks = [run.come(name) for name in "abcd"]
        await asyncio.sleep(0)
        assert MEASURES.value("shaper_waiting") == 2
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [b - a for a, b in zip(before, counted(), strict=True)] == [1, 2, 1, 1]
        assert MEASURES.value("shaper_waiting") == 0

    run_virtually(story())
