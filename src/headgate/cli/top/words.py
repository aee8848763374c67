"""Figures and names as they stand in columns: short, and with nothing that a terminal obeys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from unicodedata import category, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEPS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def harmless(text: str, *, is_ascii: bool = False) -> str:
    """*text* with everything escaped that is not seen as it is: controls, marks that stand on the
    character before, whatever changes the direction; if it *is_ascii*, all others too."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        one
        if one.isprintable() and category(one)[0] != "M" and not (is_ascii and ord(one) > 127)
        else ascii(one)[1:-1]
        for one in text
    )


def columns(text: str) -> int:
    """How many columns *text*, which is harmless, takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int, *, ellipsis: str = "…") -> str:
    """*text* in at most *width* columns; what is left out is marked."""
    if columns(text) <= width:
        return text
    room = width - len(ellipsis)
    if room < 0:
        return ellipsis[: max(0, width)]
    kept, used = [], 0
    for one in text:
        used += _width(one)
        if used > room:
            break
        kept.append(one)
    return "".join(kept) + ellipsis


def left(text: str, width: int) -> str:
    """*text* at the left of *width* columns."""
    return text + " " * (width - columns(text))


def right(text: str, width: int) -> str:
    """*text* at the right of *width* columns."""
    return " " * (width - columns(text)) + text


def _width(one: str) -> int:
    return 2 if east_asian_width(one) in "WF" else 1


def rate(per_second: float) -> str:
    """A rate in at most six characters: 0, 0.2, 12, 1.5k."""
    if per_second < 0.05:
        return "0" if per_second <= 0 else "<0.1"
    return f"{per_second:.1f}" if per_second < 9.95 else amount(per_second)


def amount(count: float) -> str:
    """A count in at most six characters: 999, 1.2k, 34M."""
    for size, name in _STEPS:
        if count >= 0.9995 * size:
            scaled = count / size
            return f"{scaled:.1f}{name}" if scaled < 99.95 else f"{scaled:.0f}{name}"
    return f"{count:.0f}"


def share(part: float | None) -> str:
    """A part of one as a percentage; - for None."""
    if part is None:
        return "-"
    if 0 < part < 0.001:
        return "<0.1%"
    return f"{part:.1%}" if 0 < part < 0.1 else f"{part:.0%}"


def span(seconds: float | None, *, is_ascii: bool = False) -> str:
    """A short time: 12µs, 1.4ms, 2.0s; - for None."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}{'us' if is_ascii else 'µs'}"
    return f"{seconds * 1e3:.1f}ms" if seconds < 1 else f"{seconds:.1f}s"


def moment(at: float, now: float) -> str:
    """When, in UTC: the time of day, and the day if it was not today."""
    when = datetime.fromtimestamp(min(at, 253402300799), UTC)
    today = datetime.fromtimestamp(min(now, 253402300799), UTC)
    is_today = when.date() == today.date()
    return when.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M")


def count_of(number: float, name: str) -> str:
    """1 request, 312 requests; thousands with commas."""
    return f"{number:,.0f} {name}{'' if round(number) == 1 else 's'}"


def joined(parts: Iterable[str]) -> str:
    """The parts that are not empty, with commas."""
    return ", ".join(part for part in parts if part)
