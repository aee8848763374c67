"""Time and rates as exact numbers.

Inside Headgate time is an integer count of nanoseconds and a rate is a `Fraction`. Seconds as
floats exist only at the public edge; this module is where they are turned into exact numbers and
back. Durations are kept to the microsecond, because that is what every store can represent.
"""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Final

from headgate.errors import LimitError

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
MONTH: Final = 30 * DAY
YEAR: Final = 365 * DAY
CENTURY: Final = 36_525 * DAY

Seconds = int | float | Fraction | timedelta
"""A duration at the public edge: seconds as any real number, or a `timedelta`."""

Rate = int | float | Fraction
"""Units per second."""


def duration_ns(value: Seconds, what: str) -> int:
    """*value* in nanoseconds, rounded to the microsecond; *what* names it in errors.

    Raises `LimitError` unless it is a finite duration from one microsecond to a hundred years.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    exact = _exact(seconds, what, "seconds (a number or a timedelta)")
    nanoseconds = round(exact * 1_000_000) * MICROSECOND
    if not MICROSECOND <= nanoseconds <= CENTURY:
        raise LimitError(
            f"{what} is {seconds!r} seconds; it must be at least a microsecond "
            "and at most a hundred years"
        )
    return nanoseconds


def plain_seconds(nanoseconds: int) -> int | float:
    """Nanoseconds as seconds: an int when it is a whole number of them, else a float."""
    whole, rest = divmod(nanoseconds, SECOND)
    return nanoseconds / SECOND if rest else whole


def exact_rate(value: Rate, what: str) -> Fraction:
    """*value*, a number of units per second, as the fraction that was meant.

    An int or `Fraction` is taken as it is. A float is read as the simplest fraction
    within one part in 10^12 of it, so that 1.67 is 167/100 and 100/60 is 5/3.
    """
    exact = _exact(value, what, "units per second (a number)")
    if exact <= 0:
        raise LimitError(f"{what} is {value!r}; it must be more than 0 units per second")
    return _simplest(exact) if isinstance(value, float) else exact


def plain_rate(rate: Fraction) -> Rate:
    """The friendliest number that `exact_rate` reads back as *rate*."""
    if rate.denominator == 1:
        return rate.numerator
    rounded = float(rate)
    return rounded if rounded > 0 and _simplest(Fraction(rounded)) == rate else rate


def _exact(value: object, what: str, expected: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise LimitError(f"{what} is {value!r}; expected {expected}")
    if isinstance(value, float) and not math.isfinite(value):
        raise LimitError(f"{what} is {value!r}; expected a finite number")
    return Fraction(value)


def _simplest(exact: Fraction) -> Fraction:
    tolerance = exact / 10**12
    bound = 10
    while abs((candidate := exact.limit_denominator(bound)) - exact) > tolerance:
        bound *= 10
    return candidate


EXACT_AS_FLOAT: Final = 2**53
"""Up to this integer, a float is exact."""


def seconds_at_least(nanoseconds: int) -> float:
    """Nanoseconds as float seconds, never less than they are: waiting that long is enough."""
    seconds = nanoseconds / 1_000_000_000
    if nanoseconds > EXACT_AS_FLOAT and Fraction(seconds) * SECOND < nanoseconds:
        return math.nextafter(seconds, math.inf)
    return seconds


# Times as whole numbers, always rounded up: who waits that long has waited long enough.


LARGEST_INTEGER: Final = 10**15 - 1
"""The largest integer of a structured field (RFC 9651), and of everything else we send."""


def seconds_up(nanoseconds: int) -> int:
    """*nanoseconds* as whole seconds, from 0 to `LARGEST_INTEGER`."""
    seconds = -(-nanoseconds // SECOND)
    return seconds if 0 <= seconds <= LARGEST_INTEGER else bounded(seconds)


def milliseconds_up(nanoseconds: int) -> int:
    """*nanoseconds* as whole milliseconds, from 0 to `LARGEST_INTEGER`."""
    return bounded(-(-nanoseconds // MILLISECOND))


def bounded(number: int) -> int:
    """*number*, or the nearest that can be sent."""
    if 0 <= number <= LARGEST_INTEGER:
        return number
    return 0 if number < 0 else LARGEST_INTEGER
