"""The rate-limit signals of responses, as servers really send them."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.clients import signals
from headgate.clients.signals import (
    HOST,
    PATH,
    ResponseInfo,
    Signal,
    read_signal,
    wait_until_ns,
)
from headgate.units import MILLISECOND, SECOND

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * SECOND
EPOCH = int(NOW.timestamp())


def read(status: int, headers: dict[str, str], time_ns: int = NOW_NS) -> Signal:
    fields = {name.lower(): value for name, value in headers.items()}
    return read_signal(ResponseInfo(status, fields.get), time_ns)


def wait_of(status: int, headers: dict[str, str], time_ns: int = NOW_NS) -> int | None:
    """Return the longest wait in nanoseconds."""
    waits = read(status, headers, time_ns).waits.values()
    return max((wait for wait in waits if wait is not None), default=None)


def is_denied(status: int, headers: dict[str, str]) -> bool:
    return read(status, headers).is_denied


def http_date(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


DENIALS = {
    "seconds": ({"Retry-After": "12"}, 12.0),
    "a fraction of a second": ({"Retry-After": "0.25"}, 0.25),
    "an HTTP-date": ({"Retry-After": http_date(90)}, 90.0),
    "a date as RFC 850 has it": ({"Retry-After": "Sunday, 01-Mar-26 12:01:00 GMT"}, 60.0),
    "a date as asctime has it": ({"Retry-After": "Sun Mar  1 12:01:00 2026"}, 60.0),
    "a date that is over": ({"Retry-After": http_date(-90)}, 0.0),
    "spaces": ({"Retry-After": "  7 "}, 7.0),
    "sent twice": ({"Retry-After": "3, 8"}, 8.0),
    "a date sent twice": ({"Retry-After": f"{http_date(30)}, {http_date(90)}"}, 90.0),
    "a date, and sooner, seconds": ({"Retry-After": f"{http_date(30)},5"}, 30.0),
    "two dates as RFC 850 has them": (
        {"Retry-After": "Sunday, 01-Mar-26 12:00:05 GMT, Sunday, 01-Mar-26 12:00:09 GMT"},
        9.0,
    ),
    "with a unit": ({"Retry-After": "60s"}, 60.0),
    "milliseconds": ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
    "milliseconds that cannot be read": ({"Retry-After-Ms": "soon", "Retry-After": "1"}, 1.0),
    "an epoch second": ({"Retry-After": str(EPOCH + 30)}, 30.0),
    "Retry-After wins over a longer reset": (
        {"Retry-After": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "900"},
        2.0,
    ),
    "Retry-After wins over a shorter reset": (
        {"Retry-After": "20", "RateLimit": '"a";r=0;t=1'},
        20.0,
    ),
    "GitHub": (
        {
            "X-RateLimit-Limit": "5000",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": str(EPOCH + 44),
            "X-RateLimit-Used": "5000",
        },
        44.0,
    ),
    "GitLab": (
        {
            "RateLimit-Limit": "60",
            "RateLimit-Observed": "67",
            "RateLimit-Remaining": "0",
            "RateLimit-Reset": str(EPOCH + 33),
            "RateLimit-ResetTime": http_date(33),
            "Retry-After": "33",
        },
        33.0,
    ),
    "Okta": (
        {
            "X-Rate-Limit-Limit": "600",
            "X-Rate-Limit-Remaining": "0",
            "X-Rate-Limit-Reset": str(EPOCH + 9),
        },
        9.0,
    ),
    "Discord": (
        {
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": f"{EPOCH + 1}.417",
            "X-RateLimit-Reset-After": "1.417",
            "X-RateLimit-Bucket": "abcd1234",
        },
        1.417,
    ),
    "OpenAI": (
        {
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "6m0s",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-tokens": "17ms",
        },
        360.0,
    ),
    "OpenAI, of tokens": (
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"},
        0.12,
    ),
    "Anthropic, of input and output": (
        {
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-input-tokens-reset": "2026-03-01T12:00:05Z",
            "anthropic-ratelimit-output-tokens-remaining": "0",
            "anthropic-ratelimit-output-tokens-reset": "2026-03-01T12:00:07Z",
        },
        7.0,
    ),
    "Anthropic": (
        {
            "anthropic-ratelimit-tokens-remaining": "0",
            "anthropic-ratelimit-tokens-reset": "2026-03-01T12:00:05Z",
        },
        5.0,
    ),
    "milliseconds since the epoch": (
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(EPOCH * 1000 + 1500)},
        1.5,
    ),
    "a reset without what remains": ({"X-RateLimit-Reset": "4"}, 4.0),
    "draft 11": ({"RateLimit-Policy": '"a";q=10;w=60', "RateLimit": '"a";r=0;t=12'}, 12.0),
    "draft 11, two limits used up": ({"RateLimit": '"a";r=0;t=2, "b";r=0;t=30'}, 30.0),
    "draft 11, odd names and parameters": (
        {"RateLimit": '"a;r=5,\\"t=9";r=0;qu="x;r=7,";pk=:dHI=:;t=3'},
        3.0,
    ),
    "draft 7": ({"RateLimit": "limit=100, remaining=0, reset=50"}, 50.0),
    "draft 3": ({"RateLimit-Remaining": "0", "RateLimit-Reset": "8"}, 8.0),
    "two limits in a field": (
        {"X-RateLimit-Remaining": "0, 499", "X-RateLimit-Reset": "1, 3600"},
        1.0,
    ),
    "two limits and two dates": (
        {
            "X-RateLimit-Remaining": "499, 0",
            "X-RateLimit-Reset": f"{http_date(3600)}, {http_date(7)}",
        },
        7.0,
    ),
    "two limits and one date": (
        {"X-RateLimit-Remaining": "0, 499", "X-RateLimit-Reset": http_date(6)},
        6.0,
    ),
    "one limit and two resets": ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1, 9"}, 9.0),
    "RateLimit wins over a later reset": (
        {"RateLimit": '"a";r=0;t=2', "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "900"},
        2.0,
    ),
    "more items than are read": ({"Retry-After": "1, " * 20 + "99"}, 1.0),
}


@pytest.mark.parametrize(("headers", "seconds"), DENIALS.values(), ids=DENIALS.keys())
def test_a_denial_names_the_wait(headers: dict[str, str], seconds: float) -> None:
    assert is_denied(429, headers)
    assert wait_of(429, headers) == round(seconds * SECOND)


IGNORED = {
    "nothing": {},
    "Stripe, which says nothing of time": {"Stripe-Rate-Limited-Reason": "global-rate"},
    "words": {"Retry-After": "soon"},
    "a negative number": {"Retry-After": "-5"},
    "a number with an exponent": {"Retry-After": "1e3"},
    "digits of another script": {"Retry-After": "\N{ARABIC-INDIC DIGIT FIVE}"},
    "an empty field": {"Retry-After": "", "RateLimit": "", "X-RateLimit-Reset": ""},
    "something left": {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "900"},
    "unlimited": {"X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "900"},
    "draft 11 with something left": {"RateLimit": '"a";r=1;t=12'},
    "draft 11 without r": {"RateLimit": '"a";t=12'},
    "draft 11 without t": {"RateLimit": '"slots";r=0'},
    "draft 11 with a negative t": {"RateLimit": '"a";r=0;t=-12'},
    "draft 11 with a word": {"RateLimit": '"a";r=none;t=12'},
    "too long a field": {"RateLimit": '"a";r=0;t=12' + " " * 1_013},
    "a field from a cache": {"RateLimit": '"a";r=0;t=12', "Age": "4"},
}


@pytest.mark.parametrize("headers", IGNORED.values(), ids=IGNORED.keys())
def test_a_denial_that_names_no_time_is_a_denial(headers: dict[str, str]) -> None:
    assert is_denied(429, headers)
    assert list(read(429, headers).waits.values()) == [None]


def test_a_success_with_nothing_left_says_to_wait() -> None:
    assert not is_denied(200, {"RateLimit": '"a";r=0;t=5'})
    assert wait_of(200, {"RateLimit": '"a";r=0;t=5'}) == 5 * SECOND


def test_a_success_says_nothing_by_a_reset_alone() -> None:
    assert read(200, {"X-RateLimit-Reset": "900"}) == Signal(is_denied=False)


@pytest.mark.parametrize("status", [200, 202, 301, 404, 413, 500])
def test_retry_after_on_other_responses_is_about_that_resource_alone(status: int) -> None:
    assert read(status, {"Retry-After": "5"}) == Signal(is_denied=False)


@pytest.mark.parametrize("status", [429, 503])
def test_some_responses_are_always_denials(status: int) -> None:
    assert is_denied(status, {})
    assert is_denied(status, {"Retry-After": "5"})
    assert wait_of(status, {"Retry-After": "5"}) == 5 * SECOND


def test_a_403_is_a_denial_if_it_names_a_time() -> None:
    assert not is_denied(403, {})
    assert is_denied(403, {"Retry-After": "60"})
    assert wait_of(403, {"Retry-After": "60"}) == 60 * SECOND
    used_up = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(EPOCH + 7)}
    assert is_denied(403, used_up)
    assert wait_of(403, used_up) == 7 * SECOND


@pytest.mark.parametrize("wrong_by", [-100_000, 100_000])
@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": http_date(30)},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(EPOCH + 30)},
    ],
)
def test_a_clock_of_ours_that_is_wrong_does_not_matter_if_the_server_sends_its_date(
    headers: dict[str, str], wrong_by: int
) -> None:
    headers = {**headers, "Date": http_date(0)}
    assert wait_of(429, headers, NOW_NS + wrong_by * SECOND) == 30 * SECOND


@given(seconds=st.integers(0, 10**9 - 1), headers=st.dictionaries(st.text(), st.text()))
def test_the_wait_is_never_shorter_than_retry_after(seconds: int, headers: dict[str, str]) -> None:
    assert wait_of(429, {**headers, "retry-after": str(seconds)}) == seconds * SECOND


NAMES = (
    "retry-after",
    "date",
    "age",
    "ratelimit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset-tokens",
)
PIECES = st.one_of(
    st.text(max_size=20),
    st.text('0123456789.,;=:"\\ rtGMTZ-+hms', max_size=40),
    st.from_regex(r"[0-9]{1,50}(\.[0-9]{0,50})?", fullmatch=True),
    st.from_regex(r'"[a-z]*";r=[0-9]{1,30};t=[0-9]{1,30}', fullmatch=True),
    st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,6} [A-Z][a-z]{2} [0-9]{1,7} [0-9:]{0,12} GMT"),
    st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+Z-]{0,20}"),
)


@given(
    status=st.sampled_from([200, 403, 429, 503]),
    headers=st.dictionaries(st.sampled_from(NAMES), PIECES),
)
@example(429, {"retry-after": "Mon, 01 Jan 99999999999999 00:00:00 GMT"})
@example(429, {"retry-after": "9" * 40})
@example(429, {"date": "0001-01-01T00:00:00+23:59", "retry-after": "5"})
def test_nothing_that_a_server_sends_raises(status: int, headers: dict[str, str]) -> None:
    for wait_ns in read(status, headers).waits.values():
        assert wait_ns is None or wait_ns >= 0


@pytest.mark.parametrize(
    ("remaining", "reset"),
    [("0," * 400, "1," * 390 + "x"), ("0", "a b," * 200), ("0," * 400, "a b," * 100), ("0,0", "1")],
)
def test_what_a_field_costs_is_bounded_whatever_is_in_it(
    remaining: str, reset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def counting(text: str, now_ns: int) -> int | None:
        seen.append(text)
        return wait_until_ns(text, now_ns)

    monkeypatch.setattr(signals, "wait_until_ns", counting)
    read(200, {"X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": reset})
    assert 1 <= len(seen) <= signals.MAX_ITEMS
    assert len(set(reset.split(","))) > 1 or len(seen) == 1
    seen.clear()
    read(429, {"Retry-After": reset})
    assert 1 <= len(seen) <= signals.MAX_ITEMS


def test_no_more_limits_of_a_structured_field_are_read() -> None:
    many = ", ".join(f'"{n}";r=0;t={n + 1}' for n in range(40))
    assert wait_of(200, {"RateLimit": many}) == signals.MAX_ITEMS * SECOND


@given(nanoseconds=st.integers(0, 10**17))
def test_a_number_is_read_exactly(nanoseconds: int) -> None:
    seconds, rest = divmod(nanoseconds, SECOND)
    assert wait_until_ns(f"{seconds}.{rest:09}", NOW_NS) == nanoseconds
    assert wait_until_ns(f"{seconds}.{rest:09}1", NOW_NS) == nanoseconds + 1


def test_durations_add_up() -> None:
    assert wait_until_ns("1h2m3.5s", 0) == 3_723_500 * MILLISECOND
    assert wait_until_ns("17ms", 0) == 17 * MILLISECOND
    assert wait_until_ns("5x", 0) is None


SCOPES: dict[str, tuple[int, dict[str, str], dict[str, int | None]]] = {
    "a path": (429, {"Retry-After": "5"}, {PATH: 5}),
    "a path without a time": (429, {}, {PATH: None}),
    "a host": (503, {"Retry-After": "5"}, {HOST: 5}),
    "nothing": (503, {}, {}),
    "fields without names": (
        200,
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "5"},
        {PATH: 5},
    ),
    "a bucket of Discord": (
        429,
        {"X-RateLimit-Bucket": "abcd", "Retry-After": "5"},
        {"bucket abcd": 5},
    ),
    "a resource of GitHub": (
        200,
        {
            "X-RateLimit-Resource": "search",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "5",
        },
        {"bucket search": 5},
    ),
    "an exhausted policy": (
        429,
        {"RateLimit": '"a";r=0;t=2, "b";r=3;t=60', "Retry-After": "5"},
        {"policy a;": 5},
    ),
    "two exhausted policies": (
        200,
        {"RateLimit": '"a";r=0;t=2, "b";r=0;t=60'},
        {"policy a;": 2, "policy b;": 60},
    ),
    "a partition of a policy": (
        429,
        {"RateLimit": '"a";r=0;t=2;pk=:Zm9v:'},
        {"policy a;:Zm9v:": 2},
    ),
    "the only policy": (
        429,
        {"RateLimit-Policy": '"a";q=9;w=60', "Retry-After": "5"},
        {"policy a;": 5},
    ),
    "one of several policies, not known which": (
        429,
        {"RateLimit-Policy": '"a";q=9;w=60, "b";q=9;w=1', "Retry-After": "5"},
        {PATH: 5},
    ),
    "slots, which come back at an unknown time": (
        429,
        {"RateLimit": '"slots";r=0'},
        {"policy slots;": None},
    ),
    "slots of a success": (200, {"RateLimit": '"slots";r=0'}, {}),
}


@pytest.mark.parametrize(("status", "headers", "waits"), SCOPES.values(), ids=SCOPES.keys())
def test_a_wait_applies_to_its_scope(
    status: int, headers: dict[str, str], waits: dict[str, int | None]
) -> None:
    times = {scope: None if wait is None else wait * SECOND for scope, wait in waits.items()}
    assert read(status, headers).waits == times


def test_the_policies_of_a_path_are_in_both_fields() -> None:
    headers = {"RateLimit": '"a";r=1;pk=:YQ==:', "RateLimit-Policy": '"a";q=9, "b;c";q=9;w=5'}
    assert read(200, headers).policies == {"policy a;:YQ==:", "policy a;", "policy b;c;"}


RESET = {
    "Date": http_date(0),
    "RateLimit": '"a";r=0;t=1',
    "X-RateLimit-Remaining": "0",
    "X-RateLimit-Reset": str(EPOCH + 1),
}


@pytest.mark.parametrize(
    ("ahead_ms", "wait_ms"),
    [
        (0, 1_000),  # not less than a second
        (700, 305),  # the last second of `t`, and 5 ms
        (990, 15),
        (1_200, 1_000),  # past: the server decides
        (-1, 1_000),  # behind the server
        (5_000, 1_000),  # wrong
    ],
)
def test_a_reset_in_the_last_second_is_exact_if_the_clock_agrees_with_the_server(
    ahead_ms: int, wait_ms: int
) -> None:
    now_ns = NOW_NS + ahead_ms * MILLISECOND
    assert wait_of(200, RESET, now_ns) == wait_ms * MILLISECOND
    assert read(200, RESET, now_ns).is_by_clock is (wait_ms < 1_000)


@pytest.mark.parametrize(
    ("status", "changes"),
    [(429, {"Retry-After": "1"}), (200, {"Date": ""}), (200, {"X-RateLimit-Remaining": "3"})],
)
def test_a_reset_changes_nothing_else(status: int, changes: dict[str, str]) -> None:
    assert wait_of(status, {**RESET, **changes}, NOW_NS + SECOND // 2) == SECOND


def test_a_clock_that_is_not_trusted_changes_nothing() -> None:
    fields = {name.lower(): value for name, value in RESET.items()}
    info = ResponseInfo(200, fields.get)
    signal = read_signal(info, NOW_NS + SECOND // 2, trusts_clock=False)
    assert signal.waits == {"policy a;": SECOND}
