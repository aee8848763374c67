"""`RateLimiter.acquire`: waiting in line, in threads."""

import queue
import threading
from collections.abc import Callable

import pytest

from headgate import CostError, Decision, KeyInvalidError, MemoryStore, RateLimiter
from headgate.runtime.waiting_lines import Lines, Place
from headgate.testing import ManualClock

PATIENCE = 60
"""Seconds after which a test gives up; nothing here takes them."""


class AnnouncedLines(Lines):
    """Lines that tell when somebody has lined up."""

    __slots__ = ("joined",)

    def __init__(self) -> None:
        super().__init__()
        self.joined: queue.Queue[str] = queue.Queue()

    def join(self, key: str, place: Place) -> bool:
        is_first = super().join(key, place)
        self.joined.put(key)
        return is_first


class Waiting:
    """A limiter that has nothing left, and threads that wait for it, one after the other."""

    def __init__(self, limits: str = "10/h") -> None:
        self.limiter = RateLimiter(limits, store=MemoryStore(clock=ManualClock(3_600).__call__))
        self.limiter.hit("key", 10)
        self.lines = AnnouncedLines()
        self.limiter._lines = self.lines
        self.served: queue.Queue[tuple[str, Decision]] = queue.Queue()

    def line_up(self, name: str, cost: int = 1, timeout: float | None = None) -> None:
        """Start a thread that waits, and return when it stands in line."""

        def wait() -> None:
            self.served.put((name, self.limiter.acquire("key", cost, timeout)))

        threading.Thread(target=wait, daemon=True).start()
        self.lines.joined.get(timeout=PATIENCE)

    def next_served(self) -> tuple[str, bool]:
        name, decision = self.served.get(timeout=PATIENCE)
        return name, decision.allowed


@pytest.mark.parametrize("limits", ["10/h", "10/h fixed_window", "10/h; 10/h sliding_window_log"])
def test_waiting_threads_are_served_in_the_order_they_came(limits: str) -> None:
    waiting = Waiting(limits)
    names = [f"thread {n}" for n in range(5)]
    for name in names:
        waiting.line_up(name)
    for name in names:
        waiting.limiter.refund("key", 1)
        assert waiting.next_served() == (name, True)
    assert waiting.served.empty()


def test_a_large_cost_in_front_is_not_overtaken_by_small_ones() -> None:
    waiting = Waiting()
    waiting.line_up("large", cost=3)
    waiting.line_up("small", cost=1)
    waiting.limiter.refund("key", 2)
    waiting.limiter.refund("key", 1)
    assert waiting.next_served() == ("large", True)
    waiting.limiter.refund("key", 1)
    assert waiting.next_served() == ("small", True)


def give_back_by_reset(limiter: RateLimiter) -> None:
    limiter.reset("key")


def give_back_by_refund(limiter: RateLimiter) -> None:
    limiter.refund("key", 1)


@pytest.mark.parametrize("give_back", [give_back_by_refund, give_back_by_reset])
def test_what_comes_back_early_wakes_the_first_in_line(
    give_back: Callable[[RateLimiter], None],
) -> None:
    waiting = Waiting()
    waiting.line_up("thread")
    give_back(waiting.limiter)
    assert waiting.next_served() == ("thread", True)


@pytest.mark.parametrize("settle", ["commit", "cancel"])
def test_a_settled_reservation_wakes_the_first_in_line(settle: str) -> None:
    waiting = Waiting()
    waiting.limiter.refund("key", 5)
    reservation = waiting.limiter.reserve("key", 5)
    waiting.line_up("thread", cost=4)
    assert reservation.commit(1) if settle == "commit" else reservation.cancel()
    assert waiting.next_served() == ("thread", True)


def test_a_wait_that_cannot_end_in_time_is_refused_at_once_and_charged_nothing() -> None:
    clock = ManualClock()
    limiter = RateLimiter("1/m", clock=clock)
    limiter.hit("key")
    refusal = limiter.acquire("key", timeout=59.999)
    assert (refusal.allowed, refusal.retry_after, clock.now) == (False, 60, 0)
    assert limiter.acquire("key", timeout=60)
    assert clock.now == 60


