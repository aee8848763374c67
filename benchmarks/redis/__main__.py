"""`python -m benchmarks.redis`: measure, print tables, write JSON and a picture."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inprocess.report import write_json
from benchmarks.redis import goals, report
from benchmarks.redis.arrivals import measure_arrivals
from benchmarks.redis.awake import processors_awake
from benchmarks.redis.effort import FULL, QUICK
from benchmarks.redis.latency import measure_lone_async, measure_lone_sync
from benchmarks.redis.memory import measure_memory
from benchmarks.redis.picture import draw
from benchmarks.redis.samples import medians
from benchmarks.redis.server_cost import by_kind, measure_server_cost
from benchmarks.redis.threads import THREADS, measure_threads
from benchmarks.redis.throughput import (
    CALLERS,
    measure_curve,
    measure_hot_key,
    measure_throughput,
    prove_all,
)
from benchmarks.redis.topologies import measure_topologies
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.redis.effort import Effort
    from benchmarks.redis.goals import Goal

RESULTS = Path(__file__).parents[1] / "results" / "redis.json"

Part = dict[str, object]


def main() -> None:
    options = _parser().parse_args()
    effort = QUICK if options.quick else FULL
    verdicts: list[Goal] = []
    with processors_awake(), RedisServer() as server:
        print(report.heading(server), end="\n\n")
        results = report.surroundings(server, effort)
        asyncio.run(prove_all(server))
        for name in PARTS if options.only is None else (options.only,):
            part, held_to = PARTS[name](server, effort, options.json)
            verdicts += held_to
            results[name] = {**part, "goals": [_plain(goal) for goal in held_to]}
    print(report.goal_lines(verdicts))
    write_json(options.json, results)


def _throughput(server: RedisServer, effort: Effort, json: Path) -> tuple[Part, list[Goal]]:
    rates = asyncio.run(measure_throughput(server, effort))
    print(report.rates_table(f"{CALLERS} callers, 10,000 keys", rates), end="\n\n")
    curve = asyncio.run(measure_curve(server, effort))
    print(report.many_rates_table("checks a second by callers", curve), end="\n\n")
    draw(json.with_name("redis_throughput.png"), curve, medians(rates))
    return {"checks_a_second": medians(rates), "by_callers": curve}, goals.throughput_goals(rates)


def _hot_key(server: RedisServer, effort: Effort, _json: Path) -> tuple[Part, list[Goal]]:
    rates = asyncio.run(measure_hot_key(server, effort))
    print(report.rates_table(f"{CALLERS} callers, all with one key", rates), end="\n\n")
    return {"checks_a_second": medians(rates)}, []


def _lone(server: RedisServer, effort: Effort, _json: Path) -> tuple[Part, list[Goal]]:
    in_a_loop = asyncio.run(measure_lone_async(server, effort))
    print(report.latency_table("a lone async check", in_a_loop), end="\n\n")
    sync = measure_lone_sync(server, effort)
    print(report.latency_table("a lone sync check", sync), end="\n\n")
    part = {"async_us": medians(in_a_loop), "sync_us": medians(sync)}
    return {**part}, goals.lone_goals(in_a_loop, sync)


def _arrivals(server: RedisServer, effort: Effort, _json: Path) -> tuple[Part, list[Goal]]:
    arrivals = asyncio.run(measure_arrivals(server, effort))
    print(report.arrivals_table(arrivals), end="\n\n")
    return {**arrivals}, goals.arrival_goals(arrivals)


def _server_cost(server: RedisServer, effort: Effort, _json: Path) -> tuple[Part, list[Goal]]:
    costs = by_kind(asyncio.run(measure_server_cost(server, effort)))
    print(report.cost_table(costs), end="\n\n")
    part = {kind: medians(samples) for kind, samples in costs.items()}
    return {"us_a_check": part}, goals.cost_goals(costs)


def _threads(server: RedisServer, effort: Effort, _json: Path) -> tuple[Part, list[Goal]]:
    rates = measure_threads(server, effort)
    print(report.rates_table(f"{THREADS} threads with one limiter", rates), end="\n\n")
    return {"checks_a_second": medians(rates)}, []


def _topologies(server: RedisServer, effort: Effort, _json: Path) -> tuple[Part, list[Goal]]:
    columns = asyncio.run(measure_topologies(server, effort))
    print(report.many_rates_table(f"checks a second, {CALLERS} callers", columns), end="\n\n")
    return {"checks_a_second": columns}, []


def _memory(_server: RedisServer, effort: Effort, _json: Path) -> tuple[Part, list[Goal]]:
    memory = asyncio.run(measure_memory(effort))
    print(report.memory_table(memory), end="\n\n")
    return {"by_key": memory}, goals.memory_goals(memory)


PARTS: dict[str, Callable[[RedisServer, Effort, Path], tuple[Part, list[Goal]]]] = {
    "throughput": _throughput,
    "hot_key": _hot_key,
    "lone": _lone,
    "arrivals": _arrivals,
    "server_cost": _server_cost,
    "threads": _threads,
    "topologies": _topologies,
    "memory": _memory,
}


def _plain(goal: Goal) -> dict[str, object]:
    return {**dataclasses.asdict(goal), "met": goal.met}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redis", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, rough figures")
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument(
        "--json", type=Path, default=RESULTS, help="the file to write; the picture goes beside it"
    )
    return parser


if __name__ == "__main__":
    main()
