"""`python -m benchmarks.asgi`: what a limit adds to a request, as a table and JSON."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.asgi.apps import bare_apps, our_apps, peers
from benchmarks.asgi.driving import response_of, sample_of
from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.measure import MILLISECOND, in_turns
from benchmarks.inprocess.report import goal_lines, table, write_json
from benchmarks.surroundings import when_and_where

if TYPE_CHECKING:
    from benchmarks.asgi.apps import Contestant
    from benchmarks.inprocess.measure import Timing

RESULTS = Path(__file__).parents[1] / "results" / "asgi.json"
LEAST_TIMES_LESS = 10.0
OURS = "headgate, middleware"
"""One limit for the whole app: what the goal is about."""

TOLD = {
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
}


def main() -> None:
    options = _parser().parse_args()
    repeats, sample_ns = (10, 10 * MILLISECOND) if options.quick else (40, 20 * MILLISECOND)
    contestants = [*our_apps(), *peers()]
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_check(contestants))
        apps = bare_apps() | {one.name: one.app for one in contestants}
        samples = {name: sample_of(app, loop, sample_ns) for name, app in apps.items()}
        timings = in_turns(samples, repeats)
    finally:
        loop.close()
    added = {one.name: _added(timings, one) for one in contestants}
    print(_table(contestants, timings, added), end="\n\n")
    goal = _goal(contestants, added)
    print(goal_lines([goal]))
    results: dict[str, object] = {
        **when_and_where(),
        "ns_per_request": timings,
        "ns_added": added,
        "goals": [{**dataclasses.asdict(goal), "met": goal.met}],
    }
    write_json(options.json, results)


async def _check(contestants: list[Contestant]) -> None:
    """Nobody is timed who does not limit, or does not tell what it says it does."""
    for one in contestants:
        status, headers = await response_of(one.app)
        assert status == 200, one.name
        told = TOLD & headers.keys()
        expected = {"all headers": 5, "X-RateLimit": 3, "nothing": 0}[one.tells]
        assert len(told) == expected, (one.name, headers)


def _added(timings: dict[str, Timing], one: Contestant) -> float:
    """What the limit costs: the time with it less the time without."""
    return round(timings[one.name].best - timings[one.bare].best, 1)


def _goal(contestants: list[Contestant], added: dict[str, float]) -> Goal:
    rivals = [one.name for one in contestants if one.name.startswith("slowapi")]
    fastest = min(rivals, key=lambda name: added[name])
    ratio = round(added[fastest] / added[OURS], 2)
    return Goal(f"added by {fastest!r} / by {OURS!r}", ratio, LEAST_TIMES_LESS, at_least=True)


def _table(
    contestants: list[Contestant], timings: dict[str, Timing], added: dict[str, float]
) -> str:
    headings = ["us a request, best (median)", "without", "with", "added", "tells"]
    rows = [
        [
            one.name,
            _cell(timings[one.bare]),
            _cell(timings[one.name]),
            f"{added[one.name] / 1000:.2f}",
            one.tells,
        ]
        for one in contestants
    ]
    return table(headings, rows)


def _cell(timing: Timing) -> str:
    return f"{timing.best / 1000:.2f} ({timing.median / 1000:.2f})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.asgi", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some seconds, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    return parser


if __name__ == "__main__":
    main()
