"""What a request is charged at its end, however it ends; with the middleware and without."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from headgate.integrations.starlette import limit, report
from headgate.limits import Concurrency
from tests.support.asgi_client import Client, app_of, converse, still_limiter, watched_and_not

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from headgate.integrations import RequestLimiter
    from headgate.integrations.asgi import Message

DENIAL = "websocket.http.response"


def login_of(limiter: RequestLimiter | None) -> Any:
    @limit("3/minute", charge_when=lambda response: response.status_code == 401, limiter=limiter)
    async def login(request: Request) -> JSONResponse:
        await asyncio.sleep(0)
        is_right = request.query_params["password"] == "right"  # noqa: S105 (not one)
        if request.query_params.get("how") == "raise" and not is_right:
            raise HTTPException(401)
        return JSONResponse({}, 200 if is_right else 401)

    return login


def test_only_failed_logins_count() -> None:
    for app in watched_and_not(login_of):
        client = Client(app)
        assert client.statuses("/?password=right", 5) == [200] * 5
        assert client.statuses("/?password=wrong", 2) == [401] * 2
        assert client.statuses("/?password=wrong&how=raise", 1) == [401]
        assert client.statuses("/?password=right", 1) == [429]


def test_the_middleware_sees_what_a_handler_makes_of_an_error() -> None:
    @limit("1/minute", charge_when=lambda response: response.status_code == 401)
    async def login(request: Request) -> JSONResponse:
        raise PermissionError

    async def unknown(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({}, 401)

    handlers = {PermissionError: unknown}
    app = app_of(Route("/", login), limiter=still_limiter(), exception_handlers=handlers)
    assert Client(app).statuses("/", 2) == [401, 429]


def test_many_failing_logins_at_once_do_not_slip_through() -> None:
    for app in watched_and_not(login_of):
        statuses = Client(app).together("POST", "/?password=wrong", 20)
        assert sorted(statuses) == [401] * 3 + [429] * 17


def test_what_an_endpoint_reports_is_what_is_charged() -> None:
    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit("100/hour", name="tokens", cost=50, is_estimate=True, limiter=limiter)
        async def answer(request: Request) -> StreamingResponse:
            async def words() -> AsyncIterator[str]:
                yield "some "
                yield "words"
                report(request, tokens=30)

            return StreamingResponse(words())

        return answer

    for app in watched_and_not(endpoint):
        client = Client(app)
        # 50 are held, 30 are used: 50 of 100 left, then 20 of 70, and 40 are not enough for 50.
        remaining = [client.get("/").headers["x-ratelimit-remaining"] for _ in range(2)]
        assert remaining == ["50", "20"]
        assert client.get("/").status_code == 429


def test_a_slot_is_free_again_when_the_client_goes_in_the_middle() -> None:
    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit(Concurrency(1, ttl=60), limiter=limiter)
        async def answer(request: Request) -> StreamingResponse:
            async def words() -> AsyncIterator[str]:
                while True:
                    yield "word "
                    await asyncio.sleep(0)

            return StreamingResponse(words())

        return answer

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    for app in watched_and_not(endpoint):
        for _ in range(3):
            begun = asyncio.run(converse(app, "/", gone))
            assert begun == [] or begun[0]["status"] == 200


def test_a_slot_is_free_again_after_an_error_and_the_error_is_the_apps_own() -> None:
    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit(Concurrency(1, ttl=60), limiter=limiter)
        async def answer(request: Request) -> StreamingResponse:
            raise ZeroDivisionError("the app's own")

        return answer

    async def asked() -> Message:
        return {"type": "http.request"}

    for app in watched_and_not(endpoint):
        assert Client(app).statuses("/", 2) == [500, 500]
        with pytest.raises(ZeroDivisionError, match="the app's own"):
            asyncio.run(converse(app, "/", asked))


def test_background_tasks_run_after_the_slot_is_free() -> None:
    statuses: list[int] = []

    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit(Concurrency(1, ttl=60), limiter=limiter)
        async def answer(request: Request) -> PlainTextResponse:
            async def later() -> None:
                if request.query_params.get("again"):
                    sent = await converse(request.app, "/", request.receive)
                    statuses.append(sent[0]["status"])

            return PlainTextResponse("done", background=BackgroundTask(later))

        return answer

    for app in watched_and_not(endpoint):
        assert Client(app).get("/?again=yes").text == "done"
    assert statuses == [200, 200]


def test_an_asgi_app_may_be_returned_in_place_of_a_response() -> None:
    def endpoint(limiter: RequestLimiter | None) -> Any:
        @limit("1/minute", limiter=limiter)
        async def hello(request: Request) -> Any:
            async def inner(scope: Any, receive: Any, send: Any) -> None:
                await PlainTextResponse("inner")(scope, receive, send)

            return inner

        return hello

    for app in watched_and_not(endpoint):
        reply = Client(app).get("/")
        assert (reply.text, reply.headers["x-ratelimit-remaining"]) == ("inner", "0")


def test_what_is_returned_by_an_endpoint_with_a_hold_is_still_a_response_to_who_changes_it() -> (
    None
):
    def marking(function: Any) -> Any:
        @functools.wraps(function)
        async def call(request: Request) -> Any:
            response = await function(request)
            response.headers["x-mark"] = "set"
            response.set_cookie("seen", "yes")
            response.status_code = 202
            return response

        return call

    @marking
    @limit(
        "5/minute",
        charge_when=lambda response: response.status_code == 202,
        limiter=still_limiter(),
    )
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    reply = Client(app_of(Route("/", hello))).get("/")
    assert (reply.status_code, reply.headers["x-mark"]) == (202, "set")
    assert "seen=yes" in reply.headers["set-cookie"]
    assert reply.headers["x-ratelimit-remaining"] == "4"
