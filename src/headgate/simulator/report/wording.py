"""Text of reports: numbers, shares, times and names.

Rule ids, keys and names of policies may be hostile: `printable` makes them safe for a terminal,
`clipped` keeps them short. HTML is escaped in `html`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

MINUS: Final = "\N{MINUS SIGN}"
ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
LONGEST_NAME: Final = 60
"""The characters of a name that are shown."""

_FIRST_DATE_NS: Final = 10**9 * SECOND
"""Times before September 2001 are of a clock that began at 0."""
_LAST_DATE_NS: Final = 253_402_300_800 * SECOND
_SMALLEST_SHARE: Final = 0.01


def printable(text: str) -> str:
    """Return *text* with invisible characters escaped, as in a Python string."""
    shown = text.replace("\\", r"\\")
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown)


def clipped(text: str, most: int = LONGEST_NAME) -> str:
    """Return *text*, printable, cut to *most* characters."""
    shown = printable(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + ELLIPSIS


def count(number: int) -> str:
    """Format a whole number: 1,204,000."""
    return f"{number:,}"


def change(number: int) -> str:
    """Format a difference: +312, 0, or a minus sign and the number."""
    return f"{number:+,}".replace("-", MINUS) if number else "0"


def counted(number: int, one: str) -> str:
    """Format a number of things: 1 caller, 14 callers."""
    return f"{count(number)} {one if number == 1 else one + 's'}"


def share(part: int, whole: int) -> str:
    """Format *part* of *whole* in percent: never 0 % of something, never 100 % of less than all."""
    if not part or not whole:
        return "0 %"
    percent = 100 * part / whole
    if percent < _SMALLEST_SHARE:
        return "< 0.01 %"
    places = 2 if percent < 1 else 1 if percent < 10 else 0
    rounded = f"{percent:.{places}f}"
    if part < whole and float(rounded) >= 100:
        return "> 99 %"
    return f"{rounded} %"


def has_dates(at_ns: int) -> bool:
    """Return True if *at_ns* is a date, and not a time since 0."""
    return _FIRST_DATE_NS <= at_ns < _LAST_DATE_NS


def moment(at_ns: int, began_ns: int) -> str:
    """Format a time: date and time in UTC, or the time since *began_ns*."""
    if not has_dates(began_ns):
        return f"after {span(at_ns - began_ns)}"
    return datetime.fromtimestamp(at_ns // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def period(began_ns: int, ended_ns: int) -> str:
    """Format a period: its begin, its end and its length."""
    length = span(ended_ns - began_ns)
    if not has_dates(began_ns):
        return length
    began = datetime.fromtimestamp(began_ns // SECOND, UTC)
    ended = datetime.fromtimestamp(ended_ns // SECOND, UTC)
    until = f"{ended:%H:%M:%S}" if began.date() == ended.date() else f"{ended:%Y-%m-%d %H:%M:%S}"
    return f"{began:%Y-%m-%d %H:%M:%S} to {until} UTC ({length})"


def span(nanoseconds: int) -> str:
    """Format a duration in at most two units: 250 ms, 1.8 s, 4 min 10 s, 3 d 4 h."""
    if nanoseconds < SECOND:
        return f"{max(nanoseconds, 0) / MILLISECOND:.3g} ms"
    if nanoseconds < MINUTE:
        return f"{nanoseconds / SECOND:.3g} s"
    if nanoseconds < HOUR:
        return _in_two(nanoseconds, MINUTE, "min", SECOND, "s")
    if nanoseconds < DAY:
        return _in_two(nanoseconds, HOUR, "h", MINUTE, "min")
    return _in_two(nanoseconds, DAY, "d", HOUR, "h")


def _in_two(nanoseconds: int, large_ns: int, large: str, small_ns: int, small: str) -> str:
    whole, rest = divmod(nanoseconds, large_ns)
    more = rest // small_ns
    return f"{whole} {large} {more} {small}" if more else f"{whole} {large}"
