"""A store to lease from, which records its operations, and a store under test in both drivers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.limits import Accuracy, FixedWindow, TokenBucket
from headgate.stores.base import Store
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.operations import Check, Operation, Take
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.stores.operations import Outcomes

R = TypeVar("R")

LIMIT = TokenBucket(1_000, 1)
EXACT = FixedWindow(1_000, 3_600)
ACCURACIES = {"leased": Accuracy(batch=10), "too": Accuracy(batch=10)}


class Remote(Store):
    """A store that records what it is asked, and fails when a test says so.

    A *gate* holds threads up, `held` tasks; `is_asked` is set by each call.
    """

    grants_leases = True

    def __init__(self, clock: ManualClock) -> None:
        self.store = LeaseGrantingStore(clock=clock)
        self.clock: ManualClock = clock
        self.asked: list[Operation[Any]] = []
        self.is_gone = False
        self.gate: threading.Event | None = None
        self.held: asyncio.Event | None = None
        self.is_asked = threading.Event()

    def run(self, operation: Operation[R]) -> R:
        self.asked.append(operation)
        self.is_asked.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        return self._answer(operation)

    async def arun(self, operation: Operation[R]) -> R:
        self.asked.append(operation)
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()
        return self._answer(operation)

    def _answer(self, operation: Operation[R]) -> R:
        if self.is_gone:
            raise StoreError("it is gone", reason="timeout")
        return self.store.run(operation)


class Driven:
    """A `LeasedStore` on a `Remote`, driven by a thread or by an event loop."""

    def __init__(
        self,
        runner: asyncio.Runner | None,
        accuracies: Mapping[str, Accuracy] = ACCURACIES,
        *,
        keeps: bool = False,
    ) -> None:
        self.remote = Remote(ManualClock(1_000.0))
        self.store = LeasedStore(self.remote, keeps=keeps)
        self.store.set_accuracies(accuracies)
        self._runner = runner

    def run(self, operation: Operation[R]) -> R:
        if self._runner is None:
            return self.store.run(operation)
        return self._runner.run(self.store.arun(operation))

    def take(self, *checks: Check) -> list[bool]:
        return [one.allowed for one in self.run(Take(checks))]

    def prepare(self, limit: Limit = LIMIT, group: str = "leased") -> Hit:
        return Hit(self.store, self._runner, group, limit)

    def keep(self) -> float | None:
        if self._runner is None:
            return self.store.keep()
        return self._runner.run(self.store.akeep())

    def advance_ns(self, nanoseconds: int) -> None:
        """Let time pass, with upkeep whenever it is due."""
        clock = self.remote.clock
        end_ns = clock() + nanoseconds
        while (due := self.keep()) is not None and clock() + due * SECOND <= end_ns:
            clock.advance_ns(max(1, round(due * SECOND)))
        clock.advance_ns(max(0, end_ns - clock()))

    def close(self) -> None:
        if self._runner is None:
            self.store.close()
        else:
            self._runner.run(self.store.aclose())

    def warm(self, group: str = "leased", key: str = "k") -> None:
        """Take until there is a lease."""
        before = self.store.units_held()
        for _ in range(50):
            assert self.take(check(group, key=key)) == [True]
            if self.store.units_held() > before:
                return
        raise AssertionError

    def use_up(self) -> None:
        """Take until no unit of any lease is left."""
        for group in ("leased", "too"):
            while self.held(group):
                assert self.take(check(group)) == [True]

    def held(self, name: str) -> int:
        """The units of the leases of one group."""
        groups = self.store._table.groups.named(name)
        return sum([lease.left for group in groups for lease in group.leases.values()])

    def used(self, group: str = "leased") -> int:
        """The units that are charged in the remote store."""
        return used(self.remote, group)


class Hit:
    """A prepared take of one limit, in either driver."""

    def __init__(
        self, store: Store, runner: asyncio.Runner | None, group: str, limit: Limit
    ) -> None:
        self._prepared = store.prepare([(group, limit)])
        self._runner = runner

    def __call__(self, key: str = "k", cost: int = 1) -> Outcome:
        if self._runner is None:
            return self._prepared.take((key,), (cost,))[0]
        return self._runner.run(self._awaited(key, cost))

    async def _awaited(self, key: str, cost: int) -> Outcome:
        found = self._prepared.atake((key,), (cost,))
        return (found if isinstance(found, tuple) else await found)[0]


def check(group: str = "leased", cost: int = 1, key: str = "k") -> Check:
    return Check(group, key, EXACT if group == "exact" else LIMIT, cost)


def allowed(reply: Outcomes | StoreError) -> list[bool]:
    assert not isinstance(reply, StoreError)
    return [one.allowed for one in reply]


def used(remote: Remote, group: str = "leased") -> int:
    return remote.store.used_in(group, "k")
