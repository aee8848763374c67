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
- At most `MOST_VACANCIES` are kept. One more, and the earliest is lost, which is over first.
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

from headgate.algorithms.base import ALLOWED, DENIED, Algorithm, Outcome

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

    __slots__ = (
        "_grain",
        "_per_ns",
        "_unit",
        "largest_cost",
        "origin",
        "pace",
        "patience",
        "per_second",
    )

    def __init__(self, limit: LeakyQueue, origin: int = 0, *, grain_ns: int = 1) -> None:
        super().__init__(limit)
        self.per_second = limit.per_second
        self.pace = limit.pace
        self.patience = limit.patience_at(self.pace)
        self.largest_cost = limit.largest_cost
        self.origin = origin
        self._per_ns, self._unit = self.pace.ticks_per_ns, self.pace.ticks_per_unit
        self._grain = grain_ns * self._per_ns

    def asked_under(self, limit: LeakyQueue) -> LeakyQueueAlgorithm:
        """Return the arithmetic of *limit*, which differs only in its longest wait."""
        if limit.max_wait is None:
            return self
        twin = copy(self)
        twin.limit, twin.patience = limit, limit.patience_at(self.pace)
        twin.quota = twin.patience // self.pace.ticks_per_unit + 1
        return twin

    def rebase(self, state: Line, now: int) -> Line:
        if state.since is None:
            latest = self._ticks(now) + self.pace.span
            return state if state.ends <= latest else Line(latest)
        if now >= state.since:
            return state
        return Line(state.ends - (state.since - now) * self._per_ns, (), now)

    def wait(self, state: Line | None, cost: int, now: int) -> int | None:
        if cost > self.largest_cost:
            return None
        state = self._seen(state, now)
        turn = self._turn(state, cost, now) - self._ticks(now)
        return self.pace.to_ns(turn - self.patience)

    def delay(self, state: Line | None, cost: int, now: int) -> int:
        """Return the nanoseconds, rounded up, until the place that *cost* would get."""
        state = self._seen(state, now)
        return self.pace.to_ns(self._turn(state, cost, now) - self._ticks(now))

    def charge(self, state: Line | None, amount: int, now: int) -> Line:
        state = self._seen(state, now)
        begin, unit = self._ticks(now), self.pace.ticks_per_unit
        if state is None or state.ends <= begin:
            return self._line(begin + amount * unit, (), now)
        open_at = self._open_at(state, now)
        for place, vacancy in enumerate(open_at):
            if vacancy.units >= amount:
                rest = Vacancy(vacancy.start + amount * unit, vacancy.units - amount)
                left = (rest,) if rest.units else ()
                vacancies = (*open_at[:place], *left, *open_at[place + 1 :])
                return self._line(state.ends, vacancies, now)
        return self._line(state.ends + amount * unit, open_at, now)

    def refund(self, state: Line, amount: int, now: int) -> Line:
        return self.rebase(state, now)

    def as_new(self, now: int) -> Line:
        return Line(self._ticks(now))

    def vacate(self, state: Line | None, turn: int, cost: int, now: int) -> Line | None:
        """Cancel the place of *cost* that was promised for *turn*, in nanoseconds.

        Return None if there is no such place, or it has come.
        """
        state = self._seen(state, now)
        start = None if state is None or turn <= now else self._start(state, turn, cost)
        if state is None or start is None:
            return None
        vacancies = list(self._open_at(state, now))
        end = start + cost * self.pace.ticks_per_unit
        place = sum(one.start < end for one in vacancies)
        if place and self._end(vacancies[place - 1]) > start:
            return None
        vacancies.insert(place, Vacancy(start, cost))
        return self._tidied(state.ends, vacancies, now)

    def remaining(self, state: Line | None, now: int) -> int:
        state = self._seen(state, now)
        latest, unit = self._ticks(now) + self.patience, self.pace.ticks_per_unit
        begin = self._ticks(now) if state is None else max(state.ends, self._ticks(now))
        places = 0 if begin > latest else (latest - begin) // unit + 1
        for one in self._open_at(state, now):
            if one.start <= latest:
                places += min(one.units, (latest - one.start) // unit + 1)
        return places

    def fresh_in(self, state: Line | None, now: int) -> int:
        if state is None:
            return 0
        return self.pace.to_ns(self.rebase(state, now).ends - self._ticks(now))

    def used(self, state: Line | None, now: int) -> int:
        state = self._seen(state, now)
        if state is None or state.ends <= self._ticks(now):
            return 0
        queued = -((self._ticks(now) - state.ends) // self.pace.ticks_per_unit)
        return queued - sum(one.units for one in self._open_at(state, now))

    def adopt(self, state: Line, old: Algorithm[Line], now: int) -> Line | None:
        if not isinstance(old, LeakyQueueAlgorithm):
            return None
        state = old.rebase(state, now)
        if self.per_second == old.per_second and self.origin == old.origin:
            return self._line(state.ends, state.vacancies, now)
        ahead = (state.ends - old._ticks(now)) * self._per_ns
        return self._line(self._ticks(now) - (-ahead // old._per_ns), (), now)

    def take(self, state: Line | None, cost: int, now: int) -> tuple[Line | None, Outcome]:
        if state is not None and cost:
            state = self.rebase(state, now)
        if not 0 < cost <= self.largest_cost or (state is not None and state.vacancies):
            return self._take_slowly(state, cost, now)
        per_ns, unit, patience = self._per_ns, self._unit, self.patience
        begin = (now - self.origin) * per_ns
        turn = begin if state is None or state.ends < begin else state.ends
        wait = turn - begin
        if wait > patience:
            return state, Outcome(DENIED, 0, -((patience - wait) // per_ns), -(-wait // per_ns))
        ends = turn + cost * unit
        busy = ends - begin
        remaining = (patience - busy) // unit + 1 if busy <= patience else 0
        delay = -(-wait // per_ns)
        turn_ns = now + delay if delay else 0
        outcome = Outcome(ALLOWED, remaining, 0, -(-busy // per_ns), delay, turn_ns)
        return self._line(ends, (), now), outcome

    def _take_slowly(self, state: Line | None, cost: int, now: int) -> tuple[Line | None, Outcome]:
        wait = self.wait(state, cost, now) if cost else 0
        if wait != 0 or not cost:
            return state, self.outcome(state, wait, now)
        delay = self.delay(state, cost, now)
        state = self.charge(state, cost, now)
        return state, with_turn(self.outcome(state, wait, now), delay, now)

    def _line(self, ends: int, vacancies: tuple[Vacancy, ...], now: int) -> Line:
        is_long = ends > self._ticks(now) + self.pace.span
        return Line(ends, vacancies, now if is_long else None)

    def _seen(self, state: Line | None, now: int) -> Line | None:
        return None if state is None else self.rebase(state, now)

    def _ticks(self, now: int) -> int:
        return (now - self.origin) * self._per_ns

    def _end(self, vacancy: Vacancy) -> int:
        return vacancy.start + vacancy.units * self.pace.ticks_per_unit

    def _turn(self, state: Line | None, cost: int, now: int) -> int:
        """Return the place that *cost* would get, in ticks."""
        for vacancy in self._open_at(state, now):
            if vacancy.units >= cost:
                return vacancy.start
        return self._ticks(now) if state is None else max(state.ends, self._ticks(now))

    def _open_at(self, state: Line | None, now: int) -> tuple[Vacancy, ...]:
        """Return the vacancies that have not passed, of each the whole units that have not."""
        if state is None or not state.vacancies or state.ends <= self._ticks(now):
            return ()
        begin, unit = self._ticks(now) - self._grain + 1, self.pace.ticks_per_unit
        found = []
        for vacancy in state.vacancies:
            gone = -((vacancy.start - begin) // unit) if vacancy.start < begin else 0
            if vacancy.units > gone:
                found.append(Vacancy(vacancy.start + gone * unit, vacancy.units - gone))
        return tuple(found)

    def _start(self, state: Line, turn: int, cost: int) -> int | None:
        """Return the start, in ticks, of a place of *cost* that was promised for *turn*; None if
        there can be none. Of several in one grain of the clock it is the last."""
        pace, latest = self.pace, self._ticks(turn)
        units = max(cost, -((latest - state.ends) // pace.ticks_per_unit))
        start = state.ends - units * pace.ticks_per_unit
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


def with_turn(outcome: Outcome, delay: int, now: int) -> Outcome:
    """Return *outcome* with the place that comes *delay* nanoseconds from *now*."""
    return outcome._replace(delay_ns=delay, turn_ns=now + delay) if delay else outcome


# The checks of one operation on one queue, one after the other.


class Turns:
    """Checks of one queue, each behind those before it, as if they were taken.

    Ask `wait` of every check, then `told` of every check, in the same order.
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

    def told(self, outcome: Outcome) -> Outcome:
        """Return *outcome*, that of the next check, with its place."""
        delay = self._delays.popleft() if self._delays else 0
        return with_turn(outcome, delay, self._now) if outcome.allowed else outcome
