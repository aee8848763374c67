"""A store to be leased from, which counts what it is asked, and ways to ask for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.limits import Accuracy, FixedWindow, TokenBucket
from headgate.stores.base import Store
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Operation, Take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.limits import Limit
    from headgate.stores.base import Hitter
    from headgate.stores.layers.leases import LeasedStore
    from headgate.stores.operations import Outcomes
    from headgate.testing import ManualClock

R = TypeVar("R")

LIMIT = TokenBucket(1_000, 1)
EXACT = FixedWindow(1_000, 3_600)
TERMS = {"leased": Accuracy(batch=10), "too": Accuracy(batch=10)}


class Remote(Store):
    """A store that is asked, counts how often, and fails when told to."""

    grants_leases = True

    def __init__(self, clock: ManualClock) -> None:
        self.store = MemoryStore(clock=clock)
        self.clock = clock
        self.asked: list[Operation[Any]] = []
        self.handed_out: list[Hitter | None] = []
        self.is_gone = False
        self.gate: threading.Event | None = None
        self.is_asked = threading.Event()

    def run(self, operation: Operation[R]) -> R:
        self.asked.append(operation)
        self.is_asked.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.is_gone:
            raise StoreError("it is gone")
        return self.store.run(operation)

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        hitter = self.store.hitter(places)
        self.handed_out.append(hitter)
        return hitter


def check(group: str = "leased", cost: int = 1, key: str = "k") -> Check:
    return Check(group, key, EXACT if group == "exact" else LIMIT, cost)


def take(store: Store, *checks: Check) -> list[bool]:
    return [one.allowed for one in store.run(Take(checks))]


def warm(store: LeasedStore, group: str = "leased", key: str = "k") -> None:
    """Until something is lent."""
    desk = store._desk
    before = desk.units_held()
    for _ in range(50):
        assert take(store, check(group, key=key)) == [True]
        if desk.units_held() > before:
            return
    raise AssertionError


def allowed(reply: Outcomes | StoreError) -> list[bool]:
    assert not isinstance(reply, StoreError)
    return [one.allowed for one in reply]


def used(remote: Remote, group: str = "leased") -> int:
    return remote.store.used_in(group, "k")
