"""`AsyncRateLimiter`: the same verbs, many tasks, cancellation."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from headgate import (
    AsyncRateLimiter,
    Concurrency,
    CostError,
    Hit,
    KeyInvalidError,
    MemoryStore,
    RateLimiter,
    UsageError,
)
from headgate.runtime.waiting_lines import Lines, Place
from headgate.stores.operations import Operation
from headgate.testing import ManualClock
from tests.support.async_stores import LoopStore

R = TypeVar("R")

LIMITS = ["100/h", "100/h fixed_window", "100/h sliding_window_log", "100/h; 150/h gcra"]


class SlowStore(LoopStore):
    """A store that answers when it is let, and tells when it has been asked."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def arun(self, operation: Operation[R]) -> R:
        self.asked.set()
        await self.may_answer.wait()
        return await self.store.arun(operation)


class AnnouncedLines(Lines):
    """Lines that tell when somebody has lined up."""

    __slots__ = ("joined",)

    def __init__(self) -> None:
        super().__init__()
        self.joined: asyncio.Queue[str] = asyncio.Queue()

    def join(self, key: str, place: Place) -> bool:
        is_first = super().join(key, place)
        self.joined.put_nowait(key)
        return is_first


def full_limiter(limits: str = "10/h") -> tuple[AsyncRateLimiter, AnnouncedLines]:
    store = MemoryStore(clock=ManualClock(3_600).__call__)
    RateLimiter(limits, store=store).hit("key", 10)
    limiter = AsyncRateLimiter(limits, store=store)
    limiter._lines = lines = AnnouncedLines()
    return limiter, lines


async def in_line(
    limiter: AsyncRateLimiter, lines: AnnouncedLines, costs: list[int]
) -> list[asyncio.Task[Any]]:
    """Tasks that wait for *costs*, in this order."""
    tasks = []
    for cost in costs:
        tasks.append(asyncio.create_task(limiter.acquire("key", cost)))
        await lines.joined.get()
    return tasks


@pytest.mark.parametrize("limits", LIMITS)
def test_tasks_together_are_admitted_exactly_the_limit(limits: str) -> None:
    async def main() -> int:
        limiter = AsyncRateLimiter(limits, clock=ManualClock(3_600))
        return sum(d.allowed for d in await asyncio.gather(*(limiter.hit("k") for _ in range(300))))

    assert asyncio.run(main()) == 100


@pytest.mark.parametrize("limits", LIMITS)
def test_tasks_on_a_store_that_must_be_awaited_are_admitted_exactly_the_limit(limits: str) -> None:
    async def main() -> int:
        store = SlowStore(MemoryStore(clock=ManualClock(3_600)))
        limiter = AsyncRateLimiter(limits, store=store)
        hits = asyncio.gather(*(limiter.hit("key", 3) for _ in range(60)))
        store.may_answer.set()
        return sum(decision.allowed for decision in await hits)

    assert asyncio.run(main()) == 33


@pytest.mark.parametrize("limits", ["10/h", "10/h fixed_window", "10/h; 10/h sliding_window_log"])
def test_waiting_tasks_are_served_in_the_order_they_came(limits: str) -> None:
    async def main() -> None:
        limiter, lines = full_limiter(limits)
        tasks = await in_line(limiter, lines, [1] * 4)
        for n, task in enumerate(tasks):
            await limiter.refund("key", 1)
            assert await task
            assert [other.done() for other in tasks] == [m <= n for m in range(4)]

    asyncio.run(main())


def test_a_large_cost_in_front_is_not_overtaken_by_small_ones() -> None:
    async def main() -> None:
        limiter, lines = full_limiter()
        large, small = await in_line(limiter, lines, [3, 1])
        await limiter.refund("key", 2)
        await limiter.refund("key", 1)
        assert await large
        assert not small.done()
        await limiter.reset("key")
        assert await small

    asyncio.run(main())


def test_a_reservation_settled_early_wakes_the_first_in_line() -> None:
    async def main() -> None:
        limiter, lines = full_limiter()
        await limiter.refund("key", 5)
        reservation = await limiter.reserve("key", 5)
        (task,) = await in_line(limiter, lines, [4])
        assert await reservation.commit(1)
        assert await task

    asyncio.run(main())


def test_a_cancelled_wait_consumes_nothing_and_the_next_comes_first() -> None:
    async def main() -> None:
        limiter, lines = full_limiter()
        first, second, third = await in_line(limiter, lines, [1, 1, 1])
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        await limiter.refund("key", 1)
        assert await second
        assert (await limiter.peek("key")).remaining == 0
        assert not lines._by_key

    asyncio.run(main())


@pytest.mark.parametrize("limits", ["10/h", "10/h fixed_window", "10/h; 10/h sliding_window_log"])
def test_what_a_store_charges_to_a_cancelled_caller_is_given_back(limits: str) -> None:
    async def main() -> int:
        inner = MemoryStore(clock=ManualClock(3_600))
        store = SlowStore(inner)
        limiter = AsyncRateLimiter(limits, store=store)
        task = asyncio.create_task(limiter.acquire("key", 4))
        await store.asked.wait()
        task.cancel()
        store.may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await limiter.aclose()
        return RateLimiter(limits, store=inner).peek("key").remaining

    assert asyncio.run(main()) == 10


