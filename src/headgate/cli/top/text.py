"""Lines of text with styles, and the same as a terminal takes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from unicodedata import category, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Series of numbers as rows of characters: a line of bars, or a chart of several.


_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_LETTERS: Final = " .:-=+*#@"
_LEVELS: Final = 8


def ramp(*, is_ascii: bool) -> str:
    """What stands for nothing, an eighth, ... all of the height of a row."""
    return _LETTERS if is_ascii else _BLOCKS


def gathered(series: Sequence[float], width: int) -> list[float]:
    """*series* in *width* steps, the last at the right: each the highest of what it stands for."""
    if width <= 0:
        return []
    size = -(-len(series) // width) or 1
    ends = range(len(series), 0, -size)
    steps = [max(series[max(0, end - size) : end]) for end in ends]
    return ([*steps, *[0.0] * (width - len(steps))])[::-1]


def whole_width(length: int, room: int) -> int:
    """The most columns, up to *room*, that a series of *length* fills with steps of equal size."""
    if not length or room <= 0:
        return 0
    size = -(-length // room)
    return -(-length // size)


def bars(steps: Sequence[float], most: float, *, is_ascii: bool) -> str:
    """One row: each of *steps* against *most*. Whatever is more than nothing is seen."""
    return "".join(_column(step, most, 1, ramp(is_ascii=is_ascii))[0] for step in steps)


def chart(steps: Sequence[float], most: float, height: int, *, is_ascii: bool) -> list[str]:
    """The same over *height* rows, the highest first."""
    marks = ramp(is_ascii=is_ascii)
    stacks = [_column(step, most, height, marks) for step in steps]
    return ["".join(stack[row] for stack in stacks) for row in reversed(range(height))]


def _column(step: float, most: float, height: int, marks: str) -> list[str]:
    """The characters of one step, from the bottom up."""
    eighths = 0
    if step > 0 and most > 0:
        eighths = min(max(1, round(step / most * height * _LEVELS)), height * _LEVELS)
    return [marks[min(max(eighths - row * _LEVELS, 0), _LEVELS)] for row in range(height)]


# Figures and names as they stand in columns: short, and with nothing that a terminal obeys.


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


Style = Literal["", "bold", "dim", "good", "bad", "warn", "picked"]

_CODES: Final[dict[Style, str]] = {
    "bold": "1",
    "dim": "2",
    "good": "32",
    "bad": "31",
    "warn": "33",
    "picked": "7",
}

_WORD: Final = re.compile(r" *[^ ]+ *|^ +$")
_GAP: Final = "  "


class Span(NamedTuple):
    """Some text in one style."""

    text: str
    style: Style = ""


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """A line of *parts*, those without a style plain."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def plain(one: Line) -> str:
    """*one* without styles, and without blanks at its end."""
    return "".join(span.text for span in one).rstrip()


def inked(one: Line) -> str:
    """*one* with styles, for a terminal."""
    return "".join(
        f"\033[{_CODES[style]}m{text}\033[0m" if style and text else text for text, style in one
    )


def width_of(one: Line) -> int:
    """How many columns it takes."""
    return sum(columns(span.text) for span in one)


def fitted(one: Line, width: int, *, ellipsis: str) -> Line:
    """*one* in at most *width* columns."""
    if width_of(one) <= width:
        return one
    kept: list[Span] = []
    room = width
    for span in one:
        kept.append(Span(cut(span.text, room, ellipsis=ellipsis), span.style))
        room -= columns(kept[-1].text)
        if kept[-1].text != span.text:
            break
    return tuple(kept)


def wrapped(one: Line, width: int, *, indent: str) -> list[Line]:
    """*one* on as many lines as it takes, broken at blanks; all but the first begin with *indent*.

    A word that has no room on a line of its own is left as it is.
    """
    lines: list[Line] = []
    row: list[Span] = []
    used = 0
    for text, style in one:
        for word in _WORD.findall(text):
            is_over = used + columns(word.rstrip(" ")) > width
            if is_over and any(span.text.strip() for span in row):
                lines.append(_merged([*row[:-1], Span(row[-1].text.rstrip(" "), row[-1].style)]))
                row = [Span(indent), Span(word.lstrip(" "), style)]
            else:
                row.append(Span(word, style))
            used = width_of(tuple(row))
    return [*lines, _merged(row)]


def flowed(parts: Sequence[Line], width: int) -> list[Line]:
    """*parts* beside each other, two blanks between, on as many lines as it takes."""
    lines: list[Line] = []
    for part in parts:
        if lines and width_of(lines[-1]) + len(_GAP) + width_of(part) <= width:
            lines[-1] = (*lines[-1], Span(_GAP), *part)
        else:
            lines.append(part)
    return lines


def restyled(one: Line, style: Style) -> Line:
    """*one* all in one style."""
    return tuple(Span(span.text, style) for span in one)


def runs(text: str, styles: Sequence[Style]) -> Line:
    """*text* with a style for each character; neighbours of one style together."""
    return _merged(map(Span, text, styles))


def beside(some: Sequence[Line], more: Sequence[Line], width: int) -> list[Line]:
    """*some*, *width* columns wide, with *more* at their right."""
    blank: Line = ()
    count = max(len(some), len(more))
    pairs = zip(_padded(some, count, blank), _padded(more, count, blank), strict=True)
    return [(*one, Span(" " * (width - width_of(one))), *other) for one, other in pairs]


def _padded(lines: Sequence[Line], count: int, blank: Line) -> Iterable[Line]:
    return [*lines, *[blank] * (count - len(lines))]


def _merged(spans: Iterable[Span]) -> Line:
    """*spans*, with neighbours of one style together."""
    kept: list[Span] = []
    for one in spans:
        if kept and kept[-1].style == one.style:
            kept[-1] = Span(kept[-1].text + one.text, one.style)
        else:
            kept.append(one)
    return tuple(kept)
