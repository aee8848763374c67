"""A store that can be gone, or lose its answers; and a merge that is made when a test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import StoreError
from headgate.stores import MemoryStore, Operation, Store, TakeEach
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import StoreFault
    from headgate.runtime.fallback import Fallback
    from headgate.runtime.reconciliation import Steps


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


class LaterMerger:
    """Has *store* told when `finish` is called."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._steps: Steps | None = None
        self.batches = 0

    @property
    def is_busy(self) -> bool:
        return self._steps is not None

    def start(self, new_steps: Callable[[], Steps]) -> None:
        if self._steps is None:
            self._steps = new_steps()

    def stop(self) -> None:
        self._steps = None

    def finish(self) -> None:
        """Make the merge that was begun, if any, without its pauses."""
        steps, self._steps = self._steps, None
        reply: object = None
        while steps is not None:
            try:
                step = steps.send(reply)
            except StopIteration:
                return
            reply = None
            if isinstance(step, TakeEach):
                self.batches += 1
                try:
                    reply = self._store.run(step)
                except StoreError as error:
                    reply = error


def later(fallback: Fallback, store: Store) -> LaterMerger:
    """Have *fallback* merge into *store* when the test says so."""
    merger = LaterMerger(store)
    fallback._merger = merger  # type: ignore[assignment]  # a fake with the same verbs
    return merger
