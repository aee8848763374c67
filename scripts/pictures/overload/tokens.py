"""The picture of a token budget: `python -m scripts.pictures.overload.tokens`. On virtual time.

The same calls against the same budget, reserved before and settled after, and only counted after.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate import MemoryStore, RateLimiter, Reservation
from headgate.limits import parse_limits
from headgate.testing import ManualClock
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = Path(__file__).parents[3] / "docs" / "img" / "tokens.png"
CALLS: Final = 50
ESTIMATE: Final = 1_000
BUDGET: Final = 10 * ESTIMATE
LENGTH: Final = 20.0
"""Seconds that a call takes."""
RETRY: Final = 5.0
"""Seconds after which a denied call is tried again."""
END: Final = 80

_USED: Final = "#1f5fa8"
_RESERVED: Final = "#c9c9c9"
_BEYOND: Final = "#b03a2e"


@dataclass(slots=True)
class Course:
    """The tokens that are used and reserved, by time."""

    times: list[float] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)


def simulate(*, reserves: bool) -> Course:
    """Fifty calls within five seconds, each of which uses 40 to 100 percent of its estimate."""
    clock, numbers = ManualClock(), random.Random(4)
    limits = parse_limits(f"{BUDGET}/day strict")
    limiter = RateLimiter(limits, store=MemoryStore(clock=clock))
    course, used, held = Course(), 0, 0
    amounts = [numbers.randint(ESTIMATE * 4 // 10, ESTIMATE) for _ in range(CALLS)]
    events: list[tuple[float, int, str]] = []
    for number in range(CALLS):
        heappush(events, (number / 10, number, "begin"))
    holds: dict[int, Reservation] = {}
    while events and events[0][0] < END:
        time, number, event = heappop(events)
        clock.advance(time - (course.times[-1] if course.times else 0))
        if event == "end":
            used += amounts[number]
            if reserves:
                held -= ESTIMATE
                holds.pop(number).commit(amounts[number])
            else:
                limiter.charge("a", amounts[number])
        else:
            if reserves:
                holds[number] = limiter.reserve("a", ESTIMATE, ttl=600)
                allowed = bool(holds[number])
                held += ESTIMATE if allowed else 0
            else:
                allowed = limiter.peek("a").limits[0].remaining > 0
            heappush(
                events,
                (time + (LENGTH if allowed else RETRY), number, "end" if allowed else "begin"),
            )
        course.times.append(time)
        course.used.append(used)
        course.reserved.append(held)
    course.times.append(END)
    course.used.append(used)
    course.reserved.append(held)
    return course


def draw(target: Path) -> None:
    """Reserved on the left, counted after the fact on the right."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 3.8), layout="constrained", sharey=True, sharex=True
    )
    _panel(left, simulate(reserves=True), "reserved before, settled after")
    _panel(right, simulate(reserves=False), "counted after the fact")
    left.set_ylabel("tokens")
    left.legend(frameon=False, loc="upper left")
    save(figure, target)


def _panel(axes: Axes, course: Course, title: str) -> None:
    both = [used + held for used, held in zip(course.used, course.reserved, strict=True)]
    axes.fill_between(course.times, both, step="post", color=_RESERVED, label="reserved")
    axes.fill_between(course.times, course.used, step="post", color=_USED, label="used")
    beyond = [used > BUDGET for used in course.used]
    axes.fill_between(
        course.times,
        course.used,
        BUDGET,
        where=beyond,
        step="post",
        color=_BEYOND,
        label="overspent",
    )
    axes.axhline(BUDGET, color=GREY, linewidth=1, linestyle="--")
    axes.annotate("the budget", (1, BUDGET), va="bottom", color=GREY)
    place = (END - 1, course.used[-1] * 0.97)
    axes.annotate(f"{course.used[-1]:,} used", place, ha="right", va="top", color="white")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("seconds")
    axes.set_xlim(0, END)


if __name__ == "__main__":
    draw(DRAWN)
