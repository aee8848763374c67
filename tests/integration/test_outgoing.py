"""Every client against a real server with a limit. What counts is what the server has seen."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import pytest
import requests
from urllib3.util import Retry

from headgate import RateLimiter
from headgate.clients import Backoff, NotSentError, RetryPolicy
from headgate.clients.aiohttp import PacedMiddleware, PacedSession
from headgate.clients.httpx import AsyncPacedTransport, PacedTransport
from headgate.clients.requests import PacedAdapter
from headgate.errors import UsageError
from tests.support.limited_server import (
    CLIENTS,
    DRIPS,
    PATIENCE,
    LimitedServer,
    Reply,
    client_of,
    streamed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 0.1
DENIED: Reply = (429, {"Retry-After": f"{WAIT}"})
QUICK = RetryPolicy(backoff=Backoff(first=0.01))
OWN_ERRORS: dict[str, type[Exception]] = {
    "httpx": httpx.TransportError,
    "httpx-async": httpx.TransportError,
    "requests": requests.RequestException,
    "aiohttp": aiohttp.ClientError,
}

clients = pytest.mark.parametrize("kind", CLIENTS)


def denying(*numbers: int) -> Callable[[int], Reply]:
    """Deny the requests of these numbers."""
    return lambda number: DENIED if number in numbers else (200, {})


@clients
def test_fifty_callers_are_denied_once_and_come_back_when_the_server_said(kind: str) -> None:
    with (
        LimitedServer(denying(*range(10, 50)), herd=50) as server,
        client_of(kind, retry=QUICK) as client,
    ):
        assert client.together(50, "GET", server.url) == [200] * 50
    assert (len(server.arrivals), server.denied) == (90, 40)
    assert server.came_before(WAIT) == 0


@clients
def test_after_one_denial_no_call_comes_before_the_moment_named(kind: str) -> None:
    with LimitedServer(denying(0)) as server, client_of(kind, retry=QUICK) as client:
        assert client.call("POST", server.url) == 429
        assert client.together(20, "POST", server.url) == [200] * 20
    assert (len(server.arrivals), server.denied) == (21, 1)
    assert server.came_before(WAIT) == 0


@clients
def test_who_looks_ahead_is_never_denied(kind: str) -> None:
    """The server admits three, then none for a while, and says so."""
    limiter = RateLimiter("3/200ms fixed_window")

    def three_each(_: int) -> Reply:
        decision = limiter.hit("all")
        left, reset = str(decision.remaining), f"{decision.reset_after:.9f}"
        headers = {"X-RateLimit-Remaining": left, "X-RateLimit-Reset-After": reset}
        return (200 if decision else 429), headers

    with LimitedServer(three_each) as server, client_of(kind, retry=QUICK) as client:
        for _ in range(8):
            assert client.call("GET", server.url) == 200
    assert (len(server.arrivals), server.denied) == (8, 0)


@clients
def test_a_post_without_a_key_is_sent_once_and_with_one_again(kind: str) -> None:
    with LimitedServer(denying(0, 1)) as server, client_of(kind, retry=QUICK) as client:
        assert client.call("POST", server.url, data={"amount": 1}) == 429
        headers = {"Idempotency-Key": "order-17"}
        assert client.call("POST", server.url, data={"amount": 2}, headers=headers) == 200
    assert [arrival.body for arrival in server.arrivals] == [b"amount=1", b"amount=2", b"amount=2"]


@clients
def test_a_body_that_is_a_stream_is_sent_once(kind: str) -> None:
    with LimitedServer(denying(0)) as server, client_of(kind, retry=QUICK) as client:
        assert client.call("PUT", server.url, **streamed(kind)) == 429
    assert [arrival.body for arrival in server.arrivals] == [b"once"]


@clients
def test_the_budget_stops_retries_when_everything_fails(kind: str) -> None:
    policy = RetryPolicy(retry_share=0.2, retries_per_second=0, backoff=Backoff(first=0.001))
    with (
        LimitedServer(lambda _: (503, {})) as server,
        client_of(kind, retry=policy) as client,
    ):
        assert client.together(20, "GET", server.url) == [503] * 20
    assert 20 <= len(server.arrivals) <= 24


@clients
def test_a_discarded_answer_gives_its_connection_back(kind: str) -> None:
    with LimitedServer(denying(0, 1)) as server, client_of(kind, retry=QUICK) as client:
        assert client.call("GET", server.url) == 200
    assert (len(server.arrivals), server.connections) == (3, 1)


@clients
def test_a_denial_with_a_huge_body_is_cut_short_and_leaves_nothing_open(kind: str) -> None:
    huge = b"x" * 20_000_000
    with (
        LimitedServer(denying(0), denial=huge) as server,
        client_of(kind, retry=QUICK) as client,
    ):
        assert client.call("GET", server.url) == 200
    gc.collect()
    assert (len(server.arrivals), server.connections) == (2, 2)


@clients
@pytest.mark.parametrize("drip", DRIPS)
def test_a_denial_that_never_ends_holds_no_call_for_longer_than_it_may_wait(
    kind: str, drip: str
) -> None:
    policy = RetryPolicy(max_wait=0.3)
    with LimitedServer(denying(0), drip=drip) as server, client_of(kind, retry=policy) as own:
        assert own.call("GET", server.url) == 200
        assert server.left_alone.wait(PATIENCE)
    gc.collect()
    assert (len(server.arrivals), server.connections) == (2, 2)


@clients
def test_a_wait_that_is_too_long_is_an_error_of_both_sides(kind: str) -> None:
    with (
        LimitedServer(lambda _: (429, {"Retry-After": "3600"})) as server,
        client_of(kind) as client,
    ):
        assert client.call("GET", server.url) == 429
        with pytest.raises(OWN_ERRORS[kind], match="the server asks for a wait") as caught:
            client.call("GET", server.url)
    assert isinstance(caught.value, NotSentError)
    assert caught.value.origin == server.url.rstrip("/")
    assert len(server.arrivals) == 1


@clients
def test_a_denial_of_one_path_does_not_delay_calls_to_another(kind: str) -> None:
    def deny_first(number: int) -> Reply:
        return (429, {"Retry-After": "3600"}) if number == 0 else (200, {})

    with LimitedServer(deny_first) as server, client_of(kind) as client:
        assert client.call("GET", server.url + "a") == 429
        assert client.call("GET", server.url + "b") == 200
        with pytest.raises(NotSentError):
            client.call("GET", server.url + "a?again")
    assert [arrival.path for arrival in server.arrivals] == ["/a", "/b"]


@clients
def test_a_denial_delays_calls_under_the_policy_that_it_names(kind: str) -> None:
    policy = {"RateLimit-Policy": '"daily";q=9;w=86400'}

    def deny_second(number: int) -> Reply:
        headers = {**policy, "Retry-After": "3600"} if number == 1 else policy
        return (429 if number == 1 else 200), headers

    with LimitedServer(deny_second) as server, client_of(kind) as client:
        assert client.call("GET", server.url + "b") == 200
        assert client.call("GET", server.url + "a") == 429
        with pytest.raises(NotSentError):
            client.call("GET", server.url + "b")
    assert len(server.arrivals) == 2


@clients
def test_a_pace_that_allows_the_call_too_late_is_an_error(kind: str) -> None:
    with (
        LimitedServer() as server,
        client_of(kind, pace="1/h", retry=RetryPolicy(max_wait=1)) as client,
    ):
        assert client.call("GET", server.url) == 200
        with pytest.raises(NotSentError, match="the pace is used up"):
            client.call("GET", server.url)
    assert len(server.arrivals) == 1


def test_a_proxy_of_the_transport_inside_is_paced() -> None:
    """The proxy answers for a host that is nowhere."""
    with LimitedServer(denying(0)) as proxy:
        inner = httpx.HTTPTransport(proxy=proxy.url)
        with httpx.Client(transport=PacedTransport(inner, retry=QUICK)) as client:
            assert client.get("http://api.example.com/things").status_code == 200
    assert [arrival.path for arrival in proxy.arrivals] == ["http://api.example.com/things"] * 2


def test_urllib3_does_not_repeat_what_the_adapter_repeats() -> None:
    retries = Retry(5, status_forcelist=[429, 503], respect_retry_after_header=True)
    with LimitedServer(lambda _: DENIED) as server, requests.Session() as session:
        session.mount("http://", PacedAdapter(max_retries=retries, retry=QUICK))
        assert session.get(server.url).status_code == 429
    assert len(server.arrivals) == 3


def test_a_redirect_waits_for_the_destination_it_leads_to() -> None:
    """Every hop is a call of its own, in aiohttp too."""

    async def story(first: str) -> int:
        async with PacedSession(retry=QUICK) as session, session.get(first) as response:
            return response.status

    with (
        LimitedServer(denying(0)) as second,
        LimitedServer(lambda _: (302, {"Location": second.url})) as first,
    ):
        assert asyncio.run(story(first.url)) == 200
    assert [arrival.status for arrival in second.arrivals] == [429, 200]
    assert len(first.arrivals) == 1


def test_a_session_of_ones_own_can_have_the_middleware() -> None:
    seen: list[str] = []

    async def other(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        seen.append(request.method)
        response: aiohttp.ClientResponse = await handler(request)
        return response

    async def story(url: str) -> None:
        paced = PacedMiddleware(retry=QUICK)
        async with (
            aiohttp.ClientSession(middlewares=(paced,)) as session,
            session.get(url) as response,
        ):
            assert response.status == 200
        await paced.aclose()
        options = {"middlewares": (other,), "headers": {"X-Mine": "1"}}
        async with PacedSession(options, retry=QUICK) as session:
            async with session.get(url) as response:
                assert response.status == 200
            assert session.headers["X-Mine"] == "1"

    with LimitedServer(denying(0, 2)) as server:
        asyncio.run(story(server.url))
    assert [arrival.status for arrival in server.arrivals] == [429, 200, 429, 200]
    assert seen == ["GET"]


def test_a_paced_session_can_be_entered_once() -> None:
    async def story() -> None:
        paced = PacedSession()
        async with paced:
            pass
        with pytest.raises(UsageError, match="can be entered once"):
            await paced.__aenter__()

    asyncio.run(story())


def test_the_event_loop_goes_on_while_calls_wait() -> None:
    async def story(url: str) -> bool:
        transport = AsyncPacedTransport(retry=QUICK)
        async with httpx.AsyncClient(transport=transport) as client:
            call = asyncio.create_task(client.get(url))
            turns_while_closed = 0
            while not call.done():
                turns_while_closed += len(server.arrivals) == 1
                await asyncio.sleep(0.001)
            assert call.result().status_code == 200
            return turns_while_closed > 3

    with LimitedServer(denying(0)) as server:
        assert asyncio.run(story(server.url))
