"""The httpx transports, on a clock that does not really sleep and a server that is a function."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate import AsyncRateLimiter, FixedWindow, RateLimiter
from headgate.clients import HostStates, NotSentError, RetryPolicy
from headgate.clients.httpx import AsyncPacedTransport, HttpxNotSentError, PacedTransport
from headgate.clients.signals import PATH, Signal
from headgate.testing import ManualClock
from tests.support.httpx_clients import URL, Blocking, Body, Service, kinds, since

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000_000)


@kinds
def test_a_denied_get_comes_back_when_the_server_said(kind: str, clock: ManualClock) -> None:
    service = Service(clock, (429, {"Retry-After": "5"}), (503, {"Retry-After": "2"}))
    with Blocking(kind, service) as client:
        assert client.request("GET", URL).status_code == 200
    assert since(service) == [0, 5, 7]


@kinds
def test_a_discarded_answer_is_read_off_and_closed(kind: str, clock: ManualClock) -> None:
    service = Service(clock, (429, {"Retry-After": "5"}))
    with Blocking(kind, service) as client:
        client.request("GET", URL)
    assert (service.bodies[0].left, service.bodies[0].closed) == (0, True)


@kinds
def test_the_body_of_a_denial_is_read_so_far_and_no_further(kind: str, clock: ManualClock) -> None:
    huge = Body(10**6)
    answers = [httpx.Response(429, headers={"Retry-After": "1"}, stream=huge), httpx.Response(200)]
    service = Service(clock)
    service.__class__ = type("Ready", (Service,), {"__call__": lambda *_: answers.pop(0)})
    with Blocking(kind, service) as client:
        assert client.request("GET", URL).status_code == 200
    assert huge.left > 999_900
    assert huge.closed


@kinds
def test_the_answer_is_given_back_after_the_last_attempt(kind: str, clock: ManualClock) -> None:
    service = Service(clock, *[(429, {"Retry-After": "1"})] * 9)
    with Blocking(kind, service) as client:
        response = client.request("GET", URL)
    assert (response.status_code, response.content) == (429, b"x" * 2_000)
    assert since(service) == [0, 1, 2]


@kinds
def test_a_post_is_sent_once_and_with_a_key_again(kind: str, clock: ManualClock) -> None:
    service = Service(clock, *[(429, {"Retry-After": "1"})] * 2)
    with Blocking(kind, service) as client:
        assert client.request("POST", URL, json={}).status_code == 429
        headers = {"Idempotency-Key": "order-17"}
        assert client.request("POST", URL, json={}, headers=headers).status_code == 200
    assert since(service) == [0, 1, 2]


def test_a_body_that_is_a_stream_is_sent_once(clock: ManualClock) -> None:
    service = Service(clock, (429, {"Retry-After": "1"}))
    with Blocking("sync", service) as client:
        assert client.request("PUT", URL, content=iter([b"once"])).status_code == 429
    assert len(service.times) == 1


@kinds
def test_a_denial_makes_calls_to_its_path_wait_and_no_others(kind: str, clock: ManualClock) -> None:
    service = Service(clock, (429, {"Retry-After": "30"}))
    with Blocking(kind, service) as client:
        client.request("POST", URL)
        client.request("GET", "https://other.example.com")
        client.request("POST", URL + "/other")
        client.request("POST", URL + "?page=2")
    assert since(service) == [0, 0, 0, 30]


POLICIES = {"RateLimit-Policy": '"daily";q=9;w=86400', "RateLimit": '"daily";r=0;t=30'}


@kinds
def test_a_denial_makes_calls_under_its_policy_wait(kind: str, clock: ManualClock) -> None:
    left = {**POLICIES, "RateLimit": '"daily";r=1;t=30'}
    other = {**POLICIES, "RateLimit-Policy": '"search";q=9;w=60', "RateLimit": '"search";r=1;t=30'}
    service = Service(clock, (200, left), (200, other), (429, {**POLICIES, "Retry-After": "30"}))
    with Blocking(kind, service) as client:
        client.request("GET", URL + "/shared")
        client.request("GET", URL + "/search")
        client.request("POST", URL)
        client.request("GET", URL + "/search")
        client.request("GET", URL + "/unknown")
        client.request("GET", URL + "/shared")
    assert since(service) == [0, 0, 0, 0, 0, 30]


@kinds
def test_a_policy_with_another_partition_key_is_another_limit(
    kind: str, clock: ManualClock
) -> None:
    first, second = ({"RateLimit": f'"user";r=0;t=30;pk=:{pk}:'} for pk in ("YQ==", "Yg=="))
    service = Service(
        clock, (200, {**second, "RateLimit": '"user";r=9;t=30;pk=:Yg==:'}), (429, first)
    )
    with Blocking(kind, service, retry=RetryPolicy(max_attempts=1)) as client:
        client.request("GET", URL + "/b")
        client.request("GET", URL + "/a")
        client.request("GET", URL + "/b")
        client.request("GET", URL + "/a")
    assert since(service) == [0, 0, 0, 30]


@kinds
@pytest.mark.parametrize(
    ("status", "policy"), [(429, RetryPolicy(scope="host")), (503, RetryPolicy())]
)
def test_all_calls_to_a_host_wait(
    kind: str, status: int, policy: RetryPolicy, clock: ManualClock
) -> None:
    """For a host that is overloaded, or where the client knows that all paths share a limit."""
    service = Service(clock, (status, {"Retry-After": "30"}))
    with Blocking(kind, service, retry=policy) as client:
        client.request("POST", URL)
        client.request("GET", "https://other.example.com")
        client.request("POST", URL + "/other")
    assert since(service) == [0, 0, 30]


@kinds
def test_the_call_after_the_last_one_allowed_waits(kind: str, clock: ManualClock) -> None:
    last = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1000000042"}
    service = Service(clock, (200, last))
    with Blocking(kind, service) as client:
        client.request("GET", URL)
        client.request("GET", URL)
    assert since(service) == [0, 42]


@kinds
def test_a_wait_that_is_too_long_is_an_error_of_both_sides(kind: str, clock: ManualClock) -> None:
    service = Service(clock, (429, {"Retry-After": "3600"}))
    with Blocking(kind, service) as client:
        assert client.request("GET", URL).status_code == 429
        with pytest.raises(httpx.TransportError) as caught:
            client.request("GET", URL)
    error = caught.value
    assert isinstance(error, NotSentError)
    assert (error.retry_after, error.cause) == (3_600, "server")
    assert error.origin == "https://api.example.com:443"
    assert error.request.url == URL
    assert len(service.times) == 1


@kinds
def test_a_call_that_was_sent_and_denied_says_that_it_is_not_sent_again(
    kind: str, clock: ManualClock
) -> None:
    shared = HostStates()
    host = shared.get("https://api.example.com:443", clock())

    class Closing(Body):
        """The body of a denial; before it ends, another response asks for a longer wait."""

        def __iter__(self) -> Iterator[bytes]:
            host.record("/things", Signal(is_denied=True, waits={PATH: 10**12}), clock(), 0.0)
            return super().__iter__()

    class Denying(Service):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(429, headers={"Retry-After": "5"}, stream=Closing())

    with (
        Blocking(kind, Denying(clock), hosts=shared) as client,
        pytest.raises(NotSentError, match=r"^not sent again to https://api.example.com:443: the"),
    ):
        client.request("GET", URL)


@kinds
def test_a_pace_spaces_calls_evenly(kind: str, clock: ManualClock) -> None:
    service = Service(clock)
    with Blocking(kind, service, pace="2/s") as client:
        for _ in range(5):
            client.request("GET", URL)
    assert since(service) == [0, 0.5, 1, 1.5, 2]


@kinds
def test_a_pace_is_kept_by_attempts_too(kind: str, clock: ManualClock) -> None:
    service = Service(clock, (429, {"Retry-After": "1"}))
    with Blocking(kind, service, pace="1/4s") as client:
        client.request("GET", URL)
    assert since(service) == [0, 4]


@kinds
def test_a_pace_that_allows_the_call_too_late_is_an_error(kind: str, clock: ManualClock) -> None:
    service = Service(clock)
    with Blocking(kind, service, pace="1/m", retry=RetryPolicy(max_wait=59)) as client:
        client.request("GET", URL)
        with pytest.raises(HttpxNotSentError, match="the pace is used up") as caught:
            client.request("GET", URL)
    assert (caught.value.retry_after, caught.value.cause) == (60, "pace")
    assert len(service.times) == 1


@kinds
def test_keys_of_ones_own_have_paces_of_their_own(kind: str, clock: ManualClock) -> None:
    service = Service(clock)

    def key(request: httpx.Request) -> str:
        return str(request.headers["Authorization"])

    with Blocking(kind, service, pace="1/m", key=key) as client:
        for token in ("a", "b", "a"):
            client.request("GET", URL, headers={"Authorization": token})
    assert since(service) == [0, 0, 60]


@kinds
def test_a_server_closes_a_key_at_itself_alone(kind: str, clock: ManualClock) -> None:
    service = Service(clock, (429, {"Retry-After": "3600"}))
    with Blocking(kind, service, key=lambda _: "s3cret") as client:
        assert client.request("GET", "https://strict.example.com").status_code == 429
        assert client.request("GET", URL).status_code == 200
        with pytest.raises(NotSentError) as caught:
            client.request("GET", "https://strict.example.com")
    assert caught.value.origin == "https://strict.example.com:443"


def test_a_limiter_of_ones_own_is_used_and_left_open(clock: ManualClock) -> None:
    limiter = RateLimiter("1/10s", clock=clock)
    service = Service(clock)
    with Blocking("sync", service, pace=limiter) as client:
        client.request("GET", URL)
        client.request("GET", URL)
    assert since(service) == [0, 10]
    assert limiter.peek("https://api.example.com:443").remaining == 0


def test_a_closed_client_gives_back_what_it_opened_alone(clock: ManualClock) -> None:
    closed: list[str] = []

    class Inner(httpx.BaseTransport):
        def close(self) -> None:
            closed.append("transport")

    class Limiter(RateLimiter):
        def close(self) -> None:
            closed.append("limiter")

    PacedTransport(Inner(), pace=Limiter("1/s")).close()
    assert closed == ["transport"]


def test_clients_can_share_what_servers_said(clock: ManualClock) -> None:
    shared = HostStates()
    service = Service(clock, (429, {"Retry-After": "9"}))
    with (
        Blocking("sync", service, hosts=shared) as one,
        Blocking("async", service, hosts=shared) as other,
    ):
        one.request("POST", URL)
        other.request("POST", URL)
    assert since(service) == [0, 9]


@kinds
def test_what_was_taken_from_the_pace_in_vain_is_given_back(kind: str, clock: ManualClock) -> None:
    """The host closes while a call waits for its pace."""
    shared = HostStates()
    service = Service(clock)
    limits = FixedWindow(5, 100)
    limiter: Any = (
        RateLimiter(limits, clock=clock)
        if kind == "sync"
        else AsyncRateLimiter(limits, clock=clock)
    )
    acquire = limiter.acquire

    def close_meanwhile() -> None:
        host = shared.get("https://api.example.com:443", clock())
        host.record("/things", Signal(is_denied=True, waits={PATH: 3 * 10**9}), clock(), 0.0)
        limiter.acquire = acquire

    if kind == "sync":

        def blocked(*args: Any, **kwargs: Any) -> Any:
            close_meanwhile()
            return acquire(*args, **kwargs)

        limiter.acquire = blocked
    else:

        async def waiting(*args: Any, **kwargs: Any) -> Any:
            close_meanwhile()
            return await acquire(*args, **kwargs)

        limiter.acquire = waiting
    with Blocking(kind, service, pace=limiter, hosts=shared) as client:
        assert client.request("GET", URL).status_code == 200
    assert since(service) == [3]
    left = limiter.peek("https://api.example.com:443")
    left = asyncio.run(left) if kind == "async" else left
    assert left.remaining == 4


def test_a_cancelled_call_leaves_the_line_to_others() -> None:
    async def story() -> int:
        calls = 0

        async def answer(request: httpx.Request) -> httpx.Response:
            nonlocal calls
            calls += 1
            return httpx.Response(200)

        transport = AsyncPacedTransport(httpx.MockTransport(answer), pace="1/100ms")
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get(URL)
            waiting = [asyncio.create_task(client.get(URL)) for _ in range(3)]
            await asyncio.sleep(0)
            for task in waiting[:2]:
                task.cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(one).__name__ for one in results][:2] == ["CancelledError"] * 2
            assert isinstance(results[2], httpx.Response)
        return calls

    assert asyncio.run(story()) == 2


@kinds
@pytest.mark.parametrize("error", [KeyboardInterrupt, httpx.ConnectError("refused")])
def test_an_error_or_interrupt_of_an_attempt_reaches_the_caller_and_is_not_retried(
    kind: str, error: Any, clock: ManualClock
) -> None:
    class Failing(Service):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            response = super().__call__(request)
            if len(self.times) == 1:
                raise error
            return response

    service = Failing(clock)
    with Blocking(kind, service, pace="1/s") as client:
        with pytest.raises(BaseException) as caught:  # noqa: PT011 (an interrupt is no Exception)
            client.request("GET", URL)
        assert caught.type is (error if isinstance(error, type) else type(error))
        assert client.request("GET", URL).status_code == 200
    assert since(service) == [0, 1]
