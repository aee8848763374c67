"""Limiters with a `LeakyQueue`: who is admitted waits for its turn, who gives up takes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import AsyncRateLimiter, LeakyQueue, MemoryStore, RateLimiter, TokenBucket
from headgate.decision import RateLimitedError
from headgate.testing import ManualClock
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from headgate.units import MILLISECOND
from tests.support.virtual_shaper import FarStore

if TYPE_CHECKING:
    from headgate import Decision

QUEUE = LeakyQueue(10, 5)
BUCKET = TokenBucket(10, 1)


def now_ms() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.time_ns() // MILLISECOND


def virtual(*limits: Any, **options: Any) -> AsyncRateLimiter:
    clock = asyncio.get_running_loop()
    assert isinstance(clock, VirtualLoop)
    options.setdefault("store", MemoryStore(clock=clock.time_ns))
    return AsyncRateLimiter(limits, **options)


class Callers:
    """Who came to a limiter, and when each of them went on, in milliseconds."""

    def __init__(self, limiter: AsyncRateLimiter) -> None:
        self.limiter = limiter
        self.went: list[tuple[str, int]] = []

    def come(self, name: str, cost: int = 1, timeout: float | None = None) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self._go(name, cost, timeout))

    async def _go(self, name: str, cost: int, timeout: float | None) -> Decision:  # noqa: ASYNC109
        decision = await self.limiter.acquire("key", cost, timeout)
        if decision:
            self.went.append((name, now_ms()))
        return decision


@pytest.mark.parametrize("limits", [(QUEUE,), (BUCKET, QUEUE), (QUEUE, LeakyQueue(20, 5))])
def test_those_who_acquire_go_on_evenly_and_in_order(limits: Any) -> None:
    async def story() -> None:
        callers = Callers(virtual(*limits))
        await asyncio.gather(*[callers.come(name) for name in "abcde"])
        assert callers.went == [("a", 0), ("b", 100), ("c", 200), ("d", 300), ("e", 400)]

    run_virtually(story())


def test_who_finds_the_queue_full_waits_for_a_place_and_then_for_its_turn() -> None:
    async def story() -> None:
        callers = Callers(virtual(LeakyQueue(10, 2)))
        await asyncio.gather(*[callers.come(name) for name in "abcdefg"])
        assert callers.went == [(name, 100 * n) for n, name in enumerate("abcdefg")]

    run_virtually(story())


def test_a_cost_may_be_larger_than_the_queue_is_long() -> None:
    async def story() -> None:
        callers = Callers(virtual(LeakyQueue(10, 2)))
        await asyncio.gather(callers.come("first"), callers.come("large", 50), callers.come("next"))
        assert callers.went == [("first", 0), ("large", 100), ("next", 5_100)]

    run_virtually(story())


@pytest.mark.parametrize("queue", [1, 5])
def test_who_could_not_go_on_in_time_is_refused_at_once_and_takes_nothing(queue: int) -> None:
    async def story() -> None:
        limiter = virtual(BUCKET, LeakyQueue(10, queue))
        callers = Callers(limiter)
        await callers.come("first", 3)
        refusal = await callers.come("hasty", timeout=0.299)
        assert (refusal.allowed, now_ms()) == (False, 0)
        assert (await limiter.peek("key")).limits[0].remaining == 7
        assert await callers.come("patient", timeout=0.3)
        assert callers.went == [("first", 0), ("patient", 300)]
        refusal = await callers.come("only at once", timeout=0)
        assert refusal.retry_after == pytest.approx(0.1)

    run_virtually(story())


def test_who_is_cancelled_while_it_waits_gives_everything_back() -> None:
    async def story() -> None:
        limiter = virtual(BUCKET, QUEUE)
        callers = Callers(limiter)
        tasks = [callers.come(name) for name in "abc"]
        await asyncio.sleep(0.05)
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert (await limiter.peek("key")).limits[0].remaining == 8
        await callers.come("instead")
        await tasks[2]
        assert callers.went == [("a", 0), ("instead", 100), ("c", 200)]

    run_virtually(story())


@pytest.mark.parametrize("after_ms", [0, 5, 15, 29, 31, 60])
def test_over_a_store_the_turn_is_given_up_wherever_its_caller_is(after_ms: int) -> None:
    async def story() -> None:
        store = FarStore()
        async with virtual(QUEUE, store=store) as limiter:
            callers = Callers(limiter)
            await callers.come("first")
            cancelled = callers.come("second")
            await asyncio.sleep(after_ms / 1_000)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            fresh_ms = (await limiter.peek("key")).reset_after_ns // MILLISECOND
            # The first turn was at 10 ms; the look was taken 20 ms ago.
            assert fresh_ms == max(0, 110 - (now_ms() - 20))

    run_virtually(story())


def test_a_reservation_whose_caller_is_cancelled_while_it_asks_keeps_no_turn() -> None:
    async def story() -> None:
        async with virtual(QUEUE, store=FarStore()) as limiter:
            await limiter.hit("key")
            task = asyncio.ensure_future(limiter.reserve("key", 4))
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert (await limiter.peek("key")).reset_after_ns < 100 * MILLISECOND

    run_virtually(story())


def test_a_turn_given_while_the_store_is_gone_is_given_up_here() -> None:
    async def story() -> None:
        store = FarStore()
        store.is_gone = True
        limiter = virtual(BUCKET, QUEUE, store=store, on_store_failure="local")
        callers = Callers(limiter)
        await callers.come("first")
        task = callers.come("second")
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.05)
        local = await limiter.peek("key")
        assert (local.source, local.limits[0].remaining) == ("local", 9)
        assert local.limits[1].reset_after_ns < 100 * MILLISECOND
        store.is_gone = False
        await limiter.aclose()

    run_virtually(story())


@pytest.mark.parametrize("wait", [False, True])
def test_decorated_calls_have_their_turns(*, wait: bool) -> None:
    async def story() -> None:
        went = []

        @virtual(LeakyQueue(10, 2)).limit("key", wait=wait)
        async def call(name: str) -> None:
            went.append((name, now_ms()))

        said = await asyncio.gather(*[call(name) for name in "abcd"], return_exceptions=True)
        assert went[:3] == [("a", 0), ("b", 100), ("c", 200)]
        assert went[3:] == ([("d", 300)] if wait else [])
        assert isinstance(said[3], RateLimitedError) is not wait

    run_virtually(story())


def test_a_reservation_that_is_cancelled_gives_its_turn_up() -> None:
    async def story() -> None:
        limiter = virtual(BUCKET, QUEUE)
        await limiter.hit("key")
        kept, given_up = await limiter.reserve("key", 2), await limiter.reserve("key", 1)
        assert (kept.decision.delay, given_up.decision.delay) == (0.1, 0.3)
        assert await given_up.cancel()
        assert (await limiter.peek("key")).delay == 0.3
        assert await kept.commit(1)
        assert (await limiter.peek("key")).delay == 0.3

    run_virtually(story())


# ---- threads ------------------------------------------------------------------------------


def test_a_thread_waits_for_its_turn() -> None:
    clock = ManualClock()
    limiter = RateLimiter([BUCKET, QUEUE], clock=clock)
    for n in range(4):
        assert limiter.acquire("key").delay == (0.1 if n else 0)
        assert clock.now == pytest.approx(n / 10)
    assert limiter.hit("key").delay == 0.1
    assert not limiter.acquire("key", timeout=0.1)
    assert clock.now == pytest.approx(0.3)


class Interrupted(ManualClock):
    """Whoever sleeps is interrupted."""

    def sleep(self, _seconds: float) -> None:
        raise KeyboardInterrupt


def test_a_thread_that_is_interrupted_gives_everything_back() -> None:
    limiter = RateLimiter([BUCKET, QUEUE], clock=Interrupted())
    assert limiter.hit("key").delay == 0

    @limiter.limit("key")
    def call() -> None:
        raise AssertionError("it never has its turn")

    for wait in (lambda: limiter.acquire("key"), call):
        with pytest.raises(KeyboardInterrupt):
            wait()
        seen = limiter.peek("key")
        assert (seen.delay, seen.limits[0].remaining) == (0.1, 9)


def test_a_reservation_of_a_thread_gives_its_turn_up_if_its_block_raises() -> None:
    limiter = RateLimiter(QUEUE, clock=ManualClock())
    limiter.hit("key")
    with pytest.raises(ZeroDivisionError), limiter.reserve("key", 3):
        raise ZeroDivisionError
    assert limiter.peek("key").delay == 0.1
    with limiter.reserve("key", 3):
        pass
    assert limiter.peek("key").delay == 0.4


def test_a_reservation_of_a_place_that_has_expired_is_not_open_any_more() -> None:
    clock = ManualClock(1_000)
    limiter = RateLimiter(QUEUE, clock=clock)
    expired, open_ = limiter.reserve("key", 1, ttl=1), limiter.reserve("key", 1, ttl=120)
    clock.advance(61)
    assert (expired.cancel(), open_.cancel()) == (False, True)
