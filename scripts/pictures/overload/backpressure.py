"""Clients that heed what they are told, and clients that do not: `python -m
scripts.pictures.overload.backpressure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.pictures.overload.client_backoff import Careless, Course, Heedful, Plot, play
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from collections import Counter

    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "backpressure.png"
PLOT: Final = Plot()

_RED: Final = "#b3261e"
_BLUE: Final = "#1f5fa8"


def draw(plot: Plot, target: Path) -> None:
    """What is answered, what is refused, and how long those wait who are answered."""
    figure, (above, middle, below) = plt.subplots(
        3, 1, figsize=(9, 7.4), sharex=True, layout="constrained", height_ratios=(3, 3, 2)
    )
    careless, heedful = play(plot, Careless), play(plot, Heedful)
    _answered(above, plot, careless, heedful)
    _refused(middle, plot, careless, heedful)
    _waits(below, plot, careless, heedful)
    for axes in (above, middle, below):
        axes.axvspan(plot.begin, plot.end, color="#f3f3f3", zorder=0)
        axes.set_xlim(0, plot.until - 1)
    below.set_xlabel("seconds")
    figure.suptitle(
        f"More to do than the app can, for {plot.end - plot.begin} seconds: clients that look at "
        "Headgate-Queue, and clients that do not",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    save(figure, target)


def _answered(axes: Axes, plot: Plot, careless: Course, heedful: Course) -> None:
    seconds = range(plot.until)
    demand = [plot.demand(second) for second in seconds]
    axes.step(seconds, demand, where="post", color=GREY, linewidth=1, linestyle=":")
    for course, colour in ((careless, _RED), (heedful, _BLUE)):
        axes.plot(seconds, _smoothed(course, course.done, plot), color=colour, linewidth=2)
    axes.text(plot.begin + 0.4, plot.more - 4, "jobs that come", color=GREY, va="top")
    lost = round(100 * careless.given_up / careless.jobs)
    _say(axes, plot.end + 2.2, 62, f"do not look: {lost} % of the jobs are given up", _RED)
    later = "look: what did not fit is done a little later, all of it"
    _say(axes, plot.end + 1, 214, later, _BLUE)
    axes.set_ylim(0, 1.08 * plot.more)
    axes.set_ylabel("answers a second")


def _refused(axes: Axes, plot: Plot, careless: Course, heedful: Course) -> None:
    seconds = range(plot.until)
    rates = _smoothed(careless, careless.refused, plot)
    axes.fill_between(seconds, rates, color=_RED, alpha=0.2, linewidth=0)
    axes.plot(seconds, rates, color=_RED, linewidth=2)
    axes.plot(seconds, _smoothed(heedful, heedful.refused, plot), color=_BLUE, linewidth=2)
    refused = sum(careless.refused.values())
    _say(axes, plot.begin + 3.5, 0.45 * max(rates), f"{refused:,} refusals, for nothing", _RED)
    number = sum(heedful.refused.values())
    _say(axes, plot.end + 6, 0.05 * max(rates), f"{number or 'none'}", _BLUE)
    axes.set_ylim(0, 1.08 * max(rates))
    axes.set_ylabel("refusals a second")


def _waits(axes: Axes, plot: Plot, careless: Course, heedful: Course) -> None:
    seconds = range(plot.until)
    for course, colour in ((careless, _RED), (heedful, _BLUE)):
        waits = [course.wait(second, second + 1) for second in seconds]
        axes.plot(seconds, waits, color=colour, linewidth=2)
    middle = (plot.begin + plot.end) // 2
    long, short = careless.wait(middle, plot.end), heedful.wait(middle, plot.end)
    _say(axes, middle - 4, 0.62 * long, f"{1000 * long:.0f} ms in the queue", _RED)
    _say(axes, plot.end + 6, short + 0.06, f"{1000 * short:.0f} ms", _BLUE)
    axes.set_ylim(0, plot.max_wait)
    axes.set_ylabel("wait, seconds")


def _smoothed(course: Course, counts: Counter[int], plot: Plot) -> list[float]:
    last = plot.until
    return [course.rate(counts, max(s - 1, 0), min(s + 2, last)) for s in range(last)]


def _say(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    axes.text(x, y, text, color=colour, fontweight="bold", va="bottom")


if __name__ == "__main__":
    draw(PLOT, DRAWN)
