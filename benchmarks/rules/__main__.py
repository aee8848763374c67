"""`python -m benchmarks.rules`: the cost of finding rules, as tables and JSON."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.report import goal_lines, table, write_json
from benchmarks.rules.shapes import MIXED, SHAPES
from benchmarks.rules.timing import FULL, QUICK, compare, time_paths
from benchmarks.surroundings import when_and_where

if TYPE_CHECKING:
    from benchmarks.inprocess.measure import Timing
    from benchmarks.rules.timing import Comparison

RESULTS = Path(__file__).parents[1] / "results" / "rules.json"
MOST_TIMES_FEW = 2.0


def main() -> None:
    options = _parser().parse_args()
    effort = QUICK if options.quick else FULL
    compared = {shape.name: compare(shape, effort) for shape in (*SHAPES, MIXED)}
    print(_comparison_table(compared), end="\n\n")
    paths = time_paths(effort)
    print(_path_table(paths), end="\n\n")
    goals = [
        Goal(f"10,000 rules / 10 rules; {name}", each.ratio, MOST_TIMES_FEW, at_least=False)
        for name, each in compared.items()
    ]
    print(goal_lines(goals))
    results = {
        **when_and_where(),
        "effort": effort,
        "ns_per_request": compared,
        "ns_per_path": paths,
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }
    write_json(options.json, results)


def _comparison_table(compared: dict[str, Comparison]) -> str:
    headings = [
        "ns a request, best (median)",
        "10 rules",
        "10,000 rules",
        "ratio",
        "10,000, all asked for",
        "compiled in ms",
    ]
    rows = [
        [
            name,
            _cell(each.few),
            _cell(each.many),
            f"{each.ratio:.2f}",
            _cell(each.scattered),
            f"{each.build_ms:,.0f}",
        ]
        for name, each in compared.items()
    ]
    return table(headings, rows)


def _path_table(paths: dict[str, dict[str, Timing]]) -> str:
    rows = [[name, *map(_cell, timings.values())] for name, timings in paths.items()]
    return table(["ns a path, best (median)", "normalised", "read in all ways"], rows)


def _cell(timing: Timing) -> str:
    return f"{timing.best:,.0f} ({timing.median:,.0f})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some seconds, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    return parser


if __name__ == "__main__":
    main()
