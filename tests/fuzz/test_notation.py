"""Any text is a limit or an error that points at the mistake, and any limit decides."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate import MemoryStore, RateLimiter
from headgate.errors import LimitError, NotationError
from headgate.limits.notation import LONGEST_TEXT, parse_limit, parse_limits, parse_rate
from headgate.testing import ManualClock
from tests.support.fuzzing import bounded, changed, changes, fuzz_count

WORDS = (
    *("1", "0", "100", "5_000", "1.5", "-1", "+1", ".5", "9" * 101, "9" * 100, "1e9", "٣", "1__0"),
    *("/", "per", "PER", ";", ",", "ms", "s", "minute", "month", "years", "fortnight"),
    *("burst", "subwindows", "peak", "for", "unlimited", "strict", "sliding", "gcra"),
    *("fixed_window", "fixed-window", "sliding_window_counter", "leaky_bucket", "token_bucket"),
    *("\0", "\n", "é", "\ud800", "%", "'", "^", "_", "-"),
)
GOOD = "10/s peak 100/s for 30s; 1000 per 1.5 hours sliding-window-counter subwindows 6; 0/minute"
NUMBERS = st.sampled_from(["0", "1", "7", "5_000", "9" * 16, "9" * 100])
PERIODS = st.sampled_from(["s", "ms", "1.5 hours", "month", "0.001 s", "100 years", "9_999 days"])
OPTIONS = st.sampled_from(
    (
        *(
            "",
            "gcra",
            "strict",
            "sliding",
            "fixed_window",
            "leaky_bucket",
            "burst 3",
            "burst 9 gcra",
        ),
        *("sliding subwindows 60", "peak 999999/s for 1s", "burst 2 peak 7/ms for 1 hour"),
    )
)
rates = st.builds("{} / {} {}".format, NUMBERS, PERIODS, OPTIONS) | st.just("unlimited")
plausible = st.lists(rates, min_size=1, max_size=3).map("; ".join)
texts = (
    st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
    | st.lists(st.sampled_from(WORDS), max_size=14).map("".join)
    | changes(len(GOOD), st.sampled_from(WORDS)).map(lambda several: changed(GOOD, several))
    | st.text(max_size=60)
)


@settings(max_examples=fuzz_count(300))
@given(texts)
@example("1/" + "9" * 90 + "." + "9" * 9 + " years burst " + "9" * 100)
@example("9" * 16 + "/ms subwindows 9; unlimited")
@example("1/s;" * (LONGEST_TEXT // 4))
@example(" " * (LONGEST_TEXT + 1))
def test_a_text_is_a_limit_or_an_error_that_points_at_it(text: str) -> None:
    with bounded():
        for parse in (parse_limit, parse_limits, parse_rate):
            try:
                parse(text)
            except NotationError as error:
                assert 0 <= error.position <= len(text)
                assert len(str(error)) < 3 * LONGEST_TEXT + 1000
            except LimitError as error:
                assert str(error)


@settings(max_examples=fuzz_count(300))
@given(plausible, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**10)), max_size=6))
@example("99999999999999999999/ms; 1/100year strict", [(1, 1), (0, 0), (9, 10**10)])
def test_what_is_a_limit_decides_and_reads_back(text: str, hits: list[tuple[int, int]]) -> None:
    try:
        limits = parse_limits(text)
    except LimitError:
        return
    assert parse_limits("; ".join(map(str, limits))) == limits
    clock = ManualClock()
    with bounded(), RateLimiter(limits, store=MemoryStore(clock=clock)) as limiter:
        for cost, wait_ns in hits:
            decision = limiter.hit("key", cost=cost)
            assert decision.allowed or cost
            assert decision.retry_after is None or decision.retry_after >= 0
            clock.advance(wait_ns / 1e9)
