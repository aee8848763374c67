"""`Depends(RateLimit(...))` on routes, routers and apps."""

import asyncio
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from headgate.errors import UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.fastapi import (
    RateLimit,
    RateLimitMiddleware,
    RequestContext,
    TooManyRequests,
)
from headgate.limits import Concurrency
from tests.support.asgi_client import RATES, Client, converse, still_limiter, websocket

DENIAL = "websocket.http.response"


def apps() -> list[tuple[FastAPI, RequestLimiter | None]]:
    """Two apps, with the limiter to give to their limits: with the middleware, and without."""
    watched = FastAPI()
    watched.add_middleware(RateLimitMiddleware, limiter=still_limiter())
    return [(watched, None), (FastAPI(), still_limiter())]


def test_a_route_is_limited_and_tells_of_it() -> None:
    for app, limiter in apps():

        @app.get("/search", dependencies=[Depends(RateLimit("2/minute", limiter=limiter))])
        async def search(q: str) -> dict[str, str]:
            return {"q": q}

        client = Client(app)
        first, _, third = (client.get("/search?q=x") for _ in range(3))
        assert first.json() == {"q": "x"}
        assert first.headers["ratelimit-policy"] == '"search";q=2;w=60'
        assert first.headers["x-ratelimit-remaining"] == "1"
        assert third.status_code == 429
        assert third.headers["retry-after"] == "30"
        assert third.json() == {
            "error": "rate_limit_exceeded",
            "message": third.json()["message"],
            "limit": "search",
            "retry_after_ms": 30_000,
            "retry_after": 30,
        }
        for name in (*RATES, "content-length", "content-type"):
            assert len(third.headers.get_list(name)) == 1


def test_problem_details_are_sent_to_who_asks_for_them() -> None:
    for app, limiter in apps():
        limited = [Depends(RateLimit("1/minute", limiter=limiter))]
        app.add_api_route("/", lambda: None, dependencies=limited)
        client = Client(app)
        client.get("/")
        refused = client.get("/", headers={"accept": "application/problem+json"})
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["status"] == 429


def test_one_object_on_two_routes_has_two_counters_and_with_a_name_one() -> None:
    for app, limiter in apps():
        each = RateLimit("1/minute", limiter=limiter)
        both = RateLimit("1/minute", name="both", limiter=limiter)
        for path in ("/1", "/2"):
            app.add_api_route(path, lambda: None, dependencies=[Depends(each)])
        for path in ("/3", "/4"):
            app.add_api_route(path, lambda: None, dependencies=[Depends(both)])
        client = Client(app)
        assert [client.get(path).status_code for path in ("/1", "/2", "/1", "/2")] == [
            200,
            200,
            429,
            429,
        ]
        assert [client.get(path).status_code for path in ("/3", "/4")] == [200, 429]


def test_methods_have_counters_of_their_own() -> None:
    for app, limiter in apps():
        app.add_api_route(
            "/",
            lambda: None,
            methods=["GET", "HEAD", "POST"],
            dependencies=[Depends(RateLimit("1/minute", limiter=limiter))],
        )
        client = Client(app)
        asked = ("GET", "POST", "HEAD", "POST")
        assert [client.ask(method, "/").status_code for method in asked] == [200, 200, 429, 429]


def test_the_values_in_a_path_make_no_counters() -> None:
    for app, limiter in apps():

        @app.get("/users/{number}", dependencies=[Depends(RateLimit("2/minute", limiter=limiter))])
        async def user(number: int) -> int:
            return number

        client = Client(app)
        assert [client.get(f"/users/{n}").status_code for n in range(3)] == [200, 200, 429]


def test_a_router_that_is_included_or_mounted_twice_has_two_counters() -> None:
    for app, limiter in apps():
        router = APIRouter(dependencies=[Depends(RateLimit("1/minute", limiter=limiter))])
        router.add_api_route("/x", lambda: None)
        app.include_router(router, prefix="/v1")
        app.include_router(router, prefix="/v2")
        inner = FastAPI()
        inner.include_router(router)
        app.mount("/m1", inner)
        app.mount("/m2/{tenant}", inner)
        client = Client(app)
        for path in ("/v1/x", "/v2/x", "/m1/x", "/m2/a/x"):
            assert client.statuses(path, 2) == [200, 429]
        assert client.get("/m2/another/x").status_code == 429


