"""The picture of burst credits: `python -m scripts.pictures.overload.credits`. On virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate import MemoryStore, RateLimiter
from headgate.limits import parse_limits
from headgate.testing import ManualClock
from headgate.units import SECOND
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "credits.png"
LIMIT: Final = "10/s peak 100/s for 30s"
CEILING: Final = 2_710
WANTED: Final = ((20, 2), (60, 150), (180, 2), (40, 150), (20, 2))
"""For how many seconds how many requests a second want to pass."""

_ASKED: Final = "#c9c9c9"
_PASSED: Final = "#1f5fa8"
_SAVED: Final = "#3b7a57"


@dataclass(slots=True)
class Course:
    """What happened in each second: how many wanted to pass, did, and what was saved at its end."""

    wanted: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)


def simulate() -> Course:
    """One caller who rests, asks for far too much, rests, and asks again."""
    clock = ManualClock()
    limiter = RateLimiter(parse_limits(LIMIT), store=MemoryStore(clock=clock))
    course = Course()
    for seconds, rate in WANTED:
        for _ in range(seconds):
            passed = 0
            for _ in range(rate):
                passed += limiter.hit("a").allowed
                clock.advance_ns(SECOND // rate)
            course.wanted.append(rate)
            course.passed.append(passed)
            course.saved.append(limiter.peek("a").limits[0].remaining)
    return course


def draw(course: Course, target: Path) -> None:
    """What passes above, what is saved below."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(9, 5.4), layout="constrained", sharex=True, height_ratios=(3, 2)
    )
    _traffic(above, course)
    _credits(below, course)
    save(figure, target)


def _traffic(axes: Axes, course: Course) -> None:
    edges = range(len(course.wanted) + 1)
    axes.stairs(course.wanted, edges, fill=True, color=_ASKED, alpha=0.6, label="wants to pass")
    axes.stairs(course.passed, edges, fill=True, color=_PASSED, alpha=0.85, label="passes")
    inside: dict[str, Any] = {"ha": "center", "va": "center", "color": "white"}
    axes.text(35.5, 55, "the peak,\n100/s,\nfor 30 s", **inside)
    axes.text(268, 55, "for\n16 s", **inside)
    line = {"arrowstyle": "-", "color": _PASSED}
    axes.annotate(
        "then the base rate, 10/s", (72, 9), (90, 45), color=_PASSED, va="center", arrowprops=line
    )
    axes.text(170, 8, "180 s at 2/s save 8 credits a second", ha="center", color=_PASSED)
    axes.set_ylabel("requests a second")
    axes.set_ylim(0, 165)
    axes.set_title(f'"{LIMIT}": what is not used is saved up to a ceiling', loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper center", ncols=2)


def _credits(axes: Axes, course: Course) -> None:
    seconds = [second + 1 for second in range(len(course.saved))]
    axes.fill_between([0, *seconds], [CEILING, *course.saved], color=_SAVED, alpha=0.35)
    axes.plot([0, *seconds], [CEILING, *course.saved], color=_SAVED, linewidth=1.5)
    axes.axhline(CEILING, color=GREY, linewidth=1, linestyle="--")
    axes.annotate("the ceiling", (318, CEILING - 120), ha="right", va="top", color=GREY)
    axes.set_ylabel("credits")
    axes.set_ylim(0, 3_000)
    axes.set_xlim(0, len(course.saved))
    axes.set_xlabel("seconds")


if __name__ == "__main__":
    draw(simulate(), DRAWN)
