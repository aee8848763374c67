"""Burst credits: what is not used is saved up, and spent later at a higher rate."""

from fractions import Fraction

import pytest

from headgate import MemoryStore, RateLimiter, burst_credits
from headgate.errors import LimitError, NotationError
from headgate.limits import GCRA, LeakyBucket, Limit, TokenBucket, parse_limit, parse_limits
from headgate.testing import ManualClock
from headgate.units import SECOND

KEY = "a"
STEADY = "10/s burst 1 peak 100/s for 30s"


def limiter(text: str) -> tuple[RateLimiter, ManualClock]:
    clock = ManualClock()
    return RateLimiter(parse_limits(text), store=MemoryStore(clock=clock)), clock


def admitted(made: RateLimiter, clock: ManualClock, *, rate: int, seconds: int) -> list[int]:
    """How many of *rate* evenly spaced requests a second pass, second by second."""
    return [
        sum(_passes(made, clock, wait_ns=SECOND // rate) for _ in range(rate))
        for _ in range(seconds)
    ]


def _passes(made: RateLimiter, clock: ManualClock, *, wait_ns: int) -> bool:
    decision = made.hit(KEY)
    clock.advance_ns(wait_ns)
    return decision.allowed


def test_a_full_rest_lasts_for_exactly_so_long_at_the_peak() -> None:
    made, clock = limiter(STEADY)
    passed = [_passes(made, clock, wait_ns=SECOND // 100) for _ in range(4_000)]
    at = [number for number, is_in in enumerate(passed) if is_in]
    assert at == [*range(3_001), *range(3_010, 4_000, 10)]


def test_what_was_not_used_in_a_shorter_rest_lasts_for_as_much_less() -> None:
    made, clock = limiter(STEADY)
    admitted(made, clock, rate=100, seconds=40)
    clock.advance(27)  # 270 units are saved, and 90 more than the base are spent in a second
    assert admitted(made, clock, rate=100, seconds=5) == [100, 100, 100, 10, 10]


def test_no_rest_saves_more_than_the_ceiling() -> None:
    made, clock = limiter(STEADY)
    clock.advance(100_000)
    assert sum(admitted(made, clock, rate=100, seconds=31)) == 3_001 + 9


def test_what_is_not_used_below_the_base_rate_is_saved() -> None:
    made, clock = limiter(STEADY)
    admitted(made, clock, rate=100, seconds=40)
    assert admitted(made, clock, rate=5, seconds=54) == [5] * 54
    assert admitted(made, clock, rate=100, seconds=4) == [100, 100, 100, 10]


@pytest.mark.parametrize("rate", [1_000, 250])
def test_a_flood_gets_the_peak_and_then_the_base_rate(rate: int) -> None:
    made, clock = limiter("10/s peak 100/s for 30s")
    burst = 10  # a tenth of a second of the peak, and the last of each second comes in the next
    assert admitted(made, clock, rate=rate, seconds=60) == [burst + 99, *[100] * 29, *[10] * 30]


def test_one_who_stays_below_the_base_rate_is_never_refused() -> None:
    made, clock = limiter("10/s peak 100/s for 30s")
    assert admitted(made, clock, rate=10, seconds=100) == [10] * 100


@pytest.mark.parametrize("burst", [1, 10, 500])
@pytest.mark.parametrize("duration", [1, 30, Fraction(5, 8)])
def test_both_limits_meet_after_the_duration(burst: int, duration: Fraction) -> None:
    saved, peak = burst_credits(10, 100, duration, burst=burst)
    assert peak.capacity == burst
    meets_at = Fraction(saved.capacity - peak.capacity, 100 - 10)
    assert duration - Fraction(1, 90) < meets_at <= duration


def test_the_burst_is_a_tenth_of_a_second_of_the_peak_and_at_least_one() -> None:
    assert burst_credits(10, 95, 30)[1].capacity == 9
    assert burst_credits(1, 2, 30)[1].capacity == 1


@pytest.mark.parametrize(
    ("peak", "duration", "burst", "problem"),
    [
        (10, 30, None, "peak is 10 a second; expected more than the base rate of 10"),
        (100, 0.001, None, "duration is too short"),
        (100, 0, None, "duration is 0 seconds"),
        (0, 30, None, "peak is 0"),
        (100, 30, 0, "burst is 0; expected a whole number of at least 1"),
    ],
)
def test_credits_that_cannot_be_are_refused(
    peak: int, duration: float, burst: int | None, problem: str
) -> None:
    with pytest.raises(LimitError, match=problem):
        burst_credits(10, peak, duration, burst=burst)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("10/s peak 100/s for 30s", (TokenBucket(2710, 10), TokenBucket(10, 100))),
        ("10/s PEAK 100 per second for 0.5 minutes", (TokenBucket(2710, 10), TokenBucket(10, 100))),
        ("10/s burst 1 peak 100/s for 30s", (TokenBucket(2701, 10), TokenBucket(1, 100))),
        ("10/s peak 100/s for 30s gcra burst 5", (GCRA(10, 2705), GCRA(100, 5))),
        ("1/m leaky_bucket peak 2/m for h", (LeakyBucket(61, 1 / 60), LeakyBucket(1, 1 / 30))),
        (
            "10/s peak 20/s for 1s; 5/m",
            (TokenBucket(12, 10), TokenBucket(2, 20), TokenBucket(5, Fraction(1, 12))),
        ),
    ],
)
def test_a_limit_with_a_peak_is_two_limits(text: str, limits: tuple[Limit, ...]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("10/s peak", 9, "the limit ends too early"),
        ("10/s peak 100", 13, "the limit ends too early"),
        ("10/s peak 100/s", 15, "the limit ends too early"),
        ("10/s peak 100/s fro 30s", 16, "'fro' does not belong here; did you mean 'for'?"),
        ("10/s peak 100/s for", 19, "the limit ends too early"),
        ("10/s peak 100/s for 30", 22, "the limit ends too early"),
        ("10/s peak 10/s for 30s", 5, "peak is 10 a second; expected more than the base rate"),
        ("10/s peak 100/s for 1ms", 20, "duration is too short"),
        ("10/s peak 100/s for 9999w", 20, "duration is"),
        ("10/s peak 100/s for 30s fixed_window", 5, "fixed_window has no peak"),
        ("10/s peak 100/s for 30s peak 100/s for 30s", 24, "this is a second peak"),
        ("1/w peak 999999999999999/s for 52w", 4, "capacity is"),
    ],
)
def test_an_error_in_a_peak_is_pointed_at(text: str, position: int, problem: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_limits(text)
    assert (caught.value.position, caught.value.problem[: len(problem)]) == (position, problem)


def test_parse_limit_says_that_a_limit_with_a_peak_is_two() -> None:
    with pytest.raises(NotationError, match="is two, and parse_limit reads one") as caught:
        parse_limit("10/s peak 100/s for 30s")
    assert caught.value.position == 5
