"""Draw pressure: `python -m scripts.pictures.overload.pressure` writes docs/img/pressure.png."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import matplotlib as mpl

from scripts.pictures.overload.pressure_fleet import Course, Plot, play

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "pressure.png"

PLOT: Final = Plot(halved=40, restored=90, until=140)
_FROM: Final = 10
"""Where the picture begins: with full buckets tenants have more at first."""
_SMOOTH: Final = 5
"""Seconds of which each point is the mean."""
_BLUE, _ORANGE, _GREEN, _PURPLE, _GREY = "#1f5fa8", "#c8681d", "#3b7a57", "#7b5ea7", "#777777"
_COLOURS: Final = {"gold": _ORANGE, "silver": _GREY, "bronze": _PURPLE, "partner": _GREEN}


def draw(target: Path) -> None:
    """The same demand before a backend that loses half of its capacity, twice."""
    with_it, without = play(PLOT), play(replace(PLOT, pressure=None))
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (rates, factor, tenants) = plt.subplots(
        3, figsize=(9, 8.5), sharex=True, layout="constrained", height_ratios=(3, 1.4, 2.2)
    )
    _rates(rates, with_it, without)
    _factor(factor, with_it)
    _tenants(tenants, with_it)
    for axes in (rates, factor, tenants):
        axes.axvspan(PLOT.halved, PLOT.restored, color="#f2e6dc", zorder=0)
        axes.set_xlim(_FROM, PLOT.until)
        axes.set_ylim(bottom=0)
    ticks = range(_FROM, PLOT.until + 1, 20)
    tenants.set_xticks(ticks, [str(tick - _FROM) for tick in ticks])
    tenants.set_xlabel("seconds")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})
    plt.close(figure)


def _rates(axes: Axes, with_it: Course, without: Course) -> None:
    seconds = _seconds()
    capacity = [PLOT.capacity(second) for second in range(PLOT.until + 1)]
    axes.step(range(PLOT.until + 1), capacity, where="post", color="black", linewidth=1.2)
    offered = [_mean([with_it.offered[one] for one in _near(at)]) for at in seconds]
    axes.plot(seconds, offered, color=_GREY, linestyle=":", linewidth=1.5)
    axes.plot(seconds, _goodput(with_it), color=_BLUE, linewidth=2.2)
    axes.plot(seconds, _goodput(without), color=_ORANGE, linewidth=2.2)
    middle = (PLOT.halved + PLOT.restored) / 2
    _say(axes, _FROM + 2, 162, "what the backend can do", "black")
    _say(axes, _FROM + 2, 145, "what is asked for", _GREY)
    _say(axes, middle, 50, "answered in time, with limits lowered", _BLUE, ha="center", va="top")
    _say(axes, middle, 5, "without: all wait for too long", _ORANGE, ha="center")
    axes.set_ylabel("requests a second")
    axes.set_title("A backend loses half of its capacity for a while", loc="left", weight="bold")
    axes.set_ylim(top=180)


def _factor(axes: Axes, with_it: Course) -> None:
    for node in range(PLOT.nodes):
        factors = [float(many[node]) for many in with_it.factors[: PLOT.until + 1]]
        axes.step(range(len(factors)), factors, where="post", color=_BLUE, linewidth=1, alpha=0.7)
    axes.set_ylabel("factor in force")
    axes.set_yticks((0, 0.25, 0.5, 0.75, 1))
    axes.set_ylim(top=1.1)
    middle = (PLOT.halved + PLOT.restored) / 2
    _say(axes, middle, 0.12, "three nodes agree", _BLUE, ha="center")


def _tenants(axes: Axes, with_it: Course) -> None:
    seconds = _seconds()
    for tenant in PLOT.tenants:
        rates = [_mean([with_it.admitted[one, tenant.name] for one in _near(at)]) for at in seconds]
        has_floor = tenant.name == "partner"
        style = (0, (4, 2)) if has_floor else "solid"
        colour = _COLOURS[tenant.name]
        axes.plot(seconds, rates, color=colour, linewidth=1.8, linestyle=style)
        text = f"{tenant.name}: {tenant.rate}/s"
        if has_floor:
            text += f", floor {100 * tenant.floor.numerator // tenant.floor.denominator}%"
        height = tenant.rate - 3 if has_floor else tenant.rate + 2
        _say(axes, _FROM + 2, height, text, colour, va="top" if has_floor else "bottom")
    axes.set_ylabel("admitted a second")
    axes.set_ylim(top=75)


def _say(
    axes: Axes,
    at: float,
    height: float,
    text: str,
    colour: str,
    *,
    ha: str = "left",
    va: str = "bottom",
) -> None:
    axes.text(at, height, text, color=colour, ha=ha, va=va)


def _goodput(course: Course) -> list[float]:
    return [_mean([course.answered[one] for one in _near(at)]) for at in _seconds()]


def _seconds() -> range:
    return range(PLOT.until)


def _near(at: int) -> range:
    return range(max(0, at - _SMOOTH // 2), min(PLOT.until, at + _SMOOTH // 2 + 1))


def _mean(counts: list[int]) -> float:
    return sum(counts) / len(counts)


if __name__ == "__main__":
    logging.disable()
    draw(DRAWN)
    print(f"drawn: {DRAWN.name}")
