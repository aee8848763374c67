"""The leaky bucket as a queue against a list of units, each with its beginning and its owner."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from headgate.algorithms import LeakyQueueAlgorithm
from headgate.limits import LeakyQueue
from headgate.units import SECOND, duration_ns
from tests.support.histories import examples

if TYPE_CHECKING:
    from headgate.algorithms.leaky_queue import Line

PACES = (10, 3, Fraction(3, 7), 13, 7_000, Fraction(1, 3600))


@dataclass
class Unit:
    """A unit of time in the queue; nobody's if it was given up."""

    start: Fraction
    owner: int | None


@dataclass
class Line1by1:
    """The queue as plainly as it can be said: every unit on its own."""

    limit: LeakyQueue
    units: list[Unit] = field(default_factory=list)
    ends: Fraction | None = None

    @property
    def length(self) -> Fraction:
        return SECOND / self.limit.per_second

    @property
    def patience(self) -> Fraction:
        longest = self.limit.queue * self.length
        if self.limit.max_wait is None:
            return longest
        if not self.limit.max_wait:
            return Fraction(0)
        return min(longest, Fraction(duration_ns(self.limit.max_wait, "max_wait")))

    def end(self, now: int) -> Fraction:
        return Fraction(now) if self.ends is None else max(self.ends, Fraction(now))

    def free(self, now: int) -> list[Unit]:
        """What is vacant and has not begun to pass, to the nanosecond."""
        return [one for one in self.units if one.owner is None and ceil(one.start) >= now]

    def run_of(self, cost: int, now: int) -> list[Unit]:
        """The first *cost* vacant units in a row."""
        free = self.free(now)
        for first in range(len(free) - cost + 1):
            run = free[first : first + cost]
            if all(unit.start == run[0].start + n * self.length for n, unit in enumerate(run)):
                return run
        return []

    def start_of(self, cost: int, now: int) -> Fraction:
        run = self.run_of(cost, now)
        return run[0].start if run else self.end(now)

    def wait(self, cost: int, now: int) -> int:
        return max(0, ceil(self.start_of(cost, now) - now - self.patience))

    def charge(self, cost: int, owner: int, now: int) -> None:
        self.settle(now)
        run = self.run_of(cost, now)
        if run:
            for unit in run:
                unit.owner = owner
            return
        start = self.end(now)
        self.units += [Unit(start + n * self.length, owner) for n in range(cost)]
        self.ends = start + cost * self.length

    def vacate(self, owner: int, now: int) -> bool:
        own = [unit for unit in self.units if unit.owner == owner]
        if not own or own[0].start <= now:
            return False
        self.settle(now)
        for unit in own:
            unit.owner = None
        while self.units and self.units[-1].owner is None:
            self.ends = self.units.pop().start
        return True

    def remaining(self, now: int) -> int:
        trial, taken = deepcopy(self), 0
        while trial.wait(1, now) == 0:
            trial.charge(1, -1, now)
            taken += 1
        return taken

    def settle(self, now: int) -> None:
        """Forget what was vacant and has begun to pass."""
        free = self.free(now)
        self.units = [unit for unit in self.units if unit.owner is not None or unit in free]
        if self.ends is not None and self.ends <= now:
            self.units = []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("take", "take", "take", "vacate", "vacate", "charge", "advance")),
        st.integers(0, 1_000),
    ),
    max_size=40,
)


