"""The store layer that makes no calls to a store while its circuit is open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar, cast

from headgate.chance import chance
from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.limits import ConstantLimit
from headgate.runtime.drivers import drive
from headgate.runtime.effects import Interrupted
from headgate.stores.base import Layer, Prepared, address_of, checks_at
from headgate.stores.layers.circuit_breaker.breaker import BreakerOptions
from headgate.stores.layers.circuit_breaker.health import StoreHealth
from headgate.stores.operations import (
    Operation,
    Outcomes,
    Take,
    TakeEach,
    independent_results,
    is_constant,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.runtime.effects import Effects
    from headgate.stores.base import Place, Store
    from headgate.stores.layers.circuit_breaker.health import Call

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
        chance: Callable[[], float] = chance,
    ) -> None:
        super().__init__(inner)
        self.health = StoreHealth(
            address_of(inner), inner.part_of, options or BreakerOptions(), time_ns, chance
        )
        watch_forks(self.health)

    def effects(self, operation: Operation[R]) -> Effects[R]:
        health = self.health
        if is_constant(operation):  # the store is not called
            return (yield from self.inner.effects(operation))
        if health.part_of is not None and isinstance(operation, TakeEach):
            return cast("R", (yield from self._take_each(operation)))
        call = health.request(health.breakers_of(operation))
        try:
            reply = yield from self.inner.effects(operation)
        except BaseException as error:
            health.failed(call, error)
            raise
        health.succeeded(call)
        return reply

    def prepare(self, places: Sequence[Place]) -> Prepared:
        inner = self.inner.prepare(places)
        if all(isinstance(limit, ConstantLimit) for _, limit in places):
            return inner  # the store is not called
        health, kept, effect = self.health, tuple(places), inner.effect
        only = health.whole if health.part_of is None else None

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            breaker = only
            if breaker is None and keys.count(keys[0]) == len(keys):
                breaker = health.breaker_of(keys[0])
            mark = 0 if breaker is None else breaker.mark  # before the state, see `effects`
            if breaker is None or not breaker.is_closed:
                return (yield from self.effects(Take(checks_at(kept, keys, costs))))
            try:
                if effect is not None:
                    outcomes: Outcomes = yield effect(keys, costs)
                else:
                    outcomes = yield from inner.effects(keys, costs)
            except (StoreError, Interrupted) as error:
                health.failed([(breaker, mark)], error)
                raise
            if breaker.failures:
                health.succeeded([(breaker, mark)])
            else:  # it is closed: the same without a list and a call
                breaker.calls += 1
                health.metrics.calls.value += 1
            return outcomes

        def now(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            return drive(effects(keys, costs))

        return Prepared(effects, None if self.waits else now)

    def _take_each(self, operation: TakeEach) -> Effects[tuple[Outcomes | StoreError, ...]]:
        """Make the takes whose circuits are closed. Each is recorded for its own parts.

        A take that is not made has its error in its place. Raises `StoreError` if all failed: one
        of a take that may have been carried out, if there is one.
        """
        takes, health = operation.takes, self.health
        results: dict[int, Outcomes | StoreError] = {}
        made: dict[int, Call] = {}
        for place, take in enumerate(takes):
            try:
                made[place] = health.request(health.breakers_of(take))
            except StoreError as error:
                results[place] = error
        replies: tuple[Outcomes | StoreError, ...] = ()
        try:
            if made or not takes:
                each = TakeEach(tuple([takes[place] for place in made]))
                replies = yield from self.inner.effects(each)
        except BaseException as error:
            for call in made.values():
                health.failed(call, error)
            raise
        for (place, call), reply in zip(made.items(), replies, strict=True):
            results[place] = reply
            health.failed(call, reply if isinstance(reply, StoreError) else None)
        return independent_results([results[place] for place in range(len(takes))])
