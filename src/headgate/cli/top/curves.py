"""Series of numbers as rows of characters: a line of bars, or a chart of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

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
