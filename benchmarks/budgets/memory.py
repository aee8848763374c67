"""The memory store: one check on a hot key beside peers, and eight threads with other work."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from fractions import Fraction
from functools import partial
from itertools import repeat
from time import thread_time_ns
from typing import TYPE_CHECKING, Final

from rust_py_rate_limit import RateLimiter as RustLimiter  # type: ignore[import-untyped]
from throttled import MemoryStore, RateLimiterType, Throttled, per_duration

from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.measure import MILLISECOND, in_turns
from headgate import (
    FixedWindow,
    RateLimiter,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate import Limit

    Loop = Callable[[int], bool]
    """Checks a key so many times, reading all figures; True if the last check was allowed."""

KEY: Final = "user:42"
WINDOW: Final = 30 * 86_400
"""Seconds: no counter expires during a run."""
OUT_OF_REACH: Final = 10_000_000
LOG: Final = 500
"""Hits in a log: each sample of a log starts with an empty one, or the last would be slowest."""
GCRA: Final = "throttled-py gcra"
THREADS: Final = 8

# Each contestant has its own loop: a call through a common function would add to each check about
# as much as the fastest check costs.


def headgate_loop(*limits: Limit) -> Loop:
    """`RateLimiter.hit` and every figure of the decision."""
    limiter = RateLimiter(limits)

    def run(checks: int) -> bool:
        hit = limiter.hit
        for _ in repeat(None, checks):
            decision = hit(KEY)
            _allowed = decision.allowed
            _remaining = decision.remaining
            _retry_after = decision.retry_after
            _reset_after = decision.reset_after
        return decision.allowed

    return run


def throttled_loop(algorithm: RateLimiterType) -> Loop:
    """`Throttled.limit` and every figure of its state."""
    limiter = Throttled(
        using=algorithm.value,
        quota=per_duration(timedelta(seconds=WINDOW), OUT_OF_REACH),
        store=MemoryStore(),
    )

    def run(checks: int) -> bool:
        limit = limiter.limit
        for _ in repeat(None, checks):
            result = limit(KEY)
            limited = result.limited
            state = result.state
            _remaining = state.remaining
            _retry_after = state.retry_after
            _reset_after = state.reset_after
        return not limited

    return run


def rust_loop() -> Loop:
    """`check`, which returns a dictionary of all figures: fixed windows in Rust."""
    limiter = RustLimiter(limit=OUT_OF_REACH, window_seconds=WINDOW)

    def run(checks: int) -> bool:
        check = limiter.check
        for _ in repeat(None, checks):
            result = check(KEY)
            allowed = result["allowed"]
            _remaining = result["remaining"]
            _retry_after = result["retry_after_seconds"]
            _reset_after = result["reset_after_seconds"]
        return bool(allowed)

    return run


def bucket(amount: int, window: int = WINDOW) -> TokenBucket:
    return TokenBucket(amount, Fraction(amount, window))


def stacked_loop(amount: int) -> Loop:
    """Two token buckets in one check."""
    return headgate_loop(bucket(amount), bucket(10 * amount, 2 * WINDOW))


def used_up(make: Callable[[int], Loop]) -> Loop:
    """The loop of a limit of one that has been used."""
    loop = make(1)
    loop(2)
    return loop


def sample_of(loop: Loop, *, allowed: bool) -> Callable[[], float]:
    """A function that takes one sample of 4 ms and checks the outcome."""
    loop(100)
    fastest = min(_time_ns(loop, 100, allowed=allowed) for _ in range(5))
    checks = max(100, 4 * MILLISECOND * 100 // fastest)
    return lambda: _time_ns(loop, checks, allowed=allowed) / checks


def _time_ns(loop: Loop, checks: int, *, allowed: bool) -> int:
    start = thread_time_ns()
    outcome = loop(checks)
    elapsed = thread_time_ns() - start
    assert outcome == allowed
    return elapsed


def _log_sample() -> float:
    loop = headgate_loop(SlidingWindowLog(2 * LOG, WINDOW))
    return _time_ns(loop, LOG, allowed=True) / LOG


def memory(effort: Effort) -> list[Row]:
    """A check with all figures read, on one hot key."""
    window = (OUT_OF_REACH, WINDOW)
    loops = {
        "token bucket": headgate_loop(bucket(OUT_OF_REACH)),
        "fixed window": headgate_loop(FixedWindow(*window)),
        "sliding counter": headgate_loop(SlidingWindowCounter(*window)),
        "two limits, allowed": stacked_loop(OUT_OF_REACH),
    }
    if effort.with_peers:
        loops |= {
            GCRA: throttled_loop(RateLimiterType.GCRA),
            "throttled-py fixed window": throttled_loop(RateLimiterType.FIXED_WINDOW),
            "throttled-py sliding counter": throttled_loop(RateLimiterType.SLIDING_WINDOW),
            "rust-py-rate-limit": rust_loop(),
        }
    samples = {name: sample_of(loop, allowed=True) for name, loop in loops.items()}
    samples["log"] = _log_sample
    samples["two limits, denied"] = sample_of(used_up(stacked_loop), allowed=False)
    timings = in_turns(samples, effort.rounds(100))
    best = {name: timing.best / 1000 for name, timing in timings.items()}
    budgets: dict[str, tuple[float, tuple[str, ...]]] = {
        "token bucket": (0.30, (GCRA, "rust-py-rate-limit")),
        "fixed window": (0.35, ("throttled-py fixed window",)),
        "sliding counter": (0.35, ("throttled-py sliding counter",)),
        "log": (0.35, ("throttled-py sliding counter",)),
        "two limits, allowed": (0.55, (GCRA,)),
        "two limits, denied": (0.85, (GCRA,)),
    }
    return [
        Row(
            f"memory.{name.replace(', ', '_').replace(' ', '_')}",
            f"memory, {name}, all figures read",
            best[name],
            "us",
            (Budget(bound, peers[0]),),
            {peer: best[peer] for peer in peers if peer in best},
        )
        for name, (bound, peers) in budgets.items()
    ]


def threads(effort: Effort) -> list[Row]:
    """The time that a check adds to other work in 8 threads, each with its own key."""
    limits = TokenBucket(10**9, 1_000), TokenBucket(10**10, 1_000)
    with RateLimiter(limits[0]) as one, RateLimiter(limits) as two:
        samples = {
            "without": partial(_threads_sample, None),
            "one limit": partial(_threads_sample, one.hit),
            "two limits": partial(_threads_sample, two.hit),
        }
        timings = in_turns(samples, effort.rounds(16))
    without = timings.pop("without").median / 1000
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
    """Nanoseconds of the machine for each round of work and check, all threads together."""
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
