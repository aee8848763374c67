"""The picture of the trade, from the two records: `python -m benchmarks.gateway.picture`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl

from benchmarks.gateway.ways import EXACT, LOCAL, QUOTA

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS: Final = Path(__file__).parents[1] / "results"
SPEED: Final = "gateway.json"
ACCURACY: Final = "gateway_accuracy.json"
DRAWN: Final = Path(__file__).parents[2] / "docs" / "img" / "gateway.png"

_LOOKS: Final = {
    EXACT.name: ("exact", "#1f5fa8"),
    QUOTA.name: ("quota", "#c8681d"),
    LOCAL.name: ("local", "#3b7a57"),
}
_MARKERS: Final = {"both gateways": ("o", None), "one gateway": ("s", "white")}
_GREY: Final = "#777777"


def draw_if_complete(accuracy: Path, target: Path) -> bool:
    """Draw *target* from the record *accuracy* and that of the speed beside it, if there is one."""
    speed = accuracy.with_name(SPEED)
    if not speed.exists():
        print(f"no picture: {speed} is missing; run python -m benchmarks.gateway")
        return False
    draw(json.loads(speed.read_text()), json.loads(accuracy.read_text()), target)
    return True


def draw(speed: dict[str, Any], accuracy: dict[str, Any], target: Path) -> None:
    """What goes through against how much of the limit is let through, and that over time."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    _trade(left, speed["shares"]["one core"], accuracy)
    _course(right, accuracy)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})
    plt.close(figure)


def _trade(axes: Axes, shares: dict[str, Any], accuracy: dict[str, Any]) -> None:
    axes.axhline(1.0, color=_GREY, linewidth=1, linestyle="--", zorder=0)
    axes.text(0.01, 1.015, "the limit", color=_GREY)
    for way, (name, colour) in _LOOKS.items():
        middle, (low, high) = shares[way]["median"], shares[way]["quartiles"]
        for phase, (mean, least, most) in accuracy["seen"][way]["phases"].items():
            marker, filling = _MARKERS[phase]
            axes.errorbar(
                middle,
                mean,
                xerr=[[max(0.0, middle - low)], [max(0.0, high - middle)]],
                yerr=[[max(0.0, mean - least)], [max(0.0, most - mean)]],
                fmt=marker,
                markersize=9,
                color=colour,
                markerfacecolor=filling or colour,
                capsize=3,
            )
        axes.text(middle, 1.11, name, color=colour, ha="center", fontsize=11, weight="bold")
    for phase, (marker, filling) in _MARKERS.items():
        face = filling or _GREY
        axes.plot([], [], marker, color=_GREY, markerfacecolor=face, label=f"traffic at {phase}")
    axes.set(xlim=(0, 1.05), ylim=(0, 1.25))
    axes.set_xlabel("requests/s, as a part of the same Envoy's without rules (one core)")
    axes.set_ylabel("let through, as a part of the limit")
    axes.set_title("what it costs, and how close it comes", loc="left", fontsize=11)
    axes.legend(loc="lower left", frameon=False)


def _course(axes: Axes, accuracy: dict[str, Any]) -> None:
    limit, switch = accuracy["limit_a_second"], accuracy["switch_at"]
    axes.axhline(limit, color=_GREY, linewidth=1, linestyle="--", zorder=0)
    axes.axvline(switch, color=_GREY, linewidth=1, linestyle=":", zorder=0)
    for way, (name, colour) in _LOOKS.items():
        counts = accuracy["seen"][way]["a_second"][:-1]  # the last second is not a whole one
        axes.plot(range(len(counts)), counts, color=colour, linewidth=1.8, label=name)
    top = axes.get_ylim()[1]
    axes.text(
        switch + 0.2, top * 0.97, "only one gateway\nis asked from here", va="top", color=_GREY
    )
    axes.set(ylim=(0, top), xlabel="seconds", ylabel="let through in each second")
    title = f"{limit}/s over two gateways, {accuracy['offered_a_second']}/s offered to each"
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(loc="upper right", frameon=False)


if __name__ == "__main__":
    draw_if_complete(RESULTS / ACCURACY, DRAWN)
