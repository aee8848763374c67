"""`Shaper`: turns among threads, on a clock that the test moves."""

from __future__ import annotations

import os
import threading
import time
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from headgate import MemoryStore, RateLimiter
from headgate.decision import RateLimitedError
from headgate.errors import OptionError, StoreURLError, UsageError
from headgate.limits import LeakyQueue
from headgate.overload import Shaper
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate import Decision

TENTH = SECOND // 10
PATIENCE = 20
"""Seconds after which a test that hangs fails."""


class SteppedClock:
    """A clock on which threads sleep until the test moves it on."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._moved = threading.Condition()
        self._asleep = 0
        self.interrupts: set[str] = set()

    def __call__(self) -> int:
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        until = self._now_ns + round(seconds * SECOND)
        name = threading.current_thread().name
        with self._moved:
            self._asleep += 1
            self._moved.notify_all()
            try:
                while self._now_ns < until:
                    assert self._moved.wait(PATIENCE)
                    if name in self.interrupts:
                        raise KeyboardInterrupt
            finally:
                self._asleep -= 1
                self._moved.notify_all()

    def move_to(self, now_ns: int) -> None:
        with self._moved:
            self._now_ns = now_ns
            self._moved.notify_all()

    def interrupt(self, name: str) -> None:
        with self._moved:
            self.interrupts.add(name)
            self._moved.notify_all()

    def await_sleepers(self, count: int) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: self._asleep == count, PATIENCE)


class Crowd:
    """Threads that each acquire once, and the order and time in which they got through."""

    def __init__(self, shaper: Shaper, clock: SteppedClock) -> None:
        self.shaper, self.clock = shaper, clock
        self.left: list[tuple[str, int]] = []
        self.said: dict[str, Decision] = {}
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def come(self, name: str, cost: int = 1, timeout: float | None = None) -> None:
        """One more thread, once it has its place."""
        depth = self.shaper.depth("key")
        thread = threading.Thread(target=self._go, args=(name, cost, timeout), name=name)
        self._threads.append(thread)
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while name not in self.said and self.shaper.depth("key") == depth:
            assert time.monotonic() < deadline
            with self._changed:
                self._changed.wait(0.001)  # nobody tells when a place is taken

    def _go(self, name: str, cost: int, timeout: float | None) -> None:
        try:
            decision = self.shaper.acquire("key", cost, timeout)
        except KeyboardInterrupt:
            return
        with self._changed:
            self.said[name] = decision
            if decision:
                self.left.append((name, self.clock()))
            self._changed.notify_all()

    def await_left(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.left) == count, PATIENCE), self.left

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_threads_leave_evenly_spaced_in_the_order_they_came() -> None:
    clock = SteppedClock()
    crowd = Crowd(Shaper("10/s", queue=20, clock=clock), clock)
    names = "abcdefgh"
    for name in names:
        crowd.come(name)
    crowd.await_left(1)
    for n in range(1, len(names)):
        clock.await_sleepers(1)  # only the first in line
        clock.move_to(n * TENTH)
        crowd.await_left(n + 1)
    crowd.join()
    assert crowd.left == [(name, n * TENTH) for n, name in enumerate(names)]


def test_an_interrupted_thread_has_those_behind_it_move_up() -> None:
    clock = SteppedClock()
    crowd = Crowd(Shaper("10/s", queue=20, clock=clock), clock)
    for name in "abcd":
        crowd.come(name)
    clock.await_sleepers(1)
    clock.interrupt("b")
    clock.await_sleepers(1)
    for n in (1, 2):
        clock.await_sleepers(1)
        clock.move_to(n * TENTH)
        crowd.await_left(n + 1)
    crowd.join()
    assert crowd.left == [("a", 0), ("c", TENTH), ("d", 2 * TENTH)]


def test_a_thread_that_could_not_be_served_in_time_is_refused_at_once() -> None:
    clock = SteppedClock()
    crowd = Crowd(Shaper("10/s", queue=20, clock=clock), clock)
    for name in "ab":
        crowd.come(name)
    crowd.come("c", timeout=0.1)
    assert crowd.said["c"].retry_after == 0.1
    clock.await_sleepers(1)
    clock.move_to(TENTH)
    crowd.join()


def test_a_crowd_of_threads_on_the_real_clock_has_exact_turns_and_all_get_through() -> None:
    shaper = Shaper("2000/s", queue=200)
    said: list[Decision] = []

    def go() -> None:
        said.extend(shaper.acquire("key") for _ in range(5))

    threads = [threading.Thread(target=go) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(said) == 100
    assert all(said)
    turns = sorted(one.turn_ns for one in said if one.delay_ns)
    gaps = {after - before for before, after in pairwise(turns)}
    assert min(gaps, default=500_000) >= 500_000, "nobody moved up, so nobody is too close"


def _given(clock: ManualClock, *, over_a_store: bool) -> dict[str, Any]:
    return {"store": MemoryStore(clock=clock)} if over_a_store else {"clock": clock}


@pytest.mark.parametrize("over_a_store", [False, True])
def test_on_a_manual_clock_nobody_really_sleeps(over_a_store: bool) -> None:
    clock = ManualClock()
    given: dict[str, Any] = (
        {"store": MemoryStore(clock=clock)} if over_a_store else {"clock": clock}
    )
    shaper = Shaper(LeakyQueue(10, 5), **given)
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


@pytest.mark.parametrize("over_a_store", [False, True])
def test_an_interrupt_gives_the_turn_up(over_a_store: bool) -> None:
    class Interrupted(ManualClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    clock = Interrupted()
    given: dict[str, Any] = (
        {"store": MemoryStore(clock=clock)} if over_a_store else {"clock": clock}
    )
    shaper = Shaper("10/s", **given)
    shaper.acquire("key")
    with pytest.raises(KeyboardInterrupt):
        shaper.acquire("key")
    assert shaper.expected_wait("key") == 0.1


def test_shapers_of_one_store_and_namespace_share_their_queues() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, two = Shaper("10/s", store=store), Shaper("10/s", store=store)
    other = Shaper("10/s", store=store, namespace="other")
    assert [one.book("key").delay, two.book("key").delay, one.book("key").delay] == [0, 0.1, 0.2]
    assert other.book("key").delay == 0


def test_a_limiter_of_the_same_namespace_counts_for_itself() -> None:
    store = MemoryStore(clock=ManualClock())
    shaper, limiter = Shaper("1/s", store=store), RateLimiter("1/s", store=store)
    assert limiter.hit("key")
    assert shaper.book("key").delay == 0
    assert not limiter.hit("key")
    assert shaper.book("key").delay == 1


def test_the_decorator_waits_for_its_turn() -> None:
    clock = ManualClock()
    shaper = Shaper("10/s", queue=1, clock=clock)

    @shaper.limit("key", timeout=0.05)
    def call() -> float:
        return clock.now

    assert call() == 0
    with pytest.raises(RateLimitedError):
        call()
    clock.advance(0.06)
    assert call() == pytest.approx(0.1)

    with pytest.raises(UsageError, match="AsyncShaper"):

        @shaper.limit()
        async def never() -> None: ...


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="itself"):
        Shaper(LeakyQueue(10, 5), queue=3)
    with pytest.raises(StoreURLError):
        Shaper("10/s", store="memory://?max_kees=3")
    with pytest.raises(OptionError):
        Shaper("10/s", on_store_failure="panic")  # type: ignore[arg-type] # that is the point
    assert Shaper("10/s", store="memory://?max_keys=3").queue == LeakyQueue(10, 100)
    with Shaper("10/s") as shaper:
        assert repr(shaper) == "Shaper('10/s in a queue of 100')"


def test_in_a_forked_process_nobody_waits() -> None:
    clock = SteppedClock()
    crowd = Crowd(Shaper("10/s", queue=20, clock=clock), clock)
    for name in "abc":
        crowd.come(name)
    clock.await_sleepers(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, since 3.12
        child = os.fork()
    if child == 0:
        os._exit(0 if crowd.shaper.peek("key").delay == 0.1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    clock.move_to(TENTH)
    crowd.await_left(2)
    clock.await_sleepers(1)
    clock.move_to(2 * TENTH)
    crowd.join()
