"""Those who come to a gate, for its tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headgate.engine.plan import Priority
    from headgate.overload import AsyncFairGate


class Seen(NamedTuple):
    """What a `Steered` was told."""

    in_flight: int
    latency_ns: int
    succeeded: bool


class Steered:
    """A number of slots that the test moves; it remembers what it was told."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seen: list[Seen] = []

    def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
        self.seen.append(Seen(in_flight, latency_ns, succeeded))


async def work(
    gate: AsyncFairGate,
    tenant: str,
    served: list[str],
    *,
    seconds: float = 1,
    weight: int | None = None,
    cost: int = 1,
    priority: Priority = "default",
) -> None:
    """Wait for a place, tell *served* of it and keep it for a while."""
    async with gate.place(tenant, cost, weight=weight, priority=priority) as place:
        if place:
            served.append(tenant)
            await asyncio.sleep(seconds)


async def settle() -> None:
    """Let all tasks come as far as they can now."""
    for _ in range(5):
        await asyncio.sleep(0)
