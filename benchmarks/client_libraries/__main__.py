"""`python -m benchmarks.client_libraries`: a bare EVALSHA through each library, as a table."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks.client_libraries.libraries import FOR_LONE_CHECKS, FOR_MANY_CALLERS
from benchmarks.inprocess.report import table
from benchmarks.redis.contestant import NEVER_REACHED, prove
from benchmarks.redis.effort import FULL, QUICK
from benchmarks.redis.latency import lone_latencies
from benchmarks.redis.samples import medians
from benchmarks.redis.traffic import entered, in_turns, many_keys, rate
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from benchmarks.redis.effort import Effort
    from benchmarks.redis.samples import Samples

CALLERS = 200
PACKAGES = ("redis", "hiredis", "coredis", "valkey-glide")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.client_libraries", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="rough figures")
    effort = QUICK if parser.parse_args().quick else FULL
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES), end="\n\n")
    with RedisServer() as server:
        print(asyncio.run(_compare(server, effort)))


async def _compare(server: RedisServer, effort: Effort) -> str:
    for contestant in FOR_LONE_CHECKS:
        await prove(contestant, server)
    lone = medians(await lone_latencies(FOR_LONE_CHECKS, server, effort))
    rates = medians(await _rates(server, effort))
    rows = [[name, f"{lone[name]:.1f}", f"{rates[name]:,.0f}"] for name in lone]
    return table(["the plain script through", "a lone check, us", f"{CALLERS} callers, a s"], rows)


async def _rates(server: RedisServer, effort: Effort) -> Samples:
    server.cli("flushall")
    async with entered(FOR_MANY_CALLERS, server.bare_url, NEVER_REACHED, CALLERS) as entries:
        keys = many_keys()
        samples = {
            name: partial(rate, entry, CALLERS, keys, effort.sample_s)
            for name, entry in entries.items()
        }
        return await in_turns(samples, effort.rounds)


if __name__ == "__main__":
    main()
