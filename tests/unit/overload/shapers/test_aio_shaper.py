"""`AsyncShaper` in one process, on virtual time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decision import RateLimitedError
from headgate.errors import CostError, KeyInvalidError, OptionError, UsageError
from headgate.limits import LeakyQueue
from headgate.overload import AsyncShaper
from headgate.testing.virtual_loop import run_virtually
from headgate.units import MILLISECOND, SECOND
from tests.support.virtual_shaper import Run, here, now_ns, stored

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


@BOTH
@pytest.mark.parametrize("seed", range(6))
def test_random_arrivals_and_costs_leave_exactly_when_the_queue_lets_them(
    shaper_of: Callable[..., AsyncShaper], seed: int
) -> None:
    random = Random(seed)

    async def story() -> None:
        run = Run(shaper_of("8/s", queue=50))
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


@BOTH
def test_a_rate_that_is_no_whole_number_of_nanoseconds_does_not_drift(
    shaper_of: Callable[..., AsyncShaper],
) -> None:
    async def story() -> None:
        run = Run(shaper_of("3/s", queue=300))
        await asyncio.gather(*[run.come("x") for _ in range(301)])
        assert run.times == [-(-n * SECOND // 3) for n in range(301)]

    run_virtually(story())


@BOTH
def test_more_than_the_queue_holds_is_refused_at_once_and_told_when(
    shaper_of: Callable[..., AsyncShaper],
) -> None:
    async def story() -> None:
        run = Run(shaper_of("10/s", queue=2))
        tasks = [run.come(name) for name in "abcde"]
        await asyncio.sleep(0.001)
        assert run.said["d"].allowed is False
        assert run.said["d"].retry_after == run.said["e"].retry_after == 0.1
        await asyncio.gather(*tasks)
        assert run.names == "abc"

    run_virtually(story())


@BOTH
def test_max_wait_bounds_how_long_anyone_waits(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        run = Run(shaper_of("10/s", queue=100, max_wait=0.25))
        await asyncio.gather(*[run.come(name) for name in "abcde"])
        assert run.names == "abc"
        assert run.said["d"].retry_after == 0.05

    run_virtually(story())


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_deadlines_are_honest(shaper_of: Callable[..., AsyncShaper], seed: int) -> None:
    """Whoever is accepted is served in time; whoever is refused could not have been."""
    random = Random(seed)

    async def story() -> None:
        run = Run(shaper_of("20/s", queue=10))
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


@BOTH
def test_a_timeout_of_zero_means_only_if_at_once(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        shaper = shaper_of("10/s", queue=10)
        assert await shaper.acquire("key", timeout=0)
        refused = await shaper.acquire("key", timeout=0)
        assert (refused.allowed, refused.retry_after) == (False, 0.1)
        await asyncio.sleep(0.1)
        assert await shaper.acquire("key", timeout=0)

    run_virtually(story())


@BOTH
def test_peek_tells_the_delay_and_takes_no_place(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        shaper = shaper_of("10/s", queue=1)
        assert [(await shaper.peek("key")).delay for _ in range(2)] == [0.0, 0.0]
        await shaper.book("key", 5)
        assert not await shaper.peek("key")
        assert (await shaper.peek("key")).retry_after == 0.4
        assert await shaper.peek("key", 0)
        assert await shaper.expected_wait("key") == 0.5
        assert await shaper.depth("key") == 4
        await asyncio.sleep(0.4)
        assert (await shaper.peek("key")).delay == 0.1
        assert await shaper.depth("key") == 0

    run_virtually(story())


@BOTH
def test_keys_do_not_wait_for_each_other(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        run = Run(shaper_of("10/s", queue=5))
        await asyncio.gather(*[run.come(f"{n}", key=f"key {n % 3}") for n in range(6)])
        assert run.times == [0, 0, 0, TENTH, TENTH, TENTH]

    run_virtually(story())


@BOTH
def test_a_cost_of_zero_is_never_held_up(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        shaper = shaper_of("1/s", queue=0)
        await shaper.acquire("key")
        assert (await shaper.acquire("key", 0)).delay == 0
        assert not await shaper.acquire("key")

    run_virtually(story())


# ---- in one process those behind move up ----------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_wherever_one_is_cancelled_those_behind_move_up(seed: int) -> None:
    random = Random(seed)

    async def story() -> None:
        run = Run(here("10/s", queue=40))
        tasks = {str(n): run.come(str(n)) for n in range(30)}
        await asyncio.sleep(0)
        expected, waiting, at = [("0", 0)], [str(n) for n in range(1, 30)], 0
        while waiting:
            for seconds in sorted(random.sample(range(10), random.choice((0, 1, 2)))):
                await asyncio.sleep(at / 10 + seconds / 100 - now_ns() / SECOND)
                victim = waiting.pop(random.randrange(len(waiting))) if waiting else "0"
                tasks[victim].cancel()
                await asyncio.sleep(0)
            if waiting:
                at += 1
                expected.append((waiting.pop(0), at * TENTH))
                await asyncio.sleep(at / 10 - now_ns() / SECOND)
                await asyncio.sleep(0)
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert run.left == expected, f"seed {seed}"
        assert await run.shaper.depth("key") == 0

    run_virtually(story())


def test_one_cancelled_at_its_very_turn_lets_the_next_go_then() -> None:
    async def story() -> None:
        run = Run(here("10/s", queue=5))
        run.come("a")
        second, third = run.come("b"), run.come("c")
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        loop.call_at(loop.time() + 0.1, second.cancel)
        await third
        assert run.left == [("a", 0), ("c", TENTH)]

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


def test_many_who_give_up_at_once_leave_nothing_behind() -> None:
    async def story() -> None:
        run = Run(here("1/s", queue=3_000))
        tasks = [run.come(str(n)) for n in range(3_000)]
        await asyncio.sleep(0)
        for task in tasks[1:-1]:
            task.cancel()
        await tasks[-1]
        assert run.left == [("0", 0), ("2999", SECOND)]

    run_virtually(story())


def test_bookings_keep_their_time_while_those_who_wait_move_up() -> None:
    async def story() -> None:
        run = Run(here("10/s", queue=9))
        run.come("a")
        second = run.come("b")
        await asyncio.sleep(0)
        booking = await run.shaper.book("key")
        assert (booking.delay, booking.at) == (0.2, 0.2)
        last = run.come("c")
        await asyncio.sleep(0)
        second.cancel()
        await last
        assert run.left == [("a", 0), ("c", 3 * TENTH)]
        assert not await booking.cancel(), "its turn has come"

    run_virtually(story())


@BOTH
def test_a_booking_that_is_cancelled_makes_room(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        shaper = shaper_of("10/s", queue=2)
        first, second, third = [await shaper.book("key") for _ in range(3)]
        refused = await shaper.book("key")
        assert [bool(one) for one in (first, second, third, refused)] == [True, True, True, False]
        assert refused.retry_after == 0.1
        assert not await refused.cancel()
        assert not await first.cancel(), "it was at once"
        assert await third.cancel()
        assert not await third.cancel()
        assert (await shaper.book("key")).delay == 0.2
        assert "given up" in repr(third)

    run_virtually(story())


@BOTH
def test_reset_lets_whoever_comes_begin_anew(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        shaper = shaper_of("1/m", queue=5)
        await shaper.book("key", 3)
        assert await shaper.expected_wait("key") == 180
        await shaper.reset("key")
        assert await shaper.expected_wait("key") == 0

    run_virtually(story())


def test_reset_lets_those_who_wait_go_one_after_the_other() -> None:
    async def story() -> None:
        run = Run(here("1/m", queue=5))
        tasks = [run.come(name) for name in "abc"]
        await asyncio.sleep(10)
        await run.shaper.reset("key")
        await asyncio.gather(*tasks)
        assert run.times == [0, 10 * SECOND, 70 * SECOND]

    run_virtually(story())


# ---- how it is used -------------------------------------------------------------------------


@BOTH
def test_calls_of_a_decorated_function_take_turns(shaper_of: Callable[..., AsyncShaper]) -> None:
    async def story() -> None:
        shaper, times = shaper_of("10/s", queue=2), []

        @shaper.limit(lambda name: name)
        async def call(name: str) -> str:
            times.append(now_ns())
            return name

        results = await asyncio.gather(*[call("x") for _ in range(4)], return_exceptions=True)
        assert results[:3] == ["x"] * 3
        assert isinstance(results[3], RateLimitedError)
        assert times == [0, TENTH, 2 * TENTH]
        with pytest.raises(UsageError, match="with a Shaper"):
            shaper.limit()(lambda: None)

    run_virtually(story())


@pytest.mark.parametrize(
    ("rate", "options", "gap_ms"),
    [
        ("10/s", {}, 100),
        ("100 per minute", {"queue": 7}, 600),
        (4, {}, 250),
        (0.5, {"max_wait": 60}, 2000),
    ],
)
def test_a_rate_is_a_text_or_a_number_per_second(
    rate: Any, options: dict[str, Any], gap_ms: int
) -> None:
    async def story() -> None:
        shaper = here(rate, **options)
        bookings = [await shaper.book("key") for _ in range(3)]
        assert [one.at_ns // MILLISECOND for one in bookings] == [0, gap_ms, 2 * gap_ms]

    run_virtually(story())


@pytest.mark.parametrize(
    ("options", "queue"),
    [({}, 100), ({"max_wait": 2}, 20), ({"max_wait": 0}, 0), ({"max_wait": 2, "queue": 5}, 5)],
)
def test_without_a_queue_as_many_wait_as_can_be_served(options: dict[str, Any], queue: int) -> None:
    assert AsyncShaper("10/s", **options).queue == LeakyQueue(10, queue, options.get("max_wait"))


@pytest.mark.parametrize("rate", ["10/s burst 20", "10/s; 5/m", "10/s fixed_window", "ten", 0, "x"])
def test_what_is_no_rate_is_refused(rate: Any) -> None:
    with pytest.raises(ValueError, match=r"rate|limit"):
        AsyncShaper(rate)


@BOTH
def test_what_makes_no_sense_is_refused_before_anything_happens(
    shaper_of: Callable[..., AsyncShaper],
) -> None:
    async def story() -> None:
        shaper = shaper_of("10/s")
        with pytest.raises(CostError):
            await shaper.acquire("key", -1)
        with pytest.raises(KeyInvalidError):
            await shaper.acquire("")
        with pytest.raises(OptionError):
            await shaper.acquire("key", timeout=-1)
        with pytest.raises(KeyInvalidError):
            await shaper.reset("")
        assert await shaper.expected_wait("key") == 0
        async with shaper:
            assert repr(shaper) == "AsyncShaper('10/s in a queue of 100')"

    run_virtually(story())
