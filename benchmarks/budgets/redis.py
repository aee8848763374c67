"""The Redis store: checks a second beside peers, their latency beside the bare protocol, leases."""

from __future__ import annotations

import asyncio
import csv
import gc
import itertools
import random
import shutil
import subprocess
import time
from collections import deque
from datetime import timedelta
from fractions import Fraction
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import hiredis
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter, SlidingWindowCounterRateLimiter
from pyrate_limiter import Rate, RateItem, RedisStateStore, StateBucket
from redis.asyncio import BlockingConnectionPool, Redis
from throttled.asyncio import RateLimiterType, RedisStore, Throttled, per_duration

from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.measure import in_turns, processors_awake, turns
from headgate import AsyncRateLimiter, RateLimiter
from headgate.limits import Accuracy, TokenBucket
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    Strategy = type[FixedWindowRateLimiter] | type[SlidingWindowCounterRateLimiter]
    Hit = Callable[[str], Awaitable[Any]]
    """Checks a key; the result is true if it is allowed."""

AMOUNT: Final = 1_000_000
SECONDS: Final = 10 * 86_400
"""A check moves a key's state 0.9 s ahead: no key expires between two of its checks."""
KEYS: Final = 10_000
CALLERS: Final = 200
CONNECTIONS: Final = 50
"""Connections of redis-py: its default pool of 100 fails 200 callers, and more are not faster."""
RATE: Final = 10_000
"""Checks a second whose latency is measured."""
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
OURS: Final = "headgate"
BARE: Final = "bare protocol"
PIPELINED: Final = "redis-benchmark -P16"

SCRIPT: Final = """
local increment, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now
if tat < now then tat = now end
tat = tat + increment
local ahead = tat - now
if ahead > tolerance then return tolerance - ahead - 1 end
redis.call('SET', KEYS[1], tat, 'PX', math.ceil(ahead / 1000))
return ahead
"""
"""The plainest GCRA, in microseconds: the cost of one check in Redis itself."""
INCREMENT: Final = SECONDS * 1_000_000 // AMOUNT
ARGUMENTS: Final = (INCREMENT, INCREMENT * AMOUNT)


def many_keys(seed: int = 1) -> Iterator[str]:
    """Yield one of 10,000 keys at random, without end."""
    numbers = random.Random(seed).choices(range(KEYS), k=4 * KEYS)
    return itertools.cycle([f"user:{number:05}" for number in numbers])


def headgate_hit(url: str) -> Hit:
    limiter = AsyncRateLimiter(
        f"{AMOUNT} per {SECONDS} seconds gcra",
        store=f"{url}?timeout=5",
        name="api",
        on_store_failure="fail_closed",
    )
    return limiter.hit


def _pool(url: str) -> BlockingConnectionPool:
    return BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None)


def limits_hit(strategy: Strategy, url: str) -> Hit:
    """limits answers yes or no; the figures would take a second round trip."""
    storage = RedisStorage(
        f"async+{url}",
        implementation="redispy",  # faster than coredis 5; it does not work with coredis 6
        connection_pool=_pool(url),  # type: ignore[arg-type]
    )
    return partial(strategy(storage).hit, RateLimitItemPerSecond(AMOUNT, SECONDS))


def throttled_hit(algorithm: RateLimiterType, url: str) -> Hit:
    options = {
        "CONNECTION_POOL_CLASS": "redis.asyncio.BlockingConnectionPool",
        "CONNECTION_POOL_KWARGS": {"max_connections": CONNECTIONS, "timeout": None},
    }
    limiter = Throttled(
        using=algorithm.value,
        quota=per_duration(timedelta(seconds=SECONDS), AMOUNT),
        store=RedisStore(server=url, options=options),
    )

    async def hit(key: str) -> bool:
        return not (await limiter.limit(key)).limited

    return hit


def pyrate_hit(url: str) -> Hit:
    """A bucket of pyrate-limiter for each key; its `Limiter` would check one at a time."""
    client = Redis.from_pool(_pool(url))
    buckets: dict[str, StateBucket] = {}

    async def hit(key: str) -> bool:
        bucket = buckets.get(key)
        if bucket is None:
            store = RedisStateStore(client, f"rate:{key}")
            bucket = buckets[key] = StateBucket([Rate(AMOUNT, SECONDS * 1_000)], store=store)
        item = RateItem(key, bucket.now())  # type: ignore[no-untyped-call]
        return bool(await bucket.put(item))  # type: ignore[misc]

    return hit


