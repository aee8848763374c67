"""Who takes part: a limiter on a server, with one quota, asked by many callers at once.

Every contestant has its own loops, written out, because a call through a common function would add
to each check a good part of what the cheapest costs. All of them look at every answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.support.servers import RedisServer

Role = Literal["ours", "peer", "bare"]
"""Headgate, another limiter, or a client library that runs the plain script of `script`."""

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Quota:
    """*amount* admitted in *seconds*, all of it at once if need be."""

    amount: int
    seconds: int


NEVER_REACHED = Quota(1_000_000, 10 * DAY)
"""A check pushes a key's state 0.9 s ahead, so that no key lapses between two of its checks."""

NEVER_REACHED_BY_ONE_KEY = Quota(100_000_000, 10 * DAY)
SMALL = Quota(5, 10 * DAY)
WEIGHED = Quota(100, 10 * DAY)
"""A check pushes the state hours ahead: no key lapses before all of them are there."""


class WrongAnswerError(Exception):
    """A contestant refused what its quota admits, or the other way round."""


class AsyncEntry(ABC):
    """A limiter in an event loop, with one quota, connected to a server."""

    @abstractmethod
    async def call(self, keys: Iterator[str], until: float) -> int:
        """Check one key after the other until *until* (of `perf_counter`): how many were checked?

        `WrongAnswerError` at the first that is not admitted.
        """

    @abstractmethod
    async def hit(self, key: str) -> bool:
        """Check *key* once: was it admitted?"""

    async def aclose(self) -> None:  # noqa: B027 - some hold nothing
        """Close the connections."""


class Entry(ABC):
    """The same for threads."""

    @abstractmethod
    def call(self, keys: Iterator[str], until: float) -> int:
        """What `AsyncEntry.call` does."""

    @abstractmethod
    def hit(self, key: str) -> bool:
        """Check *key* once: was it admitted?"""

    def close(self) -> None:  # noqa: B027 - some hold nothing
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class AsyncContestant:
    """A library and an algorithm of it, and how to enter it."""

    library: str
    algorithm: str
    role: Role
    enter: Callable[[str, Quota], Awaitable[AsyncEntry]]
    """Takes the URL of the server."""
    is_weighed: bool = True
    """Takes part in the measurement of memory; not if another keeps the same keys."""

    @property
    def name(self) -> str:
        return f"{self.library}, {self.algorithm}"


@dataclass(frozen=True, slots=True)
class Contestant:
    """The same for threads."""

    library: str
    algorithm: str
    role: Role
    enter: Callable[[str, Quota], Entry]

    @property
    def name(self) -> str:
        return f"{self.library}, {self.algorithm}"


async def prove(contestant: AsyncContestant, server: RedisServer) -> None:
    """Have *contestant* admit a small quota and refuse what goes beyond it."""
    entry = await contestant.enter(server.bare_url, SMALL)
    for number in range(SMALL.amount + 2):
        allowed = await entry.hit("proof")
        if allowed != (number < SMALL.amount):
            said = "admitted" if allowed else "refused"
            raise WrongAnswerError(f"{contestant.name} {said} hit {number + 1} of {SMALL.amount}")
    await entry.aclose()
    server.cli("flushall")
