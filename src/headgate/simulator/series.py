"""Counts over time, in steps that grow with the time that has gone by.

How long a trace is shows when it is over. So the steps are short at first, and whenever there would
be too many of them, several become one. What is counted is counted in cells, one for each line of a
plot; at the end of a step all cells are put down and start at nothing.
"""

from __future__ import annotations

from typing import Final

from headgate.errors import OptionError
from headgate.simulator.results import MOST_STEPS
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

LADDER: Final = (
    10 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
)
"""The steps that people like; each goes into the next. Beyond the last they double."""

Cell = list[int]
"""What was allowed and what was denied in this step, and in all before it."""


class Steps:
    """The steps of a replay that begins at *began_ns*; of *step_ns* at least, if that is given."""

    __slots__ = ("_cells", "_place", "_put_down", "began_ns", "next_ns", "step_ns")

    def __init__(self, began_ns: int, step_ns: int | None = None) -> None:
        if step_ns is not None and step_ns < MILLISECOND:
            raise OptionError(f"a step of {step_ns} ns; expected at least a millisecond")
        self.began_ns = began_ns
        self.step_ns = step_ns or LADDER[0]
        self.next_ns = began_ns + self.step_ns
        """When the next step begins: whoever sees that time calls `turn`."""
        self._place = 0
        self._cells: list[Cell] = []
        self._put_down: list[tuple[list[int], list[int]]] = []

    def cell(self) -> Cell:
        """A new cell: `[0] += 1` for what is allowed, `[1] += 1` for what is denied."""
        cell = [0, 0]
        self._cells.append(cell)
        before = [0] * self._place
        self._put_down.append((before, list(before)))
        return cell

    def turn(self, now_ns: int) -> None:
        """Begin the step that *now_ns* is in."""
        self._put_all_down()
        place = (now_ns - self.began_ns) // self.step_ns
        while place >= MOST_STEPS:
            self._coarsen()
            place = (now_ns - self.began_ns) // self.step_ns
        self._place = place
        self.next_ns = self.began_ns + (place + 1) * self.step_ns

    def lines(self, cell: Cell) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What was allowed and what was denied in each step so far, the one that goes on too."""
        self._put_all_down()
        index = next(place for place, one in enumerate(self._cells) if one is cell)
        length = self._place + 1
        allowed, denied = self._put_down[index]
        return _filled(allowed, length), _filled(denied, length)

    def _put_all_down(self) -> None:
        length = self._place + 1
        for cell, (allowed, denied) in zip(self._cells, self._put_down, strict=True):
            for count, line in zip(cell, (allowed, denied), strict=True):
                if count:
                    line.extend([0] * (length - len(line)))
                    line[self._place] += count
            cell[:] = (0, 0)

    def _coarsen(self) -> None:
        longer = next((one for one in LADDER if one > self.step_ns and not one % self.step_ns), 0)
        longer = longer or 2 * self.step_ns
        times = longer // self.step_ns
        for lines in self._put_down:
            for line in lines:
                line[:] = [sum(line[at : at + times]) for at in range(0, len(line), times)]
        self.step_ns = longer


def _filled(line: list[int], length: int) -> tuple[int, ...]:
    return (*line, *[0] * (length - len(line)))
