"""`RateLimiter`: one limit or a stack of them, many keys, for code that may block.

Each verb plans an operation (`plan`), runs it on the store, and concludes. The async twin in `aio`
has the same verbs in the same order; what they share is in `plan`, `waiting` and `holding`.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.concluding import Concluding
from headgate.decisions import Decision, FailurePolicy, OnFailure, read_on_failure
from headgate.decorating import decorate
from headgate.errors import StoreError
from headgate.fallback import fallback_of
from headgate.heartbeat import BEATS, HEART, Beat
from headgate.holding import Reservation, Slot, new_name
from headgate.limits import EXACT, Accuracy
from headgate.observability.named import CountedVerbs
from headgate.plan import (
    Limits,
    Stack,
    deadline_ns,
    nap,
    naps,
    read_limits,
    refused_in_line,
    soonest_ns,
)
from headgate.stores.opening import adopt_terms, guard_of, store_behind, store_in_use
from headgate.stores.operations import Charge, Hold, Leave, Refund, Renew, Reset, Settle, Take
from headgate.stores.port import checks_of
from headgate.waiting import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from headgate.clock import Clock
    from headgate.decorating import Cost, F, Key
    from headgate.limits import Limit
    from headgate.stores.operations import Operation
    from headgate.stores.port import Hit, Hitter, Store
    from headgate.units import Seconds


class RateLimiter(Concluding):
    """Decide for each request of each key: allowed or not, and if not, until when.

    *limits* is a text such as `"100/minute"`, a `Limit`, or a list of them (stacked: all must
    allow, and if one refuses none is charged). *store* is a URL or a `Store`; counters of equal
    *namespace* in one store are shared. *clock* is for tests and simulations. *on_store_failure*
    says what to do while the store is gone, *accuracy* how exactly the limits have to be kept by
    all who use them. With a *name* its decisions are counted under it in `headgate.observability`,
    as those of a rule are. Safe to share among threads.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        store: str | Store = "memory://",
        clock: Clock | None = None,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
        accuracy: Accuracy = EXACT,
        name: str | None = None,
    ) -> None:
        self._stack = Stack(namespace, read_limits(limits), read_on_failure(on_store_failure))
        self._store = store_in_use(store, clock)
        store_clock = getattr(self._store, "clock", None)
        self._fallback = fallback_of(self._store, store_clock, guard_of(self._store))
        adopt_terms(self._store, self, self._stack.terms(accuracy))
        self._time: Clock = getattr(self._store, "clock", time.monotonic_ns)
        self._sleep: Callable[[float], None] | None = getattr(self._time, "sleep", None)
        self._lines: Lines[threading.Event] = Lines()
        self._take_short_cut()
        self._uncounted_hit: Hitter | None = None
        if name is not None:
            self._uncounted_hit = self.hit
            self.__dict__ |= CountedVerbs(self, name).verbs()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that each request has to pass."""
        return self._stack.limits

    @property
    def store(self) -> Store:
        """Where the counters are. (The limiter itself asks by way of a guard.)"""
        return store_behind(self._store)

    def hit(self, key: str, cost: int = 1) -> Decision:
        """Admit *cost* units of *key* now, or say when to retry. A refusal consumes nothing."""
        return self._decide(self._stack.take(key, cost))

    def peek(self, key: str, cost: int = 1) -> Decision:
        """What `hit` would say now; nothing is consumed."""
        return self._decide(Take(self._stack.checks(key, cost), consume=False))

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
        return self._report(Renew(slots, lease))

    def _beat(self, stack: Stack, lasts_ns: int, key: str, lease: str, slot: object) -> Beat:
        """Renew *lease* again and again. A store that is gone is no lost lease: it is raised."""
        slots = stack.slots(key)

        def renew() -> bool:
            if self._fallback.has_decided and self._fallback.renew(self._asked(slots), lease):
                return True
            return self._store.run(Renew(slots, lease))

        return HEART.beat(renew, max(1, lasts_ns // BEATS), slot)

    def _leave(self, stack: Stack, key: str, lease: str) -> bool:
        slots = stack.slots(key)
        if self._fallback.has_decided and self._fallback.leave(self._asked(slots), lease):
            return True
        return self._report(Leave(slots, lease))

    def _report(self, operation: Renew | Leave) -> bool:
        """Tell the store something that it may miss if the limiter is to stay open."""
        try:
            return self._store.run(operation)
        except StoreError:
            if self._stack.on_failure.mode == "fail_open":
                return False
            raise

    def _take_short_cut(self) -> None:
        """Let the store answer `hit` itself where it can, saving a call and two objects."""
        hitter: Any = None if self._stack.has_slots else self._store.hitter(self._stack.places)
        if hitter is None or type(self).hit is not RateLimiter.hit:
            return
        hit = self._guarded(hitter) if self._store.may_fail else hitter
        hit.__doc__ = RateLimiter.hit.__doc__
        self.__dict__["hit"] = hit


class _InTurn:
    """A limiter with a queue, for the decorator."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self.acquire = limiter.acquire

    def hit(self, key: str, cost: int = 1) -> Decision:
        return self._limiter._in_turn(key, cost, self._limiter.hit(key, cost))  # noqa: SLF001
