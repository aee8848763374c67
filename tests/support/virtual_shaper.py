"""Driving an `AsyncShaper` on virtual time: who came when, and who left when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate import MemoryStore
from headgate.errors import StoreError
from headgate.overload import AsyncShaper
from headgate.testing.virtual_loop import VirtualLoop
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    from headgate import Decision
    from headgate.stores import Store
    from headgate.stores.operations import Operation


def now_ns() -> int:
    """The virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.time_ns()


def here(rate: Any, **options: Any) -> AsyncShaper:
    """A shaper of one process on virtual time."""
    return AsyncShaper(rate, clock=now_ns, **options)


def stored(rate: Any, store: Store | None = None, **options: Any) -> AsyncShaper:
    """A shaper over a store on virtual time."""
    return AsyncShaper(rate, store=store or MemoryStore(clock=now_ns), **options)


class FarStore(LoopStore):
    """A store that takes a while to be asked and to answer."""

    def __init__(self, there: float = 0.01, back: float = 0.02) -> None:
        self.memory = MemoryStore(clock=now_ns)
        self.there, self.back = there, back
        self.is_gone = False
        self.asked: list[Operation[Any]] = []

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(self.there)
        if self.is_gone:
            raise StoreError("gone", reason="unreachable", is_undone=True)
        self.asked.append(operation)
        reply = self.memory.run(operation)
        await asyncio.sleep(self.back)
        return reply


@dataclass
class Run:
    """What becomes of callers of one shaper."""

    shaper: AsyncShaper
    left: list[tuple[str, int]] = field(default_factory=list)
    """Who left and when, in nanoseconds."""
    said: dict[str, Decision] = field(default_factory=dict)

    def come(self, name: str, cost: int = 1, **options: Any) -> asyncio.Task[Decision]:
        """One who comes now, to the queue `key` unless said otherwise."""
        return asyncio.ensure_future(self._go(name, cost, **options))

    async def _go(self, name: str, cost: int, key: str = "key", **options: Any) -> Decision:
        decision = await self.shaper.acquire(key, cost, **options)
        self.said[name] = decision
        if decision:
            self.left.append((name, now_ns()))
        return decision

    @property
    def times(self) -> list[int]:
        return [at for _, at in self.left]

    @property
    def names(self) -> str:
        return "".join(name for name, _ in self.left)
