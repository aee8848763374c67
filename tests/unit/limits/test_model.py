"""A limit that exists is valid, cannot change, and equals every other way of writing it."""

import copy
import math
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from headgate.errors import LimitError
from headgate.limits.model import (
    GCRA,
    LARGEST_QUOTA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.limits.notation import parse_limit
from headgate.units import MILLISECOND, MINUTE, SECOND

CENTURY_SECONDS = 36_525 * 24 * 60 * 60

VALID: Mapping[type[Limit], Mapping[str, Any]] = {
    TokenBucket: {"capacity": 10, "refill_rate": 1},
    GCRA: {"rate": 1, "burst": 10},
    LeakyBucket: {"capacity": 10, "leak_rate": 1},
    FixedWindow: {"limit": 10, "window": 60},
    SlidingWindowLog: {"limit": 10, "window": 60},
    SlidingWindowCounter: {"limit": 10, "window": 60, "subwindows": 6},
    Concurrency: {"limit": 10, "ttl": 60},
}
"""Every type, with a value for each of its fields."""

QUOTAS = [
    (TokenBucket, "capacity"),
    (GCRA, "burst"),
    (LeakyBucket, "capacity"),
    (FixedWindow, "limit"),
    (SlidingWindowLog, "limit"),
    (SlidingWindowCounter, "limit"),
    (Concurrency, "limit"),
]
RATES = [(TokenBucket, "refill_rate"), (GCRA, "rate"), (LeakyBucket, "leak_rate")]
DURATIONS = [
    (FixedWindow, "window"),
    (SlidingWindowLog, "window"),
    (SlidingWindowCounter, "window"),
    (Concurrency, "ttl"),
]
SHARES = [(Concurrency, "shares"), (Concurrency, "partition"), (Concurrency, "lends")]
NOT_WHOLE = [True, False, None, "10", 10.0, math.nan, math.inf, Fraction(10), Decimal(10)]
NOT_A_NUMBER = [True, False, None, "10", b"10", 1j, (10,)]
NOT_FINITE = [math.nan, math.inf, -math.inf]

every_quota = pytest.mark.parametrize(("kind", "field"), QUOTAS)
every_rate = pytest.mark.parametrize(("kind", "field"), RATES)
every_duration = pytest.mark.parametrize(("kind", "field"), DURATIONS)
every_type = pytest.mark.parametrize("kind", VALID)


def make(kind: type[Limit], **changes: Any) -> Limit:
    """A valid limit of *kind*, but for *changes*."""
    return kind(**{**VALID[kind], **changes})


def test_every_field_of_every_type_is_covered_here() -> None:
    covered = {*QUOTAS, *RATES, *DURATIONS, (SlidingWindowCounter, "subwindows"), *SHARES}
    assert covered == {(kind, field.name) for kind in VALID for field in fields(kind)}  # type: ignore[arg-type]


@every_quota
@pytest.mark.parametrize("value", NOT_WHOLE)
def test_a_quota_that_is_not_an_int_is_refused(kind: type[Limit], field: str, value: Any) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is .*; expected a whole number from 1 to"):
        make(kind, **{field: value})


@every_quota
@pytest.mark.parametrize("value", [0, -1, LARGEST_QUOTA + 1, 10**400])
def test_a_quota_out_of_range_is_refused(kind: type[Limit], field: str, value: int) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is {value}; it must be from 1 to"):
        make(kind, **{field: value})


@every_quota
@pytest.mark.parametrize("value", [1, LARGEST_QUOTA])
def test_the_smallest_and_largest_quotas_are_accepted(
    kind: type[Limit], field: str, value: int
) -> None:
    rates = {name: LARGEST_QUOTA for rated, name in RATES if rated is kind}
    assert make(kind, **{field: value}, **rates).quota == value


@every_rate
@pytest.mark.parametrize("value", [*NOT_A_NUMBER, timedelta(seconds=1)])
def test_a_rate_that_is_not_a_number_is_refused(kind: type[Limit], field: str, value: Any) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is .*; expected units per second"):
        make(kind, **{field: value})


@every_rate
@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_rate_that_is_not_finite_is_refused(kind: type[Limit], field: str, value: Any) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is .*; expected a finite number"):
        make(kind, **{field: value})


@every_rate
@pytest.mark.parametrize("value", [0, -1, 0.0, -0.5, Fraction(-1, 3)])
def test_a_rate_of_nothing_or_less_is_refused(kind: type[Limit], field: str, value: Any) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is .*; it must be more than 0"):
        make(kind, **{field: value})


@every_rate
def test_a_rate_above_the_largest_quota_is_refused(kind: type[Limit], field: str) -> None:
    assert getattr(make(kind, **{field: LARGEST_QUOTA}), field) == LARGEST_QUOTA
    with pytest.raises(LimitError, match=rf"^{field} is .*; it must be at most {LARGEST_QUOTA} a"):
        make(kind, **{field: LARGEST_QUOTA + Fraction(1, 2)})


@every_rate
def test_a_quota_may_take_a_century_to_come_back_but_no_longer(
    kind: type[Limit], field: str
) -> None:
    slowest = Fraction(10, CENTURY_SECONDS)
    assert make(kind, **{field: slowest}).period_ns == CENTURY_SECONDS * SECOND
    with pytest.raises(LimitError, match=rf"^{field} is .*: 10 would take more than a hundred y"):
        make(kind, **{field: slowest * Fraction(999_999, 1_000_000)})


@every_duration
@pytest.mark.parametrize("value", NOT_A_NUMBER)
def test_a_duration_that_is_not_a_number_is_refused(
    kind: type[Limit], field: str, value: Any
) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is .*; expected seconds"):
        make(kind, **{field: value})


@every_duration
@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_duration_that_is_not_finite_is_refused(
    kind: type[Limit], field: str, value: Any
) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is .*; expected a finite number"):
        make(kind, **{field: value})


@every_duration
@pytest.mark.parametrize(
    "value", [0, -1, -0.5, 1e-7, timedelta(0), timedelta(days=-1), CENTURY_SECONDS + 1, 1e300]
)
def test_a_duration_out_of_range_is_refused(kind: type[Limit], field: str, value: Any) -> None:
    with pytest.raises(LimitError, match=rf"^{field} is .* at least a microsecond and at most"):
        make(kind, **{field: value})


@every_duration
@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        (timedelta(microseconds=1), 1_000),
        (0.000001, 1_000),
        (0.0015, 1_500_000),
        (Fraction(1, 2), 500 * MILLISECOND),
        (timedelta(milliseconds=250), 250 * MILLISECOND),
        (CENTURY_SECONDS, CENTURY_SECONDS * SECOND),
    ],
)
def test_a_duration_may_be_a_microsecond_to_a_century(
    kind: type[Limit], field: str, value: Any, nanoseconds: int
) -> None:
    assert make(kind, **{field: value}).period_ns == nanoseconds


