"""Numbers, shares and times in a report."""

import pytest

from headgate.simulator.report.findings import Plot, moment, share
from headgate.units import SECOND
from tests.support.replay_outcomes import MIDNIGHT


@pytest.mark.parametrize(
    ("part", "whole", "text"),
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
def test_a_share_is_never_rounded_to_nothing_or_to_all(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


def test_times_of_the_calendar_are_dates_and_others_are_not() -> None:
    assert moment(MIDNIGHT + SECOND, MIDNIGHT) == "2025-11-16 00:00:01 UTC"
    assert moment(90 * SECOND, 0) == "after 1m30s"


def test_neighbours_are_added_up_to_few_bars() -> None:
    long = Plot("", 0, SECOND, tuple(range(600)), (1,) * 600)
    few = long.merged(240)
    assert len(few.allowed) == 200
    assert (sum(few.allowed), sum(few.denied)) == (sum(long.allowed), 600)
    assert few.step_ns == 3 * SECOND
