"""Samples of the decision recorder, once a second: series of points, and recent growth."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, get_args

from headgate.observability.decision_recorder import BOUNDS_NS, ENVOY, GATEWAY, Outcome
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.observability import DecisionRecorder

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

SECONDS: Final = 300
MINUTES: Final = 1440
MINUTE: Final = 60
MAX_LINES: Final = 424
"""Lines of a series, enough for a hundred rules and the lines of the whole node."""

REPORT_S: Final = 5
"""Seconds between two reports of a gateway: of quotas, or of Envoy's own counters."""

MAX_SPREAD_S: Final = 60
"""Seconds over which a late sample is spread at most."""

LATENCY_S: Final = 60
RECENT_S: Final = 10
"""Seconds over which latencies and rates are averaged."""

WHOLE: Final = ""
"""In place of a rule id: all requests, whatever the rules. This line is never dropped."""

Line = tuple[str, str]
"""A rule and an outcome; or `WHOLE` and a name below."""

Counts = dict[Line, int]
"""Numbers of decisions by rule and outcome."""

OUTAGE: Final[Line] = WHOLE, "outage"
"""Seconds in which the store was gone."""

SAMPLED: Final[Line] = WHOLE, "sampled"
"""Seconds that were recorded. A point without any is unknown, not zero."""

LATENCIES: Final[tuple[Line, ...]] = tuple(
    (WHOLE, f"latency {bucket}") for bucket in range(len(BOUNDS_NS) + 1)
)
"""Decisions by latency, one line for each bucket."""

Name = tuple[str, str, str]
"""Rule, outcome, source."""


@dataclass(slots=True)
class Series:
    """The newest *length* points of each line: decisions by second, or by minute, oldest first.

    Points stand for whole seconds (minutes) since the epoch, so those of several workers can be
    added up. The last one has number *end*, and is complete. The number of lines is bounded: those
    with the smallest sums are dropped. No array changes once it is in *lines*.
    """

    length: int
    end: int | None = None
    lines: dict[Line, array[int]] = field(default_factory=dict)

    def put(self, number: int, counts: Counts) -> None:
        """Add the point *number*, newer than all others; points between them are zero."""
        lines = self.moved_to(number)
        for line, count in counts.items():
            values = lines.setdefault(line, array("q", bytes(8 * self.length)))
            values[-1] = count
        if len(lines) > MAX_LINES:
            ranked = sorted(lines, key=lambda line: (line[0] != WHOLE, -sum(lines[line])))
            lines = {line: lines[line] for line in ranked[:MAX_LINES]}
        self.end, self.lines = number, lines

    def go_back(self, number: int) -> None:
        """Remove the points from *number* on: the clock stepped back, and they will come again."""
        if self.end is None or number > self.end:
            return
        if self.end - number + 1 >= self.length:
            self.end, self.lines = None, {}
        else:
            self.end, self.lines = number - 1, self.moved_to(number - 1)

    def moved_to(self, end: int) -> dict[Line, array[int]]:
        """Copies of the lines with *end* as the last point; points that are missing are zero."""
        if self.end is None:
            return {}
        by = end - self.end
        zeros = array("q", bytes(8 * min(abs(by), self.length)))
        if by >= 0:
            return {line: values[by:] + zeros for line, values in self.lines.items()}
        return {line: zeros + values[:by] for line, values in self.lines.items()}

    def sums(self, first: int, last: int) -> Counts:
        """The sums of the points from *first* to *last*, as far as there are any."""
        oldest = (self.end or 0) - self.length + 1
        start, stop = max(0, first - oldest), max(0, last + 1 - oldest)
        found = {line: sum(values[start:stop]) for line, values in self.lines.items()}
        return {line: count for line, count in found.items() if count}


class Growth:
    """The growth of counters over the last *span* seconds, from a sample a second."""

    def __init__(self, span: int) -> None:
        self._span = span
        self._samples: deque[tuple[int, array[int]]] = deque()

    def sample(self, second: int, counts: Iterable[int]) -> None:
        """Record *counts* at *second*. New counters may follow those of the last sample."""
        samples = self._samples
        if samples and second < samples[-1][0]:
            samples.clear()  # the clock stepped back
        samples.append((second, array("q", counts)))
        while len(samples) > 2 and samples[1][0] <= second - self._span:
            samples.popleft()

    def counts(self) -> list[int]:
        """The growth of each counter within the last seconds; 0 after a longer pause."""
        samples = self._samples
        recent = [one for second, one in samples if second >= samples[-1][0] - self._span]
        return _differences(recent[0], recent[-1]) if recent else []

    def rates(self) -> list[float]:
        """The growth per second, also after a pause. Before its start a worker had none."""
        if not self._samples:
            return []
        (first, before), (last, after) = self._samples[0], self._samples[-1]
        seconds = max(self._span, last - first)
        return [count / seconds for count in _differences(before, after)]


