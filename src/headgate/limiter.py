"""`RateLimiter`: one limit or a stack of them, many keys, for code that may block.

Each verb plans an operation (`plan`), runs it on the store, and concludes. The async twin in `aio`
has the same verbs in the same order; what they share is in `plan`, `waiting` and `holding`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from headgate.decision import (
    Decision,
    FailurePolicy,
    OnFailure,
    RateLimitedError,
    decide,
    read_on_failure,
)
from headgate.errors import StoreError, UsageError
from headgate.observability.named import CountedAsyncVerbs, CountedVerbs
from headgate.runtime.fallback import fallback_of
from headgate.runtime.heartbeat import ASYNC_HEART, BEATS, HEART, AsyncBeat, Beat
from headgate.runtime.holds import AsyncReservation, AsyncSlot, Reservation, Slot, new_name
from headgate.runtime.limiter_plan import (
    Concluding,
    Limits,
    Stack,
    checked_name,
    deadline_ns,
    decide_now_of,
    nap,
    naps,
    prepared_stack,
    read_limits,
    refused_in_line,
    soonest_ns,
)
from headgate.runtime.waiting_lines import Lines, LoopEvent
from headgate.stores.base import checked_cost, checked_key, checks_of
from headgate.stores.factory import (
    health_of,
    set_accuracies,
    unwrapped,
    wrapped,
)
from headgate.stores.operations import (
    Charge,
    Hold,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterable
    from typing import Self

    from headgate.clock import Clock
    from headgate.decision import PartialHit
    from headgate.limits import Accuracy, Limit
    from headgate.stores.base import Hit, Store
    from headgate.stores.operations import Operation
    from headgate.units import Seconds


# The decorator: each call of a function is a hit.


F = TypeVar("F", bound=Callable[..., Any])

Key = str | Callable[..., str]
"""A key, or a function that makes it from the arguments of the call."""
Cost = int | Callable[..., int]
"""A cost, or a function that makes it from the arguments of the call."""


class Waits(Protocol):
    """The verbs of `RateLimiter` that the decorator needs."""

    def hit(self, key: str, cost: int = 1) -> Decision: ...
    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision: ...


class AsyncWaits(Protocol):
    """The verbs of `AsyncRateLimiter` that the decorator needs."""

    def hit(self, key: str, cost: int = 1) -> Awaitable[Decision]: ...
    def acquire(
        self, key: str, cost: int = 1, timeout: float | None = None
    ) -> Awaitable[Decision]: ...


def decorate(
    limiter: Waits, key: Key | None, cost: Cost, *, wait: bool, timeout: float | None
) -> Callable[[F], F]:
    """A decorator for plain functions."""
    _check_options(key, cost, wait=wait, timeout=timeout)

    def wrap(function: F) -> F:
        _check_function(function)
        if inspect.iscoroutinefunction(function):
            raise UsageError(
                f"{_shared_key(function)} is async: decorate it with an AsyncRateLimiter, "
                "which never blocks the event loop (it can share a MemoryStore with this one)"
            )
        shared = _shared_key(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            whose, price = _ask(key, shared, args, kwargs), _ask(cost, 1, args, kwargs)
            decision = limiter.acquire(whose, price, timeout) if wait else limiter.hit(whose, price)
            if not decision:
                raise RateLimitedError(decision)
            return function(*args, **kwargs)

        return cast("F", call)

    return wrap


def decorate_async(
    limiter: AsyncWaits, key: Key | None, cost: Cost, *, wait: bool, timeout: float | None
) -> Callable[[F], F]:
    """A decorator for async functions."""
    _check_options(key, cost, wait=wait, timeout=timeout)

    def wrap(function: F) -> F:
        _check_function(function)
        if not inspect.iscoroutinefunction(function):
            raise UsageError(
                f"{_shared_key(function)} is not async: decorate it with a RateLimiter"
            )
        shared = _shared_key(function)

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            whose, price = _ask(key, shared, args, kwargs), _ask(cost, 1, args, kwargs)
            asked = limiter.acquire(whose, price, timeout) if wait else limiter.hit(whose, price)
            decision = await asked
            if not decision:
                raise RateLimitedError(decision)
            return await function(*args, **kwargs)

        return cast("F", call)

    return wrap


def _check_options(key: Key | None, cost: Cost, *, wait: bool, timeout: float | None) -> None:
    if key is not None and not callable(key):
        checked_key(key)
    if not callable(cost):
        checked_cost(cost)
    if timeout is not None and not wait:
        raise UsageError("a timeout is for waiting: say wait=True too")


def _check_function(function: object) -> None:
    if not callable(function):
        raise UsageError(f"cannot decorate {function!r}; write @limiter.limit(), with parentheses")


def _shared_key(function: Callable[..., Any]) -> str:
    """The key of all calls of *function*, when none is given."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', '')}.{name}"


