"""The decision service over HTTP, and Envoy with rules that ask it about every request."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.budgets.rls import peers
from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.gateway.rounds import RATE, latencies, shares
from benchmarks.gateway.rounds import Effort as GatewayEffort
from benchmarks.gateway.servers import DecisionService, Gateway, running
from benchmarks.gateway.ways import BARE, EXACT, Way
from benchmarks.service.http_load import AUTHORIZE, CHECK, BareServer, cpu_us
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from benchmarks.gateway.servers import Server
    from benchmarks.service.http_load import Load

ONE_RULE: Final = """
version: 1
rules:
  - {id: per-ip, match: {endpoint: "/api/**"}, key_by: ip, limit: 1000000000/minute}
"""
WHERE: Final = "one core"


def http(effort: Effort) -> list[Row]:
    """Processor time of the service for a request, counters in memory."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        bare, service = BareServer(root / "bare"), DecisionService(root / "service", ONE_RULE)
        stack.enter_context(bare)
        stack.enter_context(service)
        cases: dict[str, tuple[Server, str, Load]] = {
            "bare uvicorn": (bare, bare.address, AUTHORIZE),
            "check": (service, service.http["tcp"], CHECK),
            "authorize": (service, service.http["tcp"], AUTHORIZE),
        }
        found: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(effort.rounds(5) + 1):
            for name, case in cases.items():
                spent = cpu_us(*case, seconds=2)
                if number:  # the first round is a warm-up
                    found[name].append(spent)
    spent_us = {name: median(samples) for name, samples in found.items()}
    return [
        Row(
            f"http.{name}",
            f"HTTP {name}, 10,000 callers, CPU per request",
            spent_us[name],
            "us",
            (Budget(bound),),
            {"bare uvicorn": spent_us["bare uvicorn"]},
        )
        for name, bound in (("check", 60), ("authorize", 45))
    ]


def envoy(effort: Effort) -> list[Row]:
    """Requests through Envoy with an exact rule, as a part of those without rules."""
    with RedisServer() as server:
        return [
            *_envoy_rows("redis", 0.30, effort, server),
            *_envoy_rows("memory", 0.42, effort, None),
        ]


def _envoy_rows(store: str, bound: float, effort: Effort, redis: RedisServer | None) -> list[Row]:
    amount = GatewayEffort(
        {WHERE: effort.rounds(6)}, 1, effort.rounds(4), effort.seconds(1.5), many_callers=True
    )
    flags = ("--store", redis.url) if redis else ()
    with running((BARE, EXACT), *flags) as (gateways, servers), ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        found, note = peers(root, redis, stack, effort)
        for name, peer in found.items():
            if name == "gubernator":  # which Envoy cannot ask
                continue
            way = Way(name, over="tcp", is_by_hand=True)
            gateways[way] = Gateway(root / f"{name}-envoy", way, servers[0].ports[0], peer)
            stack.enter_context(gateways[way])
            gateways[way].start("")
            servers += [peer, gateways[way]]
        share = shares(gateways, servers, WHERE, amount)
        times = latencies(gateways, amount)
    beside = {way.name: share[way].median for way in gateways if way not in (BARE, EXACT)}
    return [
        Row(
            f"envoy.{store}",
            f"Envoy with an exact rule, counters in {store}, 10,000 callers, ratio to bare Envoy",
            share[EXACT].median,
            "",
            (Budget(bound, at_least=True),),
            beside,
            higher_is_better=True,
            note=note,
        ),
        Row(
            f"envoy.{store}_p99",
            f"Envoy with an exact rule, counters in {store}, p99 at {RATE}/s",
            times[EXACT]["p99"] / 1000,
            "ms",
            (Budget(1, "ratelimit"),) if redis else (),
            {way.name: row["p99"] / 1000 for way, row in times.items() if way is not EXACT},
            note=note,
        ),
    ]
