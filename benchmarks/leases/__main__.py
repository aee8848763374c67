"""`python -m benchmarks.leases`: round trips saved, beside what is admitted beyond the limit.

First one process: a hit served from a lease beside a hit in memory. Then 1, 2 and 4 processes with
one Redis and one hot key, in every way and with less and more traffic than the limit.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.inprocess.report import write_json
from benchmarks.leases.alone import measure_alone
from benchmarks.leases.fleet import measure_fleets
from benchmarks.leases.picture import DRAWN, draw
from benchmarks.leases.report import alone_table, fleet_tables, goals_of, record_of
from benchmarks.redis.awake import processors_awake
from benchmarks.redis.report import goal_lines, heading
from tests.support.servers import RedisServer

RESULTS: Final = Path(__file__).parents[1] / "results" / "leases.json"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: rounds, and the seconds of each that do not count and that do."""

    alone_rounds: int
    alone_warm_s: float
    alone_s: float
    rounds: int
    warm_s: float
    seconds: float


FULL: Final = Effort(9, 0.08, 0.1, 3, 0.4, 0.5)
QUICK: Final = Effort(3, 0.08, 0.1, 1, 0.3, 0.3)


def main() -> None:
    options = _parser().parse_args()
    effort = QUICK if options.quick else FULL
    with processors_awake(), RedisServer() as server:
        print(heading(server), end="\n\n")
        costs = measure_alone(server, effort.alone_rounds, effort.alone_warm_s, effort.alone_s)
        print(alone_table(costs), end="\n\n")
        found = measure_fleets(server, effort.rounds, effort.warm_s, effort.seconds)
        for text in fleet_tables(found):
            print(text, end="\n\n")
        goals = goals_of(costs, found)
        record = record_of(server, costs, found, goals, dataclasses.asdict(effort))
    print(goal_lines(goals))
    write_json(options.json, record)
    draw(options.json, options.picture)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leases", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--picture", type=Path, default=DRAWN, help="the picture to draw")
    return parser


if __name__ == "__main__":
    main()
