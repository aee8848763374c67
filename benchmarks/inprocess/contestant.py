"""Who takes part: a limiter set up for one quota, and the loop that times it.

Every contestant has its own loop, written out, because a call through a common function would
add to each check about as much as the cheapest check costs.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Answer = Literal["none", "yes/no", "part", "hit", "full"]
"""What the timed loop gets from a check: nothing, a bare yes or no, some of the figures from
underneath the documented interface, a decision whose figures are not read, or allowed, remaining
and the waiting times, all read."""


@dataclass(frozen=True, slots=True)
class Quota:
    """*amount* admitted in *seconds*, in whatever words a library has for it."""

    amount: int
    seconds: int


class Entry(ABC):
    """One limiter with one quota and its counters."""

    @abstractmethod
    def run(self, keys: Iterable[str]) -> int:
        """Check each of *keys* once and return the nanoseconds that the loop took."""

    @abstractmethod
    def hit(self, key: str) -> bool:
        """Check *key* once: was it admitted?"""

    def fill(self, keys: Iterable[str]) -> None:
        """One hit by each of *keys*."""
        for key in keys:
            self.hit(key)

    def settle(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Wait, untimed, until work left in the background can disturb nobody else."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what the entry holds besides memory."""


class AsyncEntry(Entry):
    """An entry whose checks are awaited, all in one event loop and one task."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    @abstractmethod
    async def run_async(self, keys: Iterable[str]) -> int:
        """What `run` does, inside the loop; the start of the loop is not timed."""

    @abstractmethod
    async def hit_async(self, key: str) -> bool:
        """What `hit` does, inside the loop."""

    def run(self, keys: Iterable[str]) -> int:
        return self._loop.run_until_complete(self.run_async(keys))

    def hit(self, key: str) -> bool:
        return self._loop.run_until_complete(self.hit_async(key))

    def fill(self, keys: Iterable[str]) -> None:
        async def fill_async() -> None:
            for key in keys:
                await self.hit_async(key)

        self._loop.run_until_complete(fill_async())

    def close(self) -> None:
        self._loop.close()


@dataclass(frozen=True, slots=True)
class Contestant:
    """A library and an algorithm of it, and how to enter it with a quota."""

    library: str
    algorithm: str
    answer: Answer
    enter: Callable[[Quota], Entry]
    logs_every_hit: bool = False
    """Each admitted hit is remembered, so a hot key needs a small quota to stay realistic."""
    weighed: bool = True
    """Takes part in the measurement of memory; not if another keeps the same counters."""

    @property
    def name(self) -> str:
        return f"{self.library}, {self.algorithm}, {self.answer}"
