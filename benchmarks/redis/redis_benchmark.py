"""What Redis can give: `redis-benchmark` with the plain script, on the same server."""

from __future__ import annotations

import asyncio
import csv
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.redis.contestant import NEVER_REACHED
from benchmarks.redis.script import BATCH, CHECKS_IN_A_BATCH, SINGLE, arguments
from benchmarks.redis.traffic import KEYS

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

CONNECTIONS = 50
PIPELINE = 16
KEY = "key:__rand_int__"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to use redis-benchmark: how deep a pipeline, how many checks a script."""

    name: str
    pipeline: int = 1
    checks: int = 1

    async def rate(self, server: RedisServer, checks: int) -> float:
        """The checks a second it reaches with *checks* of them in all."""
        return await asyncio.to_thread(self._run, server, checks)

    def _run(self, server: RedisServer, checks: int) -> float:
        sha = server.cli("script", "load", SINGLE if self.checks == 1 else BATCH)
        quota = arguments(NEVER_REACHED.amount, NEVER_REACHED.seconds)
        keys = [str(self.checks), *[KEY] * self.checks]
        call = ["EVALSHA", sha, *keys, *map(str, quota)]
        shape = ["-c", str(CONNECTIONS), "-P", str(self.pipeline), "-r", str(KEYS)]
        amount = ["-n", str(checks // self.checks), "--csv"]
        place = ["-h", "127.0.0.1", "-p", str(server.port)]
        return self.checks * _requests_a_second([*place, *shape, *amount, *call])


PIPELINED = Way(f"redis-benchmark, {CONNECTIONS} connections, pipelines of {PIPELINE}", PIPELINE)
PLAIN = Way(f"redis-benchmark, {CONNECTIONS} connections")
BATCHED = Way(
    f"redis-benchmark, {CONNECTIONS} connections, {CHECKS_IN_A_BATCH} checks a script",
    checks=CHECKS_IN_A_BATCH,
)
WAYS = (PIPELINED, PLAIN, BATCHED)


def _requests_a_second(options: list[str]) -> float:
    program = shutil.which("redis-benchmark")
    if program is None:
        raise FileNotFoundError("redis-benchmark is not installed: run scripts/install-servers")
    done = subprocess.run(  # noqa: S603 - the arguments are our own
        [program, *options], capture_output=True, text=True, check=True, timeout=120
    )
    if "ERR" in done.stdout or "NOSCRIPT" in done.stdout:
        raise RuntimeError(f"redis-benchmark met an error: {done.stdout}")
    (row,) = csv.DictReader(done.stdout.splitlines())
    return float(row["rps"])
