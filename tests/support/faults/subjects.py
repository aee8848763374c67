"""What suffers the faults: stores, limiters and engines, each with one verb that never raises.

A subject has one counter per *mode*, the rule's for when the store is gone; a bare store knows
nothing of modes and has one counter, `raw`. All of them have a limit of `CAPACITY` that gives
nothing back while a test runs, and go on with `SHARE` of it without the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar, Final

from headgate import AsyncRateLimiter, RateLimiter, TokenBucket
from headgate.decision import OnFailure
from headgate.engine.request import Request
from headgate.errors import StoreError
from headgate.limits import EXACT, Accuracy
from headgate.policy.model import Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.runtime.fallback import fallback_of
from headgate.stores.factory import wrapped
from headgate.stores.layers.circuit_breaker import BreakerOptions, CircuitBreakerStore
from headgate.stores.operations import Check, Take
from headgate.stores.redis import RedisStore
from headgate.units import MILLISECOND
from tests.support.limiters import Loop
from tests.support.servers import PATIENCE, with_options

if TYPE_CHECKING:
    from headgate.decision import Decision, FailurePolicy
    from headgate.runtime.fallback import Fallback
    from headgate.stores.base import Store

CAPACITY: Final = 12
SHARE: Final = Fraction(1, 2)
LOCAL: Final = 6
"""What a process may admit by itself: the share of the capacity."""
LIMIT: Final = TokenBucket(CAPACITY, 0.001)
DEADLINE: Final = 0.15
"""Seconds that a call of the store may take: short, for faults that last for ever."""
HASTE: Final = BreakerOptions(
    first_pause_ns=20 * MILLISECOND, longest_pause_ns=100 * MILLISECOND, ramp_ns=50 * MILLISECOND
)
"""A breaker as ever, but quicker, so that a recovery takes no long waiting."""
BATCH: Final = 3
"""What a subject that borrows may have in advance."""
MODES: Final[tuple[FailurePolicy, ...]] = ("fail_open", "fail_closed", "local")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request. *source* is `error` where a bare store raised, for *reason*."""

    allowed: bool
    source: str
    reason: str = ""


class Subject(ABC):
    """Something that decides by the store at *url*; *patient* ones wait long for it."""

    modes: ClassVar[tuple[str, ...]] = MODES
    accuracy: ClassVar[Accuracy] = EXACT

    def __init__(self, url: str, namespace: str, *, is_patient: bool) -> None:
        self.url = with_options(url, timeout=PATIENCE if is_patient else DEADLINE)
        self.namespace = namespace

    @abstractmethod
    def hit(self, mode: str) -> Answer:
        """Ask for one unit."""

    @abstractmethod
    def remaining(self, mode: str) -> int:
        """What is left at the store, without charging anything."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds open."""

    @property
    def fallback(self) -> Fallback:
        """What decides while the store is gone."""
        raise TypeError(f"{type(self).__name__} decides nothing without a store")

    def witness(self, url: str) -> Subject:
        """One of the same kind on the same counters, at *url* and patient: to count with."""
        return type(self)(url, self.namespace, is_patient=True)


def subject(kind: type[Subject], url: str, *, is_patient: bool) -> Subject:
    """A subject of *kind* in a namespace of its own."""
    return kind(url, f"faults-{token_hex(4)}", is_patient=is_patient)


def _answer(decision: Decision) -> Answer:
    return Answer(decision.allowed, decision.source)


class BareStore(Subject):
    """A `RedisStore`, and nothing around it."""

    modes = ("raw",)

    def __init__(self, url: str, namespace: str, *, is_patient: bool) -> None:
        super().__init__(url, namespace, is_patient=is_patient)
        self.store: Store = self.wrapped(RedisStore(self.url))

    def wrapped(self, store: Store) -> Store:
        return store

    def _take(self, *, consume: bool) -> Take:
        return Take((Check(self.namespace, "key", LIMIT),), consume=consume)

    def hit(self, mode: str) -> Answer:
        try:
            (outcome,) = self.store.run(self._take(consume=True))
        except StoreError as error:
            return Answer(allowed=False, source="error", reason=error.reason)
        return Answer(outcome.allowed, "store")

    def remaining(self, mode: str) -> int:
        return self.store.run(self._take(consume=False))[0].remaining

    def close(self) -> None:
        self.store.close()


class Guarded(BareStore):
    """The same behind a breaker."""

    def wrapped(self, store: Store) -> Store:
        return CircuitBreakerStore(store, options=HASTE)


class BareAsyncStore(Subject):
    """An `RedisStore` on a loop that runs all the time."""

    modes = ("raw",)

    def __init__(self, url: str, namespace: str, *, is_patient: bool) -> None:
        super().__init__(url, namespace, is_patient=is_patient)
        self.loop = Loop()
        self.store: Store = self.wrapped(RedisStore(self.url))

    def wrapped(self, store: Store) -> Store:
        return store

    def _take(self, *, consume: bool) -> Take:
        return Take((Check(self.namespace, "key", LIMIT),), consume=consume)

    def hit(self, mode: str) -> Answer:
        try:
            (outcome,) = self.loop.run(self.store.arun(self._take(consume=True)))
        except StoreError as error:
            return Answer(allowed=False, source="error", reason=error.reason)
        return Answer(outcome.allowed, "store")

    def remaining(self, mode: str) -> int:
        return self.loop.run(self.store.arun(self._take(consume=False)))[0].remaining

    def close(self) -> None:
        self.loop.run(self.store.aclose())
        self.loop.close()


class AsyncGuarded(BareAsyncStore):
    """The same behind a breaker."""

    def wrapped(self, store: Store) -> Store:
        return CircuitBreakerStore(store, options=HASTE)


