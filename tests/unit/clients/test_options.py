"""The options of clients: mistakes are reported when a client is made."""

from typing import Any

import httpx
import pytest

from headgate import AsyncRateLimiter, RateLimiter
from headgate.clients import HostStates, RetryPolicy
from headgate.clients.aiohttp import PacedMiddleware, PacedSession
from headgate.clients.caller import origin
from headgate.clients.httpx import AsyncPacedTransport, PacedTransport
from headgate.clients.options import read_pace
from headgate.clients.requests import PacedAdapter
from headgate.errors import HeadgateError, KeyInvalidError, LimitError, OptionError
from headgate.limits import GCRA, Concurrency, FixedWindow, LeakyBucket, Limit, TokenBucket
from headgate.testing import ManualClock
from tests.support.httpx_clients import URL, Blocking, Service, since

CLIENTS: dict[str, Any] = {
    "httpx": PacedTransport,
    "httpx async": AsyncPacedTransport,
    "requests": PacedAdapter,
    "aiohttp": PacedMiddleware,
    "aiohttp session": PacedSession,
}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a name": (
        {"pase": "10/s"},
        "'pase' is not an option; expected one of clock, hosts, include_usage, key",
    ),
    "a rate": ({"pace": "10/fortnight"}, "does not belong here"),
    "a number as a pace": ({"pace": 10}, "the pace is 10; expected text such as '10/s'"),
    "no rate": ({"pace": []}, "the pace is empty"),
    "slots as a pace": ({"pace": Concurrency(5, 60)}, "which is no rate"),
    "a key that is text": ({"key": "token"}, "key is 'token'; expected a function"),
    "a number of retries": ({"retry": 3}, "retry is 3; expected a RetryPolicy"),
    "hosts of another type": ({"hosts": {}}, "hosts is {}; expected a HostStates"),
    "two retry policies": (
        {"retry": RetryPolicy(), "hosts": HostStates()},
        "give the retry policy to them",
    ),
    "a clock": ({"clock": 5}, "the clock is 5; expected a function like time.time_ns"),
    "random numbers": ({"random": 0.5}, "random is 0.5; expected a function like random.random"),
    "a store without a pace": ({"store": "memory://"}, "store is for a pace such as '10/s'"),
    "a namespace without a pace": ({"namespace": "x"}, "namespace is for a pace"),
    "a failure policy without a pace": ({"on_store_failure": "fail_open"}, "is for a pace"),
    "a failure policy": ({"pace": "1/s", "on_store_failure": "fail_shut"}, "fail_shut"),
    "a store URL": ({"pace": "1/s", "store": "rediss//localhost"}, "rediss//localhost"),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_when_the_client_is_made(client: str, mistake: str) -> None:
    options, message = MISTAKES[mistake]
    with pytest.raises(HeadgateError) as caught:
        CLIENTS[client](**options)
    assert message in str(caught.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_limiter_of_the_wrong_kind_is_rejected(client: str) -> None:
    blocking = client in ("httpx", "requests")
    wrong = AsyncRateLimiter("1/s") if blocking else RateLimiter("1/s")
    expected = "a RateLimiter" if blocking else "an AsyncRateLimiter"
    with pytest.raises(OptionError, match=f"expected {expected} in this client"):
        CLIENTS[client](pace=wrong)


def test_a_limiter_of_slots_is_rejected() -> None:
    with pytest.raises(OptionError, match="which is no rate"):
        PacedTransport(pace=RateLimiter(Concurrency(5, 60)))


@pytest.mark.parametrize(
    ("client", "wrong"),
    [
        (PacedTransport, "10/s"),
        (PacedTransport, httpx.AsyncHTTPTransport()),
        (AsyncPacedTransport, httpx.HTTPTransport()),
        (PacedSession, "10/s"),
        (PacedSession, {"timeout_s": 5}),
    ],
)
def test_a_positional_argument_of_another_type_is_rejected(client: Any, wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"expected an? |not an option of ClientSession|by name"):
        client(wrong)


def test_a_mock_transport_serves_both_kinds() -> None:
    mock = httpx.MockTransport(lambda _: httpx.Response(200))
    PacedTransport(mock)
    AsyncPacedTransport(mock)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("https", "api.example.com", None), "https://api.example.com:443"),
        (("HTTPS", "API.Example.com", 443), "https://api.example.com:443"),
        (("http", "127.0.0.1", 8080), "http://127.0.0.1:8080"),
        (("http", "::1", None), "http://[::1]:80"),
        (("http", "[::1]", 80), "http://[::1]:80"),
        (("unix", "x", None), "unix://x"),
    ],
)
def test_one_origin_has_one_name(parts: tuple[str, str, int | None], text: str) -> None:
    assert origin(*parts) == text


def paced_keys(*calls: tuple[str, str]) -> list[float]:
    """Send calls to origins with tokens, one a minute for each key; return when each was sent."""
    service = Service(ManualClock(1_000_000_000))
    field = "Authorization"
    with Blocking("sync", service, pace="1/m", key=lambda it: it.headers[field]) as client:
        for address, key in calls:
            client.request("GET", address, headers={field: key})
    return since(service)


def test_a_key_is_one_of_its_origin_alone() -> None:
    """Another server must not close it, nor one whose name and key run together alike."""
    keys = [("https://a", "s1"), ("https://b", "s1"), ("https://as", "1"), ("https://a", "s2")]
    assert paced_keys(*keys) == [0, 0, 0, 0]
    assert paced_keys(*keys[:1] * 2) == [0, 60]


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_key_function_must_return_a_text(key: object) -> None:
    service = Service(ManualClock())
    with (
        Blocking("sync", service, key=lambda _: key) as client,
        pytest.raises(KeyInvalidError, match="the key function returned"),
    ):
        client.request("GET", URL)
    assert service.times == []


@pytest.mark.parametrize(
    ("pace", "limits"),
    [
        ("10/s", [LeakyBucket(1, 10)]),
        ("90/minute", [LeakyBucket(1, 1.5)]),
        ("10/s burst 5", [LeakyBucket(5, 10)]),
        ("10/s token_bucket", [TokenBucket(10, 10)]),
        ("10/s Token-Bucket burst 3", [TokenBucket(3, 10)]),
        ("10/s gcra", [GCRA(10, 10)]),
        ("10/s; 5000/h fixed_window", [LeakyBucket(1, 10), FixedWindow(5_000, 3_600)]),
        (TokenBucket(5, 10), [TokenBucket(5, 10)]),
        (["10/s", FixedWindow(5_000, 3_600)], [LeakyBucket(1, 10), FixedWindow(5_000, 3_600)]),
    ],
)
def test_a_plain_rate_is_spaced_and_a_named_algorithm_stays_as_it_is(
    pace: Any, limits: list[Limit]
) -> None:
    assert read_pace(pace) == tuple(limits)


@pytest.mark.parametrize("pace", [10, [], None, b"10/s", {"10/s": 1}, Concurrency(5, 60), [3]])
def test_anything_else_is_no_pace(pace: Any) -> None:
    with pytest.raises(OptionError, match="pace is"):
        read_pace(pace)


def test_a_text_that_is_no_rate_is_rejected_like_any_limit() -> None:
    with pytest.raises(LimitError, match="does not belong here"):
        read_pace("10/fortnight")
