"""Stores that fail when they are told to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError, StoreFault
from headgate.limits import parse_limit
from headgate.stores.base import Store
from headgate.stores.layers.circuit_breaker import (
    BreakerTerms,
    Change,
    CircuitBreakerStore,
)
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Operation, Take
from headgate.units import SECOND
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from headgate.clock import Clock
    from headgate.stores.base import Accuracies

R = TypeVar("R")

LIMIT = parse_limit("1000000/week")
PLACE = [("g", LIMIT)]
TERMS = BreakerTerms(first_calls=0)


def taking(*keys: str) -> Take:
    """One unit of each of *keys*, or of "key"."""
    return Take(tuple(Check("g", key, LIMIT) for key in keys or ("key",)))


class Trouble:
    """What both of them are told: what to raise, and which keys to spare."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self.spares: frozenset[str] = frozenset()
        self.calls = 0

    def fail(self, reason: StoreFault = "timeout") -> None:
        self.raised = StoreError("told to", reason=reason)

    def heal(self) -> None:
        self.raised = None

    def meet(self, keys: Sequence[str]) -> None:
        self.calls += 1
        if self.raised is not None and not self.spares.issuperset(keys):
            raise self.raised


class Failing(Store):
    """A memory store that may fail. With *parts*, the part of a key is its first letter."""

    where = "somewhere:1"

    def __init__(self, *, has_parts: bool = False, clock: Clock | None = None) -> None:
        self.trouble = Trouble()
        self.inner = MemoryStore()
        self.accuracies: Accuracies | None = None
        self.is_closed = False
        if clock is not None:
            self.clock = clock
        if has_parts:
            self.part_of = lambda key: f"node-{key[:1]}"

    def run(self, operation: Operation[R]) -> R:
        self.trouble.meet([check.key for check in getattr(operation, "checks", ())])
        return self.inner.run(operation)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.accuracies = accuracies

    def close(self) -> None:
        self.is_closed = True


class AsyncFailing(LoopStore):
    """The same for event loops. While *hangs* is set, calls wait until it is not."""

    where = "somewhere:2"

    def __init__(self, *, has_parts: bool = False) -> None:
        self.trouble = Trouble()
        self.inner = MemoryStore()
        self.hangs: asyncio.Event | None = None
        self.accuracies: Accuracies | None = None
        self.is_closed = False
        if has_parts:
            self.part_of = lambda key: f"node-{key[:1]}"

    async def arun(self, operation: Operation[R]) -> R:
        if self.hangs is not None:
            await self.hangs.wait()
        self.trouble.meet([check.key for check in getattr(operation, "checks", ())])
        return await self.inner.arun(operation)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.accuracies = accuracies

    async def aclose(self) -> None:
        self.is_closed = True


class Watch:
    """A clock for guards, and a chance that lets all pass that a ramp may let pass."""

    def __init__(self) -> None:
        self.now_ns = 5 * SECOND
        self.odds = 0.0

    def time_ns(self) -> int:
        return self.now_ns

    def chance(self) -> float:
        return self.odds


class Guarded:
    """A guarded store that fails when it is told to, what it told, and its clock."""

    def __init__(self, *, has_parts: bool = False) -> None:
        self.watch = Watch()
        self.failing = Failing(has_parts=has_parts)
        self.trouble = self.failing.trouble
        self.store = CircuitBreakerStore(
            self.failing, terms=TERMS, time_ns=self.watch.time_ns, chance=self.watch.chance
        )
        self.changes: list[Change] = []
        self.store.on_change(self.changes.append)

    def reason(self, operation: Operation[Any] | None = None) -> str | None:
        """Why *operation* fails; None if it does not."""
        try:
            self.store.run(operation or taking())
        except StoreError as error:
            return error.reason
        return None

    def open(self) -> None:
        self.trouble.fail()
        while not self.store.is_open:
            assert self.reason() == "timeout"


class AsyncGuarded:
    """The same for event loops."""

    def __init__(self, *, has_parts: bool = False) -> None:
        self.watch = Watch()
        self.failing = AsyncFailing(has_parts=has_parts)
        self.trouble = self.failing.trouble
        self.store = CircuitBreakerStore(
            self.failing, terms=TERMS, time_ns=self.watch.time_ns, chance=self.watch.chance
        )
        self.changes: list[Change] = []
        self.store.on_change(self.changes.append)

    async def reason(self, operation: Operation[Any] | None = None) -> str | None:
        try:
            await self.store.arun(operation or taking())
        except StoreError as error:
            return error.reason
        return None

    async def open(self) -> None:
        self.trouble.fail()
        while not self.store.is_open:
            assert await self.reason() == "timeout"
