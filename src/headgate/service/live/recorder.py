"""Samples of a process's journal, once a second, as points of rings."""

from __future__ import annotations

import json
import sys
from array import array
from collections import deque
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from headgate.observability.decision_recorder import BOUNDS_NS, Outcome
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headgate.observability import DecisionRecorder


# Decisions counted by second or by minute, in rings of the newest points.
#
# Points stand for whole seconds (minutes) since the epoch, so those of several workers can be added
# up. A *line* has the points of one rule and outcome. The number of lines is bounded: the lines
# with the smallest sums are dropped.


OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

MAX_LINES: Final = 400
"""Enough for at least a hundred rules."""

WHOLE: Final = ""
"""In place of a rule id: all requests, whatever the rules. This line is never dropped."""

Line = tuple[str, Outcome]
Counts = dict[Line, int]
"""Numbers of decisions by rule and outcome."""


class Points(NamedTuple):
    """The lines of a ring, oldest point first; the last has number *end*, None if there is none."""

    end: int | None
    lines: Mapping[Line, array[int]]


class Ring:
    """The newest *length* points of *step* seconds each."""

    def __init__(self, step: int, length: int) -> None:
        self.step = step
        self.length = length
        self.end: int | None = None
        """The number of the last point, which is complete."""
        self.changes = 0
        """Number of changes, for caches."""
        self._lines: dict[Line, array[int]] = {}

    def put(self, number: int, counts: Counts) -> None:
        """Add the complete point *number* with *counts*; it is newer than all others."""
        self.changes += 1
        self._skip_to(number)
        place = number % self.length
        lines = self._lines
        if sum(1 for line in counts if line not in lines) > MAX_LINES - len(lines):
            counts = self._made_room(counts)
        for line, count in counts.items():
            points = lines.get(line)
            if points is None:
                points = lines[line] = array("q", bytes(8 * self.length))
            points[place] = count

    def restore(self, points: Points) -> None:
        """Start with the points of a previous worker."""
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
        """Remove all points."""
        self.changes += 1
        self._lines.clear()
        self.end = None

    def go_back(self, number: int) -> None:
        """Remove the points from *number* on: the clock stepped back, and they will come again."""
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
        """All points, oldest first."""
        first = 0 if self.end is None else (self.end + 1) % self.length
        lines = {line: points[first:] + points[:first] for line, points in self._lines.items()}
        return Points(self.end, lines)

    def lines(self) -> Mapping[Line, array[int]]:
        """The lines in place, not to be changed: point n is at n modulo `length`."""
        return self._lines

    def _skip_to(self, number: int) -> None:
        """Fill the points between the last one and *number* with zeros."""
        passed = self.length if self.end is None else min(number - self.end, self.length)
        for points in self._lines.values():
            for back in range(passed):
                points[(number - back) % self.length] = 0
        self.end = number

    def _made_room(self, counts: Counts) -> Counts:
        """Drop the smallest lines, and return those of *counts* that stay."""
        sums = {line: sum(points) for line, points in self._lines.items()}
        for line, count in counts.items():
            sums[line] = sums.get(line, 0) + count
        ranked = sorted(sums, key=sums.__getitem__, reverse=True)
        ranked.sort(key=_is_of_a_rule)
        kept = set(ranked[:MAX_LINES])
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
    """Spread *counts* over *over* points as evenly as whole numbers allow."""
    if over == 1:
        return [counts]
    parts: list[Counts] = [{} for _ in range(over)]
    for line, count in counts.items():
        each, rest = divmod(count, over)
        for number, part in enumerate(parts):
            if share := each + (number < rest):
                part[line] = share
    return parts


# The latency of decisions in the last minute, from a histogram.


LATENCY_SPAN_S: Final = 60
"""Seconds."""


