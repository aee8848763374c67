"""One process: a hit served from a lease, beside a hit in memory."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.leases.meter import Meter
from benchmarks.leases.ways import ASK_ALWAYS, KEY, LARGE, LEASES, OUT_OF_REACH, SYNC
from benchmarks.redis.samples import ratio
from headgate import RateLimiter
from headgate.units import SECOND

if TYPE_CHECKING:
    from benchmarks.leases.ways import Way
    from benchmarks.redis.samples import Samples
    from tests.support.servers import RedisServer

IN_MEMORY: Final = "memory://"
ALONE: Final = (LARGE, *reversed(LEASES), SYNC, ASK_ALWAYS)
_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class Cost:
    """What a hit takes, all exchanges with the store included."""

    ns: float
    ratio: float
    """To a hit in memory, in the same round."""
    round_trips: float


def measure_alone(
    server: RedisServer, rounds: int, warm_s: float, seconds: float
) -> dict[str, Cost]:
    """By way; the limit is never reached. All in turns, every round in a new order."""
    ways: dict[str, Way | None] = {IN_MEMORY: None, **{way.name: way for way in ALONE}}
    taken: Samples = {name: [] for name in ways}
    hits: dict[str, int] = dict.fromkeys(ways, 0)
    trips: dict[str, int] = dict.fromkeys(ways, 0)
    gc.freeze()  # nobody pays for what was there before
    for seed in range(rounds):
        for name in random.Random(seed).sample(list(ways), len(ways)):
            with _limiter(server, ways[name]) as limiter:
                _hits(limiter, warm_s)
                before = Meter.read(server)
                asked, took_ns = _hits(limiter, seconds)
                trips[name] += Meter.read(server).since(before).round_trips
                hits[name] += asked
                taken[name].append(took_ns / asked)
                assert limiter.hit(KEY)
    gc.unfreeze()
    return {
        name: Cost(
            round(median(taken[name])),
            round(ratio(taken, name, IN_MEMORY), 2),
            trips[name] / hits[name],
        )
        for name in ways
    }


def _limiter(server: RedisServer, way: Way | None) -> RateLimiter:
    """A new one with a counter of its own, so that none has to do with what another borrowed."""
    if way is None:
        return RateLimiter(OUT_OF_REACH)
    return RateLimiter(
        OUT_OF_REACH,
        store=server.url,
        name="api",
        namespace=f"bench-{token_hex(4)}",
        accuracy=way.accuracy,
        on_store_failure="fail_closed",
    )


def _hits(limiter: RateLimiter, seconds: float) -> tuple[int, int]:
    """Hit for *seconds*: how often, and for how many nanoseconds."""
    hit, hits = limiter.hit, 0
    began = now = time.perf_counter_ns()
    end = began + int(seconds * SECOND)
    while now < end:
        for _ in range(_AT_ONCE):
            hit(KEY)
        hits += _AT_ONCE
        now = time.perf_counter_ns()
    return hits, now - began
