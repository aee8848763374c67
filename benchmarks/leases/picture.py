"""The picture of the trade, from the record: `python -m benchmarks.leases.picture`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl

from benchmarks.leases.ways import ABOVE, FLEET, FULL, WAYS

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RECORD: Final = Path(__file__).parents[1] / "results" / "leases.json"
DRAWN: Final = Path(__file__).parents[2] / "docs" / "img" / "accuracy.png"

_LOOKS: Final = {
    "exact": ("#1f5fa8", "D"),
    "lease": ("#c8681d", "o"),
    "sync": ("#3b7a57", "s"),
}
_GREY: Final = "#777777"
_TICKS: Final = (0, 1, 10, 100, 400)
_TRIPS: Final = {1.0: "1", 0.1: "1/10", 0.01: "1/100", 0.001: "1/1000"}
_NEAR: Final = 2.5
_LOWEST: Final = -0.35
"""Room below zero, where most of the points are."""


def draw(record: Path, target: Path) -> None:
    """Round trips against overshoot, a point for each way."""
    found = json.loads(record.read_text())
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    _points(axes, found)
    _frame(axes, found)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})
    plt.close(figure)


def _points(axes: Axes, found: dict[str, Any]) -> None:
    capacity = found["limit"]["capacity"]
    rows = {(row["traffic"], row["way"]): row for row in found["fleets"] if _is_fleet(row)}
    labels: list[tuple[float, float]] = []
    for way in WAYS:
        trips = rows[FULL.name, way.name]["round_trips"]
        above = rows[ABOVE.name, way.name]
        measured, bound = (100 * above[name] / capacity for name in ("overshoot", "bound"))
        colour, marker = _LOOKS[way.name.partition(" ")[0].strip(",")]
        axes.plot([trips, trips], [measured, bound], color=colour, linewidth=1, alpha=0.5)
        axes.plot(trips, bound, "_", color=colour, markersize=18, markeredgewidth=2)
        axes.plot(trips, measured, marker, color=colour, markersize=8)
        # Labels of what is near are put above each other.
        near = sum(_is_near(trips, bound, *other) for other in labels)
        labels.append((trips, bound))
        axes.annotate(
            way.name,
            (trips, max(bound, measured)),
            xytext=(0, 9 + 14 * near),
            textcoords="offset points",
            ha="center",
            color=colour,
        )


def _is_near(trips: float, bound: float, other_trips: float, other_bound: float) -> bool:
    return bound == other_bound and max(trips, other_trips) < _NEAR * min(trips, other_trips)


def _is_fleet(row: dict[str, Any]) -> bool:
    return bool(row["processes"] == FLEET)


def _frame(axes: Axes, found: dict[str, Any]) -> None:
    axes.axhline(0, color=_GREY, linewidth=1, linestyle="--", zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(1.6, 0.0008)  # fewer round trips to the right
    axes.set_xticks(list(_TRIPS), list(_TRIPS.values()))
    axes.set_yscale("symlog", linthresh=1, linscale=0.6)
    axes.set_ylim(_LOWEST, 1_500)
    axes.set_yticks(_TICKS, [f"{tick} %" for tick in _TICKS])
    axes.minorticks_off()
    per_second = f"{found['limit']['per_second']:,}"
    axes.set_xlabel(f"round trips per request, at {per_second} requests a second")
    axes.set_ylabel("admitted beyond the limit, of the limit")
    title = f"{FLEET} processes, one hot key, {per_second}/s: what is saved, and what it may cost"
    axes.set_title(title, loc="left", fontsize=11)
    axes.plot([], [], "o", color=_GREY, label="measured, in a flood after a quiet time")
    axes.plot([], [], "_", color=_GREY, markersize=18, markeredgewidth=2, label="the stated bound")
    axes.legend(frameon=False, loc="upper left")


if __name__ == "__main__":
    draw(RECORD, DRAWN)