def test_the_timeout_is_for_the_whole_wait() -> None:
    clock = ManualClock()
    limiter = RateLimiter("1/m", clock=clock)
    limiter.hit("key")

    def sleep_while_another_takes_it(seconds: float) -> None:
        clock.advance(seconds)
        assert limiter.hit("key")

    clock.sleep = sleep_while_another_takes_it  # type: ignore[method-assign]
    assert not limiter.acquire("key", timeout=100)
    assert clock.now == 60


def test_a_cost_that_can_never_fit_is_refused_at_once() -> None:
    clock = ManualClock()
    limiter = RateLimiter("10/m", clock=clock)
    refusal = limiter.acquire("key", 11)
    assert (refusal.allowed, refusal.retry_after, clock.now) == (False, None, 0)
    assert limiter.acquire("key", 10)


def test_a_manual_clock_is_moved_instead_of_sleeping() -> None:
    clock = ManualClock()
    limiter = RateLimiter("2/m", clock=clock)
    assert all(limiter.acquire("key") for _ in range(6))
    assert clock.now == 120


def test_a_cost_of_0_never_waits() -> None:
    clock = ManualClock()
    limiter = RateLimiter("1/m", clock=clock)
    limiter.charge("key", 5)
    assert limiter.acquire("key", 0)
    assert clock.now == 0


def test_who_gives_up_in_line_is_refused_and_the_next_is_served() -> None:
    waiting = Waiting()
    waiting.line_up("first")
    waiting.line_up("impatient", timeout=0.001)
    assert waiting.next_served() == ("impatient", False)
    waiting.line_up("last")
    waiting.limiter.refund("key", 1)
    assert waiting.next_served() == ("first", True)
    waiting.limiter.refund("key", 1)
    assert waiting.next_served() == ("last", True)


def test_who_gives_up_in_line_is_told_to_retry_even_if_there_is_room() -> None:
    waiting = Waiting("10/h; 10/h fixed_window")
    waiting.line_up("large", cost=10)
    waiting.limiter.refund("key", 5)
    refusal = waiting.limiter.acquire("key", 1, timeout=0.001)
    assert not refusal
    assert refusal.retry_after is not None
    assert refusal.retry_after > 0
    assert waiting.limiter.peek("key").remaining == 5
    waiting.limiter.reset("key")
    assert waiting.next_served() == ("large", True)


def test_no_line_is_left_behind() -> None:
    waiting = Waiting()
    waiting.line_up("thread")
    waiting.limiter.reset("key")
    waiting.next_served()
    assert waiting.limiter.acquire("other")
    assert not waiting.lines._by_key


def test_keys_wait_in_lines_of_their_own() -> None:
    waiting = Waiting()
    waiting.line_up("thread")
    assert waiting.limiter.acquire("other", timeout=0)
    waiting.limiter.reset("key")
    assert waiting.next_served() == ("thread", True)


def test_an_infinite_timeout_is_no_timeout() -> None:
    clock = ManualClock()
    limiter = RateLimiter("1/m", clock=clock)
    limiter.hit("key")
    assert limiter.acquire("key", timeout=float("inf"))
    assert clock.now == 60


def test_a_bad_cost_or_key_is_raised_before_anybody_lines_up() -> None:
    waiting = Waiting()
    with pytest.raises(CostError):
        waiting.limiter.acquire("key", -1)
    with pytest.raises(KeyInvalidError):
        waiting.limiter.acquire("", 1)
    assert waiting.lines.joined.empty()
    assert not waiting.lines._by_key


def test_the_clock_of_a_shared_store_is_moved_instead_of_waiting() -> None:
    clock = ManualClock()
    limiter = RateLimiter("1/m", store=MemoryStore(clock=clock))
    assert limiter.acquire("key")
    assert limiter.acquire("key")
    assert clock.now == 60


def test_who_can_never_wait_or_never_needs_to_is_answered_at_once() -> None:
    assert RateLimiter("unlimited").acquire("key", 10**18).allowed
    for limits in ("0/minute", "10/h; 0/h strict"):
        limiter = RateLimiter(limits)
        assert limiter.acquire("key").retry_after is None
        assert not limiter.acquire("key", timeout=PATIENCE).allowed
