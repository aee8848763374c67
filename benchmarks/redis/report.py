"""The results as tables for people."""

from __future__ import annotations

import dataclasses
import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from benchmarks.inprocess.report import table
from benchmarks.redis.arrivals import RATE
from benchmarks.redis.samples import medians, ratio
from benchmarks.surroundings import when_and_where

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.redis.arrivals import Arrivals, Distribution
    from benchmarks.redis.effort import Effort
    from benchmarks.redis.goals import Goal
    from benchmarks.redis.memory import Weight
    from benchmarks.redis.samples import Samples
    from benchmarks.redis.throughput import Rates
    from tests.support.servers import RedisServer

PACKAGES = ("redis", "hiredis", "limits", "throttled-py", "pyrate-limiter")


def rates_table(heading: str, rates: Samples) -> str:
    """Checks a second, and in comparison with the first row."""
    first = next(iter(rates))
    rows = [
        [name, f"{rate:,.0f}", f"{ratio(rates, name, first):.3f}"]
        for name, rate in medians(rates).items()
    ]
    return table([heading, "checks a second", "of the first"], rows)


def many_rates_table(heading: str, columns: Mapping[str, Rates]) -> str:
    """Checks a second, a column each."""
    names = next(iter(columns.values()))
    rows = [[name, *(f"{rates[name]:,.0f}" for rates in columns.values())] for name in names]
    return table([heading, *columns], rows)


def latency_table(heading: str, latencies: Samples) -> str:
    """Microseconds, also in the best of the rounds, and in comparison with the first row."""
    first = next(iter(latencies))
    rows = [
        [name, f"{us:.1f}", f"{min(latencies[name]):.1f}", f"{ratio(latencies, name, first):.2f}"]
        for name, us in medians(latencies).items()
    ]
    return table([heading, "median, us", "best round", "of the first"], rows)


def arrivals_table(arrivals: dict[str, Arrivals]) -> str:
    """From when a check was due to its decision; then the part of it before it was made."""
    rows = []
    for name, each in arrivals.items():
        rows.append([f"{name}, {each.per_second:,.0f} a second", *_cells(each.latency)])
        rows.append(["  of it before the check was made", *_cells(each.lateness)])
    heading = f"{RATE:,} checks a second, from due to decided, ms"
    return table([heading, "p50", "p90", "p99", "p99.9", "max"], rows)


def cost_table(costs: dict[str, Samples]) -> str:
    found = {kind: medians(samples) for kind, samples in costs.items()}
    rows = [
        [name, *(f"{found[kind][name]:.2f}" for kind in ("cpu", "script", "client"))]
        for name in costs["cpu"]
    ]
    return table(["CPU a check, us", "server", "of it in scripts", "this process"], rows)


def memory_table(memory: dict[str, dict[str, Weight]]) -> str:
    """With how long the keys are, and how long their names in Redis."""
    first = next(iter(memory.values()))
    headings = [f"{kind} key ({len(weight.key)})" for kind, weight in first.items()]
    rows = [
        [
            name,
            *(f"{weight.bytes:.0f} ({_length(weight)})" for weight in weights.values()),
            weights["short"].name,
        ]
        for name, weights in memory.items()
    ]
    return table(["bytes a key (characters in Redis)", *headings, "the short one in Redis"], rows)


def goal_lines(goals: Sequence[Goal]) -> str:
    return "\n".join(map(str, goals))


def surroundings(server: RedisServer, effort: Effort) -> dict[str, object]:
    """Where, when and with what the numbers were taken."""
    return {
        **when_and_where(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "redis": server.info("server")["redis_version"],
        "packages": {package: version(package) for package in PACKAGES},
        "effort": dataclasses.asdict(effort),
    }


def heading(server: RedisServer) -> str:
    packages = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    where = f"{platform.system()} {platform.machine()} with {os.cpu_count()} cores"
    redis = f"Redis {server.info('server')['redis_version']} on loopback"
    busy = f"load average {os.getloadavg()[0]:.1f} before the run"
    return f"{python} on {where}, {busy}; {redis}\n{packages}"


def _cells(distribution: Distribution) -> list[str]:
    return [f"{ms:.3f}" for ms in dataclasses.astuple(distribution)]


def _length(weight: Weight) -> str:
    several = "" if weight.keys == 1 else f", {weight.keys:.2g} keys"
    return f"{len(weight.name)}{several}"
