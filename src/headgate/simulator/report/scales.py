"""What stands on the axes of a plot: bars of a sensible width, times, rates in a sensible unit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headgate.simulator.report.wording import has_dates
from headgate.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.results import Outcome

_PER: Final = ((SECOND, "a second"), (MINUTE, "a minute"), (HOUR, "an hour"), (DAY, "a day"))
_SECONDS: Final = (1, 2, 5, 10, 15, 30)
_STEPS: Final = (
    *(
        unit * n
        for unit in (MICROSECOND, MILLISECOND)
        for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)
    ),
    *(SECOND * n for n in _SECONDS),
    *(MINUTE * n for n in _SECONDS),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 365)),
)
"""Distances between the marks of an axis of time."""


@dataclass(frozen=True, slots=True)
class Bars:
    """How many were admitted and refused in each of some equal steps from *began_ns* on."""

    began_ns: int
    step_ns: int
    allowed: tuple[int, ...]
    denied: tuple[int, ...]

    @property
    def ended_ns(self) -> int:
        return self.began_ns + self.step_ns * len(self.allowed)

    @property
    def edges_ns(self) -> list[int]:
        """Where the bars begin, and where the last one ends."""
        return [self.began_ns + self.step_ns * n for n in range(len(self.allowed) + 1)]


def bars(outcome: Outcome, allowed: Sequence[int], denied: Sequence[int], *, most: int) -> Bars:
    """Two series of *outcome* in at most *most* bars: neighbours are added up."""
    together = max(1, -(-len(allowed) // most))
    return Bars(
        outcome.began_ns,
        outcome.step_ns * together,
        _added(allowed, together) or (0,),
        _added(denied, together) or (0,),
    )


def _added(series: Sequence[int], together: int) -> tuple[int, ...]:
    return tuple(sum(series[n : n + together]) for n in range(0, len(series), together))


def unit_of(highest: int, step_ns: int) -> tuple[int, str]:
    """In which unit to tell of at most *highest* in *step_ns*: the first in which it is 1 or more.

    Its length in nanoseconds, and its words.
    """
    for length_ns, words in _PER:
        if highest * length_ns >= step_ns:
            return length_ns, words
    return _PER[-1]


def rates(series: Sequence[int], step_ns: int, unit_ns: int) -> list[float]:
    """How many in each step, told in another unit."""
    return [number * unit_ns / step_ns for number in series]


def time_marks(began_ns: int, ended_ns: int, *, most: int) -> list[tuple[int, str]]:
    """At most *most* round times between two, each with what to write there."""
    length = max(ended_ns - began_ns, 1)
    step = next((one for one in _STEPS if length < one * most), _STEPS[-1])
    step *= max(1, -(-length // (step * most)))
    dated = has_dates(began_ns)
    zero = 0 if dated else began_ns
    first = zero + -(-(began_ns - zero) // step) * step
    return [
        (at, _dated(at, step) if dated else _since(at - began_ns, step))
        for at in range(first, ended_ns + 1, step)
    ]


def _dated(at_ns: int, step_ns: int) -> str:
    at = datetime.fromtimestamp(at_ns // SECOND, UTC)
    if step_ns >= DAY:
        return f"{at.day} {at:%b}"
    if step_ns >= MINUTE:
        return f"{at:%H:%M}"
    if step_ns >= SECOND:
        return f"{at:%H:%M:%S}"
    return f"{at:%S}.{at_ns % SECOND // MICROSECOND:06}".rstrip("0").rstrip(".") + " s"


def _since(after_ns: int, step_ns: int) -> str:
    for unit_ns, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if step_ns >= unit_ns and step_ns % unit_ns == 0:
            return f"{after_ns // unit_ns:,} {name}"
    return f"{after_ns / SECOND:g} s"
