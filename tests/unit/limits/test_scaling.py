"""A limit at a part of its size: proportional, never nothing, and always one that can be kept."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import LimitError
from headgate.limits import (
    GCRA,
    Concurrency,
    DenyAll,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    PacedLimit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    Unlimited,
    scaled,
)
from headgate.limits.model import LARGEST_QUOTA
from headgate.units import CENTURY, SECOND
from tests.examples import example_count

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("limit", "half"),
    [
        (TokenBucket(100, 10), TokenBucket(50, 5)),
        (GCRA(rate=3, burst=7), GCRA(rate=Fraction(3, 2), burst=3)),
        (LeakyBucket(100, 0.5), LeakyBucket(50, 0.25)),
        (FixedWindow(9, 60), FixedWindow(4, 60)),
        (SlidingWindowLog(10, 60), SlidingWindowLog(5, 60)),
        (SlidingWindowCounter(10, 60, subwindows=6), SlidingWindowCounter(5, 60, subwindows=6)),
        (LeakyQueue(10, 100, 5), LeakyQueue(5, 100, 5)),
        (LeakyQueue(10, 0, 0), LeakyQueue(5, 0, 0)),
        (Concurrency(9, 30), Concurrency(4, 30)),
        (DenyAll(), DenyAll()),
        (Unlimited(), Unlimited()),
    ],
)
def test_rates_and_amounts_are_multiplied_and_times_stay(limit: Limit, half: Limit) -> None:
    assert scaled(limit, HALF) == half
    assert scaled(limit, Fraction(1)) is limit


def test_one_unit_is_left_of_whatever_is_scaled() -> None:
    tiny = Fraction(1, 1_000)
    assert scaled(TokenBucket(3, 1), tiny) == TokenBucket(1, Fraction(1, 1_000))
    assert scaled(FixedWindow(3, 60), tiny) == FixedWindow(1, 60)
    assert scaled(Concurrency(3, 60), tiny) == Concurrency(1, 60)


def test_shares_are_scaled_with_their_slots_and_keep_one_each() -> None:
    limit = Concurrency(20, 60, (("gold", 10), ("free", 1), ("trial", 1)), "gold", lends=False)
    assert scaled(limit, HALF) == Concurrency(
        10, 60, (("gold", 5), ("free", 1), ("trial", 1)), "gold", lends=False
    )
    assert scaled(limit, Fraction(1, 100)) == Concurrency(
        3, 60, (("gold", 1), ("free", 1), ("trial", 1)), "gold", lends=False
    )


@pytest.mark.parametrize("factor", [Fraction(0), Fraction(-1, 2), Fraction(65, 64)])
def test_a_factor_that_is_none_is_refused(factor: Fraction) -> None:
    with pytest.raises(LimitError, match="more than 0 and at most 1"):
        scaled(TokenBucket(10, 1), factor)


@st.composite
def paced(draw: st.DrawFn) -> PacedLimit:
    """Limits up to the edges of what can be one."""
    quota = draw(st.one_of(st.integers(1, 100), st.integers(1, LARGEST_QUOTA)))
    slowest = -(-quota * SECOND // CENTURY) or 1
    rate = draw(
        st.one_of(
            st.just(Fraction(quota * SECOND, CENTURY)),
            st.just(Fraction(LARGEST_QUOTA)),
            st.integers(slowest, LARGEST_QUOTA).map(Fraction),
            st.fractions(slowest, 10**9, max_denominator=10**15),
        )
    )
    try:
        return draw(st.sampled_from([TokenBucket, LeakyBucket]))(quota, rate)
    except LimitError:
        return GCRA(LARGEST_QUOTA, quota)


FACTORS = st.one_of(
    st.integers(1, 64).map(lambda n: Fraction(n, 64)),
    st.fractions(Fraction(1, 10**9), 1, max_denominator=10**9),
)


@settings(max_examples=example_count(200), deadline=None)
@given(paced(), FACTORS)
def test_every_limit_can_be_scaled_and_is_never_more_than_meant(
    limit: PacedLimit, factor: Fraction
) -> None:
    part = scaled(limit, factor)
    assert isinstance(part, PacedLimit)
    slowest = Fraction(part.quota * SECOND, CENTURY)
    assert part.per_second <= max(limit.per_second * factor, slowest)
    assert part.per_second >= limit.per_second * factor * Fraction(999_999, 1_000_000)
    assert part.quota == max(1, int(limit.quota * factor))


@settings(max_examples=example_count(100), deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 10**12), FACTORS)
def test_every_queue_can_be_scaled(queue: int, rate: int, factor: Fraction) -> None:
    part = scaled(LeakyQueue(rate, queue), factor)
    assert isinstance(part, LeakyQueue)
    assert part.queue == queue
    slowest = Fraction((queue + 1) * SECOND, CENTURY)
    assert part.per_second <= max(rate * factor, slowest)
