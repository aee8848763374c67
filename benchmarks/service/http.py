"""`python -m benchmarks.service.http`: what a decision adds to a bare server."""

from __future__ import annotations

import argparse
import dataclasses
import random
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.measure import Timing
from benchmarks.inprocess.report import goal_lines, table, write_json
from benchmarks.service.http_apps import BARE, POLICIES
from benchmarks.service.http_load import (
    AUTHORIZE,
    CHECK,
    VARIED,
    Served,
    latencies_us,
    sample,
)
from benchmarks.service.http_serving import SERVERS
from benchmarks.surroundings import when_and_where

if TYPE_CHECKING:
    from benchmarks.service.http_load import Load

RESULTS: Final = Path(__file__).parents[1] / "results" / "service_http.json"
CHOSEN: Final = "uvicorn"
"""What the service runs on, and what the goals are about."""

MOST_ADDED_US: Final = 25.0
LOADS: Final = (AUTHORIZE, VARIED, CHECK)


class Case(NamedTuple):
    """An app on a server under a load."""

    server: str
    app: str
    load: Load

    def __str__(self) -> str:
        return f"{self.server}, {self.app}, {self.load.name}"

    @property
    def bare(self) -> Case:
        return self._replace(app=BARE)


def main() -> None:
    options = _parser().parse_args()
    rounds, seconds, latency_seconds = (3, 1.0, 2.0) if options.quick else (7, 3.0, 10.0)
    apps = (BARE, *POLICIES)
    cases = [
        Case(server, app, load)
        for server in SERVERS
        for app in apps
        for load in LOADS
        if server == CHOSEN or not load.is_varied
    ]
    with ExitStack() as stack:
        served = {
            (server, app): stack.enter_context(Served(server, app))
            for server in SERVERS
            for app in apps
        }
        timings, rates = _timings(cases, served, rounds, seconds)
        latencies = {
            str(case): latencies_us(
                served[case.server, case.app], case.load, rates[case] / 2, latency_seconds
            )
            for case in cases
            if case.server == CHOSEN and not case.load.is_varied
        }
    added = {case: _added_us(timings, case) for case in cases if case.app != BARE}
    print(_speed_table(cases, timings, added), end="\n\n")
    print(_latency_table(latencies), end="\n\n")
    goals = [
        Goal(f"us added: {case}", added[case], MOST_ADDED_US, at_least=False)
        for case in added
        if case.server == CHOSEN
    ]
    print(goal_lines(goals))
    write_json(options.json, _record(timings, added, latencies, goals))


def _record(
    timings: dict[Case, Timing],
    added: dict[Case, float],
    latencies: dict[str, dict[str, float]],
    goals: list[Goal],
) -> dict[str, object]:
    packages = ("uvicorn", "uvloop", "httptools", "granian")
    return {
        **when_and_where(),
        "packages": {name: version(name) for name in packages},
        "cpu_ns_per_request": {str(case): timing for case, timing in timings.items()},
        "requests_per_cpu_second": {
            str(case): round(1e9 / timing.best) for case, timing in timings.items()
        },
        "us_added": {str(case): us for case, us in added.items()},
        "latency_us_at_half_load": latencies,
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }


def _timings(
    cases: list[Case], served: dict[tuple[str, str], Served], rounds: int, seconds: float
) -> tuple[dict[Case, Timing], dict[Case, float]]:
    """Processor time a request, and the best rate of each; all in turns, in a new order each
    round, after one that does not count."""
    taken: dict[Case, list[float]] = {case: [] for case in cases}
    rates: dict[Case, float] = dict.fromkeys(cases, 0.0)
    shuffle = random.Random(1).shuffle
    for number in range(rounds + 1):
        order = list(cases)
        shuffle(order)
        for case in order:
            spent, rate = sample(served[case.server, case.app], case.load, seconds)
            if number:
                taken[case].append(spent)
                rates[case] = max(rates[case], rate)
    return {case: Timing.of(samples) for case, samples in taken.items()}, rates


def _added_us(timings: dict[Case, Timing], case: Case) -> float:
    return round((timings[case].best - timings[case.bare].best) / 1000, 2)


def _speed_table(cases: list[Case], timings: dict[Case, Timing], added: dict[Case, float]) -> str:
    headings = ["us of processor time a request", "best", "median", "added", "a CPU-second"]
    rows = [
        [
            str(case),
            f"{timings[case].best / 1000:.2f}",
            f"{timings[case].median / 1000:.2f}",
            f"{added[case]:.2f}" if case in added else "",
            f"{1e9 / timings[case].best:,.0f}",
        ]
        for case in cases
    ]
    return table(headings, rows)


def _latency_table(latencies: dict[str, dict[str, float]]) -> str:
    columns = list(next(iter(latencies.values())))
    rows = [
        [name, *(f"{row[column]:,.0f}" for column in columns)] for name, row in latencies.items()
    ]
    return table(["us, at half load", *columns], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.http", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    return parser


if __name__ == "__main__":
    main()
