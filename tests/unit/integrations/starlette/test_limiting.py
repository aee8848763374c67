"""The decorator on endpoints of Starlette, with the middleware and without."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headgate.errors import OptionError, UsageError
from headgate.integrations.starlette import TooManyRequests, limit, report
from tests.support.asgi_client import (
    RATES,
    Client,
    app_of,
    converse,
    still_limiter,
    watched_and_not,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from headgate.integrations import RequestLimiter
    from headgate.integrations.asgi import Message

DENIAL = "websocket.http.response"


def test_an_endpoint_is_limited_whatever_its_parameter_is_called() -> None:
    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit("2/minute", limiter=limiter)
        async def hello(anything: Request) -> PlainTextResponse:
            return PlainTextResponse("hello")

        return hello

    for app in watched_and_not(endpoint):
        client = Client(app)
        first, second, third = (client.get("/") for _ in range(3))
        assert [first.text, second.text] == ["hello", "hello"]
        assert first.headers["x-ratelimit-remaining"] == "1"
        assert second.headers["ratelimit"] == '"hello";r=0;t=30'
        assert third.status_code == 429
        assert third.headers["retry-after"] == "30"
        assert third.json()["error"] == "rate_limit_exceeded"
        assert third.json()["limit"] == "hello"


def test_every_header_is_sent_once() -> None:
    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit("1/minute", limiter=limiter)
        async def hello(request: Request) -> PlainTextResponse:
            return PlainTextResponse("hello")

        return hello

    for app in watched_and_not(endpoint):
        for reply in (Client(app).get("/"), Client(app).get("/")):
            for name in (*RATES, "content-length", "content-type"):
                assert len(reply.headers.get_list(name)) == 1


def test_a_refusal_to_head_has_no_body() -> None:
    @limit("1/minute", limiter=still_limiter())
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    async def asked() -> Message:
        return {"type": "http.request"}

    app = app_of(Route("/", hello))
    Client(app).get("/")
    start, body = asyncio.run(converse(app, "/", asked, method="HEAD"))
    assert start["status"] == 429
    assert int(dict(start["headers"])[b"content-length"]) > 0
    assert body["body"] == b""


def test_problem_details_are_sent_to_who_asks_for_them() -> None:
    @limit("1/minute", limiter=still_limiter())
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    client = Client(app_of(Route("/", hello)))
    client.get("/")
    refused = client.get("/", headers={"accept": "application/problem+json"})
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["status"] == 429


def test_a_method_of_an_endpoint_class_is_limited_by_itself() -> None:
    class Page(HTTPEndpoint):
        @limit("1/minute", limiter=still_limiter())
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("got")

        async def post(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("posted")

    client = Client(app_of(Route("/", Page)))
    assert client.statuses("/", 2) == [200, 429]
    assert client.post("/").text == "posted"
    assert '"Page.get"' in client.get("/").headers["ratelimit-policy"]


def test_a_blocking_endpoint_runs_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    @limit("1/minute", limiter=still_limiter())
    def hello(request: Request) -> PlainTextResponse:
        threads.append(threading.current_thread())
        return PlainTextResponse("hello")

    client = Client(app_of(Route("/", hello)))
    assert client.statuses("/", 2) == [200, 429]
    assert threads
    assert threads[0] is not threading.main_thread()


def test_stacked_limits_are_one_check() -> None:
    """What the second refuses is not charged to the first."""

    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit("3/hour", name="hour", limiter=limiter)
        @limit("1/minute", name="minute", limiter=limiter)
        async def hello(request: Request) -> PlainTextResponse:
            return PlainTextResponse("hello")

        return hello

    for app in watched_and_not(endpoint):
        client = Client(app)
        assert client.statuses("/", 3) == [200, 429, 429]
        shown = client.get("/").headers["ratelimit"]
        assert '"hour";r=2' in shown
        assert '"minute";r=0' in shown


def test_unnamed_limits_of_one_endpoint_have_names_and_counters_of_their_own() -> None:
    limiter = still_limiter()

    @limit("3/minute", limiter=limiter)
    @limit("3/hour", limiter=limiter)
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    shown = Client(app_of(Route("/", hello))).get("/").headers["ratelimit"]
    assert '"hello";r=2' in shown
    assert '"hello-2";r=2' in shown


def test_a_limit_added_to_a_limited_function_leaves_that_as_it_is() -> None:
    limiter = still_limiter()

    @limit("3/minute", limiter=limiter)
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    stricter = limit("1/minute", limiter=limiter)(hello)
    client = Client(app_of(Route("/", hello), Route("/strict", stricter)))
    assert client.statuses("/strict", 2) == [200, 429]
    assert client.statuses("/", 4) == [200, 200, 200, 429]


def test_a_decorator_of_the_apps_own_in_between_stays() -> None:
    limiter = still_limiter()

    def shouting(function: Any) -> Any:
        @functools.wraps(function)
        async def call(request: Request) -> PlainTextResponse:
            response = await function(request)
            return PlainTextResponse(response.body.upper(), response.status_code)

        return call

    @limit("5/minute", limiter=limiter, name="outer")
    @shouting
    @limit("1/minute", limiter=limiter, name="inner")
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    client = Client(app_of(Route("/", hello)))
    assert client.get("/").text == "HELLO"
    assert client.get("/").status_code == 429


def test_what_was_granted_before_is_given_back_by_who_refuses_later() -> None:
    @limit("1/minute", name="inner")
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    limiter = still_limiter(limits="3/hour")
    client = Client(app_of(Route("/", hello), limiter=limiter))
    assert client.statuses("/", 4) == [200, 429, 429, 429]
    assert client.get("/nowhere").headers["x-ratelimit-remaining"] == "1"


def test_limits_keys_and_costs_may_depend_on_the_request() -> None:
    async def by_tier(request: Request) -> str | None:
        return {"free": "2/minute", "paid": "4/minute"}.get(request.headers["tier"])

    async def user(request: Request) -> str:
        return request.headers["user"]

    @limit(
        by_tier,
        key=user,
        cost=lambda request: int(request.query_params.get("n", "1")),
        exempt_when=lambda request: "staff" in request.headers,
        limiter=still_limiter(),
    )
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    client = Client(app_of(Route("/", hello)))
    free, paid = {"tier": "free", "user": "a"}, {"tier": "paid", "user": "b"}
    assert client.statuses("/", 3, headers=free) == [200, 200, 429]
    assert client.statuses("/?n=2", 3, headers=paid) == [200, 200, 429]
    assert client.statuses("/", 5, headers={"tier": "none", "user": "c"}) == [200] * 5
    assert client.statuses("/", 1, headers={**free, "staff": "yes"}) == [200]


def test_clients_are_told_apart_by_their_address() -> None:
    @limit("1/minute", limiter=still_limiter())
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = app_of(Route("/", hello))
    assert Client(app, "203.0.113.1").statuses("/", 2) == [200, 429]
    assert Client(app, "203.0.113.2").statuses("/", 2) == [200, 429]


def test_the_app_may_word_refusals_itself() -> None:
    @limit("1/minute", limiter=still_limiter())
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    async def own(request: Request, error: Exception) -> PlainTextResponse:
        assert isinstance(error, TooManyRequests)
        return PlainTextResponse("slow down", error.status_code, headers=dict(error.headers or {}))

    for handled in (TooManyRequests, 429):
        app = app_of(Route("/", hello), exception_handlers={handled: own})
        client = Client(app, f"203.0.113.{1 if handled == 429 else 2}")
        client.get("/")
        assert client.get("/").text == "slow down"
        assert client.get("/").headers["retry-after"] == "60"


def test_a_handler_for_all_http_errors_does_not_reword_refusals() -> None:
    @limit("1/minute", limiter=still_limiter())
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    async def own(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse("an error", 418)

    client = Client(app_of(Route("/", hello), exception_handlers={HTTPException: own}))
    client.get("/")
    assert client.get("/").json()["error"] == "rate_limit_exceeded"


def test_a_route_by_itself_refuses_too() -> None:
    @limit("1/minute", limiter=still_limiter())
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    client = Client(Route("/", hello))
    assert client.statuses("/", 2) == [200, 429]
    assert client.get("/").json()["error"] == "rate_limit_exceeded"


def test_without_a_gate_the_limit_is_counted_in_this_process() -> None:
    @limit("1/hour", name="own-limiter-of-test")
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    assert Client(app_of(Route("/", hello))).statuses("/", 2) == [200, 429]


def test_wrong_uses_are_told_at_once() -> None:
    with pytest.raises(UsageError, match="write @limit"):
        limit("1/minute")(HTTPEndpoint)
    with pytest.raises(UsageError, match="write @limit"):
        limit("1/minute")(3)
    with pytest.raises(OptionError, match="charge_when is 401"):
        limit("1/minute", charge_when=401)  # type: ignore[arg-type]


def test_an_endpoint_without_a_request_is_told_which_decorator_to_use() -> None:
    @limit("1/minute")
    async def hello() -> None: ...

    with pytest.raises(UsageError, match=r"headgate\.integrations\.fastapi"):
        asyncio.run(hello())


def test_a_report_without_a_limit_says_what_is_missing() -> None:
    async def hello(request: Request) -> PlainTextResponse:
        with pytest.raises(UsageError, match="nothing has limited this request"):
            report(request, tokens=1)
        return PlainTextResponse("hello")

    assert Client(app_of(Route("/", hello))).get("/").text == "hello"
