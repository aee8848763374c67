"""Turns never overlap, whatever is taken, given up, refunded, and however the rate changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

import pytest

from headgate import LeakyQueue, MemoryStore
from headgate.stores.operations import CancelQueued, Check, Hold, Refund, Settle, Take
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND

RATES = (Fraction(10), Fraction(5), Fraction(3), Fraction(20), Fraction(7, 3))
VERBS = (
    "take",
    "take",
    "take",
    "hold",
    "vacate",
    "vacate",
    "refund",
    "advance",
    "advance",
    "back",
    "change",
)


@dataclass
class Promise:
    """A turn that somebody has, and under which check."""

    begins: int
    ends: Fraction
    check: Check
    place_ns: int


@dataclass
class Life:
    """A queue that lives through a random history."""

    random: Random
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_000))
    rate: Fraction = RATES[0]
    queue: int = 10
    kept: list[Promise] = field(default_factory=list)
    taken: int = 0

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock)

    def step(self, verb: str) -> None:
        if verb == "change":
            self.rate, self.queue = self.random.choice(RATES), self.random.choice((0, 3, 40, 40))
        elif verb == "advance":
            self.clock.advance_ns(self.random.choice((1, 49, 17 * MILLISECOND, 300 * MILLISECOND)))
        elif verb == "back":
            self.clock.advance_ns(-self.random.randrange(60 * MILLISECOND))
            self.kept.clear()  # those turns are on the clock of before
        elif verb == "refund":
            self.store.run(Refund((self.check(),)))
        elif verb != "vacate":
            self.ask(verb)
        elif waiting := [one for one in self.kept if one.place_ns]:
            one = self.random.choice(waiting)
            if self.store.run(CancelQueued((one.check,), (one.place_ns,))):
                assert one.place_ns > self.clock()
                self.kept.remove(one)

    def ask(self, verb: str) -> None:
        check = self.check()
        if verb == "take":
            (outcome,) = self.store.run(Take((check,)))
        else:
            (outcome,) = self.store.run(Hold((check,), "name", SECOND))
            self.store.run(Settle((check,), "name", charge_lapsed=True))
        if not outcome.allowed:
            assert outcome.retry_after_ns, outcome
            return
        self.taken += 1
        begins = self.clock() + outcome.delay_ns
        ends = begins + check.cost * SECOND / self.rate
        for one in self.kept:  # which are rounded up to nanoseconds
            assert begins + 2 >= one.ends or one.begins + 2 >= ends, (one, begins)
        self.kept.append(Promise(begins, ends, check, outcome.place_ns))

    def check(self) -> Check:
        limit = LeakyQueue(self.rate, self.queue, self.random.choice((None, None, 0.35, 0)))
        return Check("group", "key", limit, self.random.choice((1, 1, 2, 3)))


@pytest.mark.parametrize("seed", range(40))
def test_turns_never_overlap(seed: int) -> None:
    life = Life(Random(seed))
    for _ in range(120):
        life.step(life.random.choice(VERBS))
    assert life.taken > 2, seed
