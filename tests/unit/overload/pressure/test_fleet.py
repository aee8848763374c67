"""What a fleet makes of the pressure together."""

from fractions import Fraction

import pytest

from headgate.overload.pressure_signals import LAPSES_AFTER, Course, FleetFactor
from headgate.policy.model import Pressure
from headgate.stores import MemoryStore
from headgate.testing import ManualClock
from headgate.units import SECOND


def fleet(*, weight: float = 0.0) -> FleetFactor:
    one = FleetFactor("shop", SECOND)
    one.weight = weight
    return one


def test_the_mean_goes_by_weight() -> None:
    one = fleet(weight=10)
    one.read([("a", 0.5, 20), ("b", 0.2, 10)], 0)
    assert one.mean(1.0, 0) == pytest.approx((10 * 1 + 20 * 0.5 + 10 * 0.2) / 40)


def test_what_it_told_itself_is_not_counted_twice() -> None:
    one = fleet(weight=10)
    origin = one.publish(0.5).origin
    one.read([(origin, 0.5, 10), ("a", 0.1, 10)], 0)
    assert one.mean(0.9, 0) == pytest.approx(0.5)


def test_a_newcomer_without_requests_takes_what_the_others_say() -> None:
    one = fleet()
    assert one.mean(1.0, 0) == 1.0
    one.read([("a", 0.5, 3), ("b", 0.25, 1)], 0)
    assert one.mean(1.0, 0) == pytest.approx(0.4375)
    assert one.publish(1.0).weight == 0


def test_what_was_heard_lapses() -> None:
    one = fleet(weight=1)
    one.read([("a", 0.5, 1)], 0)
    assert one.mean(1.0, LAPSES_AFTER * SECOND - 1) == 0.75
    assert one.mean(1.0, LAPSES_AFTER * SECOND) == 1.0


def test_nonsense_is_not_heard() -> None:
    one = fleet(weight=1)
    nan = float("nan")
    one.read([("a", nan, 1), ("b", 0.5, nan), ("c", 2.0, 1), ("d", -1, 1), ("e", 0.5, -1)], 0)
    assert one.mean(1.0, 0) == 1.0


def test_whoever_says_that_it_has_no_end_of_requests_makes_no_nonsense_of_the_mean() -> None:
    one = fleet(weight=1)
    one.read([("a", 0.1, float("inf")), ("b", 0.5, 1e308), ("c", 0.5, 1e308)], 0)
    assert 0.1 < one.mean(1.0, 0) < 0.5


def test_the_weight_follows_the_requests_and_ends_at_nothing() -> None:
    one = fleet()
    one.weigh(100)
    assert one.weight == 50
    for _ in range(10):
        one.weigh(100)
    assert one.weight == pytest.approx(100, rel=0.01)
    for _ in range(10):
        one.weigh(0)
    assert one.weight == 0


def test_another_process_has_another_name() -> None:
    one = fleet(weight=5)
    before = one.publish(1.0)
    one.after_fork()
    after = one.publish(1.0)
    assert before.origin != after.origin
    assert (before.group, before.key) == (after.group, after.key)
    assert after.weight == 0


class Node:
    """A process whose requests fare well or badly, whatever is done."""

    def __init__(self, store: MemoryStore, *, weight: float, is_troubled: bool) -> None:
        pressure = Pressure(least=Fraction(1, 10))
        self.fleet = fleet(weight=weight)
        self.course = Course(pressure)
        self.is_troubled = is_troubled
        self._store = store

    def step(self, now_ns: int) -> float:
        self.course.approach(self.fleet.mean(self.course.own, now_ns))
        if self.course.is_holding:
            self.course.hold()
        else:
            self.course.step("pressed" if self.is_troubled else "calm", 0)
        told = self._store.run(self.fleet.publish(self.course.own))
        self.fleet.read(told, now_ns)
        return self.fleet.mean(self.course.own, now_ns)


def in_force(*, troubled: int, well: int) -> list[float]:
    """What is in force at each node in the end, and how far apart they are."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    nodes = [Node(store, weight=10, is_troubled=n < troubled) for n in range(troubled + well)]
    found: list[float] = []
    for _ in range(100):
        found = [node.step(clock()) for node in nodes]
        clock.advance(1)
    return found


def test_one_in_trouble_neither_holds_the_fleet_down_nor_is_ignored() -> None:
    of_three, of_thirty = in_force(troubled=1, well=2), in_force(troubled=1, well=29)
    assert 0.6 < min(of_three) <= max(of_three) < 0.95
    assert 0.97 < min(of_thirty) <= max(of_thirty) < 1
    assert max(of_three) - min(of_three) < 0.1


def test_a_fleet_in_trouble_goes_down_whatever_a_few_say() -> None:
    found = in_force(troubled=8, well=2)
    assert max(found) < 0.3
    assert max(in_force(troubled=10, well=0)) == pytest.approx(0.1)