@pytest.mark.parametrize("value", [1, 1_000])
def test_subwindows_may_be_from_1_to_1000(value: int) -> None:
    assert SlidingWindowCounter(10, 60, value).subwindows == value


@pytest.mark.parametrize("value", [*NOT_WHOLE, 0, -1, 1_001])
def test_subwindows_that_are_not_a_whole_number_in_range_are_refused(value: Any) -> None:
    with pytest.raises(LimitError, match=r"^subwindows is .* from 1 to 1000$"):
        make(SlidingWindowCounter, subwindows=value)


def test_a_sliding_window_counter_has_one_subwindow_unless_told() -> None:
    assert SlidingWindowCounter(10, 60).subwindows == 1


@pytest.mark.parametrize(
    "ways",
    [
        (FixedWindow(10, 60), FixedWindow(10, 60.0), FixedWindow(10, timedelta(minutes=1))),
        (FixedWindow(10, 0.5), FixedWindow(10, Fraction(1, 2))),
        (SlidingWindowLog(5, 0.1), SlidingWindowLog(5, timedelta(milliseconds=100))),
        (SlidingWindowCounter(5, 60), SlidingWindowCounter(5, 60, subwindows=1)),
        (Concurrency(5, 60), Concurrency(5, timedelta(minutes=1))),
        (TokenBucket(100, 100 / 60), TokenBucket(100, Fraction(5, 3)), parse_limit("100/minute")),
        (TokenBucket(9, 1), TokenBucket(9, 1.0), TokenBucket(9, Fraction(1))),
        (TokenBucket(1, 0.1), TokenBucket(1, Fraction(1, 10)), parse_limit("1/10s")),
        (GCRA(100 / 3600, 100), GCRA(Fraction(1, 36), 100), parse_limit("100/h gcra")),
        (LeakyBucket(7, 7 / 86_400), parse_limit("7/day leaky_bucket")),
    ],
    ids=str,
)
def test_limits_are_equal_and_hash_alike_however_they_were_written(ways: tuple[Limit, ...]) -> None:
    assert len(set(ways)) == 1
    assert all(way == ways[0] for way in ways)
    assert len({repr(way) for way in ways}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TokenBucket(10, 1), LeakyBucket(10, 1)),
        (FixedWindow(10, 60), SlidingWindowLog(10, 60)),
        (FixedWindow(10, 60), FixedWindow(11, 60)),
        (FixedWindow(10, 60), FixedWindow(10, 60.000001)),
        (SlidingWindowCounter(10, 60), SlidingWindowCounter(10, 60, subwindows=2)),
        (TokenBucket(10, Fraction(1)), TokenBucket(10, Fraction(10**9 + 1, 10**9))),
    ],
    ids=str,
)
def test_limits_that_differ_in_type_or_number_are_not_equal(one: Limit, other: Limit) -> None:
    assert one != other