class LatencyMinute:
    """Differences of a growing histogram over the last `LATENCY_SPAN_S` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, list[int]]] = deque()

    def sample(self, second: int, counts: Sequence[int]) -> None:
        """Record *counts* of the histogram at *second*."""
        if self._seen and second < self._seen[-1][0]:
            self._seen.clear()  # the clock stepped back
        self._seen.append((second, list(counts)))
        while self._seen[0][0] < second - LATENCY_SPAN_S:
            self._seen.popleft()

    def counts(self) -> list[int]:
        """The numbers of decisions by latency bucket (`BOUNDS_NS`)."""
        if not self._seen:
            return [0] * (len(BOUNDS_NS) + 1)
        first, last = self._seen[0][1], self._seen[-1][1]
        return [after - before for before, after in zip(first, last, strict=True)]


def quantile_ns(counts: Sequence[int], share: float) -> float | None:
    """The latency that the fraction *share* of decisions did not exceed; None if there were none.

    Within a bucket, values are assumed to be evenly spread. Above the largest bound, the result is
    that bound.
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


# Decisions by rule, outcome and source, in total and recently, as bytes.
#
# There may be thousands of cells, and they are published every second. Their names hardly ever
# change, so they are encoded once; the rest is numbers.
#
#     length of the head | head: [seconds of "recently", [names]] | counts | recent counts


RECENT_S: Final = 10
"""Seconds over which "per second" is averaged."""

_LENGTH: Final = 4
"""Bytes of the length of the head."""

Name = tuple[str, str, str]
"""Rule, outcome, source."""


class Counted(NamedTuple):
    """Cells by their *names*: *counts* in total, and *recent*, in the last *span* seconds."""

    span: int
    names: list[Name]
    counts: array[int]
    recent: array[int]


class Cells:
    """The cells of *journal*, which never removes any."""

    def __init__(self, journal: DecisionRecorder) -> None:
        self._journal = journal
        self._seen: deque[tuple[int, array[int]]] = deque()
        self._names: Sequence[Name] = []
        self._written = b"[]"

    def sample(self, second: int) -> None:
        """Sample the counts at the beginning of *second*."""
        seen = self._seen
        if seen and second < seen[-1][0]:
            seen.clear()  # the clock stepped back
        seen.append((second, self._counts()))
        while len(seen) > 2 and seen[1][0] <= second - RECENT_S:
            seen.popleft()

    def packed(self) -> bytes:
        """Encode all cells; recent counts are those of the last sample."""
        counts = self._counts()
        names = list(self._journal.cells)[: len(counts)]
        if names != self._names:
            self._names, self._written = names, _json(names)
        span, recent = self._recent(len(counts))
        return _joined(span, self._written, counts, recent)

    def _recent(self, length: int) -> tuple[int, array[int]]:
        if not self._seen:
            return 0, array("q", bytes(8 * length))
        (began, before), (ended, after) = self._seen[0], self._seen[-1]
        before = before + array("q", bytes(8 * (len(after) - len(before))))
        recent = array("q", map(sub, after, before))
        return ended - began, recent + array("q", bytes(8 * (length - len(recent))))

    def _counts(self) -> array[int]:
        return array("q", [cell[0] for cell in list(self._journal.cells.values())])


def packed_counts(counts: dict[Name, int]) -> bytes:
    """Encode *counts* with no recent ones."""
    numbers = array("q", counts.values())
    return _joined(0, _json(list(counts)), numbers, array("q", bytes(8 * len(numbers))))


def unpacked_cells(data: bytes) -> Counted:
    """Decode `Cells.packed` or `packed_counts`. Raises `ValueError` for anything else."""
    start = _LENGTH + int.from_bytes(data[:_LENGTH], sys.byteorder)
    span, names = json.loads(data[_LENGTH:start])
    numbers = array("q")
    numbers.frombytes(data[start:])
    if len(numbers) != 2 * len(names):
        raise ValueError(f"there are {len(numbers)} numbers for {len(names)} cells")
    named = [(rule, outcome, source) for rule, outcome, source in names]
    return Counted(span, named, numbers[: len(names)], numbers[len(names) :])


