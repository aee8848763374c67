"""The store inside the process, for event loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headgate.stores.port import AsyncStore, Hitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.stores.memory.store import MemoryStore
    from headgate.stores.operations import Check, Operation

R = TypeVar("R")


class AsyncMemoryStore(AsyncStore):
    """The same store for an event loop. Nothing it does takes long enough to be awaited."""

    may_wait = False
    lends = True
    shares = True

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    @property
    def clock(self) -> Clock:
        return self.store.clock

    async def run(self, operation: Operation[R]) -> R:
        return self.store.run(operation)

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        return self.store.hitter(places)

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        return self.store.take_quickly(checks)
