"""Stores of other regions that hear, do not answer, or fail."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.stores.base import Store
from headgate.stores.operations import MergeUsage, Operation

FITS = Outcome(allowed=True, remaining=1, retry_after_ns=0, reset_after_ns=0)


class Peer(Store):
    """Hears everything, or fails with `error`; `totals` is what it would have charged by key."""

    grants_leases = True

    def __init__(self) -> None:
        self.heard: list[MergeUsage] = []
        self.has_heard = threading.Event()
        self.has_failed = threading.Event()
        self.attempts = 0
        self.error: StoreError | None = None
        self.is_closed = False
        self.outcome = FITS

    def run(self, operation: Operation[Any]) -> Any:
        self.attempts += 1
        if self.error is not None:
            self.has_failed.set()
            raise self.error
        assert isinstance(operation, MergeUsage)
        self.heard.append(operation)
        self.has_heard.set()
        return tuple(self.outcome for _ in operation.checks)

    def close(self) -> None:
        self.is_closed = True

    @property
    def totals(self) -> dict[str, int]:
        return totals_of(self.heard)


class HungPeer(Store):
    """Never answers before it is released."""

    grants_leases = True

    def __init__(self) -> None:
        self.was_asked = threading.Event()
        self.release = threading.Event()

    def run(self, operation: Operation[Any]) -> Any:
        self.was_asked.set()
        self.release.wait()
        raise StoreError("nobody answered", reason="timeout")


class AsyncPeer(Store):
    """As `Peer`; answers after so many steps of the loop as it `takes`, hangs while `hangs`."""

    grants_leases = True

    def __init__(self) -> None:
        self.heard: list[MergeUsage] = []
        self.has_heard = asyncio.Event()
        self.error: StoreError | None = None
        self.hangs = False
        self.takes = 1
        self.is_closed = False
        self.asked_at_once = 0
        self._asking = 0

    async def arun(self, operation: Operation[Any]) -> Any:
        assert isinstance(operation, MergeUsage)
        self._asking += 1
        self.asked_at_once = max(self.asked_at_once, self._asking)
        try:
            for _ in range(self.takes):
                await asyncio.sleep(0)
            while self.hangs:
                await asyncio.Event().wait()
        finally:
            self._asking -= 1
        if self.error is not None:
            raise self.error
        self.heard.append(operation)
        self.has_heard.set()
        return tuple(FITS for _ in operation.checks)

    async def aclose(self) -> None:
        self.is_closed = True

    @property
    def totals(self) -> dict[str, int]:
        return totals_of(self.heard)


def totals_of(heard: list[MergeUsage]) -> dict[str, int]:
    """What a store would have charged by key, had it heard all this."""
    most: dict[tuple[str, int, str, str], int] = {}
    for absorb in heard:
        for check in absorb.checks:
            place = (absorb.origin, absorb.window, check.group, check.key)
            most[place] = max(most.get(place, 0), check.cost)
    totals: dict[str, int] = {}
    for (*_, key), amount in most.items():
        totals[key] = totals.get(key, 0) + amount
    return totals