def _differences(before: array[int], after: array[int]) -> list[int]:
    return [new - old for new, old in zip_longest(after, before, fillvalue=0)]


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The latency in seconds that the fraction *share* of decisions did not exceed.

    *counts* are numbers of decisions by `BOUNDS_NS`; None if there are none. Within a bucket,
    values are assumed to be evenly spread. Above the largest bound, the result is that bound.
    """
    total = sum(counts)
    if total == 0:
        return None
    rank = share * total
    before, lower_ns = 0, 0
    for count, upper_ns in zip(counts, BOUNDS_NS, strict=False):
        if count and before + count >= rank:
            within = max(0.0, rank - before) / count
            return (lower_ns + (upper_ns - lower_ns) * within) / SECOND
        before, lower_ns = before + count, upper_ns
    return BOUNDS_NS[-1] / SECOND


class Recorder:
    """The last seconds and minutes of *decisions*. Times are seconds since the epoch."""

    def __init__(self, decisions: DecisionRecorder) -> None:
        self._decisions = decisions
        self._known: dict[Name, int] = dict(self._counts())
        self._due: deque[Counts] = deque()
        """Parts of reported decisions for the seconds to come."""
        self._next: int | None = None
        self.is_out = False
        """True if the store was gone since the last sample."""
        self.seconds = Series(SECONDS)
        self.minutes = Series(MINUTES)
        self.latency = Growth(LATENCY_S)
        self.recent = Growth(RECENT_S)
        """Decisions by rule, outcome and source, in the order of the decision recorder."""

    def sample(self, now_ns: int) -> None:
        """Record the counts until *now_ns* if a second has passed since the last sample.

        After a pause they are spread over its seconds; decisions that a gateway has reported, over
        the seconds until its next report: a constant rate is a flat line. If the clock stepped back
        by more than a moment, the seconds that will come again are removed.
        """
        second = now_ns // SECOND
        if self._next is None:
            # A worker that ended in this second has recorded all of it.
            self._begin(second + 1 if self.seconds.end == second else second)
        elif second < self._next - 1:
            self._begin(second)
        elif second > self._next:
            first = max(self._next, second - MAX_SPREAD_S)
            for number, counts in enumerate(spread(self._differences(), second - first), first):
                self._put(number, added(counts, self._due.popleft() if self._due else {}))
            self._begin(second)

    def finish(self, now_ns: int) -> None:
        """Record the counts until *now_ns* as the last point, complete or not."""
        self.sample(now_ns)
        if self._next == now_ns // SECOND:
            counts = self._differences()
            while self._due:
                counts = added(counts, self._due.popleft())
            self._put(self._next, counts)
            self._next += 1

    def _begin(self, second: int) -> None:
        """Start *second*, and remove points that will come again."""
        self.seconds.go_back(second)
        self.minutes.go_back(second // MINUTE)
        self._next = second
        self.latency.sample(second, self._decisions.latency)
        self.recent.sample(second, (count for _, count in self._decisions.counts()))

    def _counts(self) -> Iterator[tuple[Name, int]]:
        """The decisions of rules, followed by those of whole requests."""
        yield from self._decisions.counts()
        requests, reported = self._decisions.requests, self._decisions.reported
        allowed = self._decisions.allowed_requests() - reported[True]
        yield (WHOLE, "allowed", ""), allowed
        yield (WHOLE, "denied", ""), requests[False][0] - reported[False]
        yield (WHOLE, "allowed", GATEWAY), reported[True]
        yield (WHOLE, "denied", GATEWAY), reported[False]
        for (whole, bucket), count in zip(LATENCIES, self._decisions.latency, strict=True):
            yield (whole, bucket, ""), count

    def _differences(self) -> Counts:
        """The growth of counts since the last call; that of reported ones is due from now on."""
        found: Counts = {}
        reported: Counts = {}
        for name, count in self._counts():
            more = count - self._known.get(name, 0)
            if more > 0:
                line = name[0], name[1]
                counts = reported if name[2] in (GATEWAY, ENVOY) else found
                counts[line] = counts.get(line, 0) + more
                self._known[name] = count
        if reported:
            nothing: Counts = {}
            pairs = zip_longest(self._due, spread(reported, REPORT_S), fillvalue=nothing)
            self._due = deque([added(*pair) for pair in pairs])
        return found

    def _put(self, number: int, counts: Counts) -> None:
        self._complete_minutes(number // MINUTE - 1)
        known = {SAMPLED: 1, OUTAGE: 1} if self.is_out else {SAMPLED: 1}
        self.seconds.put(number, counts | known)
        self._complete_minutes((number + 1) // MINUTE - 1)

    def _complete_minutes(self, last: int) -> None:
        """Add the minutes until *last*. All seconds so far belong to the first of them."""
        if self.minutes.end is None:
            self.minutes.put(last, {})
        elif (first := self.minutes.end + 1) <= last:
            self.minutes.put(first, self.seconds.sums(first * MINUTE, (first + 1) * MINUTE - 1))
            if last > first:
                self.minutes.put(last, {})


def added(counts: Counts, more: Counts) -> Counts:
    """The sums of *counts* and *more*."""
    return {line: counts.get(line, 0) + more.get(line, 0) for line in {**counts, **more}}


def spread(counts: Counts, over: int) -> list[Counts]:
    """Spread *counts* over *over* points as evenly as whole numbers allow."""
    parts: list[Counts] = [{} for _ in range(over)]
    for line, count in counts.items():
        each, rest = divmod(count, over)
        for number, part in enumerate(parts):
            if share := each + (number < rest):
                part[line] = share
    return parts