def test_a_refused_caller_that_is_cancelled_is_given_nothing() -> None:
    async def main() -> int:
        inner = MemoryStore(clock=ManualClock(3_600))
        RateLimiter("10/h", store=inner).hit("key", 8)
        store = SlowStore(inner)
        limiter = AsyncRateLimiter("10/h", store=store)
        task = asyncio.create_task(limiter.acquire("key", 4))
        await store.asked.wait()
        task.cancel()
        store.may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await limiter.aclose()
        return RateLimiter("10/h", store=inner).peek("key").remaining

    assert asyncio.run(main()) == 2


def test_the_next_in_line_gets_what_a_cancelled_caller_gave_back() -> None:
    async def main() -> None:
        store = SlowStore(MemoryStore(clock=ManualClock(3_600)))
        limiter = AsyncRateLimiter("10/h", store=store)
        limiter._lines = lines = AnnouncedLines()
        first, second = await in_line(limiter, lines, [10, 10])
        await store.asked.wait()
        first.cancel()
        store.may_answer.set()
        assert await second
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(main())


def test_a_wait_that_cannot_end_in_time_is_refused_at_once() -> None:
    clock = ManualClock()

    async def main() -> None:
        limiter = AsyncRateLimiter("1/m", clock=clock)
        await limiter.hit("key")
        refusal = await limiter.acquire("key", timeout=59.999)
        assert (refusal.allowed, refusal.retry_after, clock.now) == (False, 60, 0)
        assert await limiter.acquire("key", timeout=60)
        assert clock.now == 60

    asyncio.run(main())


def test_a_cost_that_can_never_fit_is_refused_at_once() -> None:
    limiter = AsyncRateLimiter("10/m", clock=ManualClock())
    assert asyncio.run(limiter.acquire("key", 11)).retry_after is None


def test_who_gives_up_in_line_is_refused_and_charged_nothing() -> None:
    async def main() -> None:
        limiter, lines = full_limiter()
        (first,) = await in_line(limiter, lines, [10])
        await limiter.refund("key", 5)
        refusal = await limiter.acquire("key", 1, timeout=0)
        assert not refusal
        assert refusal.retry_after
        assert (await limiter.peek("key")).remaining == 5
        await limiter.reset("key")
        assert await first

    asyncio.run(main())


def test_an_infinite_timeout_is_no_timeout() -> None:
    clock = ManualClock()

    async def main() -> None:
        limiter = AsyncRateLimiter("1/m", clock=clock)
        await limiter.hit("key")
        assert await limiter.acquire("key", timeout=float("inf"))
        assert clock.now == 60

    asyncio.run(main())


Verb = Callable[[AsyncRateLimiter], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize(
    "verb",
    [
        lambda limiter: limiter.hit("key", -1),
        lambda limiter: limiter.peek("key", -1),
        lambda limiter: limiter.acquire("key", -1),
        lambda limiter: limiter.reserve("key", -1),
        lambda limiter: limiter.charge("key", -1),
        lambda limiter: limiter.refund("key", -1),
        lambda limiter: limiter.hit_many([("key", -1)]),
        lambda limiter: limiter.hit_all([Hit("key", "1/s", -1)]),
    ],
)
def test_a_bad_cost_never_reaches_the_store(verb: Verb) -> None:
    async def main() -> bool:
        store = SlowStore(MemoryStore())
        with pytest.raises(CostError):
            await verb(AsyncRateLimiter("10/m", store=store))
        return store.asked.is_set()

    assert not asyncio.run(main())


@pytest.mark.parametrize("key", ["", None, 5])
def test_a_bad_key_never_reaches_the_store(key: Any) -> None:
    async def main() -> bool:
        store = SlowStore(MemoryStore())
        with pytest.raises(KeyInvalidError):
            await AsyncRateLimiter("10/m", store=store).hit(key)
        return store.asked.is_set()

    assert not asyncio.run(main())


def test_hits_that_need_a_slot_are_a_usage_error() -> None:
    limiter = AsyncRateLimiter(Concurrency(1, 60))
    with pytest.raises(UsageError, match="slot"):
        asyncio.run(limiter.hit("key"))
    with pytest.raises(UsageError, match="Concurrency"):
        AsyncRateLimiter("1/s").slot("key")


def test_it_is_an_async_context_manager_that_closes_its_store() -> None:
    class Closable(SlowStore):
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True

    async def main() -> bool:
        store = Closable(MemoryStore())
        async with AsyncRateLimiter("1/s", store=store) as limiter:
            assert limiter.store is store
            assert not store.is_closed
        return store.is_closed

    assert asyncio.run(main())


def test_its_repr_shows_the_limits() -> None:
    assert repr(AsyncRateLimiter("5/s; 100/m gcra")) == "AsyncRateLimiter('5/s; 100/m gcra')"
