"""What a check costs the processor: in batches, and one script at a time."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import TYPE_CHECKING

from benchmarks.redis.bare import BARE_ASYNC
from benchmarks.redis.contestant import NEVER_REACHED
from benchmarks.redis.ours import OURS_ASYNC
from benchmarks.redis.redis_benchmark import PIPELINED, PLAIN
from benchmarks.redis.throughput import CALLERS
from benchmarks.redis.traffic import checks_of, entered, many_keys, turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.redis.effort import Effort
    from benchmarks.redis.redis_benchmark import Way
    from benchmarks.redis.samples import Samples
    from tests.support.servers import RedisServer

SCRIPT_COMMANDS = ("eval", "evalsha", "fcall")
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of processor time for one check."""

    cpu: float
    """Of the whole server (INFO cpu): reading, running, answering."""
    script: float
    """Of the server inside the script calls alone (INFO commandstats)."""
    client: float
    """Of this process, the loop of the callers included."""


@dataclass(frozen=True, slots=True)
class _Meter:
    cpu_us: float
    script_us: int
    client_us: float

    @classmethod
    def read(cls, server: RedisServer) -> _Meter:
        cpu = server.info("cpu")
        stats = server.info("commandstats")
        spent = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
        script = sum(_usec(stats.get(f"cmdstat_{name}", "")) for name in SCRIPT_COMMANDS)
        return cls(spent * MICROSECONDS, script, process_time() * MICROSECONDS)

    def since(self, before: _Meter, checks: int) -> Cost:
        return Cost(
            (self.cpu_us - before.cpu_us) / checks,
            (self.script_us - before.script_us) / checks,
            (self.client_us - before.client_us) / checks,
        )


async def measure_server_cost(server: RedisServer, effort: Effort) -> dict[str, list[Cost]]:
    """By who asks, a cost for each round; 200 callers, many keys."""
    server.cli("flushall")
    taken: dict[str, list[Cost]] = {}
    async with entered(
        (OURS_ASYNC, BARE_ASYNC), server.bare_url, NEVER_REACHED, CALLERS
    ) as entries:
        keys = many_keys()
        askers: dict[str, Callable[[], Awaitable[int]]] = {
            name: partial(checks_of, entry, CALLERS, keys, effort.sample_s)
            for name, entry in entries.items()
        }
        for way in (PLAIN, PIPELINED):
            askers[way.name] = partial(_asked_by, way, server, effort.requests)
        for name in turns(askers, effort.rounds):
            before = _Meter.read(server)
            checks = await askers[name]()
            after = _Meter.read(server)
            taken.setdefault(name, []).append(after.since(before, checks))
    return {name: taken[name] for name in askers}


def by_kind(costs: dict[str, list[Cost]]) -> dict[str, Samples]:
    """Samples of the fields of `Cost`."""
    return {
        field.name: {
            name: [getattr(cost, field.name) for cost in taken] for name, taken in costs.items()
        }
        for field in dataclasses.fields(Cost)
    }


async def _asked_by(way: Way, server: RedisServer, checks: int) -> int:
    await way.rate(server, checks)
    return checks


def _usec(stats: str) -> int:
    """The field usec of a line such as `calls=7,usec=80,usec_per_call=11.43`."""
    return int(stats.partition("usec=")[2].partition(",")[0] or 0)
