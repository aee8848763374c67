"""The results as tables for people, and as JSON and a plot for the record."""

from __future__ import annotations

import dataclasses
import json
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.surroundings import when_and_where

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.inprocess.contestant import Contestant
    from benchmarks.inprocess.curve import Point
    from benchmarks.inprocess.goals import Goal
    from benchmarks.inprocess.measure import Effort, Timing
    from benchmarks.inprocess.memory import MemoryTable
    from benchmarks.inprocess.speed import SpeedTable

PEER_PACKAGES = (
    "limits",
    "throttled-py",
    "rust-py-rate-limit",
    "pyrate-limiter",
    "aiolimiter",
)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need: the first is text, the others are numbers."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for row in (headings, ["-" * width for width in widths], *rows):
        first, *others = row
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def speed_table(speed: SpeedTable, contestants: Sequence[Contestant]) -> str:
    rows = [
        [contestant.name, *(_cell(timings[contestant.name]) for timings in speed.values())]
        for contestant in contestants
    ]
    return table(["ns a check, best (median)", *speed], rows)


def memory_table(memory: MemoryTable) -> str:
    rows = [[name, f"{size:,.0f}"] for name, size in memory.items()]
    return table(["one hit by each key", "bytes a key"], rows)


def curve_table(points: Sequence[Point], limiters: Sequence[Contestant], floor: Contestant) -> str:
    headings = [
        "keys, accessed at random",
        *(limiter.name for limiter in limiters),
        "bare dict",
        *(f"{limiter.answer} / dict" for limiter in limiters),
    ]
    rows = [
        [
            f"{point.keys:,}",
            *(_cell(point.timings[limiter.name]) for limiter in limiters),
            _cell(point.timings[floor.name]),
            *(f"{_ratio(point, limiter, floor):.2f}" for limiter in limiters),
        ]
        for point in points
    ]
    return table(headings, rows)


def goal_lines(goals: Sequence[Goal]) -> str:
    return "\n".join(map(str, goals))


def surroundings(effort: Effort) -> dict[str, object]:
    """Where, when and with what the numbers were taken."""
    return {
        **when_and_where(),
        "peers": {package: version(package) for package in PEER_PACKAGES},
        "effort": dataclasses.asdict(effort),
    }


def heading() -> str:
    """One line on the surroundings, and how to read the last word of a contestant's name."""
    peers = ", ".join(f"{package} {version(package)}" for package in PEER_PACKAGES)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"{python} on {platform.system()} {platform.machine()}; {peers}\n"
        "full: allowed, remaining and the waiting times, all read; hit: the decision unread;\n"
        "yes/no: all that the library says; part: some figures, past the documented interface"
    )


def write_json(path: Path, results: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2, default=_plain) + "\n", encoding="utf-8")


def plot_curve(
    path: Path, points: Sequence[Point], limiters: Sequence[Contestant], floor: Contestant
) -> None:
    """The curves above, their ratios to the bare dict below, over the number of keys."""
    mpl.use("Agg")
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(8, 7), layout="constrained")
    keys = [point.keys for point in points]
    for each, label in [*((limiter, limiter.name) for limiter in limiters), (floor, "bare dict")]:
        above.plot(keys, [point.timings[each.name].best for point in points], "o-", label=label)
    for limiter in limiters:
        ratios = [_ratio(point, limiter, floor) for point in points]
        below.plot(keys, ratios, "o-", label=f"{limiter.name} / bare dict")
    for axes, title in ((above, "ns a check (best)"), (below, "ratio")):
        axes.set(xscale="log", ylabel=title)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    below.set_xlabel("keys, accessed at random")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _cell(timing: Timing) -> str:
    return f"{timing.best:,.0f} ({timing.median:,.0f})"


def _ratio(point: Point, limiter: Contestant, floor: Contestant) -> float:
    return point.timings[limiter.name].best / point.timings[floor.name].best


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{value!r} has no form in JSON")
