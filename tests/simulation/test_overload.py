"""A backend loses half of its workers, and clients try again: what a limit is good for."""

from functools import cache

import pytest

from scripts.pictures.overload.breakdown import Course, Plot, play
from scripts.pictures.overload.clients import Habits
from scripts.pictures.overload.protections import SHARING_WAYS, limiting_ways

ALIKE, RESERVED, SHED = list(SHARING_WAYS)[1:]


@cache
def limited(way: str, *, budget: float | None = None) -> Course:
    """Ten workers do 100 a second, of which 75 are asked for; then 50."""
    plot = Plot(
        workers=10,
        rate=75,
        halved=6,
        restored=14,
        until=24,
        habits=Habits(budget=budget),
        mix={"default": 1.0},
        seed=2,
    )
    return play(plot, limiting_ways(plot)[way])


@cache
def shared(way: str) -> Course:
    """The same with 80 a second, of three classes, and for longer."""
    plot = Plot(
        workers=10,
        rate=80,
        halved=8,
        restored=24,
        until=40,
        mix={"critical": 0.3, "default": 0.4, "sheddable": 0.3},
        seed=2,
    )
    return play(plot, SHARING_WAYS[way])


def test_without_a_limit_nobody_gets_an_answer_in_time_even_when_all_is_well_again() -> None:
    tally = limited("no limit").tally
    assert tally.goodput(2, 6) > 0.9 * tally.demand(2, 6)
    assert tally.goodput(11, 14) < 0.15 * 50
    assert tally.goodput(18, 24) < 0.1 * 75


def test_a_fixed_limit_that_was_right_is_wrong_for_half_of_the_backend() -> None:
    tally = limited("fixed limit").tally
    assert tally.goodput(11, 14) < 0.7 * 50


@pytest.mark.parametrize("way", ["AIMD", "gradient"])
@pytest.mark.parametrize("budget", [None, 0.1])
def test_with_a_limit_that_adapts_the_backend_does_useful_work_all_the_time(
    way: str, budget: float | None
) -> None:
    course = limited(way, budget=budget)
    tally = course.tally
    assert tally.goodput(2, 6) > 0.85 * tally.demand(2, 6)
    assert tally.goodput(9, 14) > 0.85 * 50
    assert tally.goodput(16, 24) > 0.85 * tally.demand(16, 24)
    assert max(course.limits[120:140]) < 0.9 * max(course.limits[:60])
    assert max(course.limits[180:]) > 1.2 * max(course.limits[120:140])


def test_a_budget_for_retries_makes_fewer_of_them() -> None:
    lavish, thrifty = limited("no limit"), limited("no limit", budget=0.1)
    assert sum(thrifty.tally.tried.values()) < 0.6 * sum(lavish.tally.tried.values())


@pytest.mark.parametrize("way", [RESERVED, SHED])
def test_who_matters_most_hardly_notices(way: str) -> None:
    tally = shared(way).tally
    critical, default, sheddable = (
        tally.goodput(14, 24, priority) / tally.demand(14, 24, priority)
        for priority in ("critical", "default", "sheddable")
    )
    assert critical > 0.95
    assert 0.95 > default > 0.4
    assert sheddable < 0.2


def test_a_gate_that_is_told_no_classes_treats_all_alike() -> None:
    tally = shared(ALIKE).tally
    shares = [
        tally.goodput(14, 24, priority) / tally.demand(14, 24, priority)
        for priority in ("critical", "default", "sheddable")
    ]
    assert max(shares) - min(shares) < 0.2
    assert max(shares) < 0.85


def test_what_was_shed_comes_back_without_a_swing() -> None:
    levels = shared(SHED).levels
    assert max(levels[240:]) == levels[240:][0]  # from the moment on when all is well again
    assert levels[-1] < 1 < max(levels)


def test_the_same_seed_gives_the_same_course() -> None:
    plot = Plot(workers=4, rate=30, halved=1, restored=2, until=4)
    front = limiting_ways(plot)["gradient"]
    assert play(plot, front) == play(plot, front)