def test_routes_of_an_app_that_cannot_be_looked_into_have_counters_of_their_own() -> None:
    for app, limiter in apps():
        inner = FastAPI(dependencies=[Depends(RateLimit("1/minute", limiter=limiter))])
        router = APIRouter()
        for path in ("/x/{number}", "/y"):
            inner.add_api_route(path, lambda: None)
            router.add_api_route(path, lambda: None)
        inner.include_router(router, prefix="/more")
        app.mount("/m/{tenant}", GZipMiddleware(inner))
        client = Client(app)
        for path in ("/m/a/x/1", "/m/a/y", "/m/a/more/x/1", "/m/a/more/y"):
            assert client.statuses(path, 2) == [200, 429]
        assert client.get("/m/b/x/2").status_code == 429


def test_limits_of_app_router_and_route_all_apply_and_a_refusal_is_not_charged() -> None:
    clockwork = still_limiter()
    app = FastAPI(dependencies=[Depends(RateLimit("9/minute", name="app", limiter=clockwork))])
    router = APIRouter(dependencies=[Depends(RateLimit("5/minute", limiter=clockwork))])
    router.add_api_route(
        "/x",
        lambda: None,
        name="x",
        dependencies=[Depends(RateLimit("1/minute", limiter=clockwork))],
    )
    app.include_router(router)
    app.add_api_route("/y", lambda: None)
    client = Client(app)
    first = client.get("/x").headers["ratelimit"]
    assert '"app";r=8' in first
    assert '"x";r=4' in first
    assert '"x-2";r=0' in first
    assert client.statuses("/x", 3) == [429] * 3
    assert client.get("/y").headers["x-ratelimit-remaining"] == "7"


def test_functions_of_the_request_may_be_async_and_see_what_dependencies_did() -> None:
    async def known(request: Request) -> None:
        request.state.user = request.headers["user"]

    async def limits(request: Request) -> str:
        return "3/minute" if request.state.user == "paid" else "1/minute"

    for app, limiter in apps():
        limited = RateLimit(limits, key=lambda request: request.state.user, limiter=limiter)
        app.add_api_route("/", lambda: None, dependencies=[Depends(known), Depends(limited)])
        client = Client(app)
        assert client.statuses("/", 2, headers={"user": "free"}) == [200, 429]
        assert client.statuses("/", 4, headers={"user": "paid"}) == [200, 200, 200, 429]


def login_app(app: FastAPI, limiter: RequestLimiter | None) -> FastAPI:
    failures = RateLimit(
        "3/minute", charge_when=lambda shown: shown.status_code == 401, limiter=limiter
    )

    @app.post("/login", dependencies=[Depends(failures)])
    async def login(password: str, how: str = "raise") -> JSONResponse:
        await asyncio.sleep(0)
        if password == "right":  # noqa: S105 (not one)
            return JSONResponse({})
        if how == "return":
            return JSONResponse({}, 401)
        raise HTTPException(401)

    return app


def test_only_failed_logins_count_however_many_come_at_once() -> None:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=still_limiter())
    client = Client(login_app(app, None))
    assert [client.post("/login?password=right").status_code for _ in range(5)] == [200] * 5
    statuses = client.together("POST", "/login?password=wrong", 10)
    statuses += client.together("POST", "/login?password=wrong&how=return", 10)
    assert sorted(statuses) == [401] * 3 + [429] * 17


def test_a_dependency_that_minds_the_outcome_needs_the_middleware() -> None:
    app = login_app(FastAPI(), still_limiter())

    async def received() -> dict[str, Any]:
        return {"type": "http.request"}

    app.add_api_route(
        "/", lambda: None, dependencies=[Depends(RateLimit("1/s", charge_when=lambda _: True))]
    )
    with pytest.raises(UsageError, match=r"add_middleware\(RateLimitMiddleware\)"):
        asyncio.run(converse(app, "/", received))


