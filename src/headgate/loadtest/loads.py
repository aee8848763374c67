"""How much is sent, and the bounds of that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.units import MINUTE, SECOND

if TYPE_CHECKING:
    from headgate.loadtest.aims import Aim

USUAL_DURATION_NS: Final = 10 * SECOND
MOST_CALLERS: Final = 10_000
MOST_CONNECTIONS: Final = 1_000
_LEAST_RATE: Final = Fraction(2)
_FEWEST: Final = 16
_USUAL_MOST: Final = 128


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that is sent: so many a second, for so long, and in all."""

    rate: int
    duration_ns: int
    requests: int

    def __str__(self) -> str:
        return f"{self.rate:,}/s, {self.duration_ns // SECOND} s and {self.requests:,} requests"


UNASKED: Final = Bounds(5_000, MINUTE, 100_000)
"""What is sent without a `--yes`."""

HARD: Final = Bounds(20_000, 10 * MINUTE, 2_000_000)
"""What is never exceeded."""


@dataclass(frozen=True, slots=True)
class Load:
    """*rate* requests a second, evenly, for *duration_ns*, by *callers* in turn.

    At most *connections* are under way at a time.
    """

    rate: Fraction
    duration_ns: int = USUAL_DURATION_NS
    callers: int = 1
    connections: int = _USUAL_MOST

    @property
    def requests(self) -> int:
        """How many in all."""
        return math.ceil(self.rate * self.duration_ns / SECOND)

    def due_ns(self, place: int) -> int:
        """When the request number *place*, counted from 0, is to be sent, from the beginning."""
        return place * SECOND * self.rate.denominator // self.rate.numerator

    def check(self, *, is_confirmed: bool) -> None:
        """Raise `OptionError` for more than the bounds; *is_confirmed*: only for the hard ones."""
        bounds = HARD if is_confirmed else UNASKED
        way = "" if is_confirmed else f"; --yes raises that to {HARD}"
        seconds = self.duration_ns / SECOND
        for told, is_beyond in (
            (f"the rate is {float(self.rate):,.0f}/s", self.rate > bounds.rate),
            (f"the duration is {seconds:g} s", self.duration_ns > bounds.duration_ns),
            (f"the load is {self.requests:,} requests", self.requests > bounds.requests),
        ):
            if is_beyond:
                raise OptionError(f"{told}; the most are {bounds}{way}")


def load_for(
    aim: Aim,
    *,
    duration_ns: int = USUAL_DURATION_NS,
    rate: Fraction | None = None,
    callers: int = 1,
    connections: int | None = None,
) -> Load:
    """A load that puts *aim* to the test: twice what it admits each caller, if no *rate* is given.

    Raises `OptionError` for numbers that make no sense.
    """
    if not 1 <= callers <= MOST_CALLERS:
        raise OptionError(f"callers are {callers}; expected 1 to {MOST_CALLERS:,}")
    if connections is not None and not 1 <= connections <= MOST_CONNECTIONS:
        raise OptionError(f"connections are {connections}; expected 1 to {MOST_CONNECTIONS:,}")
    if rate is None:
        wanted = 2 * aim.due_in(duration_ns) * SECOND / duration_ns
        rate = callers * max(_LEAST_RATE, Fraction(math.ceil(wanted)))
    usual = max(_FEWEST, min(_USUAL_MOST, math.ceil(rate / 10)))
    return Load(rate, duration_ns, callers, usual if connections is None else connections)
