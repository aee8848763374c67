"""The memory store: sharing, changed limits, forks and interrupts."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from headgate import KeyInvalidError, MemoryStore, RateLimiter
from headgate.testing import ManualClock

LIMITS = ["1000/h", "1000/h fixed_window", "1000/h sliding_window_log", "1000/h; 2000/h gcra"]
VERBS: dict[str, Callable[[RateLimiter], object]] = {
    "hit": lambda limiter: limiter.hit("key"),
    "hit a new key": lambda limiter: limiter.hit("new"),
    "hit with a cost": lambda limiter: limiter.hit("key", 3),
    "peek": lambda limiter: limiter.peek("key"),
    "hit_many": lambda limiter: limiter.hit_many(["key", "new"]),
    "reserve and commit": lambda limiter: limiter.reserve("key", 1).commit(),
    "charge": lambda limiter: limiter.charge("key", 1),
    "refund": lambda limiter: limiter.refund("key", 1),
    "reset": lambda limiter: limiter.reset("key"),
}
PATIENCE = 30
"""Seconds after which a store counts as locked for good."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(3_600)


def is_usable(store: MemoryStore) -> bool:
    """Whether the store still answers."""
    answered = threading.Event()

    def ask() -> None:
        RateLimiter("10/m", store=store, namespace="probe").peek("key")
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(PATIENCE)


def test_limiters_of_one_namespace_and_store_count_together(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    one, other = RateLimiter("10/m", store=store), RateLimiter("10/m", store=store)
    assert [one.hit("key", 4).remaining, other.hit("key", 4).remaining] == [6, 2]
    assert not one.hit("key", 4)
    assert RateLimiter("10/m", store=store, namespace="x").peek("key").remaining == 10
    assert RateLimiter("10/m", clock=clock).peek("key").remaining == 10


@pytest.mark.parametrize("limits", ["5/minute", "5/minute; 9/hour"])
def test_an_empty_key_is_an_error_whatever_other_keys_have_counters(limits: str) -> None:
    limiter = RateLimiter(limits)
    for number in range(1000):  # every shard of the store has some
        limiter.hit(f"user:{number}")
    with pytest.raises(KeyInvalidError):
        limiter.hit("")


def test_limiters_of_different_limits_take_turns_on_a_key(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    paced, raised = RateLimiter("10/m", store=store), RateLimiter("20/m", store=store)
    window = RateLimiter("10/m fixed_window", store=store)
    assert paced.hit("key", 4).remaining == 6
    assert raised.hit("key", 1).remaining == 15
    assert window.hit("key", 1).remaining == 4
    assert paced.hit("key", 4).remaining == 0
    assert not window.hit("key", 1)


def test_a_peek_under_another_limit_leaves_the_counter_as_it_is(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    aligned = RateLimiter("10/m fixed_window", store=store, name="n")
    paced = RateLimiter("10/m", store=store, name="n")
    aligned.hit("key", 10)
    clock.advance(59)
    assert paced.peek("key").remaining == 0
    clock.advance(1)
    assert aligned.peek("key").remaining == 10, "a converted counter would have refilled by one"
    assert paced.hit("key").allowed
    assert aligned.peek("key").remaining == 9


def test_a_limiter_keeps_its_counters_while_many_other_limits_come_and_go(
    clock: ManualClock,
) -> None:
    for limits in ("5/m", "5/m fixed_window"):
        store = MemoryStore(clock=clock)
        limiter = RateLimiter(limits, store=store)
        for n in range(6, 106):
            RateLimiter(f"{n}/m fixed_window", store=store).peek("other")
        assert all(limiter.hit("key") for _ in range(5))
        assert limiter.peek("key").remaining == 0
        assert not limiter.hit_many(["key"])[0]


def test_the_length_of_a_store_is_how_many_counters_it_has(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("10/m", store=store)
    assert len(store) == 0
    limiter.hit("a")
    limiter.hit("b")
    limiter.reserve("c", 1)
    limiter.peek("d")
    limiter.hit("e", 11)
    limiter.hit("f", 0)
    assert len(store) == 3
    limiter.reset("a")
    assert len(store) == 2
    limiter.refund("b", 1)
    clock.advance(3_600)
    limiter.peek("a")
    assert len(store) == 2
    limiter.hit("a", 0)
    assert len(store) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("limits", LIMITS)
def test_a_forked_child_can_use_a_store_that_another_thread_was_using(limits: str) -> None:
    clock = HeldClock(3_600)
    limiter = RateLimiter(limits, clock=clock)
    limiter.hit("key", 5)
    thread = threading.Thread(target=limiter.peek, args=("key",))
    thread.start()
    assert clock.is_held.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        os._exit(0 if limiter.hit("key").remaining == 994 else 1)
    clock.may_go_on.set()
    thread.join(PATIENCE)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the child hung or counted wrongly"
    assert limiter.hit("key").remaining == 994


class HeldClock(ManualClock):
    """A clock that holds every thread but the main one while it has the store."""

    def __init__(self, start: float) -> None:
        super().__init__(start)
        self.is_held = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self) -> int:
        if threading.current_thread() is not threading.main_thread():
            self.is_held.set()
            self.may_go_on.wait(PATIENCE)
        return super().__call__()


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """No finaliser of an older test swallows the interrupt that is meant for this one."""
    gc.collect()
    gc.freeze()  # so that the next collection does not look through all that is there already
    gc.disable()
    yield
    gc.enable()


class Interrupt:
    """A trace function that raises KeyboardInterrupt as the *nth* function of ours is entered.

    Entering a function is one of the few places where CPython lets a signal handler run.
    """

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.where: str | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals["__name__"].startswith("headgate."):
            self.left -= 1
            if self.left == 0:
                self.where = frame.f_code.co_qualname
                raise KeyboardInterrupt


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupt_anywhere_never_leaves_the_store_locked(limits: str, verb: str) -> None:
    before = sys.gettrace()
    for nth in range(1, 500):
        store = MemoryStore(clock=ManualClock(3_600))
        limiter = RateLimiter(limits, store=store)
        limiter.hit("key")
        interrupt = Interrupt(nth)
        sys.settrace(interrupt)
        try:
            VERBS[verb](limiter)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if interrupt.where is None:
            break
        assert is_usable(store), f"locked by an interrupt in {interrupt.where}"


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
@pytest.mark.parametrize("limits", LIMITS)
def test_signals_that_raise_never_leave_the_store_locked(limits: str) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    store = MemoryStore(clock=ManualClock(3_600))
    limiter = RateLimiter(limits, store=store)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for n in range(100):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.000_05 + n * 0.000_001)
                for _ in range(100_000):
                    limiter.hit("key")
            except KeyboardInterrupt:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert is_usable(store), f"locked by interrupt {n}"
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_hit_is_charged_once_or_not_at_all() -> None:
    for nth in range(1, 60):
        limiter = RateLimiter("10/m", clock=ManualClock(3_600))
        limiter.hit("key")
        before = sys.gettrace()
        sys.settrace(Interrupt(nth))
        try:
            limiter.hit("key")
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert limiter.peek("key").remaining in {8, 9}
