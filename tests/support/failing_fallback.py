"""A store that can be gone, or lose its replies; and a recovery that runs when a test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import StoreError
from headgate.runtime.drivers import drive
from headgate.stores import MemoryStore, Store
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from headgate.errors import StoreFault
    from headgate.runtime.fallback import Fallback
    from headgate.stores.operations import Operation


class FailingStore(Store):
    """A memory store that fails because of *fault*, if there is one."""

    clock: ManualClock

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = ManualClock(1_200) if clock is None else clock
        self.inner = MemoryStore(clock=self.clock)
        self.fault: StoreFault | None = None
        self.loses_answers = False
        self.calls = 0

    def run(self, operation: Operation[Any]) -> Any:
        self.calls += 1
        if self.fault is not None:
            raise StoreError("gone", reason=self.fault)
        reply = self.inner.run(operation)
        if self.loses_answers:
            raise StoreError("lost", reason="timeout")
        return reply


def reconcile(fallback: Fallback, store: Store | None = None) -> None:
    """Report all usage without pauses, if the store is back, until it fails or is done.

    *store* is the one to report to, if that of the fallback is only for event loops.
    """
    fallback._store = store or fallback._store
    while not fallback.is_out and fallback.next_round_ns() is not None:
        before = len(fallback._unreported)
        drive(fallback.recover())
        if len(fallback._unreported) == before:
            return
