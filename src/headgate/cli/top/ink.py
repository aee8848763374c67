"""Lines of text with styles, and the same as a terminal takes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headgate.cli.top.words import columns, cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
