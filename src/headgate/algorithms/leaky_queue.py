"""The leaky bucket as a queue: who does not fit now is told when it will.

A counter is the instant at which all that is queued will have been worked off, the TAT of GCRA
(`algorithms.gcra`), in ticks that lose nothing. Where GCRA refuses what it cannot let through at
once, the queue tells it to wait:

    turn of a check  =  max(TAT, now)
    TAT after cost c =  turn + c * unit
    admit when          turn - now  <=  patience

So turns never overlap, whoever asks, and what leaves the queue is spaced by its cost: in any
interval of length t at most `1 + rate * t` single units have their turn. Nobody needs to be told
when to go, and nobody has to be asked whether it has gone: a turn is a promise made once. What it
costs is that a caller who crashes has its turn all the same.

One who gives up tells so (`vacate`). The last in the queue makes it shorter. From the middle its
turn stays behind as a *vacancy*, and the first one later that it is long enough for gets it, before
the end of the queue. Who waits already keeps the turn it was told. A vacancy is a number of whole
units; what is left of one that was used or has begun to pass is the whole units that remain.

- All turns that are promised at one pace begin a whole number of units before TAT. That is how a
  turn is found again by the instant that its caller was told, which is rounded up to the *grain* of
  the clock. So is a vacancy: it has begun to pass when the clock has moved on from there.
- At most `MOST_VACANCIES` are known. One more, and the earliest is lost, which is over first.
- How long it would wait is all that is asked of a cost: any that can be worked off within a hundred
  years is taken as soon as its turn is near enough, and makes the next one wait the longer.
- `remaining` is how many single units would be taken now.
- `refund` changes nothing: a turn that is past cannot come back, the turns at the end of the queue
  are those of others, and one that has yet to come is given up by its instant.
- If the pace changes, TAT stays the instant it is, since that is what was promised. Vacancies are
  lost, and a turn of before cannot be given up any more.
- If the clock steps back, TAT lies further ahead of it and the queue seems longer, never shorter.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.algorithms.base import ALLOWED, Algorithm, Outcome

if TYPE_CHECKING:
    from headgate.limits import LeakyQueue


MOST_VACANCIES: Final = 64
"""Turns given up that a queue knows of; neighbours are one."""


class Vacancy(NamedTuple):
    """Turns that were given up: when they begin, in ticks, and how many units they are long."""

    start: int
    units: int


class Line(NamedTuple):
    """What is queued: the instant at which all of it is worked off, in ticks, and what of that was
    given up, by its beginning."""

    ends: int
    vacancies: tuple[Vacancy, ...] = ()


class LeakyQueueAlgorithm(Algorithm[Line]):
    """The arithmetic of `LeakyQueue(rate, queue, max_wait)`. Ticks are counted from *origin*.

    The clock goes in steps of *grain_ns* nanoseconds.
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
        """The arithmetic of *limit*, which differs only in how long somebody waits."""
        if limit.max_wait is None:
            return self
        twin = copy(self)
        twin.limit, twin.patience = limit, limit.patience_at(self.pace)
        twin.quota = twin.patience // self.pace.ticks_per_unit + 1
        return twin

    def wait(self, state: Line | None, cost: int, now: int) -> int | None:
        if cost > self.largest_cost:
            return None
        turn = self._turn(state, cost, now) - self._ticks(now)
        return self.pace.to_ns(turn - self.patience)

    def delay(self, state: Line | None, cost: int, now: int) -> int:
        """Nanoseconds, rounded up, from *now* until the turn that *cost* would get."""
        return self.pace.to_ns(self._turn(state, cost, now) - self._ticks(now))

    def charge(self, state: Line | None, amount: int, now: int) -> Line:
        begin, unit = self._ticks(now), self.pace.ticks_per_unit
        if state is None or state.ends <= begin:
            return Line(begin + amount * unit)
        open_at = self._open_at(state, now)
        for place, vacancy in enumerate(open_at):
            if vacancy.units >= amount:
                rest = Vacancy(vacancy.start + amount * unit, vacancy.units - amount)
                left = (rest,) if rest.units else ()
                return Line(state.ends, (*open_at[:place], *left, *open_at[place + 1 :]))
        return Line(state.ends + amount * unit, open_at)

    def refund(self, state: Line, amount: int, now: int) -> Line:
        return state

    def as_new(self, now: int) -> Line:
        return Line(self._ticks(now))

    def vacate(self, state: Line | None, turn: int, cost: int, now: int) -> Line | None:
        """The state after the turn of *cost* has been given up that was promised for *turn*, in
        nanoseconds; None if there is no such turn, or it has come."""
        start = None if state is None or turn <= now else self._start(state, turn, cost)
        if state is None or start is None:
            return None
        vacancies = list(self._open_at(state, now))
        end = start + cost * self.pace.ticks_per_unit
        place = sum(one.start < end for one in vacancies)
        if place and self._end(vacancies[place - 1]) > start:
            return None
        vacancies.insert(place, Vacancy(start, cost))
        return self._tidied(state.ends, vacancies)

    def remaining(self, state: Line | None, now: int) -> int:
        latest, unit = self._ticks(now) + self.patience, self.pace.ticks_per_unit
        begin = self._ticks(now) if state is None else max(state.ends, self._ticks(now))
        places = 0 if begin > latest else (latest - begin) // unit + 1
        for one in self._open_at(state, now):
            if one.start <= latest:
                places += min(one.units, (latest - one.start) // unit + 1)
        return places

    def fresh_in(self, state: Line | None, now: int) -> int:
        return 0 if state is None else self.pace.to_ns(state.ends - self._ticks(now))

    def used(self, state: Line | None, now: int) -> int:
        if state is None or state.ends <= self._ticks(now):
            return 0
        queued = -((self._ticks(now) - state.ends) // self.pace.ticks_per_unit)
        return queued - sum(one.units for one in self._open_at(state, now))

    def adopt(self, state: Line, old: Algorithm[Line], now: int) -> Line | None:
        if not isinstance(old, LeakyQueueAlgorithm):
            return None
        pace = self.pace
        if self.per_second == old.per_second and self.origin == old.origin:
            return state
        ahead = (state.ends - old._ticks(now)) * pace.ticks_per_ns
        return Line(self._ticks(now) - (-ahead // old.pace.ticks_per_ns))

    def take(self, state: Line | None, cost: int, now: int) -> tuple[Line | None, Outcome]:
        if not 0 < cost <= self.largest_cost or (state is not None and state.vacancies):
            return self._take_slowly(state, cost, now)
        per_ns, unit, patience = self._per_ns, self._unit, self.patience
        begin = (now - self.origin) * per_ns
        turn = begin if state is None or state.ends < begin else state.ends
        wait = turn - begin
        if wait > patience:
            return state, Outcome(
                not ALLOWED, 0, -((patience - wait) // per_ns), -(-wait // per_ns)
            )
        ends = turn + cost * unit
        busy = ends - begin
        remaining = (patience - busy) // unit + 1 if busy <= patience else 0
        delay = -(-wait // per_ns)
        turn_ns = now + delay if delay else 0
        return Line(ends), Outcome(ALLOWED, remaining, 0, -(-busy // per_ns), delay, turn_ns)

    def _take_slowly(self, state: Line | None, cost: int, now: int) -> tuple[Line | None, Outcome]:
        wait = self.wait(state, cost, now) if cost else 0
        if wait != 0 or not cost:
            return state, self.outcome(state, wait, now)
        delay = self.delay(state, cost, now)
        state = self.charge(state, cost, now)
        return state, with_turn(self.outcome(state, wait, now), delay, now)

    def _ticks(self, now: int) -> int:
        return (now - self.origin) * self._per_ns

    def _end(self, vacancy: Vacancy) -> int:
        return vacancy.start + vacancy.units * self.pace.ticks_per_unit

    def _turn(self, state: Line | None, cost: int, now: int) -> int:
        """When *cost* would have its turn, in ticks."""
        for vacancy in self._open_at(state, now):
            if vacancy.units >= cost:
                return vacancy.start
        return self._ticks(now) if state is None else max(state.ends, self._ticks(now))

    def _open_at(self, state: Line | None, now: int) -> tuple[Vacancy, ...]:
        """The vacancies that have not passed, of each the whole units that have not."""
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
        """The beginning, in ticks, of a turn of *cost* that was promised for *turn* (rounded up);
        None if there can be none. Of several in one nanosecond it is the last."""
        pace, latest = self.pace, self._ticks(turn)
        units = max(cost, -((latest - state.ends) // pace.ticks_per_unit))
        start = state.ends - units * pace.ticks_per_unit
        return start if start > latest - self._grain else None

    def _tidied(self, ends: int, vacancies: list[Vacancy]) -> Line:
        """A queue without vacancies at its end, in which neighbours are one."""
        merged: list[Vacancy] = []
        for one in vacancies:
            if merged and self._end(merged[-1]) == one.start:
                merged[-1] = Vacancy(merged[-1].start, merged[-1].units + one.units)
            else:
                merged.append(one)
        if merged and self._end(merged[-1]) == ends:
            ends = merged.pop().start
        return Line(ends, tuple(merged[-MOST_VACANCIES:]))


def with_turn(outcome: Outcome, delay: int, now: int) -> Outcome:
    """*outcome* with the turn that comes *delay* nanoseconds from *now*."""
    return outcome._replace(delay_ns=delay, turn_ns=now + delay) if delay else outcome


# What one operation asks of one queue, one check after the other.


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
        """Nanoseconds until *cost* fits behind all that was asked before; None if never."""
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
        """*outcome*, that of the next check, with its turn."""
        delay = self._delays.popleft() if self._delays else 0
        return with_turn(outcome, delay, self._now) if outcome.allowed else outcome
