"""Whatever the headers of a server say: no exception, no endless wait, and bounded memory."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.clients import HostStates, RetryPolicy
from headgate.clients.host_state import MAX_CLOSURES, MAX_PATHS
from headgate.clients.signals import MAX_FIELD_LENGTH, ResponseInfo, read_signal
from headgate.units import SECOND
from tests.support.fuzzing import bounded, fuzz_count

NOW_NS = 1_800_000_000 * SECOND
NAMES = st.sampled_from(
    (
        *("retry-after", "date", "age", "ratelimit", "ratelimit-policy", "ratelimit-limit"),
        *("ratelimit-remaining", "ratelimit-reset", "x-ratelimit-limit", "x-ratelimit-remaining"),
        *("x-ratelimit-reset", "x-ratelimit-reset-after", "x-rate-limit-remaining"),
        *("x-rate-limit-reset", "x-ratelimit-bucket", "x-ratelimit-resource"),
        *("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        *("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    )
)
PIECES = (
    *("0", "1", "12", "-1", "1e9", "9" * 15, "9" * 41, "0.25", ".", "٣", "NaN", "inf", "True"),
    *('"', "\\", '\\"', ",", ";", "=", ":", "?1", "(", ")", " ", "\t", "*", "\0", "\xff", "😀"),
    *('"a"', "a", "r=", "t=", "q=", "w=", "pk=", ":Zm9v:", "limit=9", "remaining=0", "reset="),
    *("1s", "6m0s", "1h", "ms", "2027-01-15T08:00:00Z", "Fri, 15 Jan 2027 08:00:09 GMT", "Mon"),
    *("Friday, 15-Jan-27 08:00:09 GMT", "Fri Jan 15 08:00:09 2027", "Mon, 01 Jan 0001 00:00:00"),
)
values = (
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
    | st.text(max_size=30)
    | st.builds(lambda piece, count: piece * count, st.sampled_from(PIECES), st.integers(0, 1100))
)
headers = st.dictionaries(NAMES, values, max_size=6)
responses = st.tuples(
    st.sampled_from([200, 202, 204, 304, 403, 404, 429, 500, 503, 599]),
    headers,
    st.sampled_from(["/", "/a", "/b", "/" + "x" * 5000]),
)


@settings(max_examples=fuzz_count(300))
@given(st.lists(responses, min_size=1, max_size=4), st.integers(0, 40 * SECOND), st.booleans())
@example([(429, {"retry-after": "Mon, 01 Jan 0001 00:00:00 +2359"}, "/")], 0, True)
@example([(429, {"ratelimit": '"a";r=0;t=' + "9" * 15}, "/")], 0, False)
@example([(503, {"retry-after": "9" * MAX_FIELD_LENGTH, "date": "9" * 15}, "/")], 0, True)
def test_a_wait_is_bounded_whatever_the_headers_say(
    several: list[tuple[int, dict[str, str], str]], step_ns: int, trusts_clock: bool
) -> None:
    retry = RetryPolicy(max_server_wait=60.0)
    state, now_ns = HostStates(retry).get("a", 0), 0
    with bounded():
        for status, fields, path in several:
            response = ResponseInfo(status, fields.get)
            signal = read_signal(response, NOW_NS + now_ns, trusts_clock=trusts_clock)
            assert all(wait is None or wait >= 0 for wait in signal.waits.values())
            state.record(path, signal, now_ns, 1.0)
            assert state.closure(path).until_ns <= now_ns + retry.max_server_wait_ns
            now_ns += step_ns


@settings(max_examples=fuzz_count(10))
@given(st.integers(1, 3000), st.booleans())
@example(3000, True)
def test_names_that_a_server_makes_up_use_bounded_memory(count: int, is_exhausted: bool) -> None:
    state = HostStates().get("a", 0)
    left = 0 if is_exhausted else 1
    with bounded():
        for number in range(count):
            fields = {"ratelimit": f'"limit-{number}";r={left};t=9'}
            state.record(f"/{number}", read_signal(ResponseInfo(200, fields.get), NOW_NS), 0, 0.5)
    assert len(state._closures) <= MAX_CLOSURES
    assert len(state._policies) <= MAX_PATHS