PEERS: Final[dict[str, Callable[[str], Hit]]] = {
    "limits, sliding window counter": partial(limits_hit, SlidingWindowCounterRateLimiter),
    "limits, fixed window": partial(limits_hit, FixedWindowRateLimiter),
    "throttled-py, gcra": partial(throttled_hit, RateLimiterType.GCRA),
    "throttled-py, fixed window": partial(throttled_hit, RateLimiterType.FIXED_WINDOW),
    "pyrate-limiter, gcra": pyrate_hit,
}


class BareConnection(asyncio.Protocol):
    """The least that a client can be: a transport, hiredis's parser and a queue of futures.

    Commands of one iteration of the event loop are one write.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[object]] = deque()
        self._unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(reply)

    def send(self, *command: str | int | bytes) -> asyncio.Future[object]:
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent.append(hiredis.pack_command(command))  # type: ignore[arg-type]
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        return waiter

    def _write(self) -> None:
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()


async def bare_hit(server: RedisServer) -> Hit:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(BareConnection, "127.0.0.1", server.port)
    sha = cast("bytes", await connection.send("SCRIPT", "LOAD", SCRIPT))

    async def hit(key: str) -> bool:
        reply = await connection.send("EVALSHA", sha, 1, key, *ARGUMENTS)
        return cast("int", reply) >= 0

    return hit


async def rate(hit: Hit, keys: Iterator[str], seconds: float) -> float:
    """Checks a second of 200 callers, each of whom waits for its reply before the next check."""
    end = perf_counter() + seconds

    async def call() -> int:
        checks = 0
        while perf_counter() < end:
            assert await hit(next(keys))
            checks += 1
        return checks

    start = perf_counter()
    checks = sum(await asyncio.gather(*(call() for _ in range(CALLERS))))
    return checks / (perf_counter() - start)


def redis_benchmark_rate(server: RedisServer, checks: int) -> float:
    """Checks a second of redis-benchmark with the plain script, in pipelines of 16."""
    program = shutil.which("redis-benchmark")
    if program is None:
        raise FileNotFoundError("redis-benchmark is not installed: run scripts/install-servers")
    call = [program, "-h", "127.0.0.1", "-p", str(server.port), "-c", str(CONNECTIONS), "-P", "16"]
    call += ["-r", str(KEYS), "-n", str(checks), "--csv"]
    call += ["EVALSHA", server.cli("script", "load", SCRIPT), "1", "key:__rand_int__"]
    done = subprocess.run(  # noqa: S603 - the arguments are our own
        [*call, *map(str, ARGUMENTS)], capture_output=True, text=True, check=True, timeout=120
    )
    if "ERR" in done.stdout or "NOSCRIPT" in done.stdout:
        raise RuntimeError(f"redis-benchmark met an error: {done.stdout}")
    (row,) = csv.DictReader(done.stdout.splitlines())
    return float(row["rps"])


async def _throughput(server: RedisServer, effort: Effort) -> dict[str, float]:
    url = server.bare_url
    hits = {OURS: headgate_hit(url)}
    if effort.with_peers:
        hits |= {name: make(url) for name, make in PEERS.items()}
    for hit in hits.values():
        await rate(hit, many_keys(seed=2), 0.15)
    keys = many_keys()
    taken: dict[str, list[float]] = {name: [] for name in (*hits, PIPELINED)}
    for name in turns(taken, effort.rounds(12)):
        gc.freeze()
        if name in hits:
            taken[name].append(await rate(hits[name], keys, 0.25))
        else:
            taken[name].append(await asyncio.to_thread(redis_benchmark_rate, server, 40_000))
    gc.unfreeze()
    return {name: median(rates) for name, rates in taken.items()}


def redis(effort: Effort) -> list[Row]:
    """Checks a second of one process with 200 concurrent callers."""
    with processors_awake(), RedisServer() as server:
        rates = asyncio.run(_throughput(server, effort))
    beside = {PIPELINED: rates.pop(PIPELINED)}
    ours = rates.pop(OURS)
    note = ""
    if rates:
        best = max(rates, key=rates.__getitem__)
        beside["best peer"] = rates[best]
        note = f"the best peer is {best}"
    return [
        Row(
            "redis.throughput",
            "Redis, one process, 200 callers",
            ours,
            "/s",
            (Budget(10, "best peer", at_least=True), Budget(0.8, PIPELINED, at_least=True)),
            beside,
            higher_is_better=True,
            note=note,
        )
    ]


async def _arrivals(hit: Hit, due: Sequence[float]) -> list[float]:
    """The latencies of checks that are made when they are *due*, from that time on.

    A stall counts for every check that was due in it. The loop never sleeps: asyncio rounds timers
    up to whole milliseconds.
    """
    keys, start, latencies = many_keys(), perf_counter(), []

    async def check(when: float) -> None:
        assert await hit(next(keys))
        latencies.append(perf_counter() - start - when)

    tasks = []
    for when in due:
        while perf_counter() - start < when:  # noqa: ASYNC110 - an event would come late
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(check(when)))
    await asyncio.gather(*tasks)
    return latencies


def _timetable(seed: int) -> list[float]:
    """Independent arrivals in one second."""
    gap = random.Random(seed).expovariate
    times = itertools.accumulate(iter(lambda: gap(RATE), None))
    return list(itertools.takewhile(lambda when: when < 1.0, times))


async def _latencies(server: RedisServer, seconds: int) -> dict[str, list[float]]:
    hits = {OURS: headgate_hit(server.bare_url), BARE: await bare_hit(server)}
    found: dict[str, list[float]] = {name: [] for name in hits}
    for hit in hits.values():
        await rate(hit, many_keys(seed=2), 0.15)
    for second in range(seconds):
        for name, hit in hits.items():
            gc.freeze()
            found[name] += await _arrivals(hit, _timetable(second))
    gc.unfreeze()
    return {name: sorted(values) for name, values in found.items()}


def _quantiles(ordered: Sequence[float]) -> dict[str, float]:
    last = len(ordered) - 1
    return {name: ordered[round(part * last)] * 1_000 for name, part in QUANTILES.items()}


def arrivals(effort: Effort) -> list[Row]:
    """The latency of checks that arrive independently, 10,000 a second."""
    with processors_awake(), RedisServer() as server:
        found = asyncio.run(_latencies(server, effort.rounds(10)))
    spread = {name: _quantiles(values) for name, values in found.items()}
    note = "; ".join(
        f"{name}: " + ", ".join(f"{quantile} {value:.2f}" for quantile, value in row.items())
        for name, row in spread.items()
    )
    return [
        Row(
            "redis.p99",
            f"Redis, p99 of a check at {RATE:,} checks a second",
            spread[OURS]["p99"],
            "ms",
            (Budget(1.5, BARE),),
            {BARE: spread[BARE]["p99"]},
            note=note,
        )
    ]


def leases(effort: Effort) -> list[Row]:
    """A denied hit on a leased key."""
    used_up = TokenBucket(10, Fraction(1, 3600))
    with RedisServer() as server:
        leased = RateLimiter(
            used_up,
            store=server.url,
            name="api",
            accuracy=Accuracy(batch=5),
            on_store_failure="fail_closed",
        )
        with leased, RateLimiter(used_up) as in_memory:
            samples = {
                "leased": partial(_denials, leased, effort.seconds(0.3)),
                "memory": partial(_denials, in_memory, effort.seconds(0.3)),
            }
            timings = in_turns(samples, effort.rounds(10))
    return [
        Row(
            "leases.denial",
            "denial of a leased key",
            timings["leased"].median / 1000,
            "us",
            (Budget(2),),
            {"memory": timings["memory"].median / 1000},
        )
    ]


def _denials(limiter: RateLimiter, seconds: float) -> float:
    """Nanoseconds of a denied hit."""
    hit, clock = limiter.hit, time.thread_time_ns
    while hit("user:42"):
        pass
    allowed = hits = 0
    began = now = clock()
    end = began + int(seconds * 1e9)
    while now < end:
        allowed += sum(map(bool, [hit("user:42") for _ in range(50)]))
        hits += 50
        now = clock()
    assert not allowed
    return (now - began) / hits
