"""The journal of a process, looked at once a second, as points of rings."""

from __future__ import annotations

import json
import sys
from array import array
from collections import deque
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from headgate.observability.journal import BOUNDS_NS, Outcome
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headgate.observability import Journal


# What rules said, counted by second or by minute, the newest few of them.
#
# Points stand for whole seconds (minutes) since the epoch, so those of several workers can be added
# up. A *line* has the points of one rule and outcome. There are so many lines at the most: when
# there would be more, those go that have least in them.


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


# How long decisions took in the last minute, as far as a histogram can tell.


LASTING: Final = 60
"""Seconds."""


class LatencyMinute:
    """The differences of a histogram that only grows, over the last `LASTING` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, list[int]]] = deque()

    def look(self, second: int, counts: Sequence[int]) -> None:
        """At *second* the histogram says *counts*."""
        if self._seen and second < self._seen[-1][0]:
            self._seen.clear()  # the clock was set back
        self._seen.append((second, list(counts)))
        while self._seen[0][0] < second - LASTING:
            self._seen.popleft()

    def counts(self) -> list[int]:
        """How many took how long, by `BOUNDS_NS`."""
        if not self._seen:
            return [0] * (len(BOUNDS_NS) + 1)
        first, last = self._seen[0][1], self._seen[-1][1]
        return [after - before for before, after in zip(first, last, strict=True)]


def quantile_ns(counts: Sequence[int], share: float) -> float | None:
    """How long *share* of the decisions took at the most; None if there were none.

    Within a bucket they are taken to be spread evenly. Of those that took longer than the largest
    bound nothing more is known: then it is that bound.
    """
    total = sum(counts)
    if total == 0:
        return None
    wanted = share * total
    before, lower_ns = 0, 0
    for count, upper_ns in zip(counts, BOUNDS_NS, strict=False):
        if count and before + count >= wanted:
            within = max(0.0, wanted - before) / count
            return lower_ns + (upper_ns - lower_ns) * within
        before, lower_ns = before + count, upper_ns
    return float(BOUNDS_NS[-1])


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The same in seconds."""
    found = quantile_ns(counts, share)
    return None if found is None else found / SECOND


# What rules said, by rule, outcome and source: since a worker began, and lately; as bytes.
#
# There may be thousands of cells, and they are told every second. Their names hardly ever change,
# so they are written once; the rest is numbers.
#
#     length of the head | head: [seconds that "lately" was, [names]] | counts | counts lately


LATELY: Final = 10
"""Seconds that are meant by "per second"."""

_LENGTH: Final = 4
"""Bytes that say how long the head is."""

Name = tuple[str, str, str]
"""Rule, outcome, source."""


class Counted(NamedTuple):
    """Cells by their *names*: *counts* since it began, and *lately*, which was *span* seconds."""

    span: int
    names: list[Name]
    counts: array[int]
    lately: array[int]


