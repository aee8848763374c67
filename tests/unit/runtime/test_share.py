"""The share of a limit."""

from fractions import Fraction

import pytest

from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.runtime.local_share import share_of
from headgate.units import CENTURY, SECOND

THIRD = Fraction(1, 3)
HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("limit", "share", "expected"),
    [
        (TokenBucket(10, 5), HALF, TokenBucket(5, Fraction(5, 2))),
        (TokenBucket(10, 1), THIRD, TokenBucket(3, Fraction(1, 3))),
        (GCRA(5, 10), HALF, GCRA(Fraction(5, 2), 5)),
        (LeakyBucket(10, 5), HALF, LeakyBucket(5, Fraction(5, 2))),
        (FixedWindow(10, 60), THIRD, FixedWindow(3, 60)),
        (SlidingWindowLog(10, 60), HALF, SlidingWindowLog(5, 60)),
        (SlidingWindowCounter(10, 60, 6), HALF, SlidingWindowCounter(5, 60, 6)),
        (Concurrency(10, 60), HALF, Concurrency(5, 60)),
        (
            Concurrency(10, 60, (("gold", 5), ("free", 1)), "gold"),
            HALF,
            Concurrency(5, 60, (("gold", 2),), "gold"),
        ),
        (
            Concurrency(10, 60, (("gold", 5), ("free", 1)), "free", lends=False),
            HALF,
            Concurrency(5, 60, (("gold", 2),), lends=False),
        ),
        (Concurrency(10, 60, (("free", 1),), "free", lends=False), HALF, Concurrency(5, 60)),
        (LeakyQueue(10, 9, max_wait=0.5), HALF, LeakyQueue(5, 4, max_wait=0.5)),
        (LeakyQueue(10, 0), THIRD, LeakyQueue(Fraction(10, 3), 0)),
    ],
)
def test_each_kind_is_scaled_exactly_and_rounded_down(
    limit: Limit, share: Fraction, expected: Limit
) -> None:
    assert share_of(limit, share) == expected


@pytest.mark.parametrize(
    "limit", [TokenBucket(1, 1), FixedWindow(1, 60), Concurrency(1, 60), GCRA(1, 1)]
)
def test_it_is_never_less_than_one(limit: Limit) -> None:
    assert share_of(limit, Fraction(1, 1_000)).quota == 1


def test_the_whole_is_the_limit_itself() -> None:
    limit = TokenBucket(10, 5)
    assert share_of(limit, Fraction(1)) is limit


def test_a_rate_that_gets_too_fine_is_cut_down_and_never_up() -> None:
    limit = TokenBucket(10**6, Fraction(10**15 - 1, 10**6))
    share = Fraction(999_983, 10**7 - 3)
    found = share_of(limit, share)
    assert isinstance(found, TokenBucket)
    exact = limit.per_second * share
    assert exact * Fraction(99, 100) < found.per_second <= exact


def test_a_rate_that_gets_too_slow_becomes_the_slowest() -> None:
    limit = TokenBucket(1, Fraction(1, 3_000_000_000))
    assert share_of(limit, Fraction(1, 1_000)) == TokenBucket(1, Fraction(SECOND, CENTURY))