def test_the_value_of_the_dependency_takes_reports() -> None:
    for app, limiter in apps():
        tokens = RateLimit("100/hour", name="tokens", cost=50, is_estimate=True, limiter=limiter)

        @app.get("/")
        async def answer(usage: Annotated[RequestContext, Depends(tokens)]) -> StreamingResponse:
            async def words() -> Any:
                yield "some "
                usage.report({"tokens": 30})
                yield "words"

            return StreamingResponse(words())

        client = Client(app)
        # 50 are held, 30 are used: after two, 40 are left, which is not enough for 50.
        assert client.statuses("/", 3) == [200, 200, 429]


def test_a_slot_is_free_again_whatever_came_of_the_request() -> None:
    for app, limiter in apps():
        slot = Depends(RateLimit(Concurrency(1, ttl=60), limiter=limiter))

        @app.get("/", dependencies=[slot])
        async def answer(how: str) -> StreamingResponse:
            if how == "raise":
                raise ZeroDivisionError("the app's own")

            async def words() -> Any:
                yield "some "
                if how == "break":
                    raise ZeroDivisionError("the app's own")
                yield "words"

            return StreamingResponse(words())

        client = Client(app)
        for how in ("well", "raise", "break", "well"):
            assert client.get(f"/?how={how}").status_code in (200, 500)
        assert client.get("/").status_code == 422
        assert client.get("/?how=well").text == "some words"


def test_the_app_may_word_refusals_itself_by_error_or_status() -> None:
    async def own(request: Request, error: Exception) -> PlainTextResponse:
        assert isinstance(error, TooManyRequests)
        return PlainTextResponse("slow down", error.status_code, headers=dict(error.headers or {}))

    for handled in (TooManyRequests, 429):
        for app, limiter in apps():
            app.add_exception_handler(handled, own)
            limited = [Depends(RateLimit("1/minute", limiter=limiter))]
            app.add_api_route("/", lambda: None, dependencies=limited)
            client = Client(app)
            client.get("/")
            refused = client.get("/")
            assert (refused.status_code, refused.text) == (429, "slow down")
            assert refused.headers["retry-after"] == "60"


def test_a_handler_for_all_http_errors_does_not_reword_refusals() -> None:
    for app, limiter in apps():

        @app.exception_handler(HTTPException)
        async def own(request: Request, error: Exception) -> PlainTextResponse:
            return PlainTextResponse("an error", 418)

        limited = [Depends(RateLimit("1/minute", limiter=limiter))]
        app.add_api_route("/", lambda: None, dependencies=limited)
        client = Client(app)
        client.get("/")
        assert client.get("/").json()["error"] == "rate_limit_exceeded"


def test_a_websocket_is_refused_before_it_is_accepted() -> None:
    for app, limiter in apps():

        @app.websocket("/live", dependencies=[Depends(RateLimit("1/minute", limiter=limiter))])
        async def live(socket: WebSocket) -> None:
            await socket.accept()
            await socket.close()

        assert websocket(app, "/live")[0]["type"] == "websocket.accept"
        assert websocket(app, "/live")[0]["code"] == 1008
        start, body = websocket(app, "/live", extensions=[DENIAL])
        assert (start["type"], start["status"]) == (f"{DENIAL}.start", 429)
        assert b"rate_limit_exceeded" in body["body"]


def test_a_test_may_override_the_dependency() -> None:
    for app, limiter in apps():
        limited = RateLimit("1/minute", limiter=limiter)
        app.add_api_route("/", lambda: None, dependencies=[Depends(limited)])
        app.dependency_overrides[limited] = lambda: None
        assert Client(app).statuses("/", 3) == [200] * 3


def test_headers_set_by_the_endpoint_stay() -> None:
    for app, limiter in apps():

        @app.get("/", dependencies=[Depends(RateLimit("5/minute", limiter=limiter))])
        async def hello(response: Response) -> str:
            response.headers["x-mark"] = "set"
            response.status_code = 202
            return "hello"

        reply = Client(app).get("/")
        assert (reply.status_code, reply.headers["x-mark"]) == (202, "set")
        assert reply.headers["x-ratelimit-remaining"] == "4"
