"""Headers that are made quickly say what those say that are made at leisure."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headgate import GCRA, LeakyBucket, RateLimiter, TokenBucket
from headgate.integrations.asgi.sending import encoded, header_lines
from headgate.responses import Answer, Told, headers_for
from headgate.testing import ManualClock
from headgate.units import SECOND

quotas = st.integers(1, 30_000) | st.sampled_from([1, 2, 3, 7, 60, 100])
rates = st.fractions(Fraction(1, 86_400), 10**5, max_denominator=86_400).filter(bool)
limits = st.one_of(
    st.builds(TokenBucket, quotas, rates),
    st.builds(lambda burst, rate: GCRA(rate=rate, burst=burst), quotas, rates),
    st.builds(LeakyBucket, quotas, rates),
)
names = st.text("abcXYZ019._-", min_size=1, max_size=20)
steps = st.lists(
    st.tuples(st.integers(0, 90 * SECOND), st.integers(1, 50)), min_size=1, max_size=12
)


@given(limits, names, st.integers(10**18, 2 * 10**18), steps)
def test_the_quick_headers_are_the_slow_ones(
    limit: TokenBucket, name: str, start: int, asked: list[tuple[int, int]]
) -> None:
    clock = ManualClock(start / SECOND)
    limiter = RateLimiter(limit, clock=clock)
    lines = header_lines(name, limit, clock)
    for wait_ns, cost in asked:
        clock.advance(wait_ns / SECOND)
        decision = limiter.hit("somebody", cost)
        if decision.allowed:
            answer = Answer(allowed=True, told=(Told(name, decision),))
            assert lines(decision) == encoded(headers_for(answer, now_ns=clock()))