@every_type
def test_no_field_of_a_limit_can_be_changed_or_removed(kind: type[Limit]) -> None:
    limit = make(kind)
    for name, value in VALID[kind].items():
        with pytest.raises(FrozenInstanceError):
            setattr(limit, name, value)
        with pytest.raises(FrozenInstanceError):
            delattr(limit, name)
    assert limit == make(kind)
    assert not hasattr(limit, "__dict__")


@every_type
def test_a_copied_limit_is_equal(kind: type[Limit]) -> None:
    assert copy.copy(make(kind)) == make(kind)
    assert copy.deepcopy(make(kind)) == make(kind)


@pytest.mark.parametrize(
    ("limit", "quota", "period_ns"),
    [
        (TokenBucket(10, 2), 10, 5 * SECOND),
        (TokenBucket(1, 3), 1, 333_333_334),
        (GCRA(rate=10, burst=50), 50, 5 * SECOND),
        (LeakyBucket(100, 100 / 60), 100, MINUTE),
        (FixedWindow(7, 60), 7, MINUTE),
        (SlidingWindowLog(7, 0.25), 7, 250 * MILLISECOND),
        (SlidingWindowCounter(7, 60, 6), 7, MINUTE),
        (Concurrency(7, 30), 7, 30 * SECOND),
    ],
    ids=str,
)
def test_a_limit_knows_its_quota_and_when_it_is_as_new(
    limit: Limit, quota: int, period_ns: int
) -> None:
    assert (limit.quota, limit.period_ns) == (quota, period_ns)


@pytest.mark.parametrize(
    "limit", [TokenBucket(50, 100 / 60), GCRA(100 / 60, 50), LeakyBucket(50, 100 / 60)], ids=str
)
def test_a_paced_limit_gives_its_exact_rate(limit: TokenBucket | GCRA | LeakyBucket) -> None:
    assert limit.per_second == Fraction(5, 3)
    assert Fraction(limit.pace.ticks_per_ns, limit.pace.ticks_per_unit) * SECOND == Fraction(5, 3)
    assert limit.pace.quota == 50


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (TokenBucket(100, 100 / 60), "100/m"),
        (TokenBucket(200, 100), "100/s burst 200"),
        (TokenBucket(5, 10), "10/s burst 5"),
        (TokenBucket(1, 1 / 86_400), "1/d"),
        (TokenBucket(100, 1.67), "167/100s burst 100"),
        (TokenBucket(1, 2), "2/s burst 1"),
        (TokenBucket(3, 2), "2/s burst 3"),
        (TokenBucket(3, Fraction(2, 3)), "3/4500ms"),
        (TokenBucket(1, Fraction(10**9 + 1, 10**9)), "1000000001/1000000000s burst 1"),
        (GCRA(rate=10, burst=50), "10/s burst 50 gcra"),
        (LeakyBucket(7, 7 / 3600), "7/h leaky_bucket"),
        (FixedWindow(10, 60), "10/m fixed_window"),
        (FixedWindow(10, 90), "10/90s fixed_window"),
        (FixedWindow(10, 0.25), "10/250ms fixed_window"),
        (FixedWindow(10, 0.0015), "10/1.5ms fixed_window"),
        (FixedWindow(10, 0.000001), "10/0.001ms fixed_window"),
        (SlidingWindowLog(10, timedelta(weeks=2)), "10/2w sliding_window_log"),
        (SlidingWindowCounter(10, 60), "10/m sliding_window_counter"),
        (SlidingWindowCounter(10, 60, 6), "10/m sliding_window_counter subwindows 6"),
        (Concurrency(5, 30), "5 concurrent, ttl 30s"),
    ],
)
def test_a_limit_as_text(limit: Limit, text: str) -> None:
    assert str(limit) == text


@pytest.mark.parametrize("rate", [Fraction(10**17 + 1, 10**17), Fraction(1, 3 * 10**11)])
def test_a_rate_too_fine_for_any_store_is_refused(rate: Fraction) -> None:
    with pytest.raises(LimitError, match=r"too fine a fraction|hundred years"):
        TokenBucket(1, rate)


def test_numbers_of_any_size_get_a_limit_error() -> None:
    with pytest.raises(LimitError, match="at most"):
        TokenBucket(1, 10**400)
    with pytest.raises(LimitError, match="window"):
        FixedWindow(1, 10**400)
