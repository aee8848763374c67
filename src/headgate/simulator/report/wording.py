"""How a report says things: numbers, shares, times, and names that somebody else chose.

Rule ids, keys and the names of policies are hostile text: `printable` makes them harmless for a
terminal, and `clipped` keeps them short. HTML is escaped where it is made.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


MINUS: Final = "\N{MINUS SIGN}"
ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
LONGEST_NAME: Final = 60
"""How many characters of a name are shown."""

_FIRST_DATE_NS: Final = 10**9 * SECOND
"""Times before September 2001 are of a clock that began at zero: a made-up workload."""
_LAST_DATE_NS: Final = 253_402_300_800 * SECOND
_SMALLEST_SHARE: Final = 0.01


def printable(text: str) -> str:
    """*text* with all that is no visible character escaped, as in a Python string."""
    shown = text.replace("\\", r"\\")
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown)


def clipped(text: str, most: int = LONGEST_NAME) -> str:
    """*text*, printable, with its end left out if it is longer than *most* characters."""
    shown = printable(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + ELLIPSIS


def count(number: int) -> str:
    """A whole number with its thousands apart: 1,204,000."""
    return f"{number:,}"


def change(number: int) -> str:
    """The same with a sign: +312, 0, or a minus sign and the number."""
    return f"{number:+,}".replace("-", MINUS) if number else "0"


def counted(number: int, one: str) -> str:
    """So many of *one*: 1 caller, 14 callers."""
    return f"{count(number)} {one if number == 1 else one + 's'}"


def share(part: int, whole: int) -> str:
    """*part* of *whole* in percent: never 0 % of something, never 100 % of less than all."""
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
    """Whether *at_ns* is a time of the calendar, rather than of a clock that began at zero."""
    return _FIRST_DATE_NS <= at_ns < _LAST_DATE_NS


def moment(at_ns: int, began_ns: int) -> str:
    """When it was: the date and the time in UTC, or how long after *began_ns*."""
    if not has_dates(began_ns):
        return f"after {span(at_ns - began_ns)}"
    return datetime.fromtimestamp(at_ns // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def period(began_ns: int, ended_ns: int) -> str:
    """From when to when, and how long that is."""
    length = span(ended_ns - began_ns)
    if not has_dates(began_ns):
        return length
    began = datetime.fromtimestamp(began_ns // SECOND, UTC)
    ended = datetime.fromtimestamp(ended_ns // SECOND, UTC)
    until = f"{ended:%H:%M:%S}" if began.date() == ended.date() else f"{ended:%Y-%m-%d %H:%M:%S}"
    return f"{began:%Y-%m-%d %H:%M:%S} to {until} UTC ({length})"


def span(nanoseconds: int) -> str:
    """How long something takes, to two units: 250 ms, 1.8 s, 4 min 10 s, 23 h 59 min, 3 d 4 h."""
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


# Pieces of the page. Whatever comes from a trace or a policy is escaped here.


_LONGEST: Final = 120


def told(text: str, most: int = _LONGEST) -> str:
    """*text*, whoever it comes from, as text of a page; no more than *most* characters of it."""
    return escape(clipped(text, most))


def named(text: str) -> str:
    """The same as a name: a rule, a key, a limit."""
    return f"<code>{told(text)}</code>"


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
) -> str:
    """A table of cells that are markup already; the first of each row names it.

    *numbers* are the columns that are aligned right. A wide table scrolls by itself.
    """

    def kind(place: int) -> str:
        return ' class="number"' if place in numbers else ""

    heads = "".join(f'<th scope="col"{kind(at)}>{cell}</th>' for at, cell in enumerate(header))
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td{kind(at)}>{cell}</td>" for at, cell in enumerate(rest, 1))
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}">'
        f"<table><caption>{caption}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def tile(title: str, figure: str, remark: str = "") -> str:
    """A key figure."""
    more = f"<small>{remark}</small>" if remark else ""
    return f"<div><dt>{title}</dt><dd><b>{figure}</b>{more}</dd></div>"


def section(title: str, *parts: str) -> str:
    """A part of the page under a heading; nothing without content."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{title}</h2>\n{inside}\n</section>" if inside else ""
