"""`RateLimiter` and `AsyncRateLimiter`: one limit or a stack of them, many keys.

Both are facades. Each verb is written once, as a generator of effects on the engine
(`headgate.engine.use_cases`); a `RateLimiter` performs it in the calling thread, an
`AsyncRateLimiter` in the event loop.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, TypeVar

from headgate.decision import Decision, FailurePolicy, OnFailure, decide, read_on_failure
from headgate.engine.recorder import record
from headgate.engine.stack import Limits, Stack, checked_name, read_limits
from headgate.engine.use_cases import Engine
from headgate.errors import StoreError, UsageError
from headgate.limiter.decorator import Cost, F, Key, decorate
from headgate.limiter.holds import AsyncReservation, AsyncSlot, Reservation, Slot
from headgate.limits import LeakyQueue
from headgate.observability.decision_recorder import LimiterRecorder, read_timer
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Interrupted, Sleep, Wait
from headgate.runtime.heartbeat import new_name
from headgate.runtime.waiting_lines import Lines, Place, deadline_ns, nap, naps
from headgate.stores.base import checked_cost, checked_key, reject_concurrency, reject_partial
from headgate.stores.factory import unwrapped
from headgate.stores.operations import Charge, Refund
from headgate.units import MILLISECOND, duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from headgate.clock import Clock
    from headgate.decision import PartialHit
    from headgate.engine.plan import Plan
    from headgate.engine.verdict import Verdict
    from headgate.limits import Accuracy, Limit
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Hit, Store
    from headgate.units import Seconds

H = TypeVar("H", Reservation, AsyncReservation)


class LimiterVerbs:
    """The verbs of both limiters, as generators of effects."""

    waits_for_store = True
    """False if `acquire` denies at once what is denied because the store is gone."""

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
        self._stack = stack = Stack.of(read, name, namespace, read_on_failure(on_store_failure))
        self._engine = engine = Engine(store, clock=clock)
        checked_name(name, limits, store, is_shared=engine.store.is_shared)
        engine.set_accuracies(self, stack.accuracies(accuracy))
        self._time: Clock = engine.store.clock or time.monotonic_ns
        self._lines = Lines()
        self._recorder = None if name is None else LimiterRecorder(name)
        self._handle = None if stack.has_slots else engine.store.prepare(stack.places)
        self._decide_now = self._fast_path()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that each request has to pass."""
        return self._stack.limits

    @property
    def store(self) -> Store:
        """The store of the counters, without the layers that the limiter uses it through."""
        return unwrapped(self._engine.store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{'; '.join(map(str, self.limits))}')"

    def _fast_path(self) -> Callable[[str, int], Decision | None] | None:
        """A function that decides a hit at once, or returns None if the store has to be called."""
        stack, engine, handle = self._stack, self._engine, self._handle
        if handle is None:
            return None
        decide_now: Callable[[str, int], Decision | None] | None = None
        if not engine.store.may_fail:
            decide_now = handle.decide
        now, count, limits = handle.now, len(stack.limits), stack.limits
        if decide_now is None:
            if now is None:
                return None

            def decide_now(key: str, cost: int) -> Decision | None:
                if type(key) is not str or not key or type(cost) is not int or cost != 1:
                    key, cost = checked_key(key), checked_cost(cost)
                try:
                    outcomes = now((key,) * count, (cost,) * count)
                except StoreError as error:
                    return decision_of(engine.decide_here(stack.plan(key, cost), error))
                return None if outcomes is None else decide(key, limits, outcomes)

        return decide_now if self._recorder is None else self._recorder.wrap(decide_now)

    def _hitting(self, key: str, cost: int) -> Effects[Decision]:
        """Decide by the prepared take: what `Engine.decide` does, without a plan (8 of 25 us)."""
        stack, engine, handle, recorder = self._stack, self._engine, self._handle, self._recorder
        if handle is None:
            reject_concurrency(stack.limits, "hit")
            raise AssertionError("a limiter with slots has no hits")
        if type(key) is not str or not key or type(cost) is not int or cost != 1:
            key, cost = checked_key(key), checked_cost(cost)
        count, began_ns = len(stack.limits), read_timer()
        try:
            outcomes = yield from handle.effects((key,) * count, (cost,) * count)
        except StoreError as error:
            decision = decision_of(engine.decide_here(stack.plan(key, cost), error))
        except Interrupted as interrupted:
            yield from engine.undo_take(stack.plan(key, cost), interrupted)
            raise
        else:
            decision = decide(key, stack.limits, outcomes)
            if engine.fallback.needs_success:
                engine.succeed([(stack.rule_plan(key, cost), decision)])
        if recorder is not None:
            recorder.record(decision, key, cost, began_ns)
        return decision

    def _peeking(self, key: str, cost: int) -> Effects[Decision]:
        plan = self._stack.planned(self._stack.rule_plan(key, cost))
        return decision_of((yield from self._engine.peek(plan)))

    def _hitting_up_to(self, key: str, n: int) -> Effects[PartialHit]:
        reject_partial(self._stack.limits, "hit_up_to")
        plan = self._stack.plan(key, n)
        return (yield from self._engine.take_up_to(plan))

    def _hitting_many(self, items: Iterable[str | tuple[str, int]]) -> Effects[list[Decision]]:
        verdicts = yield from self._engine.decide_each(self._plans(items))
        return [decision_of(verdict) for verdict in verdicts]

    def _plans(self, items: Iterable[str | tuple[str, int]]) -> list[Plan]:
        if isinstance(items, str):
            raise UsageError(f"hit_many takes a list of (key, cost); for {items!r} alone use hit")
        plans = []
        for n, item in enumerate(items):
            match item:
                case str():
                    plans.append(self._stack.plan(item, 1, "hit_many"))
                case (key, cost):
                    plans.append(self._stack.plan(key, cost, "hit_many"))
                case _:
                    raise UsageError(f"item {n} of hit_many is {item!r}; expected (key, cost)")
        return plans

    def _hitting_all(self, hits: Iterable[Hit]) -> Effects[Decision]:
        return decision_of((yield from self._engine.decide(self._stack.plan_of_hits(hits))))

    def _acquiring(self, key: str, cost: int, timeout: float | None) -> Effects[Decision]:
        stack, began_ns = self._stack, read_timer()
        plan = stack.plan(key, cost, "acquire")
        now = self._time()
        deadline = deadline_ns(timeout, now)
        if not 0 < cost <= min(limit.largest_cost for limit in stack.limits):  # nothing to wait for
            verdict = yield from self._engine.decide(plan, is_recorded=False)
        else:
            place = Place()
            try:
                if not self._lines.join(key, place):
                    within = None if deadline is None else timeout
                    if not (yield Wait(place.signal, within)):
                        verdict = _denied_in_line((yield from self._engine.peek(plan)))
                        return decision_of(record(verdict, began_ns, is_timed=False))
                verdict = yield from self._waiting(key, cost, place, deadline)
            finally:
                self._lines.leave(key, place)
        yield from self._until_place(key, verdict)
        return decision_of(record(verdict, began_ns, is_timed=False))

    def _waiting(self, key: str, cost: int, place: Place, deadline: int | None) -> Effects[Verdict]:
        """Ask the store, as the first in line, until the request is allowed or cannot be in
        time."""
        while True:
            signal = self._lines.arm(place)
            within_ns = None if deadline is None else max(deadline - self._time(), 0)
            plan = self._stack.within(within_ns).plan(key, cost)
            verdict = yield from self._engine.decide(plan, is_recorded=False)
            decision = decision_of(verdict)
            wait_ns = decision.retry_after_ns
            if decision.allowed or wait_ns is None:
                return verdict
            if decision.source == "fail_closed" and not self.waits_for_store:
                return verdict
            if deadline is not None and self._time() + _soonest_ns(decision) > deadline:
                return verdict
            if hasattr(self._time, "sleep"):  # a clock for tests
                yield Sleep(nap(wait_ns), self._time)
            else:
                yield Wait(signal, nap(wait_ns))

    def _until_place(self, key: str, verdict: Verdict) -> Effects[None]:
        """Wait for the place in a queue that *verdict* grants; an interrupted caller gives it
        up."""
        if not verdict.delay_ns:
            return
        try:
            for seconds in naps(verdict.delay_ns):
                yield Sleep(seconds, self._time)
        except Interrupted:
            yield from self._engine.undo(verdict)
            self._lines.wake(key)
            raise

    def _hitting_and_waiting(self, key: str, cost: int) -> Effects[Decision]:
        """Hit, and wait for the place in a queue."""
        verdict = yield from self._engine.decide(self._stack.plan(key, cost))
        yield from self._until_place(key, verdict)
        return decision_of(verdict)

    def _reserving(self, kind: type[H], key: str, cost: int, ttl: Seconds) -> Effects[H]:
        name, ttl_ns = new_name(), duration_ns(ttl, "ttl")
        verdict = yield from self._engine.reserve(self._stack.plan_of_hold(key, cost), name, ttl_ns)
        settle = functools.partial(self._settling, key, verdict)
        return kind(key, cost, name, decision_of(verdict), settle)

    def _settling(self, key: str, verdict: Verdict, amount: int) -> Effects[bool]:
        if not amount:
            yield from self._engine.vacate(verdict)
        is_here = _is_decided_here(verdict)
        try:
            was_open = yield from self._engine.settle(verdict, {self._stack.rule.id: amount})
        except StoreError:
            if not is_here and self._stack.rule.on_failure.mode != "fail_open":
                raise
            was_open = False
        self._lines.wake(key)
        return was_open or is_here

    def _charging(self, key: str, amount: int) -> Effects[Decision]:
        one = self._stack.rates(key, amount, "charge")
        return (yield from self._engine.record_usage(one, Charge(one.checks)))

    def _refunding(self, key: str, amount: int) -> Effects[Decision]:
        one = self._stack.rates(key, amount, "refund")
        decision = yield from self._engine.record_usage(one, Refund(one.checks))
        self._lines.wake(key)
        return decision

    def _resetting(self, key: str) -> Effects[None]:
        yield from self._engine.reset(self._stack.rule_plan(key, 0))
        self._lines.wake(key)

    def _stack_of_slot(self, key: str, partition: str | None) -> Stack:
        stack = self._stack.of_partition(partition)
        if not stack.has_slots:
            raise UsageError("slot needs a Concurrency limit; this limiter has none: use hit")
        checked_key(key)
        return stack


class RateLimiter(LimiterVerbs):
    """Allow or deny each request of each key, and say when to retry.

    *limits* is a text such as `"100/minute"`, a `Limit`, or a list of them (stacked: all must
    allow, and if one denies none is charged). *store* is a URL or a `Store`. *name* is the name of
    its counters and its label in metrics; a shared store (Redis, shared memory) requires one, and
    limiters of one *name* and *namespace* share their counters. *clock* is for tests and
    simulations. *on_store_failure* says what to do while the store is gone, *accuracy* how exactly
    the limits have to be kept by all who use them. Safe to share among threads.
    """

    def hit(self, key: str, cost: int = 1) -> Decision:
        """Allow *cost* units of *key* now, or say when to retry. A denial consumes nothing."""
        decide_now = self._decide_now
        if decide_now is not None and (decision := decide_now(key, cost)) is not None:
            return decision
        return drive(self._hitting(key, cost))

    def peek(self, key: str, cost: int = 1) -> Decision:
        """Say what `hit` would say now; nothing is consumed."""
        return drive(self._peeking(key, cost))

    def hit_up_to(self, key: str, n: int) -> PartialHit:
        """Allow as many of *n* units of *key* as fit in all limits now, and charge those."""
        return drive(self._hitting_up_to(key, n))

    def hit_many(self, items: Iterable[str | tuple[str, int]]) -> list[Decision]:
        """Hit several keys, each for itself, in one round trip; items are `(key, cost)`."""
        return drive(self._hitting_many(items))

    def hit_all(self, hits: Iterable[Hit]) -> Decision:
        """Hit different keys under different limits, all or nothing."""
        return drive(self._hitting_all(hits))

    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """Wait until *cost* is allowed, at most *timeout* seconds; callers of a key in order.

        Under a `LeakyQueue` it waits for its place too. Denied at once if it can never fit or, once
        first in line, not in time. A denial consumes nothing, nor does a caller that is interrupted
        while it waits.
        """
        return drive(self._acquiring(key, cost, timeout))

    def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> Reservation:
        """Set *cost* aside until it is settled, or for *ttl* seconds. Check that it is true."""
        return drive(self._reserving(Reservation, key, cost, ttl))

    def charge(self, key: str, amount: int) -> Decision:
        """Record what has already happened, even beyond the limit; a peek at the key after it."""
        return drive(self._charging(key, amount))

    def refund(self, key: str, amount: int) -> Decision:
        """Give *amount* back, never more than was charged; a peek at the key after it."""
        return drive(self._refunding(key, amount))

    def reset(self, key: str) -> None:
        """Forget all about *key*. Raises `StoreError` if the store cannot be reached."""
        drive(self._resetting(key))

    def slot(self, key: str, partition: str | None = None, *, heartbeat: bool = False) -> Slot:
        """A slot under a `Concurrency` limit: `with limiter.slot(key) as slot:`, `if slot:`.

        Where the limit has shares, *partition* is the part of the callers that it is for. With a
        *heartbeat* the lease is renewed in the background for as long as the slot is held.
        """
        stack = self._stack_of_slot(key, partition)
        return Slot(key, self._engine, stack, heartbeat=heartbeat)

    def limit(
        self,
        key: Key | None = None,
        *,
        cost: Cost = 1,
        wait: bool = False,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function: each call is a hit of *key* (text, or made from the arguments).

        Without a key all calls share one counter. A denied call raises `RateLimitedError`; with
        `wait=True` it waits, at most *timeout* seconds. Under a `LeakyQueue` each call waits for
        its place before it goes on.
        """

        def hit(key: str, cost: int) -> Decision:
            return drive(self._hitting_and_waiting(key, cost))

        chosen = hit if self._stack.has_queues else self.hit
        return decorate(chosen, self.acquire, key, cost, wait=wait, timeout=timeout, is_async=False)

    def close(self) -> None:
        """Release what the store holds open."""
        drive(self._engine.closing())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncRateLimiter(LimiterVerbs):
    """`RateLimiter` for an event loop, which it never blocks.

    A store may be shared with a `RateLimiter`: both then count together.
    """

    async def hit(self, key: str, cost: int = 1) -> Decision:
        """Allow *cost* units of *key* now, or say when to retry. A denial consumes nothing."""
        decide_now = self._decide_now
        if decide_now is not None and (decision := decide_now(key, cost)) is not None:
            return decision
        return await adrive(self._hitting(key, cost))

    async def peek(self, key: str, cost: int = 1) -> Decision:
        """Say what `hit` would say now; nothing is consumed."""
        return await adrive(self._peeking(key, cost))

    async def hit_up_to(self, key: str, n: int) -> PartialHit:
        """Allow as many of *n* units of *key* as fit in all limits now, and charge those."""
        return await adrive(self._hitting_up_to(key, n))

    async def hit_many(self, items: Iterable[str | tuple[str, int]]) -> list[Decision]:
        """Hit several keys, each for itself, in one round trip; items are `(key, cost)`."""
        return await adrive(self._hitting_many(items))

    async def hit_all(self, hits: Iterable[Hit]) -> Decision:
        """Hit different keys under different limits, all or nothing."""
        return await adrive(self._hitting_all(hits))

    async def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:  # noqa: ASYNC109 (a denial is a value here, not a TimeoutError)
        """Wait until *cost* is allowed, at most *timeout* seconds: see `RateLimiter.acquire`."""
        return await adrive(self._acquiring(key, cost, timeout))

    async def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> AsyncReservation:
        """Set *cost* aside until it is settled, or for *ttl* seconds. Check that it is true."""
        return await adrive(self._reserving(AsyncReservation, key, cost, ttl))

    async def charge(self, key: str, amount: int) -> Decision:
        """Record what has already happened, even beyond the limit; a peek at the key after it."""
        return await adrive(self._charging(key, amount))

    async def refund(self, key: str, amount: int) -> Decision:
        """Give *amount* back, never more than was charged; a peek at the key after it."""
        return await adrive(self._refunding(key, amount))

    async def reset(self, key: str) -> None:
        """Forget all about *key*. Raises `StoreError` if the store cannot be reached."""
        await adrive(self._resetting(key))

    def slot(self, key: str, partition: str | None = None, *, heartbeat: bool = False) -> AsyncSlot:
        """A slot under a `Concurrency` limit: `async with limiter.slot(key) as slot:`.

        *partition* and *heartbeat* are those of `RateLimiter.slot`.
        """
        stack = self._stack_of_slot(key, partition)
        return AsyncSlot(key, self._engine, stack, heartbeat=heartbeat)

    def limit(
        self,
        key: Key | None = None,
        *,
        cost: Cost = 1,
        wait: bool = False,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Decorate an async function: see `RateLimiter.limit`."""

        async def hit(key: str, cost: int) -> Decision:
            return await adrive(self._hitting_and_waiting(key, cost))

        chosen = hit if self._stack.has_queues else self.hit
        return decorate(chosen, self.acquire, key, cost, wait=wait, timeout=timeout, is_async=True)

    async def aclose(self) -> None:
        """Release what the store holds open."""
        await adrive(self._engine.closing())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def decision_of(verdict: Verdict) -> Decision:
    """The decision of the only rule of *verdict*."""
    (decision,) = verdict.decisions
    assert decision is not None  # noqa: S101 (mypy: it has no markers of repeated requests)
    return decision


def _is_decided_here(verdict: Verdict) -> bool:
    """True if this process decided *verdict*, as the store was gone."""
    held = verdict.held
    return held is not None and bool(held.decided_here(verdict))


def _soonest_ns(denial: Decision) -> int:
    """The nanoseconds until a denied request could go on, at the soonest.

    Where a queue denied, a caller that comes when it has room waits for its place besides.
    """
    soonest = 0
    for part in denial.limits:
        wait_ns = part.delay_ns if part.allowed else part.retry_after_ns or 0
        if isinstance(part.limit, LeakyQueue) and not part.allowed:
            wait_ns += part.limit.patience_ns
        soonest = max(soonest, wait_ns)
    return max(soonest, denial.retry_after_ns or 0)


def _denied_in_line(verdict: Verdict) -> Verdict:
    """The denial of a caller whose time was up while others were before it in line.

    *verdict* is a peek at the counter then. If the counter has room, it is for the others.
    """
    if not verdict.allowed:
        return verdict
    denial = decision_of(verdict)._replace(
        allowed=False, remaining=0, retry_after_ns=MILLISECOND, delay_ns=0, place_ns=0
    )
    return verdict.with_decisions((denial,), allowed=False)
