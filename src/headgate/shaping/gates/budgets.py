"""What turns are given out of, if not of slots: so much at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from headgate.errors import OptionError
from headgate.limits import Limit, parse_rate
from headgate.limits.model import PacedLimit
from headgate.limits.pace import Pace
from headgate.units import MILLISECOND, Rate, exact_rate

if TYPE_CHECKING:
    from fractions import Fraction

LATENESS_NS: Final = 10 * MILLISECOND
"""How late a turn may be taken so that the next ones do not come later for it: timers are."""


@runtime_checkable
class Budget(Protocol):
    """Where turns come from. It reads no clock: *now* is said in nanoseconds."""

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        """Take *cost* and answer 0; or, if that must wait, take nothing and say how long at least.

        In nanoseconds. Whoever asks again after that may have to wait again. One that *has_waited*
        may be a bit late, which is not to make those behind it late.
        """

    def give_back(self, cost: int) -> None:
        """What was taken last was not used."""

    def delay(self, ahead: int, now: int) -> int:
        """How long it takes, in nanoseconds from *now*, until *ahead* units have been taken and
        the next can be."""


@runtime_checkable
class FetchedBudget(Budget, Protocol):
    """A budget that has to be fetched from somewhere else: by an `AsyncFairGate` alone."""

    async def fetch(self) -> None:
        """Get what the last `take` found missing, however long it takes.

        If cancelled, what it would have got is given up.
        """

    def drop(self) -> None:
        """Nobody waits: what was fetched and not taken is given up."""

    async def aclose(self) -> None:
        """Give back what is held open."""


class PacedBudget:
    """A constant drain: the next one may go when what went before has been worked off.

    At the rate of *per_second* units, evenly spaced; *burst* units may go at once after a rest.
    Exact: time is counted in ticks of which both a unit and a nanosecond are a whole number.
    """

    __slots__ = ("_free_at", "_pace", "_tolerance", "burst", "per_second")

    def __init__(self, per_second: Fraction, *, burst: int = 1) -> None:
        if type(burst) is not int or burst < 1:
            raise OptionError(f"burst is {burst!r}; expected a whole number from 1")
        self.per_second = per_second
        self.burst = burst
        self._pace = Pace.of(burst, per_second)
        self._tolerance = (burst - 1) * self._pace.ticks_per_unit
        self._free_at: int | None = None  # in ticks: when all that was taken is worked off

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        pace = self._pace
        now_ticks = now * pace.ticks_per_ns
        free_at = self._free_at
        if free_at is None:
            free_at = now_ticks
        early = free_at - now_ticks - self._tolerance
        if early > 0:
            return pace.to_ns(early)
        earliest = now_ticks - LATENESS_NS * pace.ticks_per_ns if has_waited else now_ticks
        self._free_at = max(free_at, earliest) + cost * pace.ticks_per_unit
        return 0

    def give_back(self, cost: int) -> None:
        if self._free_at is not None:
            self._free_at -= cost * self._pace.ticks_per_unit

    def follow(self, other: PacedBudget) -> None:
        """Go on where *other*, of another rate perhaps, is."""
        if other._free_at is not None:
            self._free_at = other._free_at * self._pace.ticks_per_ns // other._pace.ticks_per_ns

    def delay(self, ahead: int, now: int) -> int:
        pace = self._pace
        now_ticks = now * pace.ticks_per_ns
        free_at = now_ticks if self._free_at is None else max(self._free_at, now_ticks)
        return pace.to_ns(free_at - now_ticks - self._tolerance + ahead * pace.ticks_per_unit)


def read_rate(rate: str | PacedLimit | Rate) -> Fraction:
    """Units a second: *rate* says them as text (`100/s`), as a limit or as a number."""
    if isinstance(rate, str):
        return parse_rate(rate)  # which has no burst that could be left out of account
    if not isinstance(rate, Limit):
        return exact_rate(rate, "rate")
    if not isinstance(rate, PacedLimit):
        raise OptionError(f"rate is {rate!r}; expected a rate like '100/s', without a window")
    return rate.per_second
