"""One test body for `FairGate` and `AsyncFairGate`: callers are threads, or tasks of one loop."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from headgate.overload import AsyncFairGate, FairGate

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from headgate.overload import Place

PATIENCE = 30.0
"""Longer than anything takes: no test waits for it to pass."""


class GateDriver(ABC):
    """A gate of one kind, and callers that wait at it."""

    gate: Any

    @abstractmethod
    def make(self, **options: Any) -> Any:
        """Make the gate."""

    @abstractmethod
    def begin(self, tenant: str, cost: int = 1, **asking: Any) -> Any:
        """Have another caller `enter`; return its future, once it waits or is done."""

    @abstractmethod
    def enter(self, tenant: str, cost: int = 1, **asking: Any) -> Place:
        """`enter` here."""

    @abstractmethod
    def place_of(self, caller: Any) -> Place:
        """Wait for what a caller gets."""

    @abstractmethod
    def settle(self) -> None:
        """Let callers go on as far as they can."""

    @abstractmethod
    def close_gate(self) -> None:
        """`close` or `aclose`."""

    @abstractmethod
    def end(self) -> None:
        """Stop what was started."""

    def until(self, is_true: Callable[[], bool]) -> None:
        """Let callers go on until *is_true*."""
        end = time.monotonic() + PATIENCE
        while not is_true():
            assert time.monotonic() < end
            self.settle()

    def line_up(self, tenants: str, **asking: Any) -> list[Any]:
        """Have a caller of each of *tenants* wait, one after the other."""
        callers = []
        for tenant in tenants:
            callers.append(self.begin(tenant, **asking))
            self.until(lambda: self.gate.depth == len(callers) or callers[-1].done())
        return callers

    def release_all(self, held: Place, callers: list[Any]) -> str:
        """Release *held*, and then each place of *callers* that is given; return their tenants."""
        order, left = "", list(callers)
        held.release()
        while left:
            self.until(lambda: any(caller.done() for caller in left))
            (caller,) = (one for one in left if one.done())
            left.remove(caller)
            place = self.place_of(caller)
            order += place.tenant
            place.release()
        return order


class Blocking(GateDriver):
    """Callers are threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(32)

    def make(self, **options: Any) -> FairGate:
        self.gate = gate = FairGate(**options)
        return gate

    def begin(self, tenant: str, cost: int = 1, **asking: Any) -> Future[Place]:
        return self._pool.submit(self.gate.enter, tenant, cost, **asking)

    def enter(self, tenant: str, cost: int = 1, **asking: Any) -> Place:
        place: Place = self.gate.enter(tenant, cost, **asking)
        return place

    def place_of(self, caller: Future[Place]) -> Place:
        return caller.result(PATIENCE)

    def settle(self) -> None:
        time.sleep(0)

    def close_gate(self) -> None:
        self.gate.close()

    def end(self) -> None:
        self.gate.close()
        self._pool.shutdown()


class Tasks(GateDriver):
    """Callers are tasks."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def make(self, **options: Any) -> AsyncFairGate:
        self.gate = gate = AsyncFairGate(**options)
        return gate

    def begin(self, tenant: str, cost: int = 1, **asking: Any) -> asyncio.Task[Place]:
        loop = self._runner.get_loop()
        return loop.create_task(self.gate.enter(tenant, cost, **asking))

    def enter(self, tenant: str, cost: int = 1, **asking: Any) -> Place:
        place: Place = self._runner.run(self.gate.enter(tenant, cost, **asking))
        return place

    def place_of(self, caller: asyncio.Task[Place]) -> Place:
        return self._runner.run(asyncio.wait_for(caller, PATIENCE))

    def settle(self) -> None:
        self._runner.run(asyncio.sleep(0))

    def close_gate(self) -> None:
        self._runner.run(self.gate.aclose())

    def end(self) -> None:
        self._runner.close()
