"""Limits and waits in plain English, for the people who read the message."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.limits import Concurrency, LeakyQueue, PacedLimit
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, WEEK

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.limits import Limit

_UNITS: Final = (
    (WEEK, "week"),
    (DAY, "day"),
    (HOUR, "hour"),
    (MINUTE, "minute"),
    (SECOND, "second"),
)


@lru_cache(maxsize=1024)  # a flood of refusals is about few limits, and has to be cheap
def limit_in_words(limit: Limit) -> str:
    """Such as "100 per minute", "10 per second, up to 50 at once", "20 at the same time" or
    "10 per second, one after the other, with up to 100 waiting"."""
    if isinstance(limit, Concurrency):
        return f"{limit.quota} at the same time"
    if isinstance(limit, LeakyQueue):
        waiting = f", with up to {limit.quota - 1} waiting" if limit.quota > 1 else ""
        return f"{_rate_in_words(limit.per_second)}, one after the other{waiting}"
    if isinstance(limit, PacedLimit):
        return _pace_in_words(limit)
    return f"{limit.quota} per {_period(limit.period_ns)}"


def wait_in_words(seconds: int) -> str:
    """Such as "1 second", "23 seconds" or "15 minutes", rounded up."""
    for size, name in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= 2 * (size // SECOND):
            return _counted(-(-seconds * SECOND // size), name)
    return _counted(seconds, "second")


def _pace_in_words(limit: PacedLimit) -> str:
    """The rate the way a person would say it: by the second, minute, hour or day if it is a whole
    number of them, unless it is simpler to say how long the whole quota takes."""
    quota, period = limit.quota, limit.period_ns
    if any(period == size for size, _ in _UNITS):
        return f"{quota} per {_period(period)}"
    for size, name in reversed(_UNITS[1:]):
        count = limit.per_second * size / SECOND
        is_simple = size == SECOND or count <= quota or period % MILLISECOND
        if count.denominator == 1 and is_simple:
            at_once = "" if count == quota else f", up to {quota} at once"
            return f"{count} per {name}{at_once}"
    return f"{quota} per {_period(period)}"


def _rate_in_words(per_second: Fraction) -> str:
    for size, name in reversed(_UNITS[1:]):
        count = per_second * size / SECOND
        if count.denominator == 1:
            return f"{count} per {name}"
    return f"{per_second.numerator} per {_period(per_second.denominator * SECOND)}"


def _period(nanoseconds: int) -> str:
    """A period after "per": "minute", "15 minutes", "1.5 seconds"."""
    for size, name in _UNITS:
        count, rest = divmod(nanoseconds, size)
        if not rest:
            return name if count == 1 else _counted(count, name)
    if nanoseconds > SECOND:
        return f"{round(nanoseconds / SECOND, 2):g} seconds"
    if nanoseconds == MILLISECOND:
        return "millisecond"
    return f"{nanoseconds / MILLISECOND:.3g} milliseconds"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