def _ask(given: Any, default: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if given is None:
        return default
    return given(*args, **kwargs) if callable(given) else given


class RateLimiter(Concluding):
    """Decide for each request of each key: allowed or not, and if not, until when.

    *limits* is a text such as `"100/minute"`, a `Limit`, or a list of them (stacked: all must
    allow, and if one denies none is charged). *store* is a URL or a `Store`. *name* is the name of
    its counters and its label in metrics; a shared store (Redis, shared memory) requires one, and
    limiters of one *name* and *namespace* share their counters. *clock* is for tests and
    simulations. *on_store_failure* says what to do while the store is gone, *accuracy* how exactly
    the limits have to be kept by all who use them. Safe to share among threads.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        store: str | Store = "memory://",
        clock: Clock | None = None,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
        accuracy: Accuracy | None = None,
        name: str | None = None,
    ) -> None:
        read = read_limits(limits)
        self._stack = Stack(namespace, read, read_on_failure(on_store_failure), name)
        self._store = wrapped(store, clock)
        checked_name(name, limits, store, is_shared=self._store.is_shared)
        store_clock = self._store.clock
        self._fallback = fallback_of(self._store, store_clock, health_of(self._store))
        leased = self._stack.terms(accuracy)
        set_accuracies(self._store, self, leased)
        self._time: Clock = self._store.clock or time.monotonic_ns
        self._sleep: Callable[[float], None] | None = getattr(self._time, "sleep", None)
        self._lines: Lines[threading.Event] = Lines()
        prepared = prepared_stack(self._store, self._stack)
        self._take = None if prepared is None else prepared.take
        self._decide_now = decide_now_of(self._store, prepared)
        self._limits = self._stack.limits
        self._count = len(self._limits)
        self._uncounted_hit: Callable[[str, int], Decision] | None = None
        if name is not None:
            self._uncounted_hit = self.hit
            quick = self._decide_now or (self.hit if leased else None)
            self.__dict__ |= CountedVerbs(self, name, quick).verbs()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that each request has to pass."""
        return self._stack.limits

    @property
    def store(self) -> Store:
        """Where the counters are. (The limiter itself asks by way of a guard.)"""
        return unwrapped(self._store)

    def hit(self, key: str, cost: int = 1) -> Decision:
        """Admit *cost* units of *key* now, or say when to retry. A refusal consumes nothing."""
        decide_now = self._decide_now
        if decide_now is not None:  # the fast path: a store that never waits and cannot fail
            return decide_now(key, cost)
        take = self._take
        if take is None:
            return self._decide(self._stack.take(key, cost))
        if type(key) is not str or not key or type(cost) is not int or cost != 1:
            key, cost = checked_key(key), checked_cost(cost)
        count = self._count
        try:
            outcomes = take((key,) * count, (cost,) * count)
        except StoreError as error:
            return self._without_store(self._stack.take(key, cost), error)
        if self._fallback.wants_word:
            self._fallback.succeed()
        return decide(key, self._limits, outcomes)

    def peek(self, key: str, cost: int = 1) -> Decision:
        """What `hit` would say now; nothing is consumed."""
        return self._decide(Take(self._stack.checks(key, cost), consume=False))

    def hit_up_to(self, key: str, n: int) -> PartialHit:
        """Allow as many of *n* units of *key* as fit in all limits now, and charge those."""
        operation = self._stack.take_up_to(key, n)
        try:
            reply = self._store.run(operation)
        except StoreError as error:
            return self._part_without_store(operation, error)
        return self._conclude_part(operation, reply)

    def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> list[Decision]:
        """Hit several keys, each for itself, in one round trip; items are `(key, cost)`."""
        operation = self._stack.take_each(asked)
        try:
            replies = self._store.run(operation)
        except StoreError as error:
            return [self._without_store(take, error) for take in operation.takes]
        pairs = zip(operation.takes, replies, strict=True)
        return [self._conclude(take, reply) for take, reply in pairs]

    def hit_all(self, hits: Iterable[Hit]) -> Decision:
        """Hit different keys under different limits, all or nothing."""
        return self._decide(Take(checks_of(hits, self._stack.namespace)))

    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """Wait until *cost* is admitted, at most *timeout* seconds; callers of a key in order.

        Under a `LeakyQueue` it waits for its turn too. Refused at once if it can never fit or, once
        first in line, not in time. A refusal consumes nothing, nor does a caller that is
        interrupted while it waits.
        """
        self._stack.take(key, cost, "acquire")
        now = self._time()
        deadline = deadline_ns(timeout, now)
        if not self._stack.is_worth_a_wait(cost):
            return self._hit_within(key, cost, None)
        place = threading.Event()
        try:
            if not self._lines.join(key, place):
                if not place.wait(None if deadline is None else timeout):
                    return refused_in_line(self.peek(key, cost))
                now = self._time()
            while True:
                place.clear()
                within_ns = None if deadline is None else max(deadline - now, 0)
                decision = self._hit_within(key, cost, within_ns)
                wait_ns = decision.retry_after_ns
                if decision.allowed or wait_ns is None:
                    break
                if deadline is not None and self._time() + soonest_ns(decision) > deadline:
                    break
                (self._sleep or place.wait)(nap(wait_ns))
                now = self._time()
        finally:
            self._lines.leave(key, place)
        return self._in_turn(key, cost, decision)

    def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> Reservation:
        """Set *cost* aside until it is settled, or for *ttl* seconds. Check that it is true."""
        name = new_name()
        decision = self._decide(self._stack.hold(key, cost, name, ttl))
        settle = partial(self._settle_turn, cost, decision) if decision.delay_ns else self._settle
        return Reservation(key, cost, name, decision, settle)

    def charge(self, key: str, amount: int) -> Decision:
        """Record what has already happened, even beyond the limit; a look at the key after it."""
        return self._decide(Charge(self._stack.rates(key, amount, "charge")))

    def refund(self, key: str, amount: int) -> Decision:
        """Give *amount* back, never more than was charged; a look at the key after it."""
        decision = self._decide(Refund(self._stack.rates(key, amount, "refund")))
        self._lines.wake(key)
        return decision

    def reset(self, key: str) -> None:
        """Forget all about *key*. Raises `StoreError` if the store cannot be reached."""
        checks = self._stack.checks(key, 0)
        self._store.run(Reset(checks))
        self._fallback.reset(self._asked(checks))
        self._lines.wake(key)

    def slot(self, key: str, partition: str | None = None, *, heartbeat: bool = False) -> Slot:
        """A place under a `Concurrency` limit: `with limiter.slot(key) as slot:`, `if slot:`.

        Where the limit has shares, *partition* is the part of the callers that asks. With a
        *heartbeat* the lease is renewed in the background for as long as the slot is held.
        """
        stack = self._stack.of_part(partition)
        stack.enter(key, "")
        lasts_ns = stack.shortest_lease_ns if heartbeat else None
        return Slot(
            key,
            partial(self._enter, stack),
            partial(self._renew, stack),
            partial(self._leave, stack),
            None if lasts_ns is None else partial(self._beat, stack, lasts_ns),
        )

    def limit(
        self,
        key: Key | None = None,
        *,
        cost: Cost = 1,
        wait: bool = False,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function: each call is a hit of *key* (text, or made from the arguments).

        Without a key all calls share one counter. A refused call raises `RateLimitedError`; with
        `wait=True` it waits, at most *timeout* seconds. Under a `LeakyQueue` each call has its turn
        before it goes on.
        """
        limiter = _InTurn(self) if self._stack.has_queues else self
        return decorate(limiter, key, cost, wait=wait, timeout=timeout)

    def close(self) -> None:
        """Give back what the store holds open."""
        self._fallback.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{'; '.join(map(str, self.limits))}')"

    def _decide(self, operation: Take | Hold | Charge | Refund) -> Decision:
        try:
            outcomes = self._store.run(operation)
        except StoreError as error:
            return self._without_store(operation, error)
        return self._conclude(operation, outcomes)

    def _hit_within(self, key: str, cost: int, within_ns: int | None) -> Decision:
        """As `hit`, for one whose turn in a queue has to come within *within_ns*."""
        if within_ns is None or not self._stack.has_queues:
            return (self._uncounted_hit or self.hit)(key, cost)
        return self._decide(self._stack.within(within_ns).take(key, cost))

    def _in_turn(self, key: str, cost: int, decision: Decision) -> Decision:
        """*decision*, when the turn has come that it tells."""
        if decision.allowed and decision.delay_ns:
            try:
                for seconds in naps(decision.delay_ns):
                    (self._sleep or time.sleep)(seconds)
            except BaseException:  # an interrupt, above all: whatever it is, others go instead
                self._tell(self._giving_back(key, cost, decision))
                self._lines.wake(key)
                raise
        return decision

    def _tell(self, steps: Iterable[Operation[Any]]) -> None:
        """Tell the store what it may miss: it stays charged then, which is the safe side."""
        for step in steps:
            with suppress(StoreError):
                self._store.run(step)

    def _settle_turn(self, cost: int, granted: Decision, key: str, name: str, amount: int) -> bool:
        """As `_settle`; if nothing came of it, the turn that it has is given up."""
        if not amount:
            self._tell(self._vacating(key, cost, granted))
        return self._settle(key, name, amount)

    def _settle(self, key: str, name: str, amount: int) -> bool:
        checks = self._stack.checks(key, amount, "actual")
        asked, fallback = self._asked(checks), self._fallback
        is_here = fallback.has_decided and fallback.settle(asked, name)
        try:
            done = self._store.run(Settle(checks, name, charge_lapsed=True))
        except StoreError as error:
            done = False
            if is_here:
                fallback.owe(asked, error)
            elif self._stack.on_failure.mode != "fail_open":
                raise
        self._lines.wake(key)
        return done or is_here

    def _enter(self, stack: Stack, key: str, lease: str) -> Decision:
        return self._decide(stack.enter(key, lease))

    def _renew(self, stack: Stack, key: str, lease: str) -> bool:
        slots = stack.slots(key)
        if self._fallback.has_decided and self._fallback.renew(self._asked(slots), lease):
            return True
        return self._report(RenewSlot(slots, lease))

    def _beat(self, stack: Stack, lasts_ns: int, key: str, lease: str, slot: object) -> Beat:
        """Renew *lease* again and again. A store that is gone is no lost lease: it is raised."""
        slots = stack.slots(key)

        def renew() -> bool:
            if self._fallback.has_decided and self._fallback.renew(self._asked(slots), lease):
                return True
            return self._store.run(RenewSlot(slots, lease))

        return HEART.beat(renew, max(1, lasts_ns // BEATS), slot)

    def _leave(self, stack: Stack, key: str, lease: str) -> bool:
        slots = stack.slots(key)
        if self._fallback.has_decided and self._fallback.leave(self._asked(slots), lease):
            return True
        return self._report(ReleaseSlot(slots, lease))

    def _report(self, operation: RenewSlot | ReleaseSlot) -> bool:
        """Tell the store something that it may miss if the limiter is to stay open."""
        try:
            return self._store.run(operation)
        except StoreError:
            if self._stack.on_failure.mode == "fail_open":
                return False
            raise


class _InTurn:
    """A limiter with a queue, for the decorator."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self.acquire = limiter.acquire

    def hit(self, key: str, cost: int = 1) -> Decision:
        return self._limiter._in_turn(key, cost, self._limiter.hit(key, cost))  # noqa: SLF001


# `AsyncRateLimiter`: the verbs of `RateLimiter`, awaited. It never blocks the event loop.


class AsyncRateLimiter(Concluding):
    """As `RateLimiter`, for an event loop.

    A `MemoryStore` may be shared with a `RateLimiter`: both then count together.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        store: str | Store = "memory://",
        clock: Clock | None = None,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
        accuracy: Accuracy | None = None,
        name: str | None = None,
    ) -> None:
        read = read_limits(limits)
        self._stack = Stack(namespace, read, read_on_failure(on_store_failure), name)
        self._store = wrapped(store, clock)
        checked_name(name, limits, store, is_shared=self._store.is_shared)
        store_clock = self._store.clock
        self._fallback = fallback_of(self._store, store_clock, health_of(self._store))
        set_accuracies(self._store, self, self._stack.terms(accuracy))
        self._time: Clock = self._store.clock or time.monotonic_ns
        self._sleep: Callable[[float], Awaitable[None]] | None
        self._sleep = getattr(self._time, "asleep", None)
        self._lines: Lines[LoopEvent] = Lines()
        self._undoing: set[asyncio.Task[None]] = set()
        prepared = prepared_stack(self._store, self._stack)
        self._take = None if prepared is None else prepared.atake
        self._decide_now = decide_now_of(self._store, prepared)
        self._limits = self._stack.limits
        self._count = len(self._limits)
        self._uncounted_hit: Callable[[str, int], Coroutine[None, None, Decision]] | None = None
        if name is not None:
            self._uncounted_hit = self.hit
            self.__dict__ |= CountedAsyncVerbs(self, name, self._decide_now).verbs()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that each request has to pass."""
        return self._stack.limits

    @property
    def store(self) -> Store:
        """Where the counters are. (The limiter itself asks by way of a guard.)"""
        return unwrapped(self._store)

    async def hit(self, key: str, cost: int = 1) -> Decision:
        """Admit *cost* units of *key* now, or say when to retry. A refusal consumes nothing."""
        decide_now = self._decide_now
        if decide_now is not None:  # the fast path: a store that never waits and cannot fail
            return decide_now(key, cost)
        take = self._take
        if take is None:
            return await self._decide(self._stack.take(key, cost))
        if type(key) is not str or not key or type(cost) is not int or cost != 1:
            key, cost = checked_key(key), checked_cost(cost)
        count = self._count
        try:
            answer = take((key,) * count, (cost,) * count)
            outcomes = answer if isinstance(answer, tuple) else await answer
        except StoreError as error:
            return self._without_store(self._stack.take(key, cost), error)
        if self._fallback.wants_word:
            self._fallback.succeed()
        return decide(key, self._limits, outcomes)

    async def peek(self, key: str, cost: int = 1) -> Decision:
        """What `hit` would say now; nothing is consumed."""
        return await self._decide(Take(self._stack.checks(key, cost), consume=False))

    async def hit_up_to(self, key: str, n: int) -> PartialHit:
        """Allow as many of *n* units of *key* as fit in all limits now, and charge those."""
        operation = self._stack.take_up_to(key, n)
        try:
            reply = await self._store.arun(operation)
        except StoreError as error:
            return self._part_without_store(operation, error)
        return self._conclude_part(operation, reply)

    async def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> list[Decision]:
        """Hit several keys, each for itself, in one round trip; items are `(key, cost)`."""
        operation = self._stack.take_each(asked)
        try:
            replies = await self._store.arun(operation)
        except StoreError as error:
            return [self._without_store(take, error) for take in operation.takes]
        pairs = zip(operation.takes, replies, strict=True)
        return [self._conclude(take, reply) for take, reply in pairs]

    async def hit_all(self, hits: Iterable[Hit]) -> Decision:
        """Hit different keys under different limits, all or nothing."""
        return await self._decide(Take(checks_of(hits, self._stack.namespace)))

    async def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:  # noqa: ASYNC109 (a refusal is a value here, not a TimeoutError)
        """Wait until *cost* is admitted, at most *timeout* seconds; callers of a key in order.

        Under a `LeakyQueue` it waits for its turn too. Refused at once if it can never fit or, once
        first in line, not in time. A refusal consumes nothing, nor does a caller that is cancelled.
        """
        self._stack.take(key, cost, "acquire")
        now = self._time()
        deadline = deadline_ns(timeout, now)
        if not self._stack.is_worth_a_wait(cost):
            return await self._hit_within(key, cost, None)
        place = LoopEvent()
        try:
            if not self._lines.join(key, place):
                if not await _is_set(place, None if deadline is None else timeout):
                    return refused_in_line(await self.peek(key, cost))
                now = self._time()
            while True:
                place.clear()
                within_ns = None if deadline is None else max(deadline - now, 0)
                decision = await self._asked_for(key, cost, self._hit_within(key, cost, within_ns))
                wait_ns = decision.retry_after_ns
                if decision.allowed or wait_ns is None:
                    break
                if deadline is not None and self._time() + soonest_ns(decision) > deadline:
                    break
                if self._sleep is not None:
                    await self._sleep(nap(wait_ns))
                else:
                    await _is_set(place, nap(wait_ns))
                now = self._time()
        finally:
            self._lines.leave(key, place)
        return await self._in_turn(key, cost, decision)

    async def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> AsyncReservation:
        """Set *cost* aside until it is settled, or for *ttl* seconds. Check that it is true."""
        name = new_name()
        decision = await self._or_undo(
            self._decide(self._stack.hold(key, cost, name, ttl)),
            lambda granted: self._settle_turn(cost, granted, key, name, 0),
        )
        settle = partial(self._settle_turn, cost, decision) if decision.delay_ns else self._settle
        return AsyncReservation(key, cost, name, decision, settle)

    async def charge(self, key: str, amount: int) -> Decision:
        """Record what has already happened, even beyond the limit; a look at the key after it."""
        return await self._decide(Charge(self._stack.rates(key, amount, "charge")))

    async def refund(self, key: str, amount: int) -> Decision:
        """Give *amount* back, never more than was charged; a look at the key after it."""
        decision = await self._decide(Refund(self._stack.rates(key, amount, "refund")))
        self._lines.wake(key)
        return decision

    async def reset(self, key: str) -> None:
        """Forget all about *key*. Raises `StoreError` if the store cannot be reached."""
        checks = self._stack.checks(key, 0)
        await self._store.arun(Reset(checks))
        self._fallback.reset(self._asked(checks))
        self._lines.wake(key)

    def slot(self, key: str, partition: str | None = None, *, heartbeat: bool = False) -> AsyncSlot:
        """A place under a `Concurrency` limit: `async with limiter.slot(key) as slot:`.

        *partition* and *heartbeat* as in `RateLimiter.slot`.
        """
        stack = self._stack.of_part(partition)
        stack.enter(key, "")
        lasts_ns = stack.shortest_lease_ns if heartbeat else None
        return AsyncSlot(
            key,
            partial(self._enter, stack),
            partial(self._renew, stack),
            partial(self._leave, stack),
            None if lasts_ns is None else partial(self._beat, stack, lasts_ns),
        )

    def limit(
        self,
        key: Key | None = None,
        *,
        cost: Cost = 1,
        wait: bool = False,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Decorate an async function; as `RateLimiter.limit`."""
        limiter = _AioInTurn(self) if self._stack.has_queues else self
        return decorate_async(limiter, key, cost, wait=wait, timeout=timeout)

    async def aclose(self) -> None:
        """Give back what the store holds open."""
        if self._undoing:
            await asyncio.wait(self._undoing)
        self._fallback.close()
        await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{'; '.join(map(str, self.limits))}')"

    async def _decide(self, operation: Take | Hold | Charge | Refund) -> Decision:
        try:
            outcomes = await self._store.arun(operation)
        except StoreError as error:
            return self._without_store(operation, error)
        return self._conclude(operation, outcomes)

    async def _or_undo(
        self, asking: Coroutine[None, None, Decision], undo: Callable[[Decision], Awaitable[object]]
    ) -> Decision:
        """Ask; if the caller is cancelled meanwhile, undo what the store may yet grant."""
        if not self._store.waits:
            return await asking
        asked = asyncio.ensure_future(asking)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            self._keep(asyncio.ensure_future(_undo_if_granted(asked, undo)))
            raise

    def _keep(self, undoing: asyncio.Task[None]) -> None:
        """The loop itself forgets tasks that nobody waits for."""
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)

    async def _hit_within(self, key: str, cost: int, within_ns: int | None) -> Decision:
        """As `RateLimiter._hit_within`."""
        if within_ns is None or not self._stack.has_queues:
            return await (self._uncounted_hit or self.hit)(key, cost)
        return await self._decide(self._stack.within(within_ns).take(key, cost))

    async def _asked_for(
        self, key: str, cost: int, asking: Coroutine[None, None, Decision]
    ) -> Decision:
        """What comes of *asking* for *cost*; who is cancelled meanwhile takes nothing."""
        return await self._or_undo(asking, lambda granted: self._give_back(key, cost, granted))

    async def _in_turn(self, key: str, cost: int, decision: Decision) -> Decision:
        """*decision*, when the turn has come that it tells."""
        if decision.allowed and decision.delay_ns:
            try:
                for seconds in naps(decision.delay_ns):
                    await (self._sleep or asyncio.sleep)(seconds)
            except asyncio.CancelledError:
                giving_back = self._give_back(key, cost, decision)
                if self._store.waits:
                    self._keep(asyncio.ensure_future(giving_back))
                else:
                    await giving_back
                raise
        return decision

    async def _give_back(self, key: str, cost: int, granted: Decision) -> None:
        """Undo a hit, where it was charged."""
        await self._tell(self._giving_back(key, cost, granted))
        self._lines.wake(key)

    async def _tell(self, steps: Iterable[Operation[Any]]) -> None:
        """As `RateLimiter._tell`."""
        for step in steps:
            with suppress(StoreError):
                await self._store.arun(step)

    async def _settle_turn(
        self, cost: int, granted: Decision, key: str, name: str, amount: int
    ) -> bool:
        """As `RateLimiter._settle_turn`."""
        if not amount:
            await self._tell(self._vacating(key, cost, granted))
        return await self._settle(key, name, amount)

    async def _settle(self, key: str, name: str, amount: int) -> bool:
        checks = self._stack.checks(key, amount, "actual")
        asked, fallback = self._asked(checks), self._fallback
        is_here = fallback.has_decided and fallback.settle(asked, name)
        try:
            done = await self._store.arun(Settle(checks, name, charge_lapsed=True))
        except StoreError as error:
            done = False
            if is_here:
                fallback.owe(asked, error)
            elif self._stack.on_failure.mode != "fail_open":
                raise
        self._lines.wake(key)
        return done or is_here

    async def _enter(self, stack: Stack, key: str, lease: str) -> Decision:
        return await self._or_undo(
            self._decide(stack.enter(key, lease)), lambda _: self._leave(stack, key, lease)
        )

    async def _renew(self, stack: Stack, key: str, lease: str) -> bool:
        slots = stack.slots(key)
        if self._fallback.has_decided and self._fallback.renew(self._asked(slots), lease):
            return True
        return await self._report(RenewSlot(slots, lease))

    def _beat(self, stack: Stack, lasts_ns: int, key: str, lease: str, slot: object) -> AsyncBeat:
        """As `RateLimiter._beat`."""
        slots = stack.slots(key)

        async def renew() -> bool:
            if self._fallback.has_decided and self._fallback.renew(self._asked(slots), lease):
                return True
            return await self._store.arun(RenewSlot(slots, lease))

        return ASYNC_HEART.beat(renew, max(1, lasts_ns // BEATS), slot)

    async def _leave(self, stack: Stack, key: str, lease: str) -> bool:
        slots = stack.slots(key)
        if self._fallback.has_decided and self._fallback.leave(self._asked(slots), lease):
            return True
        return await self._report(ReleaseSlot(slots, lease))

    async def _report(self, operation: RenewSlot | ReleaseSlot) -> bool:
        """Tell the store something that it may miss if the limiter is to stay open."""
        try:
            return await self._store.arun(operation)
        except StoreError:
            if self._stack.on_failure.mode == "fail_open":
                return False
            raise


class _AioInTurn:
    """A limiter with a queue, for the decorator."""

    def __init__(self, limiter: AsyncRateLimiter) -> None:
        self._limiter = limiter
        self.acquire = limiter.acquire

    async def hit(self, key: str, cost: int = 1) -> Decision:
        limiter = self._limiter
        decision = await limiter._asked_for(key, cost, limiter.hit(key, cost))  # noqa: SLF001
        return await limiter._in_turn(key, cost, decision)  # noqa: SLF001


async def _undo_if_granted(
    asked: asyncio.Future[Decision], undo: Callable[[Decision], Awaitable[object]]
) -> None:
    decision = await asked
    if decision.allowed:
        await undo(decision)


async def _is_set(event: LoopEvent, timeout: float | None) -> bool:  # noqa: ASYNC109
    """Wait for *event*, at most *timeout* seconds; whether it came."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True
