"""The store layer that stops calling a store while it fails."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.stores.base import Layer, Prepared, address_of, checks_at
from headgate.stores.layers.circuit_breaker.breaker import BreakerTerms
from headgate.stores.layers.circuit_breaker.guard import Guard, Passage
from headgate.stores.operations import Operation, Outcomes, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from headgate.runtime.effects import Effects
    from headgate.stores.base import Place, Store
    from headgate.stores.layers.circuit_breaker.breaker import Breaker, Change

R = TypeVar("R")


class CircuitBreakerStore(Layer):
    """*inner*, without calls while it fails: they raise `StoreError` at once then.

    The reason of such an error is `circuit_open`. The deadline of a call is the store's own, the
    option `timeout` of its URL. The circuit closes by itself, by the calls that come.
    """

    def __init__(
        self,
        inner: Store,
        *,
        terms: BreakerTerms | None = None,
        time_ns: Callable[[], int] = time.monotonic_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        where = address_of(inner)
        self.guard = Guard(where, inner.part_of, terms or BreakerTerms(), time_ns, chance)
        watch_forks(self.guard)

    @property
    def is_open(self) -> bool:
        """True if no call but probes goes to the store, or to a part of it."""
        return self.guard.is_open

    @property
    def since_ns(self) -> int | None:
        """The time since which it has failed, on the guard's clock; None while all is well."""
        return self.guard.since_ns

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call *callback* at each transition, in the call that caused it; returns how to stop.

        It must not raise, nor take long.
        """
        return self.guard.on_change(callback)

    def effects(self, operation: Operation[R]) -> Effects[R]:
        guard = self.guard
        if guard.part_of is not None:
            return (yield from self._run_in_parts(operation))
        breaker = guard.whole
        mark = breaker.mark  # before the state: a mark that is too old does no harm
        if not breaker.is_closed:
            with guard.passing(operation):
                return (yield from self.inner.effects(operation))
        try:
            reply = yield from self.inner.effects(operation)
        except StoreError as error:
            guard.failed((breaker,), (mark,), error.reason)
            raise
        guard.answered(breaker, mark)
        return reply

    def prepare(self, places: Sequence[Place]) -> Prepared:
        guard, inner, kept = self.guard, self.inner.prepare(places), tuple(places)
        inner_take, inner_atake = inner.take, inner.atake

        def breaker_of(keys: Sequence[str]) -> Breaker | None:
            """The one breaker that a take of *keys* passes; None if there are several."""
            if guard.part_of is None:
                return guard.whole
            first = keys[0]
            return guard.breaker_of(first) if all(key == first for key in keys) else None

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            breaker = breaker_of(keys)
            mark = 0 if breaker is None else breaker.mark  # before the state, see `effects`
            if breaker is None or not breaker.is_closed:
                return self.run(Take(checks_at(kept, keys, costs)))
            try:
                outcomes = inner_take(keys, costs)
            except StoreError as error:
                guard.failed((breaker,), (mark,), error.reason)
                raise
            guard.answered(breaker, mark)
            return outcomes

        async def awaited(
            breaker: Breaker, mark: int, answer: Outcomes | Awaitable[Outcomes]
        ) -> Outcomes:
            try:
                outcomes = answer if isinstance(answer, tuple) else await answer
            except StoreError as error:
                guard.failed((breaker,), (mark,), error.reason)
                raise
            guard.answered(breaker, mark)
            return outcomes

        def atake(keys: Sequence[str], costs: Sequence[int]) -> Outcomes | Awaitable[Outcomes]:
            breaker = breaker_of(keys)
            mark = 0 if breaker is None else breaker.mark
            if breaker is None or not breaker.is_closed:
                return self.arun(Take(checks_at(kept, keys, costs)))
            return awaited(breaker, mark, inner_atake(keys, costs))

        return Prepared(take, atake if self.waits else take)

    def _run_in_parts(self, operation: Operation[R]) -> Effects[R]:
        if not isinstance(operation, TakeEach):
            with self.guard.passing(operation):
                return (yield from self.inner.effects(operation))
        sifted = Sifted(self.guard, operation)
        with sifted:
            if sifted.admitted is not None:
                sifted.outcomes = yield from self.inner.effects(sifted.admitted)
        return cast("R", sifted.merged())


class Sifted:
    """The takes of *operation* that may be made, as a context; `outcomes` is their result.

    The breakers of its own parts record each of them. A take that may not be made has its error
    in its place.
    """

    def __init__(self, guard: Guard, operation: TakeEach) -> None:
        self.outcomes: tuple[Outcomes | StoreError, ...] = ()
        self._guard = guard
        self._takes = operation.takes
        self._denied: dict[int, StoreError] = {}
        self._passages: dict[int, Passage] = {}
        self.admitted: TakeEach | None = None

    def __enter__(self) -> Self:
        with ExitStack() as undoing:  # leaves what was entered, should anything raise here
            for place, take in enumerate(self._takes):
                passage = self._guard.passing(take)
                try:
                    undoing.enter_context(passage)
                except StoreError as error:
                    self._denied[place] = error
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

    def merged(self) -> tuple[Any, ...]:
        """The result of each take; raises `StoreError` if all failed: one that may have been
        carried out, if there is one."""
        results = iter(self.outcomes)
        merged = [self._denied.get(n) or next(results) for n in range(len(self._takes))]
        errors = [one for one in merged if isinstance(one, StoreError)]
        if errors and len(errors) == len(merged):
            raise min(errors, key=lambda error: error.is_undone)
        return tuple(merged)
