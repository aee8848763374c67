"""A retry storm: the same visitors, who differ only in when they come again after a refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Final

from headgate import RateLimiter
from headgate.testing import ManualClock
from headgate.units import SECOND
from scripts.pictures.gallery.drawing import ADMITTED, REFUSED, ROW
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

LIMIT: Final = "20/s"
SECONDS: Final = 30
VISITORS: Final = 300
_TRICKLE: Final = 8
"""Requests a second that come anyway."""
_BURST: Final = (5.0, 1.0)
_SEED: Final = 7

Waiting = Callable[[Random, float, int], float]
"""Seconds until the next try, from the retry-after and the number of tries that failed."""


def _at_once(_random: Random, _retry_after: float, _tries: int) -> float:
    return 0.5


def _as_told(_random: Random, retry_after: float, _tries: int) -> float:
    return math.ceil(retry_after)


def _spread(random: Random, retry_after: float, tries: int) -> float:
    return math.ceil(retry_after) + random.random() * min(2.0**tries, 16.0)


BEHAVIOURS: Final[tuple[tuple[str, Waiting], ...]] = (
    ("who is refused comes again half a second later", _at_once),
    ("... comes again after Retry-After, all in the same second", _as_told),
    ("... after Retry-After and a random while, longer each time", _spread),
)


@dataclass(slots=True)
class Storm:
    """What came in each second, and how long the last of the visitors had to try."""

    admitted: list[int] = field(default_factory=lambda: [0] * SECONDS)
    refused: list[int] = field(default_factory=lambda: [0] * SECONDS)

    @property
    def requests(self) -> int:
        """How many requests were made in all."""
        return sum(self.admitted) + sum(self.refused)


def storm(waiting: Waiting) -> Storm:
    """The visitors of a burst and of a trickle, until all were admitted or the time is over."""
    random = Random(_SEED)
    clock = ManualClock()
    limiter = RateLimiter(LIMIT, clock=clock)
    began, took = _BURST
    first = [began + took * random.random() for _ in range(VISITORS)]
    first += [n / _TRICKLE for n in range(SECONDS * _TRICKLE)]
    due = [(round(at * SECOND), number, 0) for number, at in enumerate(first)]
    heapify(due)
    seen = Storm()
    while due and due[0][0] < SECONDS * SECOND:
        now_ns, number, tries = heappop(due)
        clock.advance_ns(now_ns - clock())
        decision = limiter.hit("site")
        (seen.admitted if decision else seen.refused)[now_ns // SECOND] += 1
        if not decision:
            wait = waiting(random, decision.retry_after or 0.0, tries)
            heappush(due, (now_ns + round(wait * SECOND), number, tries + 1))
    return seen


def draw_storm(target: Path) -> None:
    """A row for each behaviour, to the same scale."""
    figure, rows = plt.subplots(
        len(BEHAVIOURS), 1, figsize=(ROW, 6), sharex=True, sharey=True, layout="constrained"
    )
    for axes, (title, waiting) in zip(rows, BEHAVIOURS, strict=True):
        _row(axes, title, storm(waiting))
    rows[-1].set_xlabel("seconds")
    save(figure, target)


def _row(axes: Axes, title: str, seen: Storm) -> None:
    edges = range(SECONDS + 1)
    asked = [sum(pair) for pair in zip(seen.admitted, seen.refused, strict=True)]
    axes.stairs(asked, edges, baseline=seen.admitted, fill=True, color=REFUSED, label="refused")
    axes.stairs(seen.admitted, edges, fill=True, color=ADMITTED, label="admitted")
    axes.axhline(20, color=GREY, linewidth=1, linestyle="--")
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_title(
        f"{seen.requests:,} requests, {sum(seen.refused):,} refused; "
        f"at most {max(asked):,} a second",
        loc="right",
        fontsize=9,
        color=GREY,
    )
    axes.set_ylabel("a second")
    axes.set_xlim(0, SECONDS)
    axes.legend(frameon=False, loc="upper right", ncols=2, fontsize=9)
