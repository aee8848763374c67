"""The store under test: how a test of the contract gets its clock, its store and its limiters."""

from __future__ import annotations

import asyncio
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeVar

from headgate.limiter import AsyncRateLimiter, RateLimiter
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
from headgate.stores import Check, Store, Take
from headgate.testing.clock import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from headgate.decision import Decision, PartialHit
    from headgate.engine.stack import Limits
    from headgate.runtime.holds import AsyncReservation, AsyncSlot
    from headgate.stores import Hit, Operation
    from headgate.units import Seconds


# One way to drive both kinds of limiter, so that one test body serves sync and async stores.
#
# `Driven` is what the tests see. `RateLimiter` is one as it stands; `Blocking` makes one of an
# `AsyncRateLimiter` by running each awaited verb to its end on a runner.


T = TypeVar("T")


class DrivenReservation(Protocol):
    """A reservation, whichever limiter made it."""

    @property
    def allowed(self) -> bool: ...
    def commit(self, actual: int | None = None) -> bool: ...
    def cancel(self) -> bool: ...


class DrivenSlot(Protocol):
    """A slot, whichever limiter made it."""

    def take(self) -> Decision: ...
    def renew(self) -> bool: ...
    def release(self) -> bool: ...


class Driven(Protocol):
    """The verbs that the contract is about."""

    def hit(self, key: str, cost: int = 1) -> Decision: ...
    def peek(self, key: str, cost: int = 1) -> Decision: ...
    def hit_up_to(self, key: str, n: int) -> PartialHit: ...
    def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> list[Decision]: ...
    def hit_all(self, hits: Iterable[Hit]) -> Decision: ...
    def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> DrivenReservation: ...
    def charge(self, key: str, amount: int) -> Decision: ...
    def refund(self, key: str, amount: int) -> Decision: ...
    def reset(self, key: str) -> None: ...
    def slot(self, key: str, partition: str | None = None) -> DrivenSlot: ...


