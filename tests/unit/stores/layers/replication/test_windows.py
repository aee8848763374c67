"""How long windows are, and when they are over."""

from __future__ import annotations

import pytest

from headgate.limits import Limit, parse_limit
from headgate.stores.layers.replication.tally import is_over, remembered_ns, window_length_ns
from headgate.units import SECOND


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1000/s", 1),
        ("10/100ms fixed_window", 1),
        ("100/s burst 250", 3),
        ("7 per 7s", 7),
        ("9 per 9s", 10),
        ("100/minute", 64),
        ("5/hour sliding_window_log", 4096),
        ("1000/day fixed_window", 98304),
    ],
)
def test_a_window_is_as_long_as_a_limit_takes_to_be_as_new_or_a_little_longer(
    text: str, seconds: int
) -> None:
    limit: Limit = parse_limit(text)
    length = window_length_ns(limit)
    assert length == seconds * SECOND
    assert limit.period_ns <= length
    assert length <= max(limit.period_ns * 5 // 4, limit.period_ns + SECOND)


def test_a_window_is_over_when_the_next_one_is() -> None:
    assert not is_over(7, 10, 89)
    assert is_over(7, 10, 90)


def test_what_was_told_is_remembered_for_as_long_as_it_may_be_told_again() -> None:
    assert remembered_ns(10 * SECOND) > 20 * SECOND
