"""Limits in the terms of the scripts."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate.errors import HeadgateWarning, LimitError, UsageError
from headgate.limits import (
    GCRA,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    parse_limit,
)
from headgate.stores.redis.codec import PacedSpec, paced_suffix, spec_of


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("1/s", b"016,1"),
        ("10/s", b"015,10"),
        ("1000/s", b"013,1000"),
        ("100/minute", b"065,100"),
        ("5/minute", b"126,5"),
        ("5000/hour", b"724,5000"),
        ("1000/day", b"905,1000"),  # 86,400,000 microseconds: 864 * 10^5
        ("100/day", b"906,100"),
        ("80/s", b"202,80"),  # 12,500: 125 * 10^2
        ("3/s", b"/1000000/3/3/"),
        ("7/minute", b"/60000000/7/7/"),
        ("1000000/s", b"010,1000000"),
        ("1 per 1234567 ms", b"/1234567000,1"),
    ],
)
def test_what_a_unit_takes_is_three_digits_if_they_can_say_it(text: str, suffix: bytes) -> None:
    spec = spec_of(parse_limit(text))
    assert isinstance(spec, PacedSpec)
    assert spec.suffix == suffix


def test_three_digits_mean_one_unit_each() -> None:
    units = [m * 10**k for m in range(1, 1_000) for k in range(10)]
    suffixes: dict[bytes, set[int]] = {}
    for unit in units:
        suffixes.setdefault(paced_suffix(unit, 1, 5), set()).add(unit)
    assert all(len(meant) == 1 for meant in suffixes.values())
    assert sum(len(suffix) == 5 for suffix in suffixes) > 900


def test_a_cost_is_microseconds_and_ticks_that_lose_nothing() -> None:
    spec = spec_of(TokenBucket(10, 3))
    assert isinstance(spec, PacedSpec)
    durations = [spec.rate.duration(cost) for cost in (1, 2, 3)]
    assert durations == [
        (333_333, 1),
        (666_666, 2),
        (10**6, 0),
    ]


@pytest.mark.parametrize(
    "limit",
    [SlidingWindowCounter(1, 0.000_5, 1_000), SlidingWindowCounter(1, 10**9, 1_000)],
)
def test_cells_that_lua_cannot_count_are_refused_and_told_why(limit: Limit) -> None:
    with pytest.raises(LimitError, match="subwindow"):
        spec_of(limit)


def test_a_log_that_is_too_large_is_warned_of() -> None:
    with pytest.warns(HeadgateWarning, match="sliding_window_counter"):
        spec_of(SlidingWindowLog(70_001, 60))


def test_what_is_no_limit_has_no_spec() -> None:
    with pytest.raises(UsageError, match="no script"):
        spec_of("10/s")


def test_the_finest_rates_are_held() -> None:
    for rate in (Fraction(16_666_666_667, 10**10), Fraction(10**15 - 1), Fraction(1, 3 * 10**9)):
        spec = spec_of(GCRA(rate, 1))
        assert isinstance(spec, PacedSpec)
        whole, ticks = spec.rate.duration(1)
        assert Fraction(whole) + Fraction(ticks, spec.ticks) == 10**6 / rate
