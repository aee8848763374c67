"""The leaky bucket as a queue: a request that does not fit now gets a place in the queue.

A counter is the instant at which all that is queued has been worked off, the TAT of GCRA
(`algorithms.gcra`), in ticks that lose nothing. Where GCRA denies what it cannot allow at once,
the queue delays it:

    place of a check =  max(TAT, now)
    TAT after cost c =  place + c * unit
    allow when          place - now  <=  patience

So places never overlap, and what leaves the queue is spaced by its cost: in any interval of length
t at most `1 + rate * t` single units have their place. A place is a promise made once: no further
message is needed when it comes. The price is that a caller that crashes keeps its place.

A caller that gives up cancels its place (`vacate`). The last in the queue makes it shorter. From
the middle the place stays behind as a *vacancy*, and the first later request that it is long enough
for gets it, before the end of the queue. Callers that wait already keep the places they have. A
vacancy is a number of whole units; what is left of one that was used or has begun to pass is the
whole units that remain.

- All places that are promised at one pace begin a whole number of units before TAT. So a place is
  found again by the instant that its caller has, which is rounded up to the *grain* of the clock.
  The same holds for a vacancy: it has begun to pass when the clock has moved on from there.
- At most `MOST_VACANCIES` are kept. One more, and the earliest is lost.
- Only the wait decides: any cost that can be worked off within a hundred years is taken as soon as
  its place is near enough, and makes the next one wait longer.
- `remaining` is how many single units would be taken now.
- `refund` changes nothing: a place that is past cannot come back, the places at the end of the
  queue are those of others, and one that has yet to come is cancelled by its instant.
- If the pace changes, TAT stays the instant it is, since that is what was promised. Vacancies are
  lost, and an earlier place cannot be cancelled any more.

Clock: single units leave TAT at most one span, `(queue + 1) * unit`, ahead of the clock. One that
lies further ahead shows that the clock has stepped back, and becomes `now + span`. A queue that a
large cost made longer than that has the time of the last charge besides (`since`); if the clock is
before it, TAT moves back with the clock. Vacancies are lost; earlier places cannot be cancelled.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.algorithms.base import Algorithm, Outcome, new_outcome

if TYPE_CHECKING:
    from headgate.limits import LeakyQueue


MOST_VACANCIES: Final = 64
"""Vacancies that a queue keeps; neighbours are one."""


class Vacancy(NamedTuple):
    """Cancelled places: when they begin, in ticks, and how many units they are long."""

    start: int
    units: int


class Line(NamedTuple):
    """A queue: the instant at which all of it is worked off, in ticks, and the vacancies, earliest
    first; if it is longer than its span, the time of the last charge."""

    ends: int
    vacancies: tuple[Vacancy, ...] = ()
    since: int | None = None


class LeakyQueueAlgorithm(Algorithm[Line]):
    """The arithmetic of `LeakyQueue(rate, queue, max_wait)`.

    Ticks are counted from *origin*. The clock goes in steps of *grain_ns* nanoseconds.
    """

    __slots__ = ("_grain", "_unit", "largest_cost", "origin", "pace", "patience")

    def __init__(self, limit: LeakyQueue, origin: int = 0, *, grain_ns: int = 1) -> None:
        super().__init__(limit)
        self.pace = limit.pace
        self.patience = limit.patience
        self.largest_cost = limit.largest_cost
        self.origin = origin
        self._unit = self.pace.ticks_per_unit
        self._grain = grain_ns * self.pace.ticks_per_ns

    def asked_under(self, limit: LeakyQueue) -> LeakyQueueAlgorithm:
        """Return the arithmetic of *limit*, which differs only in its longest wait."""
        if limit.max_wait is None:
            return self
        twin = copy(self)
        twin.limit, twin.patience, twin.quota = limit, limit.patience, limit.quota
        return twin

    def rebase(self, state: Line, now: int) -> Line:
        if state.since is None:
            latest = self._ticks(now) + self.pace.span
            return state if state.ends <= latest else Line(latest)
        if now >= state.since:
            return state
        return Line(state.ends - (state.since - now) * self.pace.ticks_per_ns, (), now)

    def wait(self, state: Line | None, cost: int, now: int) -> int | None:
        if cost > self.largest_cost:
            return None
        ahead = _place(self._at(state, now), cost) - self._ticks(now)
        return self.pace.to_ns(ahead - self.patience)

    def delay(self, state: Line | None, cost: int, now: int) -> int:
        """Return the nanoseconds, rounded up, until the place that *cost* would get."""
        return self.pace.to_ns(_place(self._at(state, now), cost) - self._ticks(now))

    def charge(self, state: Line | None, amount: int, now: int) -> Line:
        return self._charged(self._at(state, now), amount, now)

    def _charged(self, line: Line, amount: int, now: int) -> Line:
        """Return *line*, which is that of *now*, with *amount* in it."""
        for n, vacancy in enumerate(line.vacancies):
            if vacancy.units >= amount:
                rest = Vacancy(vacancy.start + amount * self._unit, vacancy.units - amount)
                left = (rest,) if rest.units else ()
                vacancies = (*line.vacancies[:n], *left, *line.vacancies[n + 1 :])
                return self._line(line.ends, vacancies, now)
        return self._line(line.ends + amount * self._unit, line.vacancies, now)

    def refund(self, state: Line, amount: int, now: int) -> Line:
        return self.rebase(state, now)

    def vacate(self, state: Line | None, place_ns: int, cost: int, now: int) -> Line | None:
        """Cancel the place of *cost* that was promised for *place_ns*, in nanoseconds.

        Return None if there is no such place, or it has come.
        """
        line = self._at(state, now)
        start = None if place_ns <= now else self._start(line, place_ns, cost)
        if start is None:
            return None
        vacancies = list(line.vacancies)
        place = sum(one.start < start + cost * self._unit for one in vacancies)
        if place and self._end(vacancies[place - 1]) > start:
            return None
        vacancies.insert(place, Vacancy(start, cost))
        return self._tidied(line.ends, vacancies, now)

    def remaining(self, state: Line | None, now: int) -> int:
        return self._remaining(self._at(state, now), self._ticks(now))

    def _remaining(self, line: Line, begin: int) -> int:
        """Return the single units that *line*, which is that of *begin*, would take."""
        latest = begin + self.patience
        places = max(0, (latest - line.ends) // self._unit + 1)
        for one in line.vacancies:
            if one.start <= latest:
                places += min(one.units, (latest - one.start) // self._unit + 1)
        return places

    def fresh_in(self, state: Line | None, now: int) -> int:
        return self.pace.to_ns(self._at(state, now).ends - self._ticks(now))

    def used(self, state: Line | None, now: int) -> int:
        line = self._at(state, now)
        queued = -((self._ticks(now) - line.ends) // self._unit)
        return queued - sum(one.units for one in line.vacancies)

    def adopt(self, state: Line, old: Algorithm[Line], now: int) -> Line | None:
        if not isinstance(old, LeakyQueueAlgorithm):
            return None
        state, per_ns = old.rebase(state, now), self.pace.ticks_per_ns
        is_same = (per_ns, self._unit) == (old.pace.ticks_per_ns, old._unit)
        if is_same and self.origin == old.origin:
            return self._line(state.ends, state.vacancies, now)
        ahead = (state.ends - old._ticks(now)) * per_ns
        return self._line(self._ticks(now) - (-ahead // old.pace.ticks_per_ns), (), now)

    def take(self, state: Line | None, cost: int, now: int) -> tuple[Line | None, Outcome]:
        line, begin, to_ns = self._at(state, now), self._ticks(now), self.pace.to_ns
        wait: int | None = 0
        delay = 0
        if cost:
            ahead = _place(line, cost) - begin
            wait = to_ns(ahead - self.patience) if cost <= self.largest_cost else None
            if wait == 0:
                delay = to_ns(ahead)
                state = line = self._charged(line, cost, now)
            elif state is not None:
                state = self.rebase(state, now)
        place, reset = now + delay if delay else 0, to_ns(line.ends - begin)
        remaining = self._remaining(line, begin)
        return state, new_outcome((wait == 0, remaining, wait, reset, delay, place, "store"))

    def _line(self, ends: int, vacancies: tuple[Vacancy, ...], now: int) -> Line:
        is_long = ends > self._ticks(now) + self.pace.span
        return Line(ends, vacancies, now if is_long else None)

    def _ticks(self, now: int) -> int:
        return (now - self.origin) * self.pace.ticks_per_ns

    def _end(self, vacancy: Vacancy) -> int:
        return vacancy.start + vacancy.units * self._unit

    def _at(self, state: Line | None, now: int) -> Line:
        """Return the queue as of *now*: it ends now at the earliest, and what has passed of its
        vacancies, in whole units, is gone."""
        begin = self._ticks(now)
        if state is not None:
            state = self.rebase(state, now)
        if state is None or state.ends <= begin:
            return Line(begin)
        if not state.vacancies:
            return state
        begin += 1 - self._grain
        left = []
        for start, units in state.vacancies:
            gone = -((start - begin) // self._unit) if start < begin else 0
            if units > gone:
                left.append(Vacancy(start + gone * self._unit, units - gone))
        return state._replace(vacancies=tuple(left))

    def _start(self, line: Line, place_ns: int, cost: int) -> int | None:
        """Return the start, in ticks, of a place of *cost* that was promised for *place_ns*.

        None if there can be none. Of several in one grain of the clock it is the last.
        """
        latest = self._ticks(place_ns)
        units = max(cost, -((latest - line.ends) // self._unit))
        start = line.ends - units * self._unit
        return start if start > latest - self._grain else None

    def _tidied(self, ends: int, vacancies: list[Vacancy], now: int) -> Line:
        """Return a queue without vacancies at its end, in which neighbours are one."""
        merged: list[Vacancy] = []
        for one in vacancies:
            if merged and self._end(merged[-1]) == one.start:
                merged[-1] = Vacancy(merged[-1].start, merged[-1].units + one.units)
            else:
                merged.append(one)
        if merged and self._end(merged[-1]) == ends:
            ends = merged.pop().start
        return self._line(ends, tuple(merged[-MOST_VACANCIES:]), now)


def _place(line: Line, cost: int) -> int:
    """Return the place, in ticks, that *cost* would get in *line*."""
    for vacancy in line.vacancies:
        if vacancy.units >= cost:
            return vacancy.start
    return line.ends


def _with_place(outcome: Outcome, delay: int, now: int) -> Outcome:
    """Return *outcome* with the place that comes *delay* nanoseconds from *now*."""
    return outcome._replace(delay_ns=delay, place_ns=now + delay) if delay else outcome


class QueuedChecks:
    """The checks of one operation on one queue, each behind those before it, as if they were taken.

    Ask `wait` of every check, then `placed` of every check, in the same order.
    """

    __slots__ = ("_algorithm", "_asked", "_delays", "_line", "_now")

    def __init__(self, algorithm: LeakyQueueAlgorithm, line: Line | None, now: int) -> None:
        self._algorithm = algorithm
        self._line = line
        self._now = now
        self._asked = 0
        self._delays: deque[int] = deque()

    def wait(self, cost: int) -> int | None:
        """Return the nanoseconds until *cost* fits behind all checks before; None if never."""
        if not cost:
            self._delays.append(0)
            return 0
        algorithm, now = self._algorithm, self._now
        wait = algorithm.wait(self._line, cost, now)
        self._delays.append(0 if wait else algorithm.delay(self._line, cost, now))
        self._line = algorithm.charge(self._line, cost, now)
        before, self._asked = self._asked, self._asked + cost
        if wait and before and algorithm.wait(algorithm.charge(None, before, now), cost, now):
            return None
        return wait

    def placed(self, outcome: Outcome) -> Outcome:
        """Return *outcome*, that of the next check, with its place."""
        delay = self._delays.popleft() if self._delays else 0
        return _with_place(outcome, delay, self._now) if outcome.allowed else outcome
