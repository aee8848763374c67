"""The guarded store, for event loops."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar, cast

from headgate.errors import StoreError
from headgate.stores.guarded.guarding import Guarding
from headgate.stores.guarded.hitting import guarded_asker, guarded_hitter
from headgate.stores.guarded.sifting import Sifted
from headgate.stores.operations import Operation, TakeEach
from headgate.stores.port import Asker, AsyncStore, Hitter, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.stores.guarded.breaker import BreakerTerms
    from headgate.stores.operations import Check

R = TypeVar("R")


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
        self.may_wait = store.may_wait
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
