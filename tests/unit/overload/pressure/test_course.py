"""The course of a factor: the rules that its module states, one by one."""

from fractions import Fraction
from itertools import pairwise

import pytest

from headgate.overload.pressure_signals import LONGEST_HOLD, PULL, Course
from headgate.policy.model import Pressure
from headgate.units import MILLISECOND, SECOND

PRESSURE = Pressure(latency_ns=500 * MILLISECOND)


def lowered(*, times: int = 1, pressure: Pressure = PRESSURE) -> Course:
    course = Course(pressure)
    for _ in range(times):
        course.step("pressed", 0)
        while course.is_holding:
            course.hold()
    return course


def test_under_pressure_it_is_multiplied_and_never_falls_below_the_least() -> None:
    course = lowered()
    assert course.own == pytest.approx(0.7)
    assert lowered(times=2).own == pytest.approx(0.49)
    assert lowered(times=20).own == pytest.approx(0.1)
    assert lowered(times=20).step("pressed", 0) == 0, "there is no step to take"


@pytest.mark.parametrize(
    ("latency_ns", "intervals"),
    [(0, 1), (SECOND, 1), (SECOND + 1, 2), (3 * SECOND, 3), (60 * SECOND, LONGEST_HOLD)],
)
def test_after_a_step_down_it_holds_until_what_began_before_has_ended(
    latency_ns: int, intervals: int
) -> None:
    course = Course(PRESSURE)
    assert course.step("pressed", latency_ns) == -1
    held = 0
    while course.is_holding:
        course.hold()
        held += 1
    assert held == intervals


def test_it_rises_from_the_second_calm_interval_in_a_row_on() -> None:
    course = lowered(times=3)
    assert [course.step("calm", 0) for _ in range(3)] == [0, 1, 1]
    assert course.own == pytest.approx(0.343 + 2 * 0.05)
    assert course.step("uncertain", 0) == 0
    assert [course.step("calm", 0) for _ in range(2)] == [0, 1]


def test_it_feels_its_way_near_to_where_it_last_stepped_down_from() -> None:
    course = lowered(times=2)  # from 0.7
    course.step("calm", 0)
    seen = [course.own]
    while course.own < 1:
        course.step("calm", 0)
        seen.append(course.own)
    steps = {round(before, 4): round(after - before, 4) for before, after in pairwise(seen)}
    assert {step for before, step in steps.items() if before < 0.63} == {0.05}
    assert {step for before, step in steps.items() if 0.63 <= before <= 0.7} == {0.0125}
    assert {step for before, step in steps.items() if 0.7 < before < 0.95} == {0.05}
    assert seen[-1] == 1


def test_at_full_size_calm_changes_nothing() -> None:
    course = Course(PRESSURE)
    assert [course.step("calm", 0) for _ in range(3)] == [0, 0, 0]
    assert course.own == 1


def test_it_moves_towards_the_fleet() -> None:
    course = Course(PRESSURE)
    course.approach(0.5)
    assert course.own == pytest.approx(1 - PULL * 0.5)
    course.approach(0.5, wholly=True)
    assert course.own == 0.5
    course.approach(0.01, wholly=True)
    assert course.own == pytest.approx(0.1)


def test_other_terms_lift_what_would_be_below_the_least() -> None:
    course = lowered(times=20)
    course.replace(Pressure(least=Fraction(1, 2), backoff=Fraction(9, 10)))
    assert course.own == 0.5
    course.approach(1, wholly=True)
    course.step("pressed", 0)
    assert course.own == pytest.approx(0.9)