class Limiters(Subject):
    """Three `RateLimiter`s, one of each mode, on one store."""

    def __init__(self, url: str, namespace: str, *, is_patient: bool) -> None:
        super().__init__(url, namespace, is_patient=is_patient)
        self._store = store = CircuitBreakerStore(RedisStore(self.url), options=HASTE)
        self._limiters = {
            mode: RateLimiter(
                LIMIT,
                store=store,
                name="api",
                namespace=f"{namespace}-{mode}",
                on_store_failure=OnFailure(mode, SHARE),
                accuracy=self.accuracy,
            )
            for mode in MODES
        }

    def hit(self, mode: str) -> Answer:
        return _answer(self._limiters[mode].hit("key"))  # type: ignore[index]  # one of ours

    def remaining(self, mode: str) -> int:
        return self._limiters[mode].peek("key", 0).remaining  # type: ignore[index]  # the same

    @property
    def fallback(self) -> Fallback:
        return fallback_of(wrapped(self._store, None))

    def close(self) -> None:
        for limiter in self._limiters.values():
            limiter.close()


class AsyncLimiters(Subject):
    """The same as `AsyncRateLimiter`s."""

    def __init__(self, url: str, namespace: str, *, is_patient: bool) -> None:
        super().__init__(url, namespace, is_patient=is_patient)
        self._loop = Loop()
        self._store = store = CircuitBreakerStore(RedisStore(self.url), options=HASTE)
        self._limiters = {
            mode: AsyncRateLimiter(
                LIMIT,
                store=store,
                name="api",
                namespace=f"{namespace}-{mode}",
                on_store_failure=OnFailure(mode, SHARE),
                accuracy=self.accuracy,
            )
            for mode in MODES
        }

    def hit(self, mode: str) -> Answer:
        return _answer(self._loop.run(self._limiters[mode].hit("key")))  # type: ignore[index]

    def remaining(self, mode: str) -> int:
        return self._loop.run(self._limiters[mode].peek("key", 0)).remaining  # type: ignore[index]

    @property
    def fallback(self) -> Fallback:
        return fallback_of(wrapped(self._store, None))

    def close(self) -> None:
        for limiter in self._limiters.values():
            self._loop.run(limiter.aclose())
        self._loop.close()


def _policy() -> Policy:
    """A rule for each mode, under a path of its name."""
    rules = [
        Rule(
            mode,
            Match(endpoints=(f"/{mode}",)),
            ("global",),
            {None: (LIMIT,)},
            on_failure=OnFailure(mode, SHARE),
        )
        for mode in MODES
    ]
    return Policy(tuple(rules))


class Engine(Subject):
    """A `RuleEngine` with three rules of different modes."""

    def __init__(self, url: str, namespace: str, *, is_patient: bool) -> None:
        super().__init__(url, namespace, is_patient=is_patient)
        self._store = store = CircuitBreakerStore(RedisStore(self.url), options=HASTE)
        self._engine = RuleEngine(_policy(), store=store, namespace=namespace)

    def hit(self, mode: str) -> Answer:
        verdict = self._engine.check(Request("GET", f"/{mode}", peer="192.0.2.1"))
        return _answer(verdict.rules[0].decision)

    def remaining(self, mode: str) -> int:
        request = Request("GET", f"/{mode}", peer="192.0.2.1")
        return self._engine.peek(request, cost=0).rules[0].decision.remaining

    @property
    def fallback(self) -> Fallback:
        return fallback_of(wrapped(self._store, None))

    def close(self) -> None:
        self._engine.close()


class AsyncEngine(Subject):
    """The same as an `AsyncRuleEngine`."""

    def __init__(self, url: str, namespace: str, *, is_patient: bool) -> None:
        super().__init__(url, namespace, is_patient=is_patient)
        self._loop = Loop()
        self._store = store = CircuitBreakerStore(RedisStore(self.url), options=HASTE)
        self._engine = AsyncRuleEngine(_policy(), store=store, namespace=namespace)

    def hit(self, mode: str) -> Answer:
        request = Request("GET", f"/{mode}", peer="192.0.2.1")
        return _answer(self._loop.run(self._engine.check(request)).rules[0].decision)

    def remaining(self, mode: str) -> int:
        request = Request("GET", f"/{mode}", peer="192.0.2.1")
        return self._loop.run(self._engine.peek(request, cost=0)).rules[0].decision.remaining

    @property
    def fallback(self) -> Fallback:
        return fallback_of(wrapped(self._store, None))

    def close(self) -> None:
        self._loop.run(self._engine.aclose())
        self._loop.close()


class _Borrowing(Subject):
    """What is charged in advance is seen by those who do not borrow."""

    def witness(self, url: str) -> Subject:
        return Limiters(url, self.namespace, is_patient=True)


class Leasing(_Borrowing, Limiters):
    """`RateLimiter`s that take a few units in advance."""

    accuracy = Accuracy(batch=BATCH)


class AsyncLeasing(_Borrowing, AsyncLimiters):
    """The same as `AsyncRateLimiter`s."""

    accuracy = Accuracy(batch=BATCH)


class Syncing(_Borrowing, Limiters):
    """`RateLimiter`s that decide by themselves and tell later."""

    accuracy = Accuracy(batch=BATCH, sync_ns=50 * MILLISECOND)


DECIDING: Final[tuple[type[Subject], ...]] = (Limiters, AsyncLimiters, Engine, AsyncEngine)
"""Those that decide by themselves without the store, and exactly with it."""

KINDS: Final[tuple[type[Subject], ...]] = (
    BareStore,
    BareAsyncStore,
    Guarded,
    AsyncGuarded,
    *DECIDING,
    Leasing,
    AsyncLeasing,
    Syncing,
)
