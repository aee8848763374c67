"""What is written field by field is what others read."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.rls import messages
from tests.support import envoy_messages

MOST = 2**32 - 1
LONGEST = 315_576_000_000
"""Seconds: what a Duration may be, by its definition."""

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**40))


@settings(deadline=None)
@given(
    numbers, st.integers(0, 7), st.text(max_size=200), numbers, st.none() | numbers, st.booleans()
)
@example(0, 0, "", 0, 2**40, True)
def test_a_status(
    requests: int, unit: int, name: str, remaining: int, reset: int | None, passes: bool
) -> None:
    limit = messages.current_limit(requests, unit, name)
    written = messages.overall(passes=passes) + messages.status(
        limit, remaining, reset, passes=passes
    )
    answer = envoy_messages.service.RateLimitResponse.FromString(written)
    (status,) = answer.statuses
    code = envoy_messages.service.RateLimitResponse.OK if passes else 2
    assert (answer.overall_code, status.code) == (code, code)
    expected = min(requests, MOST), unit, name
    found = status.current_limit
    assert (found.requests_per_unit, found.unit, found.name) == expected
    assert status.limit_remaining == min(remaining, MOST)
    assert status.HasField("duration_until_reset") == (reset is not None)
    assert status.duration_until_reset.seconds == min(reset or 0, LONGEST)


@settings(deadline=None)
@given(st.text(max_size=150), st.text(max_size=300))
def test_a_header(name: str, value: str) -> None:
    (header,) = envoy_messages.service.RateLimitResponse.FromString(
        messages.header(name, value)
    ).response_headers_to_add
    assert (header.key, header.value) == (name.lower(), value)
