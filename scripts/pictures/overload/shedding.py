"""Who gets answers when not all can: `python -m scripts.pictures.overload.shedding`."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.policy.model import PRIORITIES
from scripts.pictures.overload.breakdown import Plot, play
from scripts.pictures.overload.drawing import plt, save, smoothed
from scripts.pictures.overload.protections import SHARING_WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from scripts.pictures.overload.breakdown import Course

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "shedding.png"
PLOT: Final = Plot(
    rate=160.0,
    until=65,
    mix=MappingProxyType({"critical": 0.3, "default": 0.4, "sheddable": 0.3}),
)
_COLOURS: Final = dict(zip(PRIORITIES, ("#1f5fa8", "#3b7a57", "#c8891d"), strict=True))


def draw(plot: Plot, target: Path) -> None:
    """What share of each class is answered, one picture for each way."""
    figure, parts = plt.subplots(
        2, 2, figsize=(9, 6), sharex=True, sharey=True, layout="constrained"
    )
    for axes, (name, front) in zip(parts.flat, SHARING_WAYS.items(), strict=True):
        _answered(axes, plot, play(plot, front))
        axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
    for axes in parts[:, 0]:
        axes.set_ylabel("answered in time")
    for axes in parts[1]:
        axes.set_xlabel("seconds")
    figure.legend(*parts[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=4)
    save(figure, target)


def _answered(axes: Axes, plot: Plot, course: Course) -> None:
    axes.axvspan(plot.halved, plot.restored, color="#ececec", label="half of the backend is gone")
    tally = course.tally
    for priority in PRIORITIES:
        answered = smoothed(tally.goodput, plot.until, priority)
        wanted = smoothed(tally.demand, plot.until, priority)
        shares = [min(100 * got / asked, 100) for got, asked in zip(answered, wanted, strict=True)]
        axes.plot(shares, color=_COLOURS[priority], linewidth=2, label=priority)
    axes.set_ylim(0, 104)
    axes.set_xlim(0, plot.until - 1)
    axes.set_yticks((0, 50, 100), ("0 %", "50 %", "100 %"))


if __name__ == "__main__":
    draw(PLOT, DRAWN)
