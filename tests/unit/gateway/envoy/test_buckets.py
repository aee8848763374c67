from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import RateLimiter
from headgate.gateway.envoy.buckets import Bucket, backstop_of, share_of, wait_ns
from headgate.limits import parse_limit
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.examples import example_count

RATES = st.fractions(min_value=Fraction(1, 10**6), max_value=10**9, max_denominator=10**6)


def rate_of(made: dict[str, object]) -> Fraction:
    return Fraction(str(made["tokens_per_fill"])) / Fraction(str(made["fill_interval"])[:-1])


@settings(max_examples=example_count(200))
@given(RATES)
def test_a_rate_is_kept_within_a_hundredth_and_on_the_right_side(rate: Fraction) -> None:
    bucket = Bucket(1, rate)
    below, above = rate_of(bucket.finely()), rate_of(bucket.finely(rounds_up=True))
    assert rate * Fraction(98, 100) <= below <= rate <= above <= rate * Fraction(102, 100)
    assert rate_of(bucket.in_whole_seconds()) <= rate


def test_intervals_are_such_as_envoy_takes() -> None:
    for rate in (Fraction(1, 3600), Fraction(167, 100), Fraction(10**6), Fraction(10**14)):
        made = Bucket(1, rate).finely()
        assert float(made["fill_interval"][:-1]) >= 0.05
        assert made["tokens_per_fill"] < 2**32
        assert "." not in Bucket(1, rate).in_whole_seconds()["fill_interval"]


def test_each_gateway_has_its_part_rounded_down() -> None:
    limit = parse_limit("10/s burst 50")
    assert share_of(limit, 1, 1) == Bucket(50, Fraction(10))
    assert share_of(limit, 3, 1) == Bucket(16, Fraction(10, 3))
    assert share_of(limit, 100, 1).capacity == 1
    assert share_of(limit, 10, 7).capacity == 7


def test_a_window_is_a_bucket_that_fills_in_its_time() -> None:
    for name in ("fixed_window", "sliding_window_log", "sliding_window_counter"):
        assert share_of(parse_limit(f"60/minute {name}"), 1, 1) == Bucket(60, Fraction(1))


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("10/minute", 10),
        ("10/minute sliding_window_log", 10),
        ("10/minute fixed_window", 20),
        ("10/minute sliding_window_counter", 20),
    ],
)
def test_a_backstop_has_room_for_all_that_a_limit_admits(text: str, least: int) -> None:
    bucket = backstop_of(parse_limit(text))
    assert bucket.capacity > least
    assert bucket.rate == Fraction(1, 6)


LIMITS = [
    *("5/s", "7/minute", "3/s burst 20", "4/s gcra", "6/s leaky_bucket", "30/9s fixed_window"),
    *("4/s sliding_window_log", "30/9s sliding_window_counter", "30/minute fixed_window"),
]
PAUSES = st.one_of(
    st.integers(0, SECOND // 3), st.sampled_from([0, SECOND, 4 * SECOND, 9 * SECOND, 60 * SECOND])
)


@settings(max_examples=example_count(80))
@given(
    st.sampled_from(LIMITS),
    st.integers(0, 60 * SECOND),
    st.lists(st.tuples(PAUSES, st.integers(1, 40)), max_size=20),
)
def test_a_backstop_refuses_nothing_that_a_limit_admits(
    text: str, start: int, bursts: list[tuple[int, int]]
) -> None:
    clock = ManualClock(10**18 + start)
    made = backstop_of(parse_limit(text)).finely(rounds_up=True)
    rate, most = rate_of(made), Fraction(made["max_tokens"])
    tokens, since = most, clock()
    with RateLimiter(text, clock=clock) as limiter:
        for pause, count in bursts:
            clock.advance_ns(pause)
            for _ in range(count):
                if limiter.hit("key"):
                    tokens = min(most, tokens + rate * (clock() - since) / SECOND)
                    since = clock()
                    assert tokens >= 1
                    tokens -= 1


def test_a_unit_comes_back_in_its_part_of_the_time() -> None:
    assert wait_ns(parse_limit("10/s")) == SECOND // 10
    assert wait_ns(parse_limit("6/minute fixed_window"), 2) == 20 * SECOND
