"""The store layer that makes no calls to a store while its circuit is open."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar, cast

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.limits import ConstantLimit
from headgate.runtime.effects import Interrupted
from headgate.stores.base import Layer, Prepared, address_of, checks_at
from headgate.stores.constants import is_constant
from headgate.stores.layers.circuit_breaker.breaker import BreakerOptions
from headgate.stores.layers.circuit_breaker.health import StoreHealth
from headgate.stores.operations import Operation, Outcomes, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.runtime.effects import Effects
    from headgate.stores.base import Place, Store
    from headgate.stores.layers.circuit_breaker.breaker import Breaker, Change
    from headgate.stores.layers.circuit_breaker.health import Attempt

R = TypeVar("R")


class CircuitBreakerStore(Layer):
    """*inner*, without calls while it fails: they raise `StoreError` at once.

    The reason of such an error is `circuit_open`. The deadline of a call is the store's own, the
    option `timeout` of its URL. The circuit closes by the calls that come.
    """

    def __init__(
        self,
        inner: Store,
        *,
        options: BreakerOptions | None = None,
        time_ns: Callable[[], int] = time.monotonic_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        where = address_of(inner)
        self.health = StoreHealth(
            where, inner.part_of, options or BreakerOptions(), time_ns, chance
        )
        watch_forks(self.health)

    @property
    def is_open(self) -> bool:
        """True if no call but probes goes to the store, or to a part of it."""
        return self.health.is_open

    @property
    def since_ns(self) -> int | None:
        """The time at which the circuit opened, as `StoreHealth.since_ns`."""
        return self.health.since_ns

    def on_change(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call *callback* at each transition, in the call that caused it; returns how to stop.

        It must not raise, nor take long.
        """
        return self.health.on_change(callback)

    def effects(self, operation: Operation[R]) -> Effects[R]:
        health = self.health
        if is_constant(operation):  # it says nothing of the store
            return (yield from self.inner.effects(operation))
        if health.part_of is not None and isinstance(operation, TakeEach):
            return cast("R", (yield from self._take_each(operation)))
        breaker = health.whole
        mark = breaker.mark  # before the state: a mark that is too old does no harm
        if health.part_of is not None or not breaker.is_closed:
            with health.attempt(operation):
                return (yield from self.inner.effects(operation))
        try:
            reply = yield from self.inner.effects(operation)
        except (StoreError, Interrupted) as error:
            health.failed((breaker,), (mark,), error)
            raise
        health.answered(breaker, mark)
        return reply

    def prepare(self, places: Sequence[Place]) -> Prepared:
        inner = self.inner.prepare(places)
        if all(isinstance(limit, ConstantLimit) for _, limit in places):
            return inner  # it says nothing of the store
        return self._prepare(tuple(places), inner)

    def _prepare(self, kept: tuple[Place, ...], inner: Prepared) -> Prepared:
        health, inner_take, inner_atake = self.health, inner.take, inner.atake

        def breaker_of(keys: Sequence[str]) -> Breaker | None:
            """The one breaker that a take of *keys* passes; None if there are several."""
            if health.part_of is None:
                return health.whole
            first = keys[0]
            return health.breaker_of(first) if all(key == first for key in keys) else None

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            breaker = breaker_of(keys)
            mark = 0 if breaker is None else breaker.mark  # before the state, see `effects`
            if breaker is None or not breaker.is_closed:
                return self.run(Take(checks_at(kept, keys, costs)))
            try:
                outcomes = inner_take(keys, costs)
            except StoreError as error:
                health.failed((breaker,), (mark,), error)
                raise
            health.answered(breaker, mark)
            return outcomes

        async def awaited(
            breaker: Breaker, mark: int, answer: Outcomes | Awaitable[Outcomes]
        ) -> Outcomes:
            try:
                outcomes = answer if isinstance(answer, tuple) else await answer
            except StoreError as error:
                health.failed((breaker,), (mark,), error)
                raise
            health.answered(breaker, mark)
            return outcomes

        def atake(keys: Sequence[str], costs: Sequence[int]) -> Outcomes | Awaitable[Outcomes]:
            breaker = breaker_of(keys)
            mark = 0 if breaker is None else breaker.mark
            if breaker is None or not breaker.is_closed:
                return self.arun(Take(checks_at(kept, keys, costs)))
            return awaited(breaker, mark, inner_atake(keys, costs))

        return Prepared(take, atake if self.waits else take)

    def _take_each(self, operation: TakeEach) -> Effects[tuple[Outcomes | StoreError, ...]]:
        """Make the takes whose circuits are closed. Each is recorded for its own parts.

        A take that is not made has its error in its place. Raises `StoreError` if all failed: one
        of a take that may have been carried out, if there is one.
        """
        takes = operation.takes
        results: dict[int, Outcomes | StoreError] = {}
        attempts: dict[int, Attempt] = {}
        with ExitStack() as entered:
            for place, take in enumerate(takes):
                attempt = self.health.attempt(take)
                try:
                    attempts[place] = entered.enter_context(attempt)
                except StoreError as error:
                    results[place] = error
            if attempts or not takes:
                made = TakeEach(tuple(takes[place] for place in attempts))
                outcomes = yield from self.inner.effects(made)
                results.update(zip(attempts, outcomes, strict=True))
            for place, attempt in attempts.items():
                found = results[place]
                attempt.error = found if isinstance(found, StoreError) else None
        errors = [one for one in results.values() if isinstance(one, StoreError)]
        if errors and len(errors) == len(takes):
            raise min(errors, key=lambda error: error.is_undone)
        return tuple(results[place] for place in range(len(takes)))
