"""The results as tables for people, and what they are held to."""

from __future__ import annotations

import dataclasses
import os
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from benchmarks.inprocess.report import table
from benchmarks.leases.alone import IN_MEMORY
from benchmarks.leases.ways import ASK_ALWAYS, FREE, KEY, LARGE, LEASES, LIMIT, PROCESSES
from benchmarks.redis.goals import Goal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.leases.alone import Cost
    from benchmarks.leases.fleet import Case, Figures
    from benchmarks.leases.ways import Way
    from tests.support.servers import RedisServer

MOST_OF_MEMORY: Final = 2.0


def alone_table(costs: Mapping[str, Cost]) -> str:
    rows = [
        [name, f"{cost.ns:,.0f}", f"{cost.ratio:.2f}", _trips(cost.round_trips)]
        for name, cost in costs.items()
    ]
    return table(["one process, a hit", "ns", "of memory", "round trips"], rows)


def fleet_tables(found: Mapping[Case, Figures]) -> Iterator[str]:
    """A table for each traffic and number of processes."""
    by_heading: dict[str, list[list[str]]] = {}
    for case, figures in found.items():
        many = "process" if case.processes == 1 else "processes"
        heading = f"{case.processes} {many}: {case.traffic.name}"
        by_heading.setdefault(heading, []).append(_cells(case, figures))
    columns = ("checks/s", "admitted/s", "round trips", "Redis us", "of a core", "beyond", "bound")
    for heading, rows in by_heading.items():
        yield table([heading, *columns], rows)


def goals_of(costs: Mapping[str, Cost], found: Mapping[Case, Figures]) -> list[Goal]:
    """What the run is held to."""
    return [
        *(
            Goal(f"a hit, {way.name} / a hit in memory", costs[way.name].ratio, MOST_OF_MEMORY)
            for way in (LARGE, LEASES[-1])
        ),
        *(_trip_goal(way, found) for way in LEASES),
        *_bound_goals(found),
    ]


def _trip_goal(way: Way, found: Mapping[Case, Figures]) -> Goal:
    """To the hundredth: by chance there is an exchange more or less in a round."""
    most = max(
        figures.round_trips
        for case, figures in found.items()
        if case.traffic is FREE and case.way is way
    )
    what = f"round trips for as many hits as a batch, at most, {way.name}"
    return Goal(what, round(most * (way.saves or 0), 2), 1)


def _bound_goals(found: Mapping[Case, Figures]) -> Iterator[Goal]:
    """For each number of processes what comes nearest to its bound, and exact decisions."""
    for processes in PROCESSES:
        part: dict[str, float] = {}
        exact = 0.0
        for case, figures in found.items():
            if case.processes != processes or not case.traffic.is_limited:
                continue
            if case.way is ASK_ALWAYS:
                exact = max(exact, figures.overshoot)
            else:
                share = figures.overshoot / figures.bound
                part[case.way.name] = max(part.get(case.way.name, 0.0), share)
        # What was granted is noted a little later: a unit of each process.
        yield Goal(f"units beyond the limit, exact, {processes} at once", exact, processes)
        worst = max(part, key=part.__getitem__)
        what = f"beyond the limit, of the bound, {processes} at once, the most ({worst})"
        yield Goal(what, round(part[worst], 3), 1)


def record_of(
    server: RedisServer,
    costs: Mapping[str, Cost],
    found: Mapping[Case, Figures],
    goals: list[Goal],
    effort: Mapping[str, float],
) -> dict[str, object]:
    """All that the run measured, and where."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "redis": server.info("server")["redis_version"],
        "effort": effort,
        "limit": {"capacity": LIMIT.capacity, "per_second": int(LIMIT.per_second), "key": KEY},
        "one_process": {name: dataclasses.asdict(cost) for name, cost in costs.items()},
        "in_memory": IN_MEMORY,
        "fleets": [
            {
                "traffic": case.traffic.name,
                "processes": case.processes,
                "way": case.way.name,
                **dataclasses.asdict(figures),
            }
            for case, figures in found.items()
        ],
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }


def _cells(case: Case, figures: Figures) -> list[str]:
    is_limited = case.traffic.is_limited
    return [
        case.way.name,
        f"{figures.checks_a_second:,.0f}",
        f"{figures.admitted_a_second:,.0f}",
        _trips(figures.round_trips),
        f"{figures.redis_us:.2f}",
        f"{figures.redis_share:.1%}",
        f"{figures.overshoot / LIMIT.capacity:.1%}" if is_limited else "",
        f"{figures.bound / LIMIT.capacity:.1%}" if is_limited else "",
    ]


def _trips(trips: float) -> str:
    return f"{trips:.5f}"
