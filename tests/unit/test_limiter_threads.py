"""Many threads on one store: exactly the limit is admitted, never one more."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from headgate import Concurrency, Hit, MemoryStore, RateLimiter
from headgate.testing import ManualClock

T = TypeVar("T")

THREADS = 8
LIMITS = [
    "1000/h",
    "1000/h gcra",
    "1000/h leaky_bucket",
    "1000/h fixed_window",
    "1000/h sliding_window_log",
    "1000/h sliding_window_counter",
    "1000/h; 1500/h fixed_window",
]


@pytest.fixture(autouse=True)
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[], T]) -> list[T]:
    """What *work* gave in each of several threads that began together."""
    together = threading.Barrier(THREADS)

    def begin() -> T:
        together.wait(timeout=10)
        return work()

    with ThreadPoolExecutor(THREADS) as pool:
        return [done.result(timeout=60) for done in [pool.submit(begin) for _ in range(THREADS)]]


@pytest.mark.parametrize("limits", LIMITS)
def test_threads_together_are_admitted_exactly_the_limit(limits: str) -> None:
    limiter = RateLimiter(limits, clock=ManualClock(3_600))
    admitted = in_threads(lambda: sum(limiter.hit("key").allowed for _ in range(400)))
    assert sum(admitted) == 1_000


@pytest.mark.parametrize("limits", LIMITS)
def test_threads_together_are_admitted_exactly_what_fits_of_larger_costs(limits: str) -> None:
    limiter = RateLimiter(limits, clock=ManualClock(3_600))
    admitted = in_threads(lambda: sum(limiter.hit("key", 3).allowed for _ in range(100)))
    assert sum(admitted) == 333
    assert limiter.peek("key").remaining == 1


@pytest.mark.parametrize("limits", LIMITS)
def test_threads_that_use_different_verbs_share_one_count(limits: str) -> None:
    limiter = RateLimiter(limits, clock=ManualClock(3_600))

    def work() -> int:
        admitted = 0
        for _ in range(50):
            admitted += limiter.hit("key").allowed
            admitted += 3 * limiter.hit("key", 3).allowed
            admitted += sum(decision.allowed for decision in limiter.hit_many(["key", "key"]))
            if reservation := limiter.reserve("key", 2):
                reservation.commit(1)
                admitted += 1
        return admitted

    used = sum(in_threads(work))
    assert used == 1_000 - limiter.peek("key").remaining
    assert 998 <= used <= 1_000


@pytest.mark.parametrize("limits", LIMITS)
def test_what_one_thread_gives_back_another_may_take_once(limits: str) -> None:
    limiter = RateLimiter(limits, clock=ManualClock(3_600))
    limiter.hit("key", 1_000)

    def work() -> int:
        admitted = 0
        for _ in range(50):
            limiter.refund("key", 1)
            admitted += limiter.hit("key").allowed
        return admitted

    assert sum(in_threads(work)) == THREADS * 50 - limiter.peek("key").remaining


@pytest.mark.parametrize("limits", ["5/h", "5/h fixed_window", "5/h sliding_window_log"])
def test_keys_that_many_threads_meet_first_at_the_same_time_are_counted_once(limits: str) -> None:
    limiter = RateLimiter(limits, clock=ManualClock(3_600))
    keys = [f"key {n}" for n in range(200)]
    admitted = in_threads(lambda: [limiter.hit(key).allowed for key in keys])
    assert [sum(of_key) for of_key in zip(*admitted, strict=True)] == [5] * len(keys)


def test_threads_are_counted_rightly_while_the_store_sweeps() -> None:
    clock = ManualClock(3_600)
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("1000/h", store=store)
    short = RateLimiter("1/s", store=store, namespace="short")
    for n in range(2_000):
        limiter.charge(f"old {n}", 1)
        short.hit(f"old {n}")
    clock.advance(3_600)

    def work() -> int:
        admitted = 0
        for n in range(400):
            admitted += limiter.hit("key").allowed
            limiter.hit(f"new {n % 50}")
            short.hit(f"new {n}")
        return admitted

    assert sum(in_threads(work)) == 1_000


def test_threads_reserve_exactly_the_limit() -> None:
    limiter = RateLimiter("100/h", clock=ManualClock(3_600))
    reserved = in_threads(lambda: [limiter.reserve("key", 1) for _ in range(50)])
    granted = [reservation for some in reserved for reservation in some if reservation]
    assert len(granted) == 100
    assert all(reservation.cancel() for reservation in granted)
    assert limiter.peek("key").remaining == 100


def test_never_more_threads_than_slots_are_inside() -> None:
    limiter = RateLimiter(Concurrency(3, 60), clock=ManualClock(3_600))
    inside: set[int] = set()
    most: list[int] = []

    def work() -> None:
        for _ in range(200):
            with limiter.slot("key") as slot:
                if slot:
                    inside.add(threading.get_ident())
                    most.append(len(inside))
                    inside.discard(threading.get_ident())

    in_threads(work)
    assert 1 <= max(most) <= 3
    assert limiter.peek("key").remaining == 3


def test_threads_that_hit_several_counters_at_once_take_all_or_none() -> None:
    limiter = RateLimiter("1/s", clock=ManualClock(3_600))
    hits = [Hit("left", "300/h", 1), Hit("right", "200/h", 1)]
    back_to_front = hits[::-1]

    def work() -> int:
        admitted = 0
        for _ in range(100):
            admitted += limiter.hit_all(hits).allowed + limiter.hit_all(back_to_front).allowed
        return admitted

    assert sum(in_threads(work)) == 200
    assert limiter.hit_all([Hit("left", "300/h", 100)])
    assert not limiter.hit_all([Hit("left", "300/h", 1)])


def test_the_real_clock_admits_no_more_than_burst_and_refill_allow() -> None:
    limiter = RateLimiter("100/h")
    admitted = in_threads(lambda: sum(limiter.hit("key").allowed for _ in range(500)))
    assert sum(admitted) in {100, 101}
