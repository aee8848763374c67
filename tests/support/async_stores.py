"""Stores for an event loop that wait, that are gone, and that remember what they were asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.stores import MemoryStore, Store

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.stores.operations import Operation

R = TypeVar("R")


class LoopStore(Store):
    """A store for event loops: to block on it is an error. Subclasses define `arun`."""

    waits = True

    def run(self, operation: Operation[R]) -> R:
        raise AssertionError(f"the event loop is blocked by {operation!r}")


class Waiting(LoopStore):
    """A memory store that is suspended before and after everything it does, for *turns* turns."""

    def __init__(self, clock: Clock | None = None, *, turns: int = 3) -> None:
        self.inner = MemoryStore(clock=clock)
        self.turns = turns
        self.asked: list[Operation[Any]] = []
        self.is_gone = False

    async def arun(self, operation: Operation[Any]) -> Any:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.is_gone:
            raise StoreError("gone")
        self.asked.append(operation)
        reply = self.inner.run(operation)
        for _ in range(self.turns):
            await asyncio.sleep(0)
        return reply

    @property
    def verbs(self) -> list[str]:
        """What it was asked, by the names of the operations."""
        return [type(one).__name__ for one in self.asked]


class Gone(LoopStore):
    """A store that cannot be reached."""

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        raise StoreError("gone")