class Histories:
    """The algorithm and the plain queue, living through the same."""

    def __init__(self, limit: LeakyQueue, origin: int) -> None:
        self.algorithm = LeakyQueueAlgorithm(limit, origin)
        self.plain = Line1by1(limit)
        self.line: Line | None = None
        self.now = origin + 17
        self.turns: dict[int, tuple[int, int]] = {}
        self.cost = 1

    def step(self, number: int, verb: str, value: int) -> None:
        if verb == "advance":
            self.now += floor(self.plain.length * value / 300)
        elif verb == "take":
            self.take(number, 1 + value % 3 if value % 2 else 1)
        elif verb == "charge":
            cost = 1 + value % 4
            delay = self.algorithm.delay(self.line, cost, self.now)
            self.turns[number] = self.now + delay, cost
            self.line = self.algorithm.charge(self.line, cost, self.now)
            self.plain.charge(cost, number, self.now)
        elif self.turns:
            self.vacate(sorted(self.turns)[value % len(self.turns)])
        self.compare()

    def take(self, number: int, cost: int) -> None:
        start = self.plain.start_of(cost, self.now)
        wait = self.plain.wait(cost, self.now)
        line, outcome = self.algorithm.take(self.line, cost, self.now)
        assert (outcome.allowed, outcome.retry_after_ns) == (wait == 0, wait)
        if not outcome.allowed:
            assert line == self.line
            return
        assert outcome.delay_ns == ceil(start) - self.now
        self.line = line
        self.plain.charge(cost, number, self.now)
        self.turns[number] = self.now + outcome.delay_ns, cost

    def vacate(self, owner: int) -> None:
        turn, cost = self.turns[owner]
        line = self.algorithm.vacate(self.line, turn, cost, self.now)
        assert (line is not None) == self.plain.vacate(owner, self.now)
        if line is not None:
            self.line = line
            del self.turns[owner]
            assert self.algorithm.vacate(line, turn, cost, self.now) is None, "given up twice"

    def compare(self) -> None:
        plain, algorithm, now = self.plain, self.algorithm, self.now
        ahead = plain.end(now) - now
        assert algorithm.fresh_in(self.line, now) == ceil(ahead)
        assert algorithm.used(self.line, now) == ceil(ahead / plain.length) - len(plain.free(now))
        assert algorithm.remaining(self.line, now) == plain.remaining(now)

    def assert_spaced(self) -> None:
        """No turn that was kept begins before the one before it is worked off."""
        kept = sorted(self.turns.values())
        for (first, cost), (second, _) in pairwise(kept):
            assert second - first >= floor(cost * self.plain.length), kept


@examples(120)
@given(
    rate=st.sampled_from(PACES),
    queue=st.integers(0, 12),
    patience=st.one_of(st.none(), st.integers(0, 12)),
    origin=st.sampled_from((0, 1_700_000_000 * SECOND)),
    steps=STEPS,
)
def test_a_queue_is_a_list_of_units(
    rate: int | Fraction,
    queue: int,
    patience: int | None,
    origin: int,
    steps: list[tuple[str, int]],
) -> None:
    max_wait = None if patience is None else float(patience / Fraction(rate))
    histories = Histories(LeakyQueue(rate, queue, max_wait), origin)
    for number, (verb, value) in enumerate(steps):
        histories.step(number, verb, value)
    histories.assert_spaced()


@examples(60)
@given(
    rate=st.sampled_from((10, 3, 7_000)),
    arrivals=st.lists(st.integers(0, 400), min_size=1, max_size=60),
    back=st.integers(0, 1_000),
)
def test_in_any_time_no_more_than_its_rate_and_one_more_have_their_turn(
    rate: int, arrivals: list[int], back: int
) -> None:
    algorithm, line, now = LeakyQueueAlgorithm(LeakyQueue(rate, 10)), None, 10 * SECOND
    turns = []
    for place, gap in enumerate(arrivals):
        now += gap * SECOND // (rate * 100)
        at = now - back * SECOND // (rate * 100) if place % 7 == 6 else now
        line, outcome = algorithm.take(line, 1, at)
        if outcome.allowed:
            turns.append(at + outcome.delay_ns)
    for n, first in enumerate(turns):
        for more, last in enumerate(turns[n:], 1):
            # Both ends are rounded up to nanoseconds, so it may seem one nanosecond shorter.
            assert more <= 1 + (last - first + 1) * rate / SECOND
    assert turns == sorted(turns), "not in the order of arrival"
