"""The memory that Redis needs for a key, once each of many keys has been hit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.redis.contestant import WEIGHED, WrongAnswerError
from benchmarks.redis.ours import ALGORITHMS, ours
from benchmarks.redis.peers import PEERS
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.redis.contestant import AsyncContestant
    from benchmarks.redis.effort import Effort

FILLERS = 50
FORMS = {
    "short": "user:{:05}",
    "long": "tenant:4711:user:{:05}:POST:/api/v1/orders",
}


@dataclass(frozen=True, slots=True)
class Weight:
    """What one key of a caller takes in Redis, with all that belongs to it."""

    bytes: float
    keys: float
    """How many keys of Redis it is."""
    key: str
    """The caller's key, for example."""
    name: str
    """The name of such a key in Redis."""


async def measure_memory(effort: Effort) -> dict[str, dict[str, Weight]]:
    """By contestant, and by whether the keys are short or long."""
    lots = [(ours(algorithm), effort.weighed_keys) for algorithm in ALGORITHMS]
    lots += [(peer, effort.weighed_keys_of_peers) for peer in PEERS if peer.is_weighed]
    return {
        contestant.name: {
            kind: await _weight(contestant, FORMS[kind], keys) for kind in effort.weighed
        }
        for contestant, keys in lots
    }


async def _weight(contestant: AsyncContestant, form: str, keys: int) -> Weight:
    """On a server of its own, so that nothing is left over from another."""
    with RedisServer(config=["enable-debug-command local"]) as server:
        await _fill(contestant, server, ["warm-up"])
        server.cli("flushall", "sync")
        empty = await _used(server)
        await _fill(contestant, server, [form.format(number) for number in range(keys)])
        weight = (await _used(server) - empty) / keys
        found = int(server.cli("dbsize")) / keys
        return Weight(weight, found, form.format(0), server.cli("randomkey"))


async def _fill(contestant: AsyncContestant, server: RedisServer, keys: Iterable[str]) -> None:
    entry = await contestant.enter(server.bare_url, WEIGHED)
    left = iter(keys)

    async def hit_the_next() -> None:
        for key in left:
            if not await entry.hit(key):
                raise WrongAnswerError(f"{key} was refused")

    await asyncio.gather(*(hit_the_next() for _ in range(FILLERS)))
    await entry.aclose()


async def _used(server: RedisServer) -> int:
    """The bytes in use, when only the keys are left: a connection takes 20 kB."""
    what = "all connections are closed and no table is being moved"
    await asyncio.to_thread(wait_until, lambda: _is_quiet(server), what)
    return int(server.info("memory")["used_memory"])


def _is_quiet(server: RedisServer) -> bool:
    """Whether nobody else is connected, and no table is half moved into a larger one."""
    alone = server.info("clients")["connected_clients"] == "1"
    return alone and "rehashing" not in server.cli("debug", "htstats", "0")
