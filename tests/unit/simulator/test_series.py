"""TimeSeries that grow with the time that has gone by."""

import itertools

import pytest

from headgate.errors import OptionError
from headgate.simulator.results import LADDER, MAX_STEPS, TimeSeries
from headgate.units import DAY, MILLISECOND, SECOND


def test_counts_are_put_down_in_the_step_they_are_in() -> None:
    steps = TimeSeries(0, SECOND)
    cell = steps.cell()
    cell[0] += 2
    steps.advance(SECOND)
    cell[1] += 1
    steps.advance(3 * SECOND)
    cell[0] += 1
    assert steps.lines(cell) == ((2, 0, 0, 1), (0, 1, 0, 0))


def test_when_there_are_too_many_several_become_one_and_nothing_is_lost() -> None:
    steps = TimeSeries(0)
    cell = steps.cell()
    for second in range(0, 2000, 10):
        if second * SECOND >= steps.next_ns:
            steps.advance(second * SECOND)
        cell[second % 20 == 0] += 1
    allowed, denied = steps.lines(cell)
    assert (sum(allowed), sum(denied)) == (100, 100)
    assert len(allowed) == len(denied) <= MAX_STEPS
    assert steps.step_ns in LADDER


def test_a_gap_of_years_is_bridged() -> None:
    steps = TimeSeries(0, MILLISECOND)
    cell = steps.cell()
    cell[0] += 1
    steps.advance(4000 * DAY)
    cell[0] += 1
    allowed, _ = steps.lines(cell)
    assert (len(allowed) <= MAX_STEPS, allowed[0], allowed[-1]) == (True, 1, 1)


def test_each_step_of_the_ladder_goes_into_the_next() -> None:
    assert all(not longer % shorter for shorter, longer in itertools.pairwise(LADDER))


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="millisecond"):
        TimeSeries(0, 10)
