"""Rates as token buckets that Envoy can enforce."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headgate.service.rlqs.rates import (
    LONGEST_SECONDS,
    MILLION,
    MOST_TOKENS,
    TokenBucket,
    nearest_bucket,
)

RATES = st.builds(Fraction, st.integers(1, 10**16), st.integers(1, 10**9))
FILLINGS = st.builds(
    TokenBucket,
    st.one_of(st.integers(1, 100), st.integers(1, MOST_TOKENS)),
    st.one_of(st.integers(1, 100), st.integers(1, LONGEST_SECONDS)),
    st.integers(1, MOST_TOKENS),
)


@given(RATES, st.integers(1, 10**12))
def test_a_bucket_is_never_above_its_rate_and_has_whole_seconds(rate: Fraction, burst: int) -> None:
    token_bucket = nearest_bucket(rate, burst)
    if token_bucket is None:
        assert rate < Fraction(1, LONGEST_SECONDS)
        return
    assert token_bucket.rate <= rate
    assert token_bucket.seconds >= 1
    assert 1 <= token_bucket.tokens <= MOST_TOKENS
    assert token_bucket.burst == min(burst, MOST_TOKENS)
    assert token_bucket.rate * MILLION <= token_bucket.millionths < token_bucket.rate * MILLION + 1


@given(st.builds(Fraction, st.integers(2, 10**9), st.integers(1, 10**3)))
def test_a_bucket_is_close_to_its_rate(rate: Fraction) -> None:
    token_bucket = nearest_bucket(rate, 1)
    assert token_bucket is not None
    if rate > 1:
        assert token_bucket.rate > rate * Fraction(98, 100)
    elif rate > Fraction(1, 60):
        assert token_bucket.rate > rate * Fraction(90, 100)


@given(FILLINGS, FILLINGS)
def test_a_changed_bucket_is_told_from_the_last_by_its_tokens(
    one: TokenBucket, other: TokenBucket
) -> None:
    changed = one.distinct(other)
    if one == other:
        assert changed == one
        return
    assert (changed.tokens, changed.burst) != (other.tokens, other.burst)
    assert changed.rate <= one.rate
    assert changed.burst == one.burst


def test_seconds_alone_do_not_make_a_difference_to_envoy() -> None:
    assert TokenBucket(10, 5, 3).distinct(TokenBucket(10, 1, 3)) == TokenBucket(20, 10, 3)


def test_there_is_no_bucket_for_no_rate_or_no_token() -> None:
    assert nearest_bucket(Fraction(0), 5) is None
    assert nearest_bucket(Fraction(5), 0) is None
    assert nearest_bucket(Fraction(1, 10**12), 5) is None


def test_a_low_rate_has_a_long_interval() -> None:
    assert nearest_bucket(Fraction(1, 600), 5) == TokenBucket(1, 600, 5)
    assert nearest_bucket(Fraction(5, 3), 5) == TokenBucket(5, 3, 5)
