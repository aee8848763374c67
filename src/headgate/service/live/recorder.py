"""The journal of a process, looked at once a second, as points of rings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.service.live.cells import Cells
from headgate.service.live.latency import LatencyMinute
from headgate.service.live.ring import WHOLE, Ring, add_counts, spread
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.observability import Journal
    from headgate.observability.journal import Outcome
    from headgate.service.live.ring import Counts, Points

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
