"""Goodput with and without a limit that adapts: `python -m scripts.pictures.overload.adaptive`."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scripts.pictures.overload.breakdown import TAKES, Course, Plot, play
from scripts.pictures.overload.drawing import GREY, plt, save, smoothed
from scripts.pictures.overload.protections import FIXED, LIMITS, limiting_ways

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "adaptive.png"
_COLOURS: Final = dict(zip(LIMITS, ("#b3261e", "#c8891d", "#3b7a57", "#1f5fa8"), strict=True))

PLOT: Final = Plot(mix=MappingProxyType({"default": 1.0}))


def draw(plot: Plot, target: Path) -> None:
    """Goodput above, the limits below."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(9, 6.6), sharex=True, layout="constrained", height_ratios=(3, 2)
    )
    found = {name: play(plot, front) for name, front in limiting_ways(plot).items()}
    _goodput(above, plot, found)
    _limits(below, plot, found)
    lost = plot.restored - plot.halved
    figure.suptitle(
        f"A backend loses half of its workers for {lost} seconds. Clients wait one second, "
        "and try again three times.",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    save(figure, target)


def _goodput(axes: Axes, plot: Plot, found: dict[str, Course]) -> None:
    seconds = range(plot.until)
    capacity = [plot.capacity(second) for second in seconds]
    axes.fill_between(seconds, capacity, step="post", color="#ececec")
    axes.axhline(plot.rate, color=GREY, linewidth=1, linestyle=":")
    for name, course in found.items():
        rates = smoothed(course.tally.goodput, plot.until)
        axes.plot(seconds, rates, color=_COLOURS[name], linewidth=2)
    axes.text(0.5, 0.97 * plot.capacity(0), "what the backend can do", color=GREY, va="top")
    half, fixed = plot.capacity(plot.halved), FIXED * plot.workers
    begin, middle = plot.halved + 0.5, (plot.halved + plot.restored) / 2
    axes.text(begin, plot.rate + 2, "what is asked for", color=GREY, va="bottom")
    notes = (
        ("gradient", middle - 4, 1.16 * half, "gradient"),
        ("AIMD", middle + 3, 1.16 * half, "AIMD"),
        (LIMITS[1], middle + 1.5, 0.77 * half, f"fixed limit of {fixed}"),
        (LIMITS[0], plot.restored + 9, 0.05 * half, "no limit: it never comes back"),
    )
    for way, x, y, text in notes:
        axes.text(x, y, text, color=_COLOURS[way], ha="center", va="bottom", fontweight="bold")
    axes.set_ylim(0, 1.05 * plot.capacity(0))
    axes.set_xlim(0, plot.until - 1)
    axes.set_ylabel("answers in time, a second")


def _limits(axes: Axes, plot: Plot, found: dict[str, Course]) -> None:
    for name in LIMITS[1:]:
        limits = found[name].limits[: 10 * plot.until]
        times = [tenth / 10 for tenth in range(len(limits))]
        axes.plot(times, limits, color=_COLOURS[name], linewidth=1.5)
    workers = [plot.capacity(second) * TAKES for second in range(plot.until)]
    axes.fill_between(range(plot.until), workers, step="post", color="#ececec")
    axes.text(0.5, 2, "workers", color=GREY)
    fixed = FIXED * plot.workers
    axes.text(0.5, fixed - 3, f"fixed limit of {fixed}", color=_COLOURS[LIMITS[1]], va="top")
    axes.set_ylim(0, 1.1 * fixed)
    axes.set_ylabel("may be in at once")
    axes.set_xlabel("seconds")


if __name__ == "__main__":
    draw(PLOT, DRAWN)
