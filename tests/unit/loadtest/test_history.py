"""Whether a limit could have allowed what was allowed. (More in tests/property.)"""

import pytest

from headgate.limits import parse_limits
from headgate.loadtest.judgement import Excess, due_of, excess, most_between
from headgate.units import MILLISECOND, SECOND


def at(*seconds: float) -> list[int]:
    return [round(one * SECOND) for one in seconds]


@pytest.mark.parametrize(
    ("limit", "cost", "seconds", "most"),
    [
        ("10/s", 1, 1, 20),
        ("10/s burst 3", 1, 1, 13),
        ("10/s burst 3 gcra", 1, 0, 3),
        ("10/s leaky_bucket", 5, 1, 4),
        ("10/s fixed_window", 1, 0.5, 10),
        ("10/s fixed_window", 1, 1, 20),  # the last instant is in the next window
        ("10/s sliding_window_log", 1, 0.999, 10),
        ("10/s sliding_window_log", 1, 1, 20),
        ("10/s sliding_window_counter", 1, 1, 10),  # a full window counts for all of it at first
        ("10/s sliding_window_counter", 1, 1.5, 15),
        ("100/s; 5 per minute fixed_window", 1, 1, 5),
    ],
)
def test_the_most_is_by_the_mathematics_of_each_limit(
    limit: str, cost: int, seconds: float, most: int
) -> None:
    ended = round(seconds * SECOND)
    assert most_between(parse_limits(limit), cost, 0, ended, 1_000) == most


def test_nothing_is_never_too_much() -> None:
    assert excess(parse_limits("1/s"), 1, [], []) is None
    assert due_of(parse_limits("1/s"), 1, []) == 0


def test_the_whole_is_told_if_the_whole_is_too_much() -> None:
    moments = [place * 10 * MILLISECOND for place in range(100)]
    found = excess(parse_limits("10/s"), 1, moments, moments)
    assert found == Excess(100, 19, 0, 990 * MILLISECOND)


def test_a_burst_within_a_long_time_is_found() -> None:
    quiet = at(*range(60))
    burst = at(*(30.001 + place / 1_000 for place in range(12)))
    moments = [*quiet, *burst]
    found = excess(parse_limits("10/s"), 1, moments, moments)
    assert found is not None
    assert (found.allowed, found.at_most) == (11, 10)
    assert at(29)[0] < found.began_ns <= found.ended_ns < at(31)[0]


def test_a_request_that_may_have_been_decided_earlier_is_no_proof() -> None:
    limits = parse_limits("2/s sliding_window_log")
    assert excess(limits, 1, at(0, 0, 0.9), at(0, 0, 0.9)) is not None
    assert excess(limits, 1, at(0, 0, 0.9), at(0, 0, 1.0)) is None


def test_the_order_of_answers_does_not_matter() -> None:
    limits = parse_limits("1/s burst 2")
    assert excess(limits, 1, at(0, 1, 0), at(2, 1, 1)) is None
    assert excess(limits, 1, at(0, 0, 0), at(0.5, 0.1, 0.2)) is not None


def test_what_was_in_use_before_is_not_due_again() -> None:
    asked = at(*(place / 100 for place in range(100)))
    limits = parse_limits("10/s fixed_window")
    assert due_of(limits, 1, asked) == 10
    assert due_of(limits, 1, asked, used=4) == 6


def test_a_denied_request_does_not_make_a_log_forget() -> None:
    asked = at(*(place / 150 for place in range(150)))
    assert due_of(parse_limits("50/s sliding_window_log"), 1, asked) == 50
