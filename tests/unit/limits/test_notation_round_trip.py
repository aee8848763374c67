"""What holds for any text and any limit: read or refused, and read back the same."""

from datetime import timedelta
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import NotationError
from headgate.limits.model import (
    GCRA,
    LARGEST_QUOTA,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.limits.notation import parse_limit, parse_limits

QUOTAS = st.one_of(st.integers(1, 1_000), st.integers(1, LARGEST_QUOTA))
WINDOWS = st.one_of(
    st.sampled_from([0.001, 0.5, 1, 60, 90, 3600, 86_400, 604_800]),
    st.timedeltas(timedelta(microseconds=1), timedelta(days=36_525)),
    st.integers(1, 10_000).map(lambda microseconds: Fraction(microseconds, 10**6)),
)
RATES = st.one_of(
    st.builds(Fraction, st.integers(1, 1_000), st.sampled_from([1, 30, 60, 3600, 86_400, 604_800])),
    st.fractions(Fraction(1, 10**9), 10**6, max_denominator=10**9),
    st.integers(1, LARGEST_QUOTA),
    st.floats(1e-9, 1e6),
)


@st.composite
def paced_limits(draw: st.DrawFn) -> Limit:
    quota = draw(QUOTAS)
    slowest = Fraction(quota, 36_525 * 86_400)
    rate = max(draw(RATES), slowest)
    kinds: list[Limit] = [TokenBucket(quota, rate), GCRA(rate, quota), LeakyBucket(quota, rate)]
    return draw(st.sampled_from(kinds))


WINDOWED = st.one_of(
    st.builds(FixedWindow, QUOTAS, WINDOWS),
    st.builds(SlidingWindowLog, QUOTAS, WINDOWS),
    st.builds(SlidingWindowCounter, QUOTAS, WINDOWS, st.integers(1, 1_000)),
)


@given(st.one_of(paced_limits(), WINDOWED))
@example(FixedWindow(1, timedelta(microseconds=1)))
@example(FixedWindow(LARGEST_QUOTA, timedelta(days=36_525)))
@example(FixedWindow(1, timedelta(days=36_525, microseconds=-1)))
@example(SlidingWindowCounter(1, 1, 1_000))
@example(TokenBucket(1, Fraction(10**9 + 1, 10**9)))
@example(TokenBucket(LARGEST_QUOTA, LARGEST_QUOTA))
@example(TokenBucket(1, Fraction(1, 36_525 * 86_400)))
@example(GCRA(1.67, 100))
@example(LeakyBucket(1, 0.1 + 0.2))
def test_a_limit_as_text_reads_back_as_the_same_limit(limit: Limit) -> None:
    assert parse_limit(str(limit)) == limit


WORDS = st.sampled_from(
    [
        *("10", "0", "1.5", "-1", "1_0", "/", "/", "per", "s", "ms", "minutes", "Hours", ";"),
        *("burst", "burst 5", "subwindows 2", "gcra", "fixed-window", "sliding_window_counter"),
        *(".", ",", "-", "_", "x", "\u0663", "\x00", "10/s", "5 per 1.5 hours"),
    ]
)


def outcome(text: str) -> tuple[Limit, ...] | NotationError:
    try:
        return parse_limits(text)
    except NotationError as error:
        return error


@given(st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=9).map(" ".join)))
@example("10/s gcra; 5/m")
def test_any_text_is_either_limits_or_an_error_that_points_into_it(text: str) -> None:
    found = outcome(text)
    if isinstance(found, NotationError):
        assert found.text == text
        assert 0 <= found.position <= len(text)
        assert found.problem
        assert found.expected
    else:
        assert len(found) == text.count(";") + 1
        assert parse_limits("; ".join(map(str, found))) == found
