"""The rate of a whole fleet as the budget of a gate, kept in a store.

A gate whose requests wait has one turn in the store's queue (a `LeakyQueue`) at a time. When it
comes, whoever is next by then has it: the order is decided here, and late. So nobody who gives up
takes a turn along, and one that comes later may still go first if that is fair.

What is fair then: among the requests of one process all that a gate promises. Among processes each
that has requests waiting gets the same number of turns, whatever the weights of those who wait
there. Where requests are spread evenly over the processes, that comes to the weights as well; where
they are not, a tenant alone on a quiet process is better off than on a busy one.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from headgate.limits import LeakyQueue
from headgate.shaping.gates.budgets import read_rate
from headgate.shaping.shapers.aio_shaper import AsyncShaper
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decisions import FailurePolicy, OnFailure
    from headgate.limits.model import PacedLimit
    from headgate.stores.port import AsyncStore, Store
    from headgate.units import Rate

_LONGEST: Final = 100_000
"""Units that the whole fleet may have outstanding: a turn of each process."""

_PAUSE: Final = 1.0
"""Seconds until the store is asked again, if it refused and did not say when."""

_MEMORY: Final = 8
"""About how many turns the time between them is taken over."""


class FleetRate:
    """So many units a second for all gates, in any process, that name the same *key* and store.

        exports = FleetRate("100/s", store="redis://localhost:6379/0", key="exports")
        gate = AsyncFairGate(rate=exports)

    A turn takes a round trip at least, and a process gets one in a round trip at most. While the
    store cannot be reached it goes as *on_store_failure* says; as for any limit.
    """

    def __init__(
        self,
        rate: str | PacedLimit | Rate,
        *,
        store: str | Store | AsyncStore,
        key: str,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
    ) -> None:
        self.per_second = read_rate(rate)
        self.key = key
        self._shaper = AsyncShaper(
            LeakyQueue(self.per_second, _LONGEST),
            store=store,
            namespace=namespace,
            on_store_failure=on_store_failure,
        )
        self._held = 0  # units that were fetched and not taken
        self._missing = 0
        self._least_ns = self._unit_ns = round(SECOND / self.per_second)

    def __repr__(self) -> str:
        return f"<FleetRate of {float(self.per_second):g} a second for {self.key!r}>"

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        if self._held >= cost:
            self._held -= cost
            return 0
        self._missing = cost - self._held
        return max(self._unit_ns, 1)

    def give_back(self, cost: int) -> None:
        self._held += cost

    def delay(self, ahead: int, now: int) -> int:
        """As long as it takes by how far apart the turns of this process were of late."""
        return ahead * self._unit_ns

    async def fetch(self) -> None:
        missing, asked_ns = self._missing, _now_ns()
        turn = await self._shaper.acquire(self.key, missing)
        if not turn:
            await asyncio.sleep(_PAUSE if turn.retry_after is None else turn.retry_after)
            return
        self._held += missing
        unit_ns = max((_now_ns() - asked_ns) // missing, self._least_ns)
        self._unit_ns += (unit_ns - self._unit_ns) // _MEMORY

    def drop(self) -> None:
        self._held = 0

    async def aclose(self) -> None:
        await self._shaper.aclose()


def _now_ns() -> int:
    loop = asyncio.get_running_loop()
    now: int = getattr(loop, "time_ns", time.monotonic_ns)()
    return now
