"""What may stand between clients and a backend."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.overload import AIMD, AsyncFairGate, Gradient, LoadShedder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.engine.plan import Priority
    from headgate.overload import Steering
    from headgate.testing.virtual_loop import VirtualLoop
    from scripts.pictures.overload.backend import Backend
    from scripts.pictures.overload.breakdown import MakeFront, Plot
    from scripts.pictures.overload.clients import Front

FIXED: Final = 5
"""A limit that is right for the whole backend: five for each worker take half a second each."""

TARGET: Final = 0.4
PATIENCE: Final = 0.1
"""Seconds that a request may wait for its place."""

TIMEOUT: Final = 1.0
"""Seconds after which an answer is of no use."""

LIMITS: Final = ("no limit", "fixed limit", "AIMD", "gradient")


class Unlimited:
    """Nothing stands before the backend."""

    def __init__(self, backend: Backend) -> None:
        self.gate: AsyncFairGate | None = None
        self.shedder: LoadShedder | None = None
        self._backend = backend

    async def handle(self, priority: Priority) -> bool:
        await self._backend.serve()
        return True


class Gated:
    """A gate stands before it, and a shedder before the gate if there is one."""

    def __init__(
        self,
        backend: Backend,
        gate: AsyncFairGate,
        *,
        shedder: LoadShedder | None = None,
        tells_classes: bool = True,
    ) -> None:
        self.gate = gate
        self.shedder = shedder
        self._backend = backend
        self._tells_classes = tells_classes

    async def handle(self, priority: Priority) -> bool:
        if self.shedder is not None and not self.shedder.allows(priority):
            return False
        told: Priority = priority if self._tells_classes else "default"
        place = await self.gate.enter("all", priority=told)
        if not place:
            return False
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._backend.serve()
        place.release(succeeded=loop.time() - began < TIMEOUT)
        return True


def limiting_ways(plot: Plot) -> dict[str, MakeFront]:
    """No limit, a fixed one, and two that adapt."""
    return {
        "no limit": lambda backend, _: Unlimited(backend),
        "fixed limit": _limited(lambda: FIXED * plot.workers),
        "AIMD": _limited(lambda: AIMD(target=TARGET)),
        "gradient": _limited(Gradient),
    }


def _limited(slots: Callable[[], int | Steering]) -> MakeFront:
    return lambda backend, loop: Gated(backend, _gate(slots(), loop))


def _alike(backend: Backend, loop: VirtualLoop) -> Front:
    return Gated(backend, _gate(Gradient(), loop), tells_classes=False)


def _reserved(backend: Backend, loop: VirtualLoop) -> Front:
    return Gated(backend, _gate(Gradient(), loop, {"critical": 0.2}))


def _shed(backend: Backend, loop: VirtualLoop) -> Front:
    gate = _gate(Gradient(), loop)
    shedder = LoadShedder(lambda: gate.in_flight / (gate.limit or 1), clock=loop.time_ns)
    return Gated(backend, gate, shedder=shedder, tells_classes=False)


def _gate(
    slots: int | Steering, loop: VirtualLoop, reserve: Mapping[Priority, float] | None = None
) -> AsyncFairGate:
    return AsyncFairGate(
        slots=slots, queue=1_000, max_wait=PATIENCE, reserve=reserve or {}, clock=loop.time_ns
    )


SHARING_WAYS: Final[Mapping[str, MakeFront]] = MappingProxyType(
    {
        "no limit": lambda backend, _: Unlimited(backend),
        "a gate that knows no classes": _alike,
        "a gate, a fifth reserved for critical ones": _reserved,
        "a load shedder before the gate": _shed,
    }
)
