"""`Shaper` and `AsyncShaper`: one body of tests for both, on a clock that the tests move."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from headgate import MemoryStore, RateLimiter
from headgate.decision import RateLimitedError
from headgate.errors import (
    CostError,
    KeyInvalidError,
    OptionError,
    StoreError,
    StoreURLError,
    UsageError,
)
from headgate.limits import LeakyQueue
from headgate.overload import AsyncShaper, Shaper
from headgate.stores.base import Store
from headgate.testing import ManualClock
from headgate.units import MILLISECOND
from tests.support.driven import Driven

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate import Decision
    from headgate.stores.operations import Operation

KINDS = (Shaper, AsyncShaper)


@pytest.fixture(params=KINDS, ids=["blocking", "async"])
def kind(request: pytest.FixtureRequest) -> type[Shaper | AsyncShaper]:
    chosen: type[Shaper | AsyncShaper] = request.param
    return chosen


@pytest.fixture(params=["url", "store"])
def shaper_of(
    request: pytest.FixtureRequest, kind: type[Shaper | AsyncShaper]
) -> Callable[..., Driven]:
    """Make shapers of either kind, on `memory://` or on a store."""

    def make(rate: Any, clock: ManualClock | None = None, **options: Any) -> Driven:
        clock = clock or ManualClock()
        if request.param == "url":
            return Driven(kind(rate, clock=clock, **options))
        return Driven(kind(rate, store=MemoryStore(clock=clock), **options))

    return make


# ---- places ---------------------------------------------------------------------------------


def test_on_a_manual_clock_nobody_really_sleeps(shaper_of: Callable[..., Driven]) -> None:
    clock = ManualClock()
    shaper = shaper_of(LeakyQueue(10, 5), clock)
    delays = [shaper.acquire("key").delay for _ in range(4)]
    assert delays == [0.0, 0.1, 0.1, 0.1]
    assert clock.now == pytest.approx(0.3)
    booking = shaper.book("key", 2)
    assert booking.delay == 0.1
    assert booking.at == pytest.approx(0.4)
    assert shaper.depth("key") == 2
    assert booking.cancel()
    assert shaper.expected_wait("key") == 0.1
    shaper.reset("key")
    assert shaper.peek("key").delay == 0
    shaper.close()


def test_more_than_the_queue_holds_is_denied_at_once_and_says_when_to_retry(
    shaper_of: Callable[..., Driven],
) -> None:
    clock = ManualClock()
    shaper = shaper_of("10/s", clock, queue=2)
    for _ in range(3):
        assert shaper.book("key")
    denied = shaper.acquire("key")
    assert (denied.allowed, denied.retry_after) == (False, 0.1)
    clock.advance(0.0999)
    assert not shaper.acquire("key")
    clock.advance(0.0001)
    assert shaper.acquire("key").delay == 0.2


def test_max_wait_bounds_how_long_anyone_waits(shaper_of: Callable[..., Driven]) -> None:
    shaper = shaper_of("10/s", queue=100, max_wait=0.25)
    booked = [shaper.book("key") for _ in range(4)]
    assert [bool(one) for one in booked] == [True, True, True, False]
    assert booked[3].retry_after == 0.05


def test_a_timeout_is_a_smaller_queue_for_one_caller(shaper_of: Callable[..., Driven]) -> None:
    clock = ManualClock()
    shaper = shaper_of("10/s", clock, queue=10)
    assert shaper.acquire("key", timeout=0)
    denied = shaper.acquire("key", timeout=0)
    assert (denied.allowed, denied.retry_after) == (False, 0.1)
    shaper.book("key", 2)
    for ask in (shaper.peek, shaper.acquire, shaper.book):
        assert ask("key", 1, 0.25).retry_after == pytest.approx(0.05)
    assert shaper.peek("key", 1, 0.3).delay == shaper.peek("key").delay == 0.3
    assert shaper.book("key", 1, 0.3).delay == 0.3
    clock.advance(0.4)
    assert shaper.acquire("key", timeout=0).delay == 0


def test_peek_tells_the_delay_and_takes_no_place(shaper_of: Callable[..., Driven]) -> None:
    clock = ManualClock()
    shaper = shaper_of("10/s", clock, queue=1)
    assert [shaper.peek("key").delay for _ in range(2)] == [0.0, 0.0]
    shaper.book("key", 5)
    assert not shaper.peek("key")
    assert shaper.peek("key").retry_after == 0.4
    assert shaper.peek("key", 1, 0.05).retry_after == 0.45
    assert shaper.peek("key", 1, 9).retry_after == 0.4
    assert shaper.peek("key", 0)
    assert shaper.expected_wait("key") == 0.5
    assert shaper.depth("key") == 4
    clock.advance(0.4)
    assert shaper.peek("key").delay == 0.1
    assert shaper.depth("key") == 0


def test_a_cost_of_zero_is_never_held_up(shaper_of: Callable[..., Driven]) -> None:
    shaper = shaper_of("1/s", queue=0)
    assert shaper.acquire("key")
    assert shaper.acquire("key", 0).delay == 0
    assert not shaper.acquire("key")


def test_a_cost_that_takes_more_than_a_century_never_fits(shaper_of: Callable[..., Driven]) -> None:
    shaper = shaper_of("1/w", queue=5)
    for ask in (shaper.peek, shaper.acquire, shaper.book):
        for timeout in (None, 60):
            denied = ask("key", 10_000, timeout)
            assert (bool(denied), denied.retry_after) == (False, None)
    assert shaper.acquire("key", 5_000).delay == 0


def test_a_booking_that_is_cancelled_makes_room(shaper_of: Callable[..., Driven]) -> None:
    shaper = shaper_of("10/s", queue=2)
    first, second, third = [shaper.book("key") for _ in range(3)]
    denied = shaper.book("key")
    assert [bool(one) for one in (first, second, third, denied)] == [True, True, True, False]
    assert denied.retry_after == 0.1
    assert not denied.cancel()
    assert not first.cancel(), "it was at once"
    assert third.cancel()
    assert not third.cancel()
    assert shaper.book("key").delay == 0.2
    assert "cancelled" in repr(third)
    assert "denied" in repr(denied)


def test_a_place_whose_time_has_come_cannot_be_cancelled(shaper_of: Callable[..., Driven]) -> None:
    clock = ManualClock()
    shaper = shaper_of("10/s", clock)
    _, booking = shaper.book("key"), shaper.book("key")
    clock.advance(0.1)
    assert not booking.cancel()


class InterruptedClock(ManualClock):
    """Who sleeps on it is interrupted."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt

    async def asleep(self, seconds: float) -> None:
        raise asyncio.CancelledError


