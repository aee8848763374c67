"""`AsyncShaper` on virtual time: crowds that wait together, callers that give up, a fleet."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING

import pytest

from headgate import MemoryStore
from headgate.decision import OnFailure
from headgate.observability import METRICS
from headgate.overload import AsyncShaper
from headgate.runtime.fallback import fallback_of
from headgate.stores.factory import wrapped
from headgate.stores.operations import CancelQueued, Take
from headgate.testing.virtual_loop import run_virtually
from headgate.units import MILLISECOND, SECOND
from tests.support.gate_callers import settle
from tests.support.virtual_shaper import FarStore, Run, here, now_ns, stored

if TYPE_CHECKING:
    from collections.abc import Callable


BOTH = pytest.mark.parametrize("shaper_of", [here, stored])
TENTH = SECOND // 10


@BOTH
def test_a_burst_leaves_evenly_spaced_in_the_order_it_came(
    shaper_of: Callable[..., AsyncShaper],
) -> None:
    async def story() -> None:
        run = Run(shaper_of("10/s", queue=20))
        await asyncio.gather(*[run.come(name) for name in "abcdefghijk"])
        assert run.names == "abcdefghijk"
        assert run.times == [n * TENTH for n in range(11)]
        assert [run.said[name].delay_ns for name in "abc"] == [0, TENTH, 2 * TENTH]

    run_virtually(story())


@pytest.mark.parametrize("seed", range(3))
def test_random_arrivals_and_costs_leave_exactly_when_the_queue_lets_them(
    seed: int,
) -> None:
    random = Random(seed)

    async def story() -> None:
        run = Run(here("8/s", queue=50))
        due, free = [], 0
        for n in range(60):
            await asyncio.sleep(random.choice((0, 0, 0, 0.125, 0.3, 1.7)))
            cost = random.choice((1, 1, 1, 2, 5))
            run.come(str(n), cost)
            begin = max(free, now_ns())
            if begin - now_ns() <= 50 * SECOND // 8:
                due.append((str(n), begin))
                free = begin + cost * SECOND // 8
        await asyncio.sleep(60)
        assert run.left == due, f"seed {seed}"

    run_virtually(story())


def test_a_rate_that_is_no_whole_number_of_nanoseconds_does_not_drift() -> None:
    async def story() -> None:
        run = Run(here("3/s", queue=60))
        await asyncio.gather(*[run.come("x") for _ in range(61)])
        assert run.times == [-(-n * SECOND // 3) for n in range(61)]

    run_virtually(story())


@pytest.mark.parametrize("seed", range(2))
def test_deadlines_are_honest(seed: int) -> None:
    """Whoever is accepted is served in time; whoever is refused could not have been."""
    random = Random(seed)

    async def story() -> None:
        run = Run(here("20/s", queue=10))
        came: dict[str, tuple[int, int, int]] = {}
        for n in range(80):
            await asyncio.sleep(random.choice((0, 0, 0.02, 0.1)))
            timeout = random.choice((0, 0.05, 0.1, 0.22, 5))
            wait = round(await run.shaper.expected_wait("key") * SECOND)
            came[str(n)] = now_ns(), round(timeout * SECOND), wait
            run.come(str(n), timeout=timeout)
        await asyncio.sleep(10)
        left = dict(run.left)
        for name, (at, timeout_ns, wait) in came.items():
            if run.said[name]:
                assert left[name] == at + wait <= at + timeout_ns, f"{name} of seed {seed}"
            else:
                assert wait > min(timeout_ns, SECOND // 2), f"{name} of seed {seed}"
        assert 10 < len(left) < 80

    run_virtually(story())


def test_keys_do_not_wait_for_each_other() -> None:
    async def story() -> None:
        run = Run(here("10/s", queue=5))
        await asyncio.gather(*[run.come(f"{n}", key=f"key {n % 3}") for n in range(6)])
        assert run.times == [0, 0, 0, TENTH, TENTH, TENTH]

    run_virtually(story())


# ---- callers that give up -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_cancelled_caller_loses_its_place_and_delays_no_other(seed: int) -> None:
    """Whoever waits leaves at the time that it was given; gaps go to those who come later."""
    random = Random(seed)

    async def story() -> None:
        run = Run(here("10/s", queue=60))
        tasks = {str(n): run.come(str(n)) for n in range(30)}
        await asyncio.sleep(0.05)
        gone = random.sample(sorted(set(tasks) - {"0"}), 8)
        for name in gone[:4]:
            tasks[name].cancel()
        await asyncio.sleep(0)
        late = [run.come(f"late {n}") for n in range(4)]
        await asyncio.sleep(0)
        for name in gone[4:]:
            tasks[name].cancel()
        await asyncio.gather(*tasks.values(), *late, return_exceptions=True)
        left = dict(run.left)
        for name in set(tasks) - set(gone):
            assert left[name] == int(name) * TENTH, f"seed {seed}"
        # The places of the first four are had by the late ones, each for one of them.
        free = sorted(int(name) * TENTH for name in gone[:4])
        assert sorted(left[f"late {n}"] for n in range(4)) == free
        assert len(set(run.times)) == len(run.times), "and no two leave together"

    run_virtually(story())


def test_many_who_give_up_at_once_leave_nothing_behind() -> None:
    async def story() -> None:
        run = Run(here("1/s", queue=1_000))
        tasks = [run.come(str(n)) for n in range(1_000)]
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.wait(tasks)
        assert await run.shaper.expected_wait("key") == 1

    run_virtually(story())


def test_a_timeout_of_the_callers_own_gives_the_place_up() -> None:
    async def story() -> None:
        run = Run(here("10/s", queue=5))
        tasks = [run.come("a"), run.come("b")]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await run.shaper.acquire("key")
        tasks.append(run.come("c"))
        await asyncio.gather(*tasks)
        assert run.left == [("a", 0), ("b", TENTH), ("c", 2 * TENTH)]

    run_virtually(story())


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
        after = AsyncShaper("10/s", queue=9, store=store.memory)
        look = await after.peek("key")
        assert look.reset_after_ns == max(TENTH + 10 * MILLISECOND - now_ns(), 0)
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
            await settle()
        after = AsyncShaper("1/s", queue=9, store=store.memory)
        assert await after.expected_wait("key") < 1

    run_virtually(story())


def test_without_the_store_a_share_of_the_rate_goes_on_being_shaped() -> None:
    async def story() -> None:
        store = FarStore(0, 0)
        store.is_gone = True
        on_failure = OnFailure("local", share=Fraction(1, 2))
        run = Run(AsyncShaper("10/s", queue=8, store=store, on_store_failure=on_failure))
        fallback_of(wrapped(store, None)).local = MemoryStore(clock=now_ns)
        await asyncio.gather(*[run.come(str(n)) for n in range(8)])
        assert run.times == [n * 2 * TENTH for n in range(5)]
        assert {one.source for one in run.said.values()} == {"local"}
        store.is_gone = False
        assert (await run.shaper.acquire("key")).source == "store"
        await run.shaper.aclose()

    run_virtually(story())


def test_what_becomes_of_requests_is_counted() -> None:
    def counted() -> list[float]:
        by = [METRICS.value("shaped", outcome=one) for one in ("at_once", "delayed", "denied")]
        return [*by, METRICS.value("shaped_cancelled")]

    async def story() -> None:
        before = counted()
        run = Run(AsyncShaper("10/s", queue=2, clock=now_ns))
        tasks = [run.come(name) for name in "abcd"]
        await asyncio.sleep(0)
        assert METRICS.value("shaper_waiting") == 2
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [b - a for a, b in zip(before, counted(), strict=True)] == [1, 2, 1, 1]
        assert METRICS.value("shaper_waiting") == 0

    run_virtually(story())
