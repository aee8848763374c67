"""The store under test, with its clock and its limiters."""

from __future__ import annotations

import asyncio
from functools import partial
from inspect import iscoroutine
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from headgate.limiter import AsyncRateLimiter, RateLimiter
from headgate.limiter.holds import AsyncReservation, AsyncSlot
from headgate.limits import (
    EXACT,
    GCRA,
    Accuracy,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores.operations import Check, Take
from headgate.testing.capabilities import Contract
from headgate.testing.clock import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from headgate.decision import Decision
    from headgate.engine.stack import Limits
    from headgate.stores import Store
    from headgate.stores.operations import Operation


R = TypeVar("R")


class Blocking:
    """An async limiter, reservation or slot, each of whose calls blocks until it is done.

    So one test body serves stores in threads and in event loops.
    """

    def __init__(self, subject: object, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._subject = subject
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        if iscoroutine(result):
            result = self._run(result)
        is_async = isinstance(result, AsyncReservation | AsyncSlot)
        return Blocking(result, self._run) if is_async else result


START: Final = 1_700_000_000
"""The time at which a test starts, in seconds: a multiple of the windows below."""

TENS: Final[tuple[Limit, ...]] = (
    TokenBucket(10, 1),
    GCRA(rate=1, burst=10),
    LeakyBucket(10, 1),
    FixedWindow(10, 10),
    SlidingWindowLog(10, 10),
    SlidingWindowCounter(10, 10),
    SlidingWindowCounter(10, 10, subwindows=5),
)
"""A limit of 10 per ten seconds or so, of each algorithm."""

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


class StoreUnderTest(Contract):
    """The store of a test, with a clock and limiters on it.

    The class variables declare what the store promises. A test that needs more is not collected.
    """

    tick_ns: ClassVar[int] = 1
    """The resolution of the store's clock in nanoseconds."""

    histories: ClassVar[int] = 4
    """The number of random histories per limit."""

    accuracy: ClassVar[Accuracy] = EXACT
    """The accuracy of the limiters of the tests. Unless it is exact, figures and amounts must be
    within the bound of `overshoot`."""

    in_loop: ClassVar[bool] = False
    """True if the tests use the store in an event loop: `arun`, `AsyncRateLimiter`, `aclose`."""

    clock: ManualClock
    store: Store

    @classmethod
    def applies(cls, capabilities: tuple[str, ...]) -> bool:
        """Return True if the store has all *capabilities*; `exact` is that of its accuracy."""
        if "exact" in capabilities and not cls.accuracy.is_always_asked:
            return False
        return super().applies(tuple(name for name in capabilities if name != "exact"))

    def make_store(self, clock: ManualClock) -> Store:
        """Return a store that takes its time from *clock*. Override this."""
        raise NotImplementedError(f"{type(self).__name__} must override make_store")

    def make_node(self, clock: ManualClock) -> Store:
        """Return a store on the same counters, as another process has one.

        The store itself is right for counters that only one process has.
        """
        return self.store

    def overshoot(self, limit: Limit, nodes: int = 1) -> int:
        """Return the units by which *nodes* nodes may miss *limit* with this `accuracy`."""
        cap = self.accuracy.cap(limit.quota)
        batches = (self.accuracy.batch or 0) * nodes
        return batches if cap is None else cap

    def setup_method(self) -> None:
        """Begin a test, with a clock and a store of its own."""
        self.clock = ManualClock(START)
        self._runner = asyncio.Runner()
        self._names = (f"contract-{token_hex(4)}-{n}" for n in count())
        self.store = self.make_store(self.clock)
        self._nodes: list[Store] = []

    def teardown_method(self) -> None:
        """End a test, and close its stores."""
        for store in (*self._nodes, self.store):
            self.close(store)
        self._runner.close()

    def close(self, store: Store) -> None:
        """Close *store*."""
        if self.in_loop:
            self._runner.run(store.aclose())
        else:
            store.close()

    def node(self) -> Store:
        """Return a store on the same counters; the test closes it at its end."""
        node = self.make_node(self.clock)
        if node is not self.store:
            self._nodes.append(node)
        return node

    def limiter(
        self, limits: Limits, namespace: str | None = None, store: Store | None = None
    ) -> RateLimiter:
        """Return a limiter on the store, in a new namespace if none is given."""
        kind = AsyncRateLimiter if self.in_loop else RateLimiter
        limiter = kind(
            limits,
            store=self.store if store is None else store,
            name="api",
            namespace=self.new_name() if namespace is None else namespace,
            on_store_failure="fail_closed",
            accuracy=self.accuracy,
        )
        if isinstance(limiter, RateLimiter):
            return limiter
        return cast("RateLimiter", Blocking(limiter, self._runner.run))

    def limiters(self, *limits: Limit) -> Iterator[tuple[Limit, RateLimiter]]:
        """Yield each of *limits*, or a limit of each algorithm, with a limiter of its own."""
        for limit in limits or TENS:
            yield limit, self.limiter(limit)

    def run(self, operation: Operation[R], store: Store | None = None) -> R:
        """Run *operation* on the store."""
        store = self.store if store is None else store
        if self.in_loop:
            return self._runner.run(store.arun(operation))
        return store.run(operation)

    def left(self, limit: Limit, group: str, key: str = "key", store: Store | None = None) -> int:
        """Return the units left in a counter."""
        (outcome,) = self.run(Take((Check(group, key, limit, 0),), consume=False), store)
        return outcome.remaining

    def is_about(self, units: int, expected: int, limit: Limit) -> bool:
        """Return True if *units* is *expected*, give or take the overshoot of *limit*."""
        return abs(units - expected) <= self.overshoot(limit)

    def new_name(self) -> str:
        """Return a namespace that no other test uses."""
        return next(self._names)

    def rounded_up(self, nanoseconds: int) -> int:
        """Return *nanoseconds* rounded up to whole ticks of the store."""
        return -(-nanoseconds // self.tick_ns) * self.tick_ns

    def start_of(self, window_ns: int) -> None:
        """Move the clock to the beginning of the next window of *window_ns*."""
        self.clock.advance_ns(window_ns - self.clock() % window_ns)

    def assert_fits_exactly_after(self, denial: Decision, limiter: RateLimiter, cost: int) -> None:
        """Check that *cost* fits after the wait that *denial* names, and not one tick earlier."""
        wait_ns = denial.retry_after_ns
        case = f"cost {cost}: {denial}"
        assert not denial.allowed, case
        assert wait_ns is not None, case
        assert wait_ns > 0, case
        assert wait_ns % self.tick_ns == 0, f"{case}: the wait is no whole number of ticks"
        self.clock.advance_ns(wait_ns - self.tick_ns)
        assert not limiter.hit(denial.key, cost), f"{case}: allowed one tick early"
        self.clock.advance_ns(self.tick_ns)
        assert limiter.hit(denial.key, cost), f"{case}: denied after the wait"


def seconds(number: int) -> int:
    """Return *number* seconds in nanoseconds."""
    return number * SECOND
