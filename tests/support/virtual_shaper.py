"""Driving an `AsyncShaper` on virtual time: who came when, and who left when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate import MemoryStore
from headgate.overload import AsyncShaper
from headgate.testing.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from headgate import Decision
    from headgate.stores import Store


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