class Cells:
    """The cells of *journal*, which are never taken away there."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seen: deque[tuple[int, array[int]]] = deque()
        self._names: Sequence[Name] = []
        self._written = b"[]"

    def look(self, second: int) -> None:
        """*second* has begun."""
        seen = self._seen
        if seen and second < seen[-1][0]:
            seen.clear()  # the clock was set back
        seen.append((second, self._counts()))
        while len(seen) > 2 and seen[1][0] <= second - LATELY:
            seen.popleft()

    def packed(self) -> bytes:
        """All of them as bytes; what was said lately as it was at the last look."""
        counts = self._counts()
        names = list(self._journal.cells)[: len(counts)]
        if names != self._names:
            self._names, self._written = names, _json(names)
        span, lately = self._lately(len(counts))
        return _joined(span, self._written, counts, lately)

    def _lately(self, length: int) -> tuple[int, array[int]]:
        if not self._seen:
            return 0, array("q", bytes(8 * length))
        (began, before), (ended, after) = self._seen[0], self._seen[-1]
        before = before + array("q", bytes(8 * (len(after) - len(before))))
        lately = array("q", map(sub, after, before))
        return ended - began, lately + array("q", bytes(8 * (length - len(lately))))

    def _counts(self) -> array[int]:
        return array("q", [cell[0] for cell in list(self._journal.cells.values())])


def packed_counts(counts: dict[Name, int]) -> bytes:
    """*counts* as bytes, none of it lately."""
    numbers = array("q", counts.values())
    return _joined(0, _json(list(counts)), numbers, array("q", bytes(8 * len(numbers))))


def unpacked_cells(data: bytes) -> Counted:
    """What `Cells.packed` or `packed_counts` has made. Raises `ValueError` for anything else."""
    start = _LENGTH + int.from_bytes(data[:_LENGTH], sys.byteorder)
    span, names = json.loads(data[_LENGTH:start])
    numbers = array("q")
    numbers.frombytes(data[start:])
    if len(numbers) != 2 * len(names):
        raise ValueError(f"there are {len(numbers)} numbers for {len(names)} cells")
    named = [(rule, outcome, source) for rule, outcome, source in names]
    return Counted(span, named, numbers[: len(names)], numbers[len(names) :])


def added_up(all_of: Iterable[Counted]) -> dict[Name, int]:
    """How often which rule said what, of all of them."""
    found: dict[Name, int] = {}
    for one in all_of:
        for name, count in zip(one.names, one.counts, strict=True):
            found[name] = found.get(name, 0) + count
    return found


def _json(names: Sequence[Name]) -> bytes:
    return json.dumps(names, separators=(",", ":")).encode("ascii")


def _joined(span: int, names: bytes, counts: array[int], lately: array[int]) -> bytes:
    head = b"[%d,%b]" % (span, names)
    length = len(head).to_bytes(_LENGTH, sys.byteorder)
    return b"".join([length, head, counts.tobytes(), lately.tobytes()])


SECONDS: Final = 120
MINUTES: Final = 180
MINUTE: Final = 60

MOST_MADE_UP: Final = 60
"""Over how many seconds, at the most, a look that is late spreads what was counted meanwhile."""


class Recorder:
    """The last seconds and minutes of *journal*. Times are those of the epoch."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[tuple[str, Outcome, str], int] = dict(self._counts())
        self._next: int | None = None
        self._minute: Counts = {}
        self.seconds = Ring(1, SECONDS)
        self.minutes = Ring(MINUTE, MINUTES)
        self.latency = LatencyMinute()
        self.cells = Cells(journal)

    def look(self, now_ns: int) -> None:
        """Put down what was counted until *now_ns*, if a second has passed since the last look.

        After a pause it is spread over the seconds of the pause. A clock that was set back by more
        than a moment makes the seconds that will come again be forgotten.
        """
        second = now_ns // SECOND
        if self._next is None:
            self._begin(second)
        elif second < self._next - 1:
            self._go_back(second)
        elif second > self._next:
            first = max(self._next, second - MOST_MADE_UP)
            parts = spread(self._differences(), second - first)
            for number, part in enumerate(parts, first):
                self._put(number, part)
            self._now(second)

    def finish(self, now_ns: int) -> None:
        """Put down what was counted until *now_ns*, as if the second had passed: it is the last."""
        self.look(now_ns)
        if self._next == now_ns // SECOND:
            self._put(self._next, self._differences())
            self._next += 1

    def restore(self, seconds: Points, minutes: Points) -> None:
        """Go on from what a worker before this one has counted."""
        self.seconds.restore(seconds)
        self.minutes.restore(minutes)
        self._begin_minute()

    def _begin(self, second: int) -> None:
        end = self.seconds.end
        if end is None or end <= second:
            # A worker that has ended in this second has put down the whole of it.
            self._now(second if end is None else max(second, end + 1))
        else:
            self._go_back(second)

    def _go_back(self, second: int) -> None:
        self.seconds.go_back(second)
        self.minutes.go_back(second // MINUTE)
        self._begin_minute()
        self._now(second)

    def _now(self, second: int) -> None:
        """*second* has begun."""
        self._next = second
        self.latency.look(second, self._journal.latency)
        self.cells.look(second)

    def _begin_minute(self) -> None:
        """What was counted in the seconds of the minute that is not complete."""
        self._minute = {}
        seconds, minutes = self.seconds.points(), self.minutes.end
        if seconds.end is None or minutes is None:
            return
        begun = min(seconds.end - MINUTE * (minutes + 1) + 1, SECONDS)
        for line, values in seconds.lines.items():
            if begun > 0 and (count := sum(values[-begun:])):
                self._minute[line] = count

    def _counts(self) -> Iterator[tuple[tuple[str, Outcome, str], int]]:
        """What rules said, and behind it what came of whole requests."""
        yield from self._journal.counts()
        yield (WHOLE, "allowed", ""), self._journal.admitted_requests()
        yield (WHOLE, "denied", ""), self._journal.requests[False][0]

    def _differences(self) -> Counts:
        found: Counts = {}
        known = self._known
        for name, count in self._counts():
            more = count - known.get(name, 0)
            if more > 0:
                rule, outcome, _ = name
                found[rule, outcome] = found.get((rule, outcome), 0) + more
                known[name] = count
        return found

    def _put(self, number: int, counts: Counts) -> None:
        minute = number // MINUTE
        complete = minute - 1
        if self.minutes.end is None:
            self.minutes.put(complete, {})
        elif self.minutes.end < complete:
            self._end_minutes(complete)
        add_counts(self._minute, counts)
        self.seconds.put(number, counts)
        if number % MINUTE == MINUTE - 1:
            self._end_minutes(minute)

    def _end_minutes(self, last: int) -> None:
        """All minutes until *last* are complete: what was counted is that of the first of them."""
        first = last if self.minutes.end is None else self.minutes.end + 1
        self.minutes.put(first, self._minute)
        if last > first:
            self.minutes.put(last, {})
        self._minute = {}
