"""A backend loses half of its capacity for a while: what pressure makes of it, on virtual time.

A real `AsyncPressureControl` in each of three nodes, one store between them. What is asserted is
the shape, with margins; the same seed gives the same run.
"""

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

from scripts.pictures.overload.pressure_fleet import Course, Plot, play

PLOT = Plot(halved=10, restored=45, until=75)
LOW = (PLOT.halved + 10, PLOT.restored)
"""From when on things have settled, in seconds, until capacity is back."""


@cache
def course(*, is_watched: bool) -> Course:
    pressure = PLOT.pressure if is_watched else None
    return play(replace(PLOT, pressure=pressure))


def test_goodput_stays_near_what_the_backend_can_do_and_without_pressure_falls_to_nothing() -> None:
    low, whole = PLOT.capacity(PLOT.halved), sum(tenant.rate for tenant in PLOT.tenants)
    with_it, without = course(is_watched=True), course(is_watched=False)
    assert with_it.goodput(3, PLOT.halved) > 0.9 * whole
    assert 0.75 * low < with_it.goodput(*LOW) < low
    assert without.goodput(*LOW) < 0.05 * low
    assert with_it.goodput(PLOT.until - 10, PLOT.until) > 0.9 * whole
    assert without.goodput(PLOT.restored, PLOT.restored + 15) < 0.05 * whole, "it catches up late"


def test_limits_are_lowered_for_all_alike_and_floors_are_held() -> None:
    found = course(is_watched=True)
    rates = {tenant.name: found.rate(tenant.name, *LOW) / tenant.rate for tenant in PLOT.tenants}
    alike = [rates[name] for name in ("gold", "silver", "bronze")]
    assert 0.3 < min(alike) <= max(alike) < 0.75
    assert max(alike) < 1.1 * min(alike)
    assert 0.85 < rates["partner"] < 0.95, "its floor is nine tenths"


def test_nodes_agree() -> None:
    apart = [float(max(many) - min(many)) for many in course(is_watched=True).factors]
    assert sum(apart) / len(apart) < 0.035
    assert sorted(apart)[-4] < 0.15, "for a moment only"


def test_it_is_lowered_within_seconds_and_recovers_smoothly() -> None:
    factors = [many[0] for many in course(is_watched=True).factors]
    assert all(factor == 1 for factor in factors[: PLOT.halved + 1])
    assert factors[PLOT.halved + 8] < Fraction(3, 4)
    assert factors[-1] == 1
    back = factors[PLOT.restored + 5 :]
    assert back == sorted(back), "up, and nothing but up"
    steps = [after - before for before, after in itertools.pairwise(back)]
    assert max(steps) < Fraction(1, 8)


def test_it_does_not_flap() -> None:
    factors = [many[0] for many in course(is_watched=True).factors[slice(*LOW)]]
    down = sum(after < 0.9 * before for before, after in itertools.pairwise(factors))
    assert down <= 6


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = (play(Plot(halved=2, restored=6, until=8, seed=2)) for _ in range(2))
    assert (one.answered, one.factors) == (other.answered, other.factors)
