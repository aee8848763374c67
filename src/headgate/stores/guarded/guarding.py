"""What both guarded stores have in common: their guard, and what it has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.forking import watch_forks
from headgate.stores.guarded.breaker import BreakerTerms
from headgate.stores.guarded.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.guarded.breaker import Change
    from headgate.stores.port import AsyncStore, Store


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