class Blocking:
    """An `AsyncRateLimiter` for code that is not async."""

    def __init__(self, limiter: AsyncRateLimiter, runner: asyncio.Runner) -> None:
        self._limiter = limiter
        self._runner = runner

    def hit(self, key: str, cost: int = 1) -> Decision:
        return self._run(self._limiter.hit(key, cost))

    def peek(self, key: str, cost: int = 1) -> Decision:
        return self._run(self._limiter.peek(key, cost))

    def hit_up_to(self, key: str, n: int) -> PartialHit:
        return self._run(self._limiter.hit_up_to(key, n))

    def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> list[Decision]:
        return self._run(self._limiter.hit_many(asked))

    def hit_all(self, hits: Iterable[Hit]) -> Decision:
        return self._run(self._limiter.hit_all(hits))

    def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> BlockingReservation:
        return BlockingReservation(self._run(self._limiter.reserve(key, cost, ttl)), self._runner)

    def charge(self, key: str, amount: int) -> Decision:
        return self._run(self._limiter.charge(key, amount))

    def refund(self, key: str, amount: int) -> Decision:
        return self._run(self._limiter.refund(key, amount))

    def reset(self, key: str) -> None:
        self._run(self._limiter.reset(key))

    def slot(self, key: str, partition: str | None = None) -> BlockingSlot:
        return BlockingSlot(self._limiter.slot(key, partition), self._runner)

    def _run(self, verb: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(verb)


class BlockingReservation:
    """An `AsyncReservation` for code that is not async."""

    def __init__(self, reservation: AsyncReservation, runner: asyncio.Runner) -> None:
        self._reservation = reservation
        self._runner = runner

    @property
    def allowed(self) -> bool:
        return self._reservation.allowed

    def commit(self, actual: int | None = None) -> bool:
        return self._runner.run(self._reservation.commit(actual))

    def cancel(self) -> bool:
        return self._runner.run(self._reservation.cancel())


class BlockingSlot:
    """An `AsyncSlot` for code that is not async."""

    def __init__(self, slot: AsyncSlot, runner: asyncio.Runner) -> None:
        self._slot = slot
        self._runner = runner

    def take(self) -> Decision:
        return self._runner.run(self._slot.take())

    def renew(self) -> bool:
        return self._runner.run(self._slot.renew())

    def release(self) -> bool:
        return self._runner.run(self._slot.release())


R = TypeVar("R")


Capability = Literal["exact", "grants_leases", "publishes_values", "replicates"]

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


def needs(*capabilities: Capability) -> Callable[[T], T]:
    """Collect a test, or all tests of a class, only over a store with all *capabilities*."""

    def mark(what: T) -> T:
        tests = vars(what).items() if isinstance(what, type) else [("test_", what)]
        for name, test in tests:
            if name.startswith("test_"):
                vars(test)["needs"] = capabilities
        return what

    return mark


class StoreUnderTest:
    """What every part of the contract stands on.

    The class variables declare what the store promises. A test that needs more is not collected.
    """

    tick_ns: ClassVar[int] = 1
    """The resolution of the store's clock in nanoseconds."""

    histories: ClassVar[int] = 4
    """How many random histories of each limit the store goes through."""

    grants_leases: ClassVar[bool] = True
    """As `Store.grants_leases`: leases, and usage of other regions."""

    publishes_values: ClassVar[bool] = True
    """As `Store.publishes_values`: values that several nodes publish for each other."""

    replicates: ClassVar[bool] = False
    """Usage reaches the store that `peer` returns when `exchange` is called."""

    accuracy: ClassVar[Accuracy] = EXACT
    """How exactly the limiters of the tests ask the store to keep their limits. If this is not
    exact, figures and amounts are held to the bound that `overshoot` states."""

    in_loop: ClassVar[bool] = False
    """True if the tests use the store in an event loop: `arun`, `AsyncRateLimiter`, `aclose`."""

    clock: ManualClock
    store: Store

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in _tests_of(cls).items():
            applies = all(cls._has(capability) for capability in getattr(test, "needs", ()))
            setattr(cls, name, test if applies else None)

    @classmethod
    def _has(cls, capability: Capability) -> bool:
        if capability == "exact":
            return cls.accuracy.is_always_asked
        return bool(getattr(cls, capability))

    def make_store(self, clock: ManualClock) -> Store:
        """A store that counts on *clock*. Override this."""
        raise NotImplementedError(f"{type(self).__name__} has to say how to make its store")

    def make_node(self, clock: ManualClock) -> Store:
        """Return a store on the same counters, as another process has one.

        The store itself is right for counters that only one process has.
        """
        return self.store

    def peer(self) -> Store:
        """Return the store of another region. Override this if the store replicates."""
        raise NotImplementedError(f"{type(self).__name__} has to name the store of its peer")

    def exchange(self) -> None:
        """Send usage to the peer now. Override this if the store replicates."""
        raise NotImplementedError(f"{type(self).__name__} has to say how usage is sent")

    def overshoot(self, limit: Limit, nodes: int = 1) -> int:
        """Return by how many units *nodes* nodes may miss *limit*, as `accuracy` states it."""
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
        self,
        limits: Limits,
        namespace: str | None = None,
        store: Store | None = None,
    ) -> Driven:
        """A limiter on the store; in a namespace that nobody else has, if none is given."""
        store = self.store if store is None else store
        name = self.new_name() if namespace is None else namespace
        policy: Final = "fail_closed"
        if self.in_loop:
            limiter = AsyncRateLimiter(
                limits,
                store=store,
                name="api",
                namespace=name,
                on_store_failure=policy,
                accuracy=self.accuracy,
            )
            return Blocking(limiter, self._runner)
        return RateLimiter(
            limits,
            store=store,
            name="api",
            namespace=name,
            on_store_failure=policy,
            accuracy=self.accuracy,
        )

    def run(self, operation: Operation[R], store: Store | None = None) -> R:
        """Have the store carry out *operation*, as a limiter would."""
        store = self.store if store is None else store
        if self.in_loop:
            return self._runner.run(store.arun(operation))
        return store.run(operation)

    def left(self, limit: Limit, group: str, key: str = "key", store: Store | None = None) -> int:
        """What is left in a counter."""
        (outcome,) = self.run(Take((Check(group, key, limit, 0),), consume=False), store)
        return outcome.remaining

    def is_about(self, units: int, expected: int, limit: Limit) -> bool:
        """Return whether *units* is what is expected, within what *limit* may be missed by."""
        return abs(units - expected) <= self.overshoot(limit)

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


def _tests_of(cls: type) -> dict[str, Any]:
    """Return the tests of *cls* by name, also those that a base class does not collect."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        tests = {name: test for name, test in vars(base).items() if name.startswith("test_")}
        found |= {name: test for name, test in tests.items() if test is not None}
    return found
