"""Numbers, shares and times as a report says them."""

import pytest

from headgate.simulator.report.plots import bars, time_marks, unit_of
from headgate.simulator.report.wording import change, clipped, counted, moment, period, share, span
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from tests.support.replay_outcomes import MIDNIGHT, outcome


@pytest.mark.parametrize(
    ("part", "whole", "told"),
    [
        (0, 0, "0 %"),
        (0, 9, "0 %"),
        (1, 1_000_000, "< 0.01 %"),
        (3_120, 1_204_000, "0.26 %"),
        (1, 20, "5.0 %"),
        (1, 3, "33 %"),
        (999_999, 1_000_000, "> 99 %"),
        (7, 7, "100 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(part: int, whole: int, told: str) -> None:
    assert share(part, whole) == told


@pytest.mark.parametrize(
    ("nanoseconds", "told"),
    [
        (0, "0 ms"),
        (250 * MILLISECOND, "250 ms"),
        (1_800 * MILLISECOND, "1.8 s"),
        (MINUTE, "1 min"),
        (250 * SECOND, "4 min 10 s"),
        (DAY - SECOND, "23 h 59 min"),
        (DAY, "1 d"),
        (76 * HOUR, "3 d 4 h"),
    ],
)
def test_a_span_is_told_in_two_units(nanoseconds: int, told: str) -> None:
    assert span(nanoseconds) == told


def test_times_of_the_calendar_are_dates_and_others_are_not() -> None:
    assert moment(MIDNIGHT + SECOND, MIDNIGHT) == "2025-11-16 00:00:01 UTC"
    assert moment(90 * SECOND, 0) == "after 1 min 30 s"
    assert period(MIDNIGHT, MIDNIGHT + HOUR) == "2025-11-16 00:00:00 to 01:00:00 UTC (1 h)"
    assert period(0, HOUR) == "1 h"


def test_numbers_have_signs_and_plurals() -> None:
    assert (change(312), change(-5), change(0)) == ("+312", "\N{MINUS SIGN}5", "0")
    assert (counted(1, "caller"), counted(1_400, "caller")) == ("1 caller", "1,400 callers")


def test_a_long_name_is_cut() -> None:
    assert len(clipped("x" * 10_000)) == 60
    assert len(clipped("\x1b" * 10_000)) == 60


def test_neighbours_are_added_up_to_few_bars() -> None:
    long = outcome(allowed=tuple(range(600)), denied=(1,) * 600, step_ns=SECOND)
    few = bars(long, long.allowed_series, long.denied_series, most=240)
    assert len(few.allowed) == 200
    assert (sum(few.allowed), sum(few.denied)) == (long.allowed, long.denied)
    assert few.ended_ns == long.ended_ns


def test_marks_stand_at_round_times() -> None:
    day = time_marks(MIDNIGHT + 7 * MINUTE, MIDNIGHT + DAY, most=6)
    assert [text for _, text in day] == ["06:00", "12:00", "18:00", "00:00"]
    assert [text for _, text in time_marks(0, 40 * SECOND, most=5)] == [
        *("0 s", "10 s", "20 s", "30 s", "40 s"),
    ]


@pytest.mark.parametrize("length", [1, 999, MILLISECOND, SECOND, MINUTE, DAY, 9_000 * DAY])
@pytest.mark.parametrize("began", [0, MIDNIGHT])
def test_there_are_some_marks_but_not_too_many(length: int, began: int) -> None:
    assert 1 <= len(time_marks(began, began + length, most=5)) <= 6


def test_rates_are_told_in_a_unit_in_which_they_are_one_or_more() -> None:
    assert unit_of(120, MINUTE) == (SECOND, "a second")
    assert unit_of(30, MINUTE) == (MINUTE, "a minute")
    assert unit_of(1, HOUR) == (HOUR, "an hour")
    assert unit_of(0, HOUR) == (DAY, "a day")
