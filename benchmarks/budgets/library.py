"""Paths in one process or one machine: memory, threads, Redis, leases, shared memory, rules."""

from __future__ import annotations

import asyncio
import dataclasses
import resource
import subprocess
import sys
import threading
import time
from fractions import Fraction
from functools import partial
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.inprocess.measure import FULL as INPROCESS
from benchmarks.inprocess.measure import MILLISECOND, in_turns
from benchmarks.inprocess.ours import OURS, STACKED, TOKEN_BUCKET
from benchmarks.inprocess.peers import PEERS
from benchmarks.inprocess.speed import Scenario, measure_scenario
from benchmarks.redis.awake import processors_awake
from benchmarks.redis.effort import FULL as REDIS
from benchmarks.redis.ours import OURS_ASYNC
from benchmarks.redis.peers import PEERS as REDIS_PEERS
from benchmarks.redis.redis_benchmark import PIPELINED
from benchmarks.redis.throughput import measure_throughput
from benchmarks.rules.shapes import MIXED
from benchmarks.rules.timing import Effort as RulesEffort
from benchmarks.rules.timing import compare, time_paths
from benchmarks.shm import Case, measured
from headgate import RateLimiter
from headgate.limits import Accuracy, TokenBucket
from headgate.stores.shm.file import path_of
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable

GCRA = "throttled-py gcra"
THREADS = 8
LIMIT = TokenBucket(10**9, 1_000)
"""Out of reach."""
LARGER = TokenBucket(10**10, 1_000)


def memory(effort: Effort) -> list[Row]:
    """A check with all figures read, on one hot key."""
    named = {each.name: each for each in (*OURS, *PEERS)}
    windows = {
        "fixed window": "fixed window",
        "sliding counter": "sliding window counter",
        "log": "sliding window log",
    }
    ours = [TOKEN_BUCKET, *(named[f"headgate, {name}, full"] for name in windows.values()), STACKED]
    peers = {
        GCRA: "throttled-py, gcra, full",
        "throttled-py fixed window": "throttled-py, fixed window, full",
        "throttled-py sliding counter": "throttled-py, sliding window counter, full",
        "rust-py-rate-limit": "rust-py-rate-limit, fixed window, full",
    }
    contestants = [*ours, *(named[name] for name in peers.values() if effort.with_peers)]
    inprocess = dataclasses.replace(INPROCESS, repeats=effort.rounds(100))
    allowed = measure_scenario(Scenario(1, "allowed"), contestants, inprocess)
    denied = measure_scenario(Scenario(1, "denied"), [STACKED], inprocess)
    beside = {short: allowed[name].best / 1000 for short, name in peers.items() if name in allowed}

    def of(*names: str) -> dict[str, float]:
        return {name: beside[name] for name in names if name in beside}

    rows = [
        Row(
            "memory.token_bucket",
            "memory, one token bucket, all figures read",
            allowed[TOKEN_BUCKET.name].best / 1000,
            "us",
            (Budget(0.30, GCRA),),
            of(GCRA, "rust-py-rate-limit"),
        )
    ]
    for name, algorithm in windows.items():
        peer = f"throttled-py {'fixed window' if name == 'fixed window' else 'sliding counter'}"
        rows.append(
            Row(
                f"memory.{name.replace(' ', '_')}",
                f"memory, {name}",
                allowed[f"headgate, {algorithm}, full"].best / 1000,
                "us",
                (Budget(0.35, peer),),
                of(peer),
            )
        )
    for outcome, timings, bound in (("allowed", allowed, 0.55), ("denied", denied, 0.85)):
        rows.append(
            Row(
                f"memory.two_limits_{outcome}",
                f"memory, two stacked limits, {outcome}",
                timings[STACKED.name].best / 1000,
                "us",
                (Budget(bound, GCRA),),
                of(GCRA),
            )
        )
    return rows


def threads(effort: Effort) -> list[Row]:
    """What a check adds to other work in 8 threads, each with a key of its own."""
    one, two = RateLimiter(LIMIT), RateLimiter([LIMIT, LARGER])
    samples = {
        "without": partial(_threads_sample, None),
        "one limit": partial(_threads_sample, one.hit),
        "two limits": partial(_threads_sample, two.hit),
    }
    timings = in_turns(samples, effort.rounds(16))
    without = timings.pop("without").median / 1000
    one.close()
    two.close()
    return [
        Row(
            f"threads.{name.replace(' ', '_')}",
            f"memory, {THREADS} threads with other work, distinct keys, {name}, added",
            timing.median / 1000 - without,
            "us",
            (Budget(5),),
            {"the work": without},
            whole=timing.median / 1000,
        )
        for name, timing in timings.items()
    ]


