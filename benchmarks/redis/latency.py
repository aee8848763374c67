"""How long a lone check takes: one caller, one check at a time.

A sample is the median of a round, in microseconds.
"""

from __future__ import annotations

import statistics
from time import perf_counter_ns
from typing import TYPE_CHECKING

from benchmarks.redis.bare import BARE, BARE_LONE
from benchmarks.redis.contestant import NEVER_REACHED, WrongAnswerError
from benchmarks.redis.ours import OURS, OURS_ASYNC
from benchmarks.redis.peers import PEERS
from benchmarks.redis.traffic import entered, many_keys, turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.redis.contestant import AsyncContestant, AsyncEntry, Entry
    from benchmarks.redis.effort import Effort
    from benchmarks.redis.samples import Samples
    from tests.support.servers import RedisServer

WARM_UP_CHECKS = 500


async def measure_lone_async(server: RedisServer, effort: Effort) -> Samples:
    return await lone_latencies((OURS_ASYNC, BARE_LONE, *PEERS), server, effort)


async def lone_latencies(
    contestants: Sequence[AsyncContestant], server: RedisServer, effort: Effort
) -> Samples:
    """Of *contestants*, who take turns in one event loop."""
    server.cli("flushall")
    async with entered(contestants, server.bare_url, NEVER_REACHED, callers=1) as entries:
        keys = many_keys()
        taken: Samples = {name: [] for name in entries}
        for name in turns(entries, effort.lone_rounds):
            taken[name].append(await _median_async(entries[name], keys, effort.lone_checks))
    return taken


def measure_lone_sync(server: RedisServer, effort: Effort) -> Samples:
    server.cli("flushall")
    entries = {each.name: each.enter(server.bare_url, NEVER_REACHED) for each in (OURS, BARE)}
    keys = many_keys()
    taken: Samples = {name: [] for name in entries}
    for entry in entries.values():
        _median(entry, keys, WARM_UP_CHECKS)
    for name in turns(entries, effort.lone_rounds):
        taken[name].append(_median(entries[name], keys, effort.lone_checks))
    for entry in entries.values():
        entry.close()
    return taken


async def _median_async(entry: AsyncEntry, keys: Iterator[str], checks: int) -> float:
    times = []
    for _ in range(checks):
        key = next(keys)
        start = perf_counter_ns()
        allowed = await entry.hit(key)
        times.append(perf_counter_ns() - start)
        if not allowed:
            raise WrongAnswerError(f"{key} was refused")
    return statistics.median(times) / 1_000


def _median(entry: Entry, keys: Iterator[str], checks: int) -> float:
    times = []
    for _ in range(checks):
        key = next(keys)
        start = perf_counter_ns()
        allowed = entry.hit(key)
        times.append(perf_counter_ns() - start)
        if not allowed:
            raise WrongAnswerError(f"{key} was refused")
    return statistics.median(times) / 1_000
