"""A backend that can do so much at a time, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def service_times(mean: float, *, seed: int) -> Callable[[], float]:
    """Times that spread as those of real services do: Erlang of two stages."""
    chance = random.Random(seed)
    return lambda: chance.gammavariate(2, mean / 2)


class Backend:
    """So many *workers*, and a queue without end in the order of arrival.

    It does not know who still waits for an answer, and works for those who have left as well: that
    is what an overload makes of most servers.
    """

    def __init__(self, workers: int, takes: Callable[[], float]) -> None:
        self.workers = workers
        self._takes = takes
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def queued(self) -> int:
        """How many wait for a worker."""
        return len(self._waiting)

    def resize(self, workers: int) -> None:
        """There are *workers* from now on; who is being served is served to the end."""
        self.workers = workers
        self._call_next()

    async def serve(self) -> None:
        """Wait for a worker and then for as long as it takes."""
        if self._busy < self.workers and not self._waiting:
            self._busy += 1
        else:
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(called)
            await called
        await asyncio.sleep(self._takes())
        self._busy -= 1
        self._call_next()

    def _call_next(self) -> None:
        while self._waiting and self._busy < self.workers:
            self._busy += 1
            self._waiting.popleft().set_result(None)
