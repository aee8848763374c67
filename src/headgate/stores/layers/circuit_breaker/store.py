"""The guarded store, for callers that may block."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar, cast

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.stores.base import Asker, AsyncStore, Hitter, Store, Terms
from headgate.stores.layers.circuit_breaker.breaker import BreakerTerms
from headgate.stores.layers.circuit_breaker.guard import Guard, Passage
from headgate.stores.operations import Operation, Outcomes, TakeEach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.stores.layers.circuit_breaker.breaker import Change
    from headgate.stores.operations import Check


# What both guarded stores have in common: their guard, and what it has to say.


class Guarding:
    """A store with a guard before it."""

    guard: Guard

    def _guard(
        self,
        store: Store | AsyncStore,
        terms: BreakerTerms | None,
        time_ns: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        """Have a guard of *store*."""
        where = getattr(store, "where", type(store).__name__)
        part_of = getattr(store, "part_of", None)
        self.guard = Guard(where, part_of, terms or BreakerTerms(), time_ns, chance)
        watch_forks(self.guard)

    @property
    def is_open(self) -> bool:
        """Whether no call goes to the store, or to a part of it, but probes."""
        return self.guard.is_open

    @property
    def since_ns(self) -> int | None:
        """Since when it has failed, on the guard's clock; None while all is well."""
        return self.guard.since_ns

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Have *callback* told each transition, by the call that caused it; returns how to stop.

        It must not raise, nor take long.
        """
        return self.guard.on_change(callback)


# The short cuts of a store, guarded. While all is well a call costs little more than itself.


def guarded_hitter(hitter: Hitter, guard: Guard) -> Hitter:
    """*hitter*, past the breakers of *guard*."""
    whole = guard.whole if guard.part_of is None else None
    breaker_of, answered = guard.breaker_of, guard.answered

    def hit(key: str, cost: int = 1) -> Decision:
        breaker = whole or breaker_of(key)
        mark = breaker.mark  # before the state: a mark that is too old does no harm
        if not breaker.is_closed:
            with Passage(guard, (breaker,)):
                return hitter(key, cost)
        try:
            decision = hitter(key, cost)
        except StoreError as error:
            guard.failed((breaker,), (mark,), error.reason)
            raise
        answered(breaker, mark)
        return decision

    return hit


def guarded_asker(asker: Asker, guard: Guard) -> Asker:
    """The same for a short cut that has to be awaited."""
    whole = guard.whole if guard.part_of is None else None
    breaker_of, answered = guard.breaker_of, guard.answered

    async def ask(key: str, cost: int = 1) -> Decision:
        breaker = whole or breaker_of(key)
        mark = breaker.mark
        if not breaker.is_closed:
            with Passage(guard, (breaker,)):
                return await asker(key, cost)
        try:
            decision = await asker(key, cost)
        except StoreError as error:
            guard.failed((breaker,), (mark,), error.reason)
            raise
        answered(breaker, mark)
        return decision

    return ask


# Takes that have nothing to do with each other, of which some are for a part that fails.


class Sifted:
    """The takes of *operation* that may be made, as a context; `outcomes` is what came of them.

    Each is noted by the breakers of its own parts. Who is not admitted has its error in its place.
    """

    def __init__(self, guard: Guard, operation: TakeEach) -> None:
        self.outcomes: tuple[Outcomes | StoreError, ...] = ()
        self._guard = guard
        self._takes = operation.takes
        self._refused: dict[int, StoreError] = {}
        self._passages: dict[int, Passage] = {}
        self.admitted: TakeEach | None = None

    def __enter__(self) -> Self:
        with ExitStack() as undoing:  # what was entered, should anything be raised here
            for place, take in enumerate(self._takes):
                passage = self._guard.passing(take)
                try:
                    undoing.enter_context(passage)
                except StoreError as error:
                    self._refused[place] = error
                else:
                    self._passages[place] = passage
            undoing.pop_all()
        if self._passages or not self._takes:
            self.admitted = TakeEach(tuple(self._takes[place] for place in self._passages))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for n, passage in enumerate(self._passages.values()):
            own = error
            if error is None and isinstance(found := self.outcomes[n], StoreError):
                own = found
            passage.__exit__(None if own is None else type(own), own, None)

    def merged(self) -> tuple[Outcomes | StoreError, ...]:
        """What came of each take; raises `StoreError` if nothing came of any: one after which
        something may have been done, if there is such a one."""
        came = iter(self.outcomes)
        merged = [self._refused.get(n) or next(came) for n in range(len(self._takes))]
        errors = [one for one in merged if isinstance(one, StoreError)]
        if errors and len(errors) == len(merged):
            raise min(errors, key=lambda error: error.is_undone)
        return tuple(merged)


R = TypeVar("R")


class GuardedStore(Guarding, Store):
    """*store*, left alone while it fails: calls raise `StoreError` at once then.

    The reason of such an error is `circuit_open`. The deadline of a call is the store's own, the
    option `timeout` of its URL. It recovers by itself, by the calls that come. Safe to share among
    threads, and usable in a process forked off the one that made it.
    """

    clock: Clock

    def __init__(
        self,
        store: Store,
        *,
        terms: BreakerTerms | None = None,
        time_ns: Callable[[], int] = time.monotonic_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.may_fail = store.may_fail
        self.lends = store.lends
        self.shares = store.shares
        if hasattr(store, "clock"):
            self.clock = store.clock
        self._guard(store, terms, time_ns, chance)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.store!r}>"

    def run(self, operation: Operation[R]) -> R:
        guard = self.guard
        if guard.part_of is not None:
            return self._run_in_parts(operation)
        breaker = guard.whole
        mark = breaker.mark  # before the state: a mark that is too old does no harm
        if not breaker.is_closed:
            with guard.passing(operation):
                return self.store.run(operation)
        try:
            reply = self.store.run(operation)
        except StoreError as error:
            guard.failed((breaker,), (mark,), error.reason)
            raise
        guard.answered(breaker, mark)
        return reply

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        hitter = self.store.hitter(places)
        return None if hitter is None else guarded_hitter(hitter, self.guard)

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        return self.store.take_quickly(checks) if self.guard.is_calm else None

    def adopt(self, terms: Terms) -> None:
        self.store.adopt(terms)

    def close(self) -> None:
        self.store.close()

    def _run_in_parts(self, operation: Operation[R]) -> R:
        if not isinstance(operation, TakeEach):
            with self.guard.passing(operation):
                return self.store.run(operation)
        sifted = Sifted(self.guard, operation)
        with sifted:
            if sifted.admitted is not None:
                sifted.outcomes = self.store.run(sifted.admitted)
        return cast("R", sifted.merged())


# The guarded store, for event loops.


class AsyncGuardedStore(Guarding, AsyncStore):
    """As `GuardedStore`, for event loops; several may use it, and they share its breakers."""

    clock: Clock

    def __init__(
        self,
        store: AsyncStore,
        *,
        terms: BreakerTerms | None = None,
        time_ns: Callable[[], int] = time.monotonic_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.waits = store.waits
        self.lends = store.lends
        self.shares = store.shares
        if hasattr(store, "clock"):
            self.clock = store.clock
        self._guard(store, terms, time_ns, chance)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.store!r}>"

    async def run(self, operation: Operation[R]) -> R:
        guard = self.guard
        if guard.part_of is not None:
            return await self._run_in_parts(operation)
        breaker = guard.whole
        mark = breaker.mark  # before the state: a mark that is too old does no harm
        if not breaker.is_closed:
            with guard.passing(operation):
                return await self.store.run(operation)
        try:
            reply = await self.store.run(operation)
        except StoreError as error:
            guard.failed((breaker,), (mark,), error.reason)
            raise
        guard.answered(breaker, mark)
        return reply

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        hitter = self.store.hitter(places)
        return None if hitter is None else guarded_hitter(hitter, self.guard)

    def asker(self, places: Sequence[tuple[str, Limit]]) -> Asker | None:
        asker = self.store.asker(places)
        return None if asker is None else guarded_asker(asker, self.guard)

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        return self.store.take_quickly(checks) if self.guard.is_calm else None

    def adopt(self, terms: Terms) -> None:
        self.store.adopt(terms)

    async def aclose(self) -> None:
        await self.store.aclose()

    async def _run_in_parts(self, operation: Operation[R]) -> R:
        if not isinstance(operation, TakeEach):
            with self.guard.passing(operation):
                return await self.store.run(operation)
        sifted = Sifted(self.guard, operation)
        with sifted:
            if sifted.admitted is not None:
                sifted.outcomes = await self.store.run(sifted.admitted)
        return cast("R", sifted.merged())
