"""The requests that all pictures of the gallery share, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from headgate.units import MILLISECOND, SECOND

SECONDS: Final = 40
WINDOW: Final = 10
QUOTA: Final = 10
"""Every limit of the gallery is about this: so many in a window, one a second in the long run."""

_EXACTLY: Final = 1_000_000
"""Parts of a second that times are compared by: floats are not."""
SEED: Final = 10
_TRICKLE: Final = (1.2, 3.1, 5.3)
_BURSTS: Final = ((8.0, 1.6, 16), (10.3, 1.4, 10), (35.0, 0.8, 12))
"""When a burst begins, how many seconds it takes, how many requests it has."""
_STEADY: Final = (17.0, 28.0, 0.45)
"""From when to when there is one request every so many seconds."""


def arrivals() -> list[int]:
    """When requests come, in nanoseconds: a trickle, two bursts around 10 s, more than the rate for
    a while, a rest, and a burst."""
    random = Random(SEED)
    times = list(_TRICKLE)
    for began, took, number in _BURSTS:
        times += [began + took * random.random() for _ in range(number)]
    at, until, apart = _STEADY
    while at < until:
        times.append(at + 0.1 * random.random())
        at += apart
    return sorted(round(time * 1_000) * MILLISECOND for time in times)


@dataclass(slots=True)
class Course:
    """What an algorithm made of the requests; times in seconds.

    `admitted` is when each went on, which for a queue is later than it came. `state` are the figure
    that the algorithm decides by, at its times.
    """

    came: list[float] = field(default_factory=list)
    admitted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    state: list[tuple[float, float]] = field(default_factory=list)

    @property
    def most_in_a_window(self) -> int:
        """The most that went on in any span as long as the window, wherever it starts."""
        return self.most_within(WINDOW)

    def most_within(self, seconds: float) -> int:
        """The most that went on in any span of *seconds*."""
        return max(self.within(began, seconds) for began in self.admitted)

    def within(self, began: float, seconds: float) -> int:
        """How many went on in the *seconds* from *began* on; one *seconds* later is outside."""
        length = round(seconds * _EXACTLY)
        after = [round((time - began) * _EXACTLY) for time in self.admitted]
        return sum(0 <= time < length for time in after)


def in_seconds(nanoseconds: int) -> float:
    """A time as the pictures tell it."""
    return nanoseconds / SECOND
