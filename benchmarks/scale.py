"""`python -m benchmarks.scale`: does the number of clients matter?

Redis with ten thousand clients, and the same server with ten million: bytes a key, checks per
second of one process with 200 callers, and the latency of a check. Then the memory store with one
million keys beside ten thousand. Each client has one counter of `100/minute`, written by the store
itself for the first client and copied for the others.

The keys that are hit are spread over all clients. `--clients` changes the larger number.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.measure import write_record
from headgate import AsyncRateLimiter, RateLimiter
from headgate.stores.memory import MemoryStore
from tests.support.servers import RedisServer

RESULTS: Final = Path(__file__).parent / "results" / "scale.json"
LIMIT: Final = "100/minute"
FEW: Final = 10_000
MANY: Final = 10_000_000
IN_MEMORY: Final = 1_000_000
CALLERS: Final = 200
CHUNK: Final = 10_000
ROUNDS: Final = 3


class Found(NamedTuple):
    """The figures of one number of clients."""

    clients: int
    bytes_per_key: float
    checks_per_second: float
    p50_us: float
    p99_us: float


def fill(server: RedisServer, first: int, last: int) -> None:
    """Give the clients from *first* up to *last* a counter each."""
    sample = RateLimiter(LIMIT, store=server.url, name="scale")
    sample.hit("client:sample")
    sample.close()
    (name,) = [one for one in server.cli("keys", "*").split() if one.endswith("client:sample")]
    value = server.cli("get", name).strip().encode()
    prefix = name.removesuffix("client:sample").encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        reader = connection.makefile("rb")
        for begin in range(first, last, CHUNK):
            count = min(CHUNK, last - begin)
            some = range(begin, begin + count)
            connection.sendall(b"".join([_set(prefix, n, value) for n in some]))
            for _ in range(count):
                assert reader.readline() == b"+OK\r\n"


def _set(prefix: bytes, client: int, value: bytes) -> bytes:
    key = b"%bclient:%d" % (prefix, client)
    parts = (b"SET", key, value, b"EX", b"3600")
    return b"*5\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def used_bytes(server: RedisServer) -> int:
    lines = server.cli("info", "memory").splitlines()
    return int(next(line for line in lines if line.startswith("used_memory:")).split(":")[1])


async def checks_per_second(url: str, clients: int, seconds: float) -> float:
    """The throughput of one process with `CALLERS` callers."""
    limiter = AsyncRateLimiter(LIMIT, store=url, name="scale", on_store_failure="fail_closed")
    done = 0
    end = time.perf_counter() + seconds

    async def call(seed: int) -> None:
        nonlocal done
        rng = random.Random(seed)
        while time.perf_counter() < end:
            await limiter.hit(f"client:{rng.randrange(clients)}")
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*[call(n) for n in range(CALLERS)])
    passed = time.perf_counter() - began
    await limiter.aclose()
    return done / passed


def latencies_us(limiter: RateLimiter, clients: int, count: int) -> list[float]:
    """The latency of *count* checks, one after the other, sorted."""
    rng = random.Random(7)
    found = []
    for _ in range(count):
        key = f"client:{rng.randrange(clients)}"
        began = time.perf_counter_ns()
        limiter.hit(key)
        found.append((time.perf_counter_ns() - began) / 1_000)
    return sorted(found)


def of_redis(server: RedisServer, clients: int, empty: int, seconds: float) -> Found:
    """The figures of Redis, which has the counters of *clients* and took *empty* bytes without."""
    per_key = (used_bytes(server) - empty) / clients
    runs = [asyncio.run(checks_per_second(server.url, clients, seconds)) for _ in range(ROUNDS)]
    limiter = RateLimiter(LIMIT, store=server.url, name="scale", on_store_failure="fail_closed")
    times = latencies_us(limiter, clients, 5_000)
    limiter.close()
    return Found(clients, per_key, median(runs), median(times), times[len(times) * 99 // 100])


def of_memory(clients: int) -> Found:
    """The figures of the memory store, in a process of its own: bytes are those of the process."""
    call = [sys.executable, "-m", "benchmarks.scale", "--memory", str(clients)]
    answer = subprocess.run(call, check=True, capture_output=True, text=True)  # noqa: S603
    return Found(clients, *map(float, answer.stdout.split()))


def measure_memory(clients: int) -> None:
    """Print bytes a key, checks per second and latencies of a memory store with *clients* keys."""
    keys = [f"client:{n}" for n in range(clients)]
    limiter = RateLimiter(LIMIT, store=MemoryStore(max_keys=2 * clients))
    before = _resident()
    for key in keys:
        limiter.hit(key)
    per_key = (_resident() - before) / clients
    rng = random.Random(3)
    chosen = [keys[rng.randrange(clients)] for _ in range(200_000)]
    rates = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for key in chosen:
            limiter.hit(key)
        rates.append(len(chosen) / (time.perf_counter() - began))
    times = latencies_us(limiter, clients, 100_000)
    print(per_key, median(rates), median(times), times[len(times) * 99 // 100])


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=MANY, help="the larger number in Redis")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds per throughput run")
    parser.add_argument("--json", type=Path, help=f"where to write a record, such as {RESULTS}")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory:
        measure_memory(given.memory)
        return
    with RedisServer() as server:
        empty = used_bytes(server)
        fill(server, 0, FEW)
        redis = [of_redis(server, FEW, empty, given.seconds)]
        fill(server, FEW, given.clients)
        redis.append(of_redis(server, given.clients, empty, given.seconds))
    memory = [of_memory(FEW), of_memory(IN_MEMORY)]
    for title, found in (("Redis", redis), ("memory", memory)):
        print(f"{title}: clients, bytes a key, checks a second, p50 and p99 in microseconds")
        for one in found:
            print(
                f"{one.clients:>12,} {one.bytes_per_key:>8.0f} {one.checks_per_second:>10,.0f}"
                f" {one.p50_us:>8.1f} {one.p99_us:>8.1f}"
            )
        few, many = found
        ratio = many.checks_per_second / few.checks_per_second
        print(f"{many.clients // few.clients:,} times the clients: {ratio:.2f} of the throughput")
    if given.json:
        sizes = {"redis": redis, "memory": memory}
        record = {store: [one._asdict() for one in found] for store, found in sizes.items()}
        write_record(given.json, record)


if __name__ == "__main__":
    main()