def _threads_sample(hit: Callable[[str], object] | None, checks: int = 1_500) -> float:
    """Nanoseconds of the machine for each turn of work and check, all threads together."""
    start = threading.Barrier(THREADS + 1)

    def run(key: str) -> None:
        start.wait()
        for _ in range(checks):
            sum(range(500))
            if hit is not None:
                hit(key)

    running = [threading.Thread(target=run, args=(f"user:{n}",)) for n in range(THREADS)]
    for thread in running:
        thread.start()
    start.wait()
    began = time.perf_counter_ns()
    for thread in running:
        thread.join()
    return (time.perf_counter_ns() - began) / (THREADS * checks)


def redis(effort: Effort) -> list[Row]:
    """Checks a second of one process with 200 concurrent callers."""
    with processors_awake(), RedisServer() as server:
        peers = REDIS_PEERS if effort.with_peers else ()
        amount = dataclasses.replace(REDIS, rounds=effort.rounds(12), sample_s=0.25)
        found = asyncio.run(measure_throughput(server, amount, (OURS_ASYNC, *peers), (PIPELINED,)))
    rates = {name: median(samples) for name, samples in found.items()}
    beside = {"redis-benchmark -P16": rates[PIPELINED.name]}
    note = ""
    if peers:
        best = max((peer.name for peer in peers), key=lambda name: rates[name])
        beside["best peer"] = rates[best]
        note = f"the best peer is {best}"
    return [
        Row(
            "redis.throughput",
            "Redis, one process, 200 callers",
            rates[OURS_ASYNC.name],
            "/s",
            (
                Budget(10, "best peer", at_least=True),
                Budget(0.8, "redis-benchmark -P16", at_least=True),
            ),
            beside,
            higher_is_better=True,
            note=note,
        )
    ]


def leases(effort: Effort) -> list[Row]:
    """A hit on a key whose limit is used up, as a node with leases denies it."""
    used_up = TokenBucket(10, Fraction(1, 3600))
    with RedisServer() as server:
        leased = RateLimiter(
            used_up,
            store=server.url,
            name="api",
            accuracy=Accuracy(batch=5),
            on_store_failure="fail_closed",
        )
        in_memory = RateLimiter(used_up)
        samples = {
            "leased": partial(_denials, leased, effort.seconds(0.3)),
            "memory": partial(_denials, in_memory, effort.seconds(0.3)),
        }
        timings = in_turns(samples, effort.rounds(10))
        leased.close()
        in_memory.close()
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
    """Nanoseconds a denied hit."""
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


def shm(effort: Effort) -> list[Row]:
    """Checks a second of 8 processes beside those of 2."""
    name = f"bench-{token_hex(8)}"
    url = f"shm://{name}?timeout=10"
    rates: dict[int, list[float]] = {2: [], 8: []}
    try:
        for _ in range(effort.rounds(5)):
            for processes, samples in rates.items():
                samples.append(measured(Case("token bucket", processes), url, 1.0))
    finally:
        path_of(name).unlink(missing_ok=True)
    two, eight = (median(rates[processes]) for processes in (2, 8))
    return [
        Row(
            "shm.scaling",
            "shm, checks a second of 8 processes",
            eight,
            "/s",
            (Budget(1, "2 processes", at_least=True),),
            {"2 processes": two},
            higher_is_better=True,
        )
    ]


def rules(effort: Effort) -> list[Row]:
    """Finding the rules of a request among 10,000, and reading a path that is all noise."""
    amount = RulesEffort(effort.rounds(40), 4 * MILLISECOND)
    found = compare(MIXED, amount)
    noise = time_paths(amount, ("8 KiB of noise",))["8 KiB of noise"]["read"]
    return [
        Row(
            "rules.many",
            "matching one request against 10,000 rules",
            found.many.best / 1000,
            "us",
            (Budget(1.3, "10 rules"),),
            {"10 rules": found.few.best / 1000},
        ),
        Row(
            "rules.noise_path",
            "reading a path of 8 KiB of noise",
            noise.best / 1e6,
            "ms",
            (Budget(0.2),),
        ),
    ]


def start(effort: Effort) -> list[Row]:
    """Importing the package, and the shortest command."""
    calls = {
        "python": ["-c", "pass"],
        "import headgate": ["-c", "import headgate"],
        "import limits": ["-c", "import limits"],
        "headgate --help": ["-m", "headgate.cli", "--help"],
    }
    samples = {name: partial(_run_ns, call) for name, call in calls.items()}
    best = {name: timing.best / 1e6 for name, timing in in_turns(samples, effort.rounds(8)).items()}
    bare = best["python"]
    return [
        Row(
            "start.import",
            "import headgate",
            best["import headgate"] - bare,
            "ms",
            (Budget(1, "import limits"),),
            {"import limits": best["import limits"] - bare},
        ),
        Row(
            "start.help",
            "headgate --help",
            best["headgate --help"],
            "ms",
            (Budget(202),),
            {"python": bare},
        ),
    ]


def _run_ns(arguments: list[str]) -> float:
    """Nanoseconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e9
