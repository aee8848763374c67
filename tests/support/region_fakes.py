"""A store of another region that merges, fails or hangs when a test says so."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from headgate.algorithms import Outcome
from headgate.stores.base import Store
from headgate.stores.operations import MergeUsage, Operation

if TYPE_CHECKING:
    from headgate.errors import StoreError
    from headgate.stores.base import Accuracies

FITS = Outcome(allowed=True, remaining=1, retry_after_ns=0, reset_after_ns=0)


class Peer(Store):
    """Merges everything, or fails with `error`; `totals` is what it would have charged by key.

    It hangs until `release` is set, if that is not None. In event loops it takes *steps* steps.
    """

    grants_leases = True

    def __init__(self, *, steps: int = 1) -> None:
        self.merged: list[MergeUsage] = []
        self.has_merged = threading.Event()
        self.has_failed = threading.Event()
        self.was_called = threading.Event()
        self.release: threading.Event | None = None
        self.attempts = 0
        self.in_flight = self.most_in_flight = 0
        self.error: StoreError | None = None
        self.outcome = FITS
        self.steps = steps
        self.accuracies: Accuracies | None = None
        self.is_closed = False

    def run(self, operation: Operation[Any]) -> Any:
        self.was_called.set()
        if self.release is not None:
            self.release.wait()
        self.attempts += 1
        if self.error is not None:
            self.has_failed.set()
            raise self.error
        assert isinstance(operation, MergeUsage)
        self.merged.append(operation)
        self.has_merged.set()
        return tuple(self.outcome for _ in operation.checks)

    async def arun(self, operation: Operation[Any]) -> Any:
        self.was_called.set()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for _ in range(self.steps):
                await asyncio.sleep(0)
            while self.release is not None and not self.release.is_set():  # noqa: ASYNC110 (threads set it)
                await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        return self.run(operation)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.accuracies = accuracies

    def close(self) -> None:
        self.is_closed = True

    @property
    def totals(self) -> dict[str, int]:
        return totals_of(self.merged)


def totals_of(merged: list[MergeUsage]) -> dict[str, int]:
    """What a store would have charged by key, had it merged all this."""
    most: dict[tuple[str, int, str, str], int] = {}
    for merge in merged:
        for check in merge.checks:
            place = (merge.origin, merge.window, check.group, check.key)
            most[place] = max(most.get(place, 0), check.cost)
    totals: dict[str, int] = {}
    for (*_, key), amount in most.items():
        totals[key] = totals.get(key, 0) + amount
    return totals