def added_up(all_of: Iterable[Counted]) -> dict[Name, int]:
    """The sums of all counts by name."""
    found: dict[Name, int] = {}
    for one in all_of:
        for name, count in zip(one.names, one.counts, strict=True):
            found[name] = found.get(name, 0) + count
    return found


def _json(names: Sequence[Name]) -> bytes:
    return json.dumps(names, separators=(",", ":")).encode("ascii")


def _joined(span: int, names: bytes, counts: array[int], recent: array[int]) -> bytes:
    head = b"[%d,%b]" % (span, names)
    length = len(head).to_bytes(_LENGTH, sys.byteorder)
    return b"".join([length, head, counts.tobytes(), recent.tobytes()])


SECONDS: Final = 120
MINUTES: Final = 180
MINUTE: Final = 60

MAX_SPREAD_S: Final = 60
"""Seconds over which a late sample is spread at most."""


class Recorder:
    """The last seconds and minutes of *journal*. Times are seconds since the epoch."""

    def __init__(self, journal: DecisionRecorder) -> None:
        self._journal = journal
        self._known: dict[tuple[str, Outcome, str], int] = dict(self._counts())
        self._next: int | None = None
        self._minute: Counts = {}
        self.seconds = Ring(1, SECONDS)
        self.minutes = Ring(MINUTE, MINUTES)
        self.latency = LatencyMinute()
        self.cells = Cells(journal)

    def sample(self, now_ns: int) -> None:
        """Record the counts until *now_ns* if a second has passed since the last sample.

        After a pause they are spread over its seconds. If the clock stepped back by more than a
        moment, the seconds that will come again are removed.
        """
        second = now_ns // SECOND
        if self._next is None:
            self._begin(second)
        elif second < self._next - 1:
            self._go_back(second)
        elif second > self._next:
            first = max(self._next, second - MAX_SPREAD_S)
            parts = spread(self._differences(), second - first)
            for number, part in enumerate(parts, first):
                self._put(number, part)
            self._now(second)

    def finish(self, now_ns: int) -> None:
        """Record the counts until *now_ns* as the last point, complete or not."""
        self.sample(now_ns)
        if self._next == now_ns // SECOND:
            self._put(self._next, self._differences())
            self._next += 1

    def restore(self, seconds: Points, minutes: Points) -> None:
        """Continue the points of a previous worker."""
        self.seconds.restore(seconds)
        self.minutes.restore(minutes)
        self._begin_minute()

    def _begin(self, second: int) -> None:
        end = self.seconds.end
        if end is None or end <= second:
            # A worker that ended in this second has recorded all of it.
            self._now(second if end is None else max(second, end + 1))
        else:
            self._go_back(second)

    def _go_back(self, second: int) -> None:
        self.seconds.go_back(second)
        self.minutes.go_back(second // MINUTE)
        self._begin_minute()
        self._now(second)

    def _now(self, second: int) -> None:
        """Start *second*."""
        self._next = second
        self.latency.sample(second, self._journal.latency)
        self.cells.sample(second)

    def _begin_minute(self) -> None:
        """Sum up the seconds of the incomplete minute."""
        self._minute = {}
        seconds, minutes = self.seconds.points(), self.minutes.end
        if seconds.end is None or minutes is None:
            return
        begun = min(seconds.end - MINUTE * (minutes + 1) + 1, SECONDS)
        for line, values in seconds.lines.items():
            if begun > 0 and (count := sum(values[-begun:])):
                self._minute[line] = count

    def _counts(self) -> Iterator[tuple[tuple[str, Outcome, str], int]]:
        """The decisions of rules, followed by those of whole requests."""
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
        """Complete all minutes until *last*; the counts belong to the first of them."""
        first = last if self.minutes.end is None else self.minutes.end + 1
        self.minutes.put(first, self._minute)
        if last > first:
            self.minutes.put(last, {})
        self._minute = {}
