"""A cluster and a primary under Sentinels, beside a single server.

On a machine with two cores the client has one and all the servers share the other, so three
primaries cannot show what three machines would; and each has a replica that does its work again.
What the figures do show is what the way to the right server costs the client.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.redis.bare import BARE_ASYNC, BARE_CLUSTER, BARE_SENTINEL
from benchmarks.redis.contestant import NEVER_REACHED
from benchmarks.redis.ours import OURS_ASYNC
from benchmarks.redis.samples import columns
from benchmarks.redis.throughput import CALLERS
from benchmarks.redis.traffic import entered, in_turns, many_keys, rate
from tests.support.servers import ClusterSetup, SentinelSetup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.redis.effort import Effort
    from benchmarks.redis.throughput import Rates
    from tests.support.servers import RedisServer


async def measure_topologies(server: RedisServer, effort: Effort) -> dict[str, Rates]:
    """Checks a second of ours and of redis-py; 200 callers, many keys; by topology."""
    with ClusterSetup() as cluster, SentinelSetup() as sentinel:
        lots = {
            "single server": (server.bare_url, BARE_ASYNC),
            "sentinel, 1 primary": (sentinel.bare_url, BARE_SENTINEL),
            "cluster, 3 primaries": (cluster.bare_url, BARE_CLUSTER),
        }
        samples: dict[tuple[str, str], Callable[[], Awaitable[float]]] = {}
        async with AsyncExitStack() as stack:
            for topology, (url, bare) in lots.items():
                entering = entered((OURS_ASYNC, bare), url, NEVER_REACHED, CALLERS)
                for name, entry in (await stack.enter_async_context(entering)).items():
                    samples[topology, name] = partial(
                        rate, entry, CALLERS, many_keys(), effort.sample_s
                    )
            return columns(await in_turns(samples, effort.rounds))