def test_a_caller_that_is_interrupted_while_it_waits_gives_its_place_up(
    shaper_of: Callable[..., Driven],
) -> None:
    shaper = shaper_of("10/s", InterruptedClock())
    shaper.acquire("key")
    kept = shaper.book("key")
    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        shaper.acquire("key")
    assert shaper.expected_wait("key") == 0.2, "that of the other one is still there"
    assert kept.cancel()


def test_reset_lets_the_next_one_leave_at_once(shaper_of: Callable[..., Driven]) -> None:
    shaper = shaper_of("1/m", queue=5)
    shaper.book("key", 3)
    assert shaper.expected_wait("key") == 180
    shaper.reset("key")
    assert shaper.expected_wait("key") == 0


def test_a_wait_of_months_is_slept_a_day_at_a_time(kind: type[Shaper | AsyncShaper]) -> None:
    naps: list[float] = []

    class Watched(ManualClock):
        def advance(self, seconds: float) -> None:
            naps.append(seconds)
            super().advance(seconds)

    clock = Watched()
    shaper = Driven(kind("1/w", store=MemoryStore(clock=clock)))
    for _ in range(2):
        shaper.acquire("key")
    assert naps == [86_400.0] * 7
    assert clock.now == 7 * 86_400


def test_shapers_of_one_store_and_namespace_share_their_queues() -> None:
    store = MemoryStore(clock=ManualClock())
    one, two = Shaper("10/s", store=store), Driven(AsyncShaper("10/s", store=store))
    other = Shaper("10/s", store=store, namespace="other")
    assert [one.book("key").delay, two.book("key").delay, one.book("key").delay] == [0, 0.1, 0.2]
    assert other.book("key").delay == 0
    assert one.book("other").delay == 0


def test_a_limiter_of_the_same_namespace_counts_for_itself() -> None:
    store = MemoryStore(clock=ManualClock())
    shaper, limiter = Shaper("1/s", store=store), RateLimiter("1/s", store=store)
    assert limiter.hit("key")
    assert shaper.book("key").delay == 0
    assert not limiter.hit("key")
    assert shaper.book("key").delay == 1


def test_a_crowd_of_threads_has_exact_places_and_all_get_through() -> None:
    shaper = Shaper("5000/s", queue=200)
    decisions: list[Decision] = []

    def go() -> None:
        decisions.extend(shaper.acquire("key") for _ in range(5))

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(decisions) == 40
    assert all(decisions)
    places = sorted(one.place_ns for one in decisions if one.delay_ns)
    assert all(after - before >= 200_000 for before, after in pairwise(places))


# ---- options --------------------------------------------------------------------------------


