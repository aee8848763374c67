"""A store that fails or hangs when a test says so, and a circuit breaker in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError, StoreFault
from headgate.limits import parse_limit
from headgate.stores.base import Store
from headgate.stores.layers.circuit_breaker import BreakerOptions, Change, CircuitBreakerStore
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Operation, Take, keys_of
from headgate.units import SECOND
from tests.support.store_calls import Calls

if TYPE_CHECKING:
    import asyncio

    from headgate.clock import Clock
    from headgate.stores.base import Accuracies

R = TypeVar("R")

LIMIT = parse_limit("1000000/week")
PLACE = [("g", LIMIT)]
OPTIONS = BreakerOptions(first_calls=0)


def taking(*keys: str) -> Take:
    """One unit of each of *keys*, or of "key"."""
    return Take(tuple(Check("g", key, LIMIT) for key in keys or ("key",)))


class Failing(Store):
    """A memory store that raises `raised`, if that is set, for keys that are not in `spared`.

    In event loops it waits for `hangs` first, if that is set. With *has_parts*, the part of a key
    is its first letter.
    """

    where = "somewhere:1"

    def __init__(self, *, has_parts: bool = False, clock: Clock | None = None) -> None:
        self.inner = MemoryStore()
        self.raised: BaseException | None = None
        self.spared: frozenset[str] = frozenset()
        self.hangs: asyncio.Event | None = None
        self.calls = 0
        self.accuracies: Accuracies | None = None
        self.is_closed = False
        self.clock = clock
        if has_parts:
            self.part_of = lambda key: f"node-{key[:1]}"

    def fail(self, reason: StoreFault = "timeout") -> None:
        self.raised = StoreError("no reply within 50 ms", reason=reason)

    def recover(self) -> None:
        self.raised = None

    def run(self, operation: Operation[R]) -> R:
        self.calls += 1
        if self.raised is not None and not self.spared.issuperset(keys_of(operation)):
            raise self.raised
        return self.inner.run(operation)

    async def arun(self, operation: Operation[R]) -> R:
        if self.hangs is not None:
            await self.hangs.wait()
        return self.run(operation)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.accuracies = accuracies

    def close(self) -> None:
        self.is_closed = True


class Broken:
    """A circuit breaker in front of a `Failing` store, its clock, and its transitions."""

    def __init__(self, calls: Calls | None = None, *, has_parts: bool = False) -> None:
        self.now_ns = 5 * SECOND
        self.chance = 0.0
        self.inner = Failing(has_parts=has_parts)
        self.store = CircuitBreakerStore(
            self.inner, options=OPTIONS, time_ns=lambda: self.now_ns, chance=lambda: self.chance
        )
        self._calls = calls or Calls("blocking")
        self._prepared = self.store.prepare(PLACE)
        self.changes: list[Change] = []
        self.store.health.on_change(self.changes.append)

    def run(self, operation: Operation[R]) -> R:
        return self._calls.run(self.store, operation)

    def reason(self, operation: Operation[Any] | None = None) -> str | None:
        """The reason for which *operation* fails; None if it does not."""
        try:
            self.run(operation or taking())
        except StoreError as error:
            return error.reason
        return None

    def prepared_reason(self, key: str = "key") -> str | None:
        """The reason for which a prepared take of *key* fails; None if it does not."""
        try:
            self._calls.take(self._prepared, key)
        except StoreError as error:
            return error.reason
        return None

    def open(self, key: str = "key") -> None:
        """Open the circuit of *key*."""
        self.inner.fail()
        while not self.store.health.is_open:
            assert self.reason(taking(key)) == "timeout"
