"""Checks a second of one process, by the number of concurrent callers, and what Redis can give."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.redis.bare import BARE_ASYNC
from benchmarks.redis.contestant import NEVER_REACHED, NEVER_REACHED_BY_ONE_KEY, prove
from benchmarks.redis.ours import OURS_ASYNC
from benchmarks.redis.peers import PEERS
from benchmarks.redis.redis_benchmark import WAYS
from benchmarks.redis.samples import columns
from benchmarks.redis.traffic import entered, in_turns, many_keys, one_key, rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.redis.contestant import AsyncContestant
    from benchmarks.redis.effort import Effort
    from benchmarks.redis.redis_benchmark import Way
    from benchmarks.redis.samples import Samples
    from tests.support.servers import RedisServer

CALLERS = 200
EVERYBODY = (OURS_ASYNC, BARE_ASYNC, *PEERS)

Rates = dict[str, float]
"""Checks a second by contestant."""


async def prove_all(server: RedisServer) -> None:
    """Everybody shows that it counts, before anybody is timed."""
    for contestant in EVERYBODY:
        await prove(contestant, server)


async def measure_throughput(
    server: RedisServer,
    effort: Effort,
    contestants: Sequence[AsyncContestant] = EVERYBODY,
    ways: Sequence[Way] = WAYS,
) -> Samples:
    """200 callers, many keys; redis-benchmark takes its turn like everybody else."""
    server.cli("flushall")
    async with entered(contestants, server.bare_url, NEVER_REACHED, CALLERS) as entries:
        keys = many_keys()
        samples = {
            name: partial(rate, entry, CALLERS, keys, effort.sample_s)
            for name, entry in entries.items()
        }
        given = {way.name: partial(way.rate, server, effort.requests) for way in ways}
        return await in_turns({**samples, **given}, effort.rounds)


async def measure_curve(server: RedisServer, effort: Effort) -> dict[str, Rates]:
    """By the number of callers."""
    server.cli("flushall")
    async with entered(EVERYBODY, server.bare_url, NEVER_REACHED, CALLERS) as entries:
        keys = many_keys()
        samples = {
            (f"{callers:,}", name): partial(rate, entry, callers, keys, effort.sample_s)
            for callers in effort.curve_callers
            for name, entry in entries.items()
        }
        return columns(await in_turns(samples, effort.curve_rounds))


async def measure_hot_key(server: RedisServer, effort: Effort) -> Samples:
    """200 callers, all of them with the same key."""
    server.cli("flushall")
    async with entered(EVERYBODY, server.bare_url, NEVER_REACHED_BY_ONE_KEY, CALLERS) as entries:
        samples = {
            name: partial(rate, entry, CALLERS, one_key(), effort.sample_s)
            for name, entry in entries.items()
        }
        return await in_turns(samples, effort.curve_rounds)