def test_the_decorator_waits_for_its_place(kind: type[Shaper | AsyncShaper]) -> None:
    clock = ManualClock()
    shaper = kind("10/s", queue=1, clock=clock)

    def blocking() -> float:
        return clock.now

    async def awaited() -> float:
        return clock.now

    function, other = (blocking, awaited) if kind is Shaper else (awaited, blocking)
    call = shaper.limit("key", timeout=0.05)(function)

    def called() -> float:
        result: Any = call()
        found: float = asyncio.run(result) if kind is AsyncShaper else result
        return found

    assert called() == 0
    with pytest.raises(RateLimitedError):
        called()
    clock.advance(0.06)
    assert called() == pytest.approx(0.1)
    with pytest.raises(UsageError, match=r"a Shaper|an AsyncShaper"):
        shaper.limit()(other)


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
    shaper = Shaper(rate, clock=ManualClock(), **options)
    bookings = [shaper.book("key") for _ in range(3)]
    assert [one.at_ns // MILLISECOND for one in bookings] == [0, gap_ms, 2 * gap_ms]


@pytest.mark.parametrize(
    ("options", "queue"),
    [({}, 100), ({"max_wait": 2}, 20), ({"max_wait": 0}, 0), ({"max_wait": 2, "queue": 5}, 5)],
)
def test_without_a_queue_as_many_wait_as_can_be_served(options: dict[str, Any], queue: int) -> None:
    assert AsyncShaper("10/s", **options).queue == LeakyQueue(10, queue, options.get("max_wait"))


@pytest.mark.parametrize("rate", ["10/s burst 20", "10/s; 5/m", "10/s fixed_window", "ten", 0, "x"])
def test_what_is_no_rate_is_an_error(rate: Any) -> None:
    with pytest.raises(ValueError, match=r"rate|limit"):
        AsyncShaper(rate)


def test_what_makes_no_sense_is_an_error_before_anything_happens(
    shaper_of: Callable[..., Driven],
) -> None:
    shaper = shaper_of("10/s")
    with pytest.raises(CostError):
        shaper.acquire("key", -1)
    with pytest.raises(KeyInvalidError):
        shaper.acquire("")
    with pytest.raises(OptionError):
        shaper.acquire("key", timeout=-1)
    with pytest.raises(KeyInvalidError):
        shaper.reset("")
    assert shaper.expected_wait("key") == 0
    shaper.close()


def test_options_that_contradict_each_other_are_an_error(kind: type[Shaper | AsyncShaper]) -> None:
    with pytest.raises(OptionError, match="itself"):
        kind(LeakyQueue(10, 5), queue=3)
    with pytest.raises(StoreURLError):
        kind("10/s", store="memory://?max_kees=3")
    with pytest.raises(OptionError):
        kind("10/s", on_store_failure="panic")  # type: ignore[arg-type] # that is the point
    shaper = kind("10/s", store="memory://?max_keys=3")
    assert shaper.queue == LeakyQueue(10, 100)
    assert repr(shaper) == f"{kind.__name__}('10/s in a queue of 100')"


# ---- while the store is gone ----------------------------------------------------------------


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

    async def arun(self, operation: Operation[Any]) -> Any:
        return self.run(operation)


def test_failing_closed_denies(kind: type[Shaper | AsyncShaper]) -> None:
    shaper = Driven(kind("10/s", store=GoneStore(1), on_store_failure="fail_closed"))
    assert shaper.acquire("key")
    denied = shaper.acquire("key")
    assert (denied.allowed, denied.source, denied.retry_after) == (False, "fail_closed", 1.0)
    shaper.close()


def test_failing_open_goes_on_shaping_and_places_are_cancelled_here(
    kind: type[Shaper | AsyncShaper],
) -> None:
    shaper = Driven(kind("10/s", queue=2, store=GoneStore(0)))
    bookings = [shaper.book("key") for _ in range(4)]
    assert [one.delay for one in bookings[:3]] == [0.0, 0.1, 0.2]
    assert not bookings[3]
    assert bookings[2].cancel()
    assert shaper.book("key").delay == 0.2
    shaper.close()


def test_a_place_that_cannot_be_cancelled_in_the_store_is_lost(
    kind: type[Shaper | AsyncShaper],
) -> None:
    store = GoneStore(2)
    shaper = Driven(kind("10/s", store=store))
    shaper.book("key")
    booking = shaper.book("key")
    assert not booking.cancel()
    store.answers = 1
    assert shaper.peek("key").delay == 0.2
    shaper.close()


def test_reset_raises_if_the_store_cannot_be_reached(kind: type[Shaper | AsyncShaper]) -> None:
    shaper = Driven(kind("10/s", store=GoneStore(0)))
    with pytest.raises(StoreError):
        shaper.reset("key")
    shaper.close()
