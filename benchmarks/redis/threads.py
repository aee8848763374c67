"""Many threads that share one limiter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.redis.bare import BARE
from benchmarks.redis.contestant import NEVER_REACHED
from benchmarks.redis.ours import OURS
from benchmarks.redis.traffic import WARM_UP_S, many_keys, turns

if TYPE_CHECKING:
    from benchmarks.redis.contestant import Entry
    from benchmarks.redis.effort import Effort
    from benchmarks.redis.samples import Samples
    from tests.support.servers import RedisServer

THREADS = 16


def measure_threads(server: RedisServer, effort: Effort) -> Samples:
    """Checks a second of 16 threads with one limiter; many keys."""
    server.cli("flushall")
    entries = {each.name: each.enter(server.bare_url, NEVER_REACHED) for each in (OURS, BARE)}
    taken: Samples = {name: [] for name in entries}
    with ThreadPoolExecutor(THREADS) as pool:
        for entry in entries.values():
            _rate(pool, entry, WARM_UP_S)
        for name in turns(entries, effort.rounds):
            taken[name].append(_rate(pool, entries[name], effort.sample_s))
    for entry in entries.values():
        entry.close()
    return taken


def _rate(pool: ThreadPoolExecutor, entry: Entry, seconds: float) -> float:
    keys = [many_keys(seed) for seed in range(THREADS)]
    start = perf_counter()
    calls = [pool.submit(entry.call, each, start + seconds) for each in keys]
    checks = sum(call.result() for call in calls)
    return checks / (perf_counter() - start)
