"""What rules said, counted by second or by minute, the newest few of them.

Points stand for whole seconds (minutes) since the epoch, so those of several workers can be added
up. A *line* has the points of one rule and outcome. There are so many lines at the most: when there
would be more, those go that have least in them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from headgate.observability.journal import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

MOST_LINES: Final = 400
"""Of at least a hundred rules, then."""

WHOLE: Final = ""
"""In place of a rule, which always has a name: whole requests, whatever the rules. It stays."""

Line = tuple[str, Outcome]
Counts = dict[Line, int]
"""How often which rule said what."""


class Points(NamedTuple):
    """The lines of a ring, oldest point first; the last is number *end*, None if there is none."""

    end: int | None
    lines: Mapping[Line, array[int]]


class Ring:
    """The newest *length* points, each *step* seconds long."""

    def __init__(self, step: int, length: int) -> None:
        self.step = step
        self.length = length
        self.end: int | None = None
        """The number of the last point, which is complete."""
        self.changes = 0
        """How often anything was changed here."""
        self._lines: dict[Line, array[int]] = {}

    def put(self, number: int, counts: Counts) -> None:
        """Point *number* is complete, with *counts*; it is newer than all before."""
        self.changes += 1
        self._skip_to(number)
        place = number % self.length
        lines = self._lines
        if sum(1 for line in counts if line not in lines) > MOST_LINES - len(lines):
            counts = self._made_room(counts)
        for line, count in counts.items():
            points = lines.get(line)
            if points is None:
                points = lines[line] = array("q", bytes(8 * self.length))
            points[place] = count

    def restore(self, points: Points) -> None:
        """Begin with what another has counted before."""
        self.clear()
        if points.end is None:
            return
        first = (points.end + 1) % self.length
        for line, values in points.lines.items():
            if len(values) == self.length:
                turned = self.length - first
                self._lines[line] = values[turned:] + values[:turned]
        self.end = points.end

    def clear(self) -> None:
        """Forget everything."""
        self.changes += 1
        self._lines.clear()
        self.end = None

    def go_back(self, number: int) -> None:
        """Forget the points from *number* on: the clock was set back, and they will come again."""
        if self.end is None or number > self.end:
            return
        gone = self.end - number + 1
        if gone >= self.length:
            self.clear()
            return
        self.changes += 1
        for points in self._lines.values():
            for back in range(gone):
                points[(self.end - back) % self.length] = 0
        self.end = number - 1

    def points(self) -> Points:
        """All of it."""
        first = 0 if self.end is None else (self.end + 1) % self.length
        lines = {line: points[first:] + points[:first] for line, points in self._lines.items()}
        return Points(self.end, lines)

    def lines(self) -> Mapping[Line, array[int]]:
        """The lines as they are, not to be changed: point n is at n modulo `length`."""
        return self._lines

    def _skip_to(self, number: int) -> None:
        """Nothing was said between the last point and *number*."""
        passed = self.length if self.end is None else min(number - self.end, self.length)
        for points in self._lines.values():
            for back in range(passed):
                points[(number - back) % self.length] = 0
        self.end = number

    def _made_room(self, counts: Counts) -> Counts:
        """What is to be put of *counts*: the most, of the lines that there are and the new."""
        sums = {line: sum(points) for line, points in self._lines.items()}
        for line, count in counts.items():
            sums[line] = sums.get(line, 0) + count
        ranked = sorted(sums, key=sums.__getitem__, reverse=True)
        ranked.sort(key=_is_of_a_rule)
        kept = set(ranked[:MOST_LINES])
        for line in [line for line in self._lines if line not in kept]:
            del self._lines[line]
        return {line: count for line, count in counts.items() if line in kept}


def _is_of_a_rule(line: Line) -> bool:
    return line[0] != WHOLE


def add_counts(to: Counts, more: Counts) -> None:
    """Add *more* to the counts *to*."""
    for line, count in more.items():
        to[line] = to.get(line, 0) + count


def spread(counts: Counts, over: int) -> list[Counts]:
    """*counts* as evenly as whole numbers go over so many points, none of it lost."""
    if over == 1:
        return [counts]
    parts: list[Counts] = [{} for _ in range(over)]
    for line, count in counts.items():
        each, rest = divmod(count, over)
        for number, part in enumerate(parts):
            if share := each + (number < rest):
                part[line] = share
    return parts
