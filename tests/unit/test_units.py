"""Durations and rates are turned into exact numbers, and back."""

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import LimitError
from headgate.units import (
    CENTURY,
    DAY,
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    duration_ns,
    exact_rate,
    plain_rate,
    plain_seconds,
)

CENTURY_SECONDS = 36_525 * 24 * 60 * 60


@pytest.mark.parametrize(
    ("unit", "span"),
    [
        (MICROSECOND, timedelta(microseconds=1)),
        (MILLISECOND, timedelta(milliseconds=1)),
        (SECOND, timedelta(seconds=1)),
        (MINUTE, timedelta(minutes=1)),
        (HOUR, timedelta(hours=1)),
        (DAY, timedelta(days=1)),
        (WEEK, timedelta(weeks=1)),
        (CENTURY, timedelta(days=36_525)),
    ],
)
def test_a_unit_is_its_length_in_nanoseconds(unit: int, span: timedelta) -> None:
    assert unit == span // timedelta(microseconds=1) * 1_000
    assert duration_ns(span, "window") == unit


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        (60, 60 * SECOND),
        (1.5, 1_500 * MILLISECOND),
        (0.1, 100 * MILLISECOND),
        (Fraction(1, 3), 333_333 * MICROSECOND),
        (Fraction(2, 3), 666_667 * MICROSECOND),
        (0.0000014, MICROSECOND),
        (timedelta(days=1, microseconds=1), DAY + MICROSECOND),
        (CENTURY_SECONDS, CENTURY),
        (CENTURY_SECONDS - Fraction(1, 10**6), CENTURY - MICROSECOND),
    ],
)
def test_a_duration_is_rounded_to_the_nearest_microsecond(value: Any, nanoseconds: int) -> None:
    assert duration_ns(value, "window") == nanoseconds


@pytest.mark.parametrize(
    "value",
    [0, -1, 0.0, -0.5, 1e-7, timedelta(0), timedelta(seconds=-1), CENTURY_SECONDS + 1, 1e30],
)
def test_a_duration_outside_a_microsecond_to_a_century_is_refused(value: Any) -> None:
    with pytest.raises(LimitError, match=r"^window is .* at least a microsecond and at most"):
        duration_ns(value, "window")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_duration_or_rate_that_is_not_finite_is_refused(value: Any) -> None:
    with pytest.raises(LimitError, match=r"^window is .*; expected a finite number$"):
        duration_ns(value, "window")
    with pytest.raises(LimitError, match=r"^rate is .*; expected a finite number$"):
        exact_rate(value, "rate")


@pytest.mark.parametrize("value", [True, False, None, "60", b"60", 1j, [60]])
def test_a_duration_or_rate_that_is_not_a_number_is_refused(value: Any) -> None:
    with pytest.raises(LimitError, match=r"^ttl is .*; expected seconds \(a number or a timedelta"):
        duration_ns(value, "ttl")
    with pytest.raises(LimitError, match=r"^rate is .*; expected units per second \(a number\)$"):
        exact_rate(value, "rate")


def test_a_rate_is_not_a_timedelta() -> None:
    with pytest.raises(LimitError, match="expected units per second"):
        exact_rate(timedelta(seconds=1), "rate")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, 0.0, -0.0, -1.5, Fraction(-1, 3)])
def test_a_rate_of_nothing_or_less_is_refused(value: Any) -> None:
    with pytest.raises(LimitError, match=r"^rate is .*; it must be more than 0"):
        exact_rate(value, "rate")


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        (10, Fraction(10)),
        (1.67, Fraction(167, 100)),
        (100 / 60, Fraction(5, 3)),
        (1 / 3, Fraction(1, 3)),
        (0.1, Fraction(1, 10)),
        (1 / 86_400, Fraction(1, 86_400)),
        (123_456.789, Fraction(123_456_789, 1_000)),
        (Fraction(10**20 + 1, 10**20), Fraction(10**20 + 1, 10**20)),
    ],
)
def test_a_rate_is_the_fraction_that_was_meant(value: Any, rate: Fraction) -> None:
    assert exact_rate(value, "rate") == rate


@given(st.integers(1, 10**5), st.integers(1, 10**5))
def test_a_quotient_of_moderate_integers_is_read_as_their_fraction(above: int, below: int) -> None:
    assert exact_rate(above / below, "rate") == Fraction(above, below)


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_a_float_rate_is_read_within_one_part_in_a_million_million(value: float) -> None:
    assert abs(exact_rate(value, "rate") / Fraction(value) - 1) <= Fraction(1, 10**12)


@given(st.fractions(min_value=Fraction(1, 10**10), max_value=10**15))
def test_a_plain_rate_reads_back_as_the_same_rate(rate: Fraction) -> None:
    assert exact_rate(plain_rate(rate), "rate") == rate


@pytest.mark.parametrize(
    ("rate", "plain"),
    [
        (Fraction(10), 10),
        (Fraction(5, 3), 100 / 60),
        (Fraction(167, 100), 1.67),
        (Fraction(10**20 + 1, 10**20), Fraction(10**20 + 1, 10**20)),
    ],
)
def test_a_plain_rate_is_the_friendliest_number(rate: Fraction, plain: Any) -> None:
    assert plain_rate(rate) == plain
    assert type(plain_rate(rate)) is type(plain)


@pytest.mark.parametrize(
    ("nanoseconds", "seconds"), [(60 * SECOND, 60), (SECOND // 2, 0.5), (MICROSECOND, 1e-6)]
)
def test_plain_seconds_are_an_int_when_whole(nanoseconds: int, seconds: float) -> None:
    assert plain_seconds(nanoseconds) == seconds
    assert type(plain_seconds(nanoseconds)) is type(seconds)


@given(st.integers(1, CENTURY // MICROSECOND))
def test_plain_seconds_lose_no_microsecond(microseconds: int) -> None:
    nanoseconds = microseconds * MICROSECOND
    assert duration_ns(plain_seconds(nanoseconds), "window") == nanoseconds
