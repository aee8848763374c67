"""`python -m benchmarks.inprocess`: measure, print tables, write JSON and a plot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inprocess import report
from benchmarks.inprocess.curve import measure_curve
from benchmarks.inprocess.floor import EMPTY_LOOP, FLOOR
from benchmarks.inprocess.measure import FULL, QUICK
from benchmarks.inprocess.memory import measure_memory
from benchmarks.inprocess.ours import OURS, TOKEN_BUCKET, TOKEN_BUCKET_HIT
from benchmarks.inprocess.peers import PEERS
from benchmarks.inprocess.speed import measure_speed

if TYPE_CHECKING:
    from benchmarks.inprocess.measure import Effort

PARTS = ("speed", "memory", "curve")
RESULTS = Path(__file__).parents[1] / "results" / "inprocess.json"

EVERYBODY = (EMPTY_LOOP, FLOOR, *OURS, *PEERS)
ON_THE_CURVE = (TOKEN_BUCKET_HIT, TOKEN_BUCKET)
WEIGHED = tuple(each for each in EVERYBODY if each.weighed)


def main() -> None:
    options = _parser().parse_args()
    effort = QUICK if options.quick else FULL
    print(report.heading(), end="\n\n")
    results = report.surroundings(effort)
    measure = {"speed": _speed, "memory": _memory, "curve": _curve}
    for part in PARTS if options.only is None else (options.only,):
        results[part] = measure[part](effort, options.json)
    report.write_json(options.json, results)


def _speed(effort: Effort, _json: Path) -> dict[str, object]:
    speed = measure_speed(EVERYBODY, effort)
    print(report.speed_table(speed, EVERYBODY), end="\n\n")
    return {"ns_per_check": speed}


def _memory(effort: Effort, _json: Path) -> dict[str, object]:
    memory = measure_memory(WEIGHED, effort.memory_keys)
    print(report.memory_table(memory), end="\n\n")
    return {"bytes_per_key": memory}


def _curve(effort: Effort, json: Path) -> dict[str, object]:
    points = measure_curve((*ON_THE_CURVE, FLOOR), effort)
    print(report.curve_table(points, ON_THE_CURVE, FLOOR), end="\n\n")
    report.plot_curve(json.with_name("keys_curve.png"), points, ON_THE_CURVE, FLOOR)
    return {"points": points}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inprocess", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about 30 seconds, rough figures")
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument(
        "--json", type=Path, default=RESULTS, help="the file to write; the plot goes beside it"
    )
    return parser


if __name__ == "__main__":
    main()
