"""Callers that ask as fast as they are answered, and contestants that take turns."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from contextlib import asynccontextmanager
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from benchmarks.redis.contestant import AsyncContestant, AsyncEntry, Quota

Name = TypeVar("Name", str, tuple[str, str])

KEYS = 10_000
WARM_UP_S = 0.15


def many_keys(seed: int = 1) -> Iterator[str]:
    """One of 10,000 keys at random, for ever; the same sequence for the same *seed*."""
    return itertools.cycle(_some_keys(seed))


@cache
def _some_keys(seed: int) -> tuple[str, ...]:
    numbers = random.Random(seed).choices(range(KEYS), k=4 * KEYS)
    return tuple([f"user:{number:05}" for number in numbers])


def one_key() -> Iterator[str]:
    return itertools.repeat("user:00001")


async def checks_of(entry: AsyncEntry, callers: int, keys: Iterator[str], seconds: float) -> int:
    """How many checks *callers* get out of *entry*, each asking again when answered."""
    gc.freeze()  # nobody pays for what another has left behind
    until = perf_counter() + seconds
    return sum(await asyncio.gather(*(entry.call(keys, until) for _ in range(callers))))


async def rate(entry: AsyncEntry, callers: int, keys: Iterator[str], seconds: float) -> float:
    """The same by the second."""
    start = perf_counter()
    checks = await checks_of(entry, callers, keys, seconds)
    return checks / (perf_counter() - start)


@asynccontextmanager
async def entered(
    contestants: Sequence[AsyncContestant], url: str, quota: Quota, callers: int
) -> AsyncIterator[dict[str, AsyncEntry]]:
    """The contestants by name, connected to *url* and warmed up by *callers* at once."""
    entries = {each.name: await each.enter(url, quota) for each in contestants}
    try:
        for entry in entries.values():
            await rate(entry, callers, many_keys(seed=2), WARM_UP_S)
        yield entries
    finally:
        for entry in entries.values():
            await entry.aclose()


def turns(names: Iterable[Name], rounds: int) -> Iterator[Name]:
    """The *names* in turns, every round in a new order."""
    order = list(names)
    shuffle = random.Random(1).shuffle
    for _ in range(rounds):
        shuffle(order)
        yield from order


async def in_turns(
    sampling: Mapping[Name, Callable[[], Awaitable[float]]], rounds: int
) -> dict[Name, list[float]]:
    """*rounds* samples of each."""
    taken: dict[Name, list[float]] = {name: [] for name in sampling}
    for name in turns(sampling, rounds):
        taken[name].append(await sampling[name]())
    gc.unfreeze()
    return taken
