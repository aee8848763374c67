"""The store under test: how a test of the contract gets its clock, its store and its limiters."""

from __future__ import annotations

import asyncio
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from headgate.aio import AsyncRateLimiter
from headgate.limiter import RateLimiter
from headgate.limits import (
    GCRA,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores import AsyncStore, Check, Store, Take
from headgate.testing.clock import ManualClock
from headgate.testing.contract_driving import Blocking
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.plan import Limits
    from headgate.stores import Operation
    from headgate.testing.contract_driving import Driven

R = TypeVar("R")

START: Final = 1_700_000_000
"""When each test begins, in seconds: a multiple of the windows below, so that none ends early."""

TENS: Final[tuple[Limit, ...]] = (
    TokenBucket(10, 1),
    GCRA(rate=1, burst=10),
    LeakyBucket(10, 1),
    FixedWindow(10, 10),
    SlidingWindowLog(10, 10),
    SlidingWindowCounter(10, 10),
    SlidingWindowCounter(10, 10, subwindows=5),
)
"""A limit of 10 that is as new after ten seconds or so, of each algorithm."""

ODD: Final[tuple[Limit, ...]] = (
    TokenBucket(10, 3),
    TokenBucket(7, 0.3),
    GCRA(rate=7_000, burst=10),
    LeakyBucket(3, 13),
    FixedWindow(10, 7),
    FixedWindow(3, 0.000_017),
    SlidingWindowLog(10, 0.7),
    SlidingWindowCounter(7, 0.1),
    SlidingWindowCounter(10, 10, subwindows=3),
)
"""Limits whose numbers do not divide evenly."""


class StoreUnderTest:
    """What every part of the contract stands on."""

    tick_ns: ClassVar[int] = 1
    """The resolution of the store's clock in nanoseconds."""

    clock: ManualClock
    store: Store | AsyncStore

    def make_store(self, clock: ManualClock) -> Store | AsyncStore:
        """A store that counts on *clock*. Override this."""
        raise NotImplementedError(f"{type(self).__name__} has to say how to make its store")

    def setup_method(self) -> None:
        """Begin a test, with a clock and a store of its own."""
        self.clock = ManualClock(START)
        self._runner = asyncio.Runner()
        self._names = (f"contract-{token_hex(4)}-{n}" for n in count())
        self.store = self.make_store(self.clock)

    def teardown_method(self) -> None:
        """End a test, and close its store."""
        if isinstance(self.store, AsyncStore):
            self._runner.run(self.store.aclose())
        else:
            self.store.close()
        self._runner.close()

    def limiter(self, limits: Limits, namespace: str | None = None) -> Driven:
        """A limiter on the store; in a namespace that nobody else has, if none is given."""
        name = self.new_name() if namespace is None else namespace
        policy: Final = "fail_closed"
        if isinstance(self.store, AsyncStore):
            limiter = AsyncRateLimiter(
                limits, store=self.store, namespace=name, on_store_failure=policy
            )
            return Blocking(limiter, self._runner)
        return RateLimiter(limits, store=self.store, namespace=name, on_store_failure=policy)

    def run(self, operation: Operation[R]) -> R:
        """Have the store carry out *operation*, as a limiter would."""
        if isinstance(self.store, AsyncStore):
            return self._runner.run(self.store.run(operation))
        return self.store.run(operation)

    def left(self, limit: Limit, group: str, key: str = "key") -> int:
        """What is left in a counter."""
        (outcome,) = self.run(Take((Check(group, key, limit, 0),), consume=False))
        return outcome.remaining

    def new_name(self) -> str:
        """A namespace that was never used before, in this process or another."""
        return next(self._names)

    def rounded_up(self, nanoseconds: int) -> int:
        """*nanoseconds* as the store can tell them: whole ticks, rounded up."""
        return -(-nanoseconds // self.tick_ns) * self.tick_ns

    def start_of(self, window_ns: int) -> None:
        """Move the clock to the beginning of the next window of *window_ns*."""
        self.clock.advance_ns(window_ns - self.clock() % window_ns)

    def assert_fits_exactly_after(self, refusal: Decision, limiter: Driven, cost: int) -> None:
        """Check that *cost* fits after the wait that *refusal* names, and not one tick earlier."""
        wait_ns = refusal.retry_after_ns
        case = f"cost {cost}: {refusal}"
        assert not refusal.allowed, case
        assert wait_ns is not None, case
        assert wait_ns > 0, case
        assert wait_ns % self.tick_ns == 0, f"{case}: the wait is no whole number of ticks"
        self.clock.advance_ns(wait_ns - self.tick_ns)
        assert not limiter.hit(refusal.key, cost), f"{case}: admitted one tick early"
        self.clock.advance_ns(self.tick_ns)
        assert limiter.hit(refusal.key, cost), f"{case}: refused after the wait"


def seconds(number: int) -> int:
    """*number* seconds in nanoseconds."""
    return number * SECOND
