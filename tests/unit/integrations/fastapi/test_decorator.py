"""The decorator on endpoints of FastAPI, with the middleware and without."""

import asyncio
import threading
from collections.abc import AsyncIterable, Callable
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.responses import PlainTextResponse

from headgate.errors import UsageError
from headgate.integrations import RequestLimiter
from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, limit, report
from headgate.limits import Concurrency
from tests.support.asgi_client import RATES, Client, converse, still_limiter, websocket

DENIAL = "websocket.http.response"


def apps() -> list[tuple[FastAPI, RequestLimiter | None]]:
    """Two apps, with the limiter to give to their limits: with the middleware, and without."""
    watched = FastAPI()
    watched.add_middleware(RateLimitMiddleware, limiter=still_limiter())
    return [(watched, None), (FastAPI(), still_limiter())]


def endpoints(limiter: RequestLimiter | None) -> dict[str, Callable[..., Any]]:
    """Endpoints of every kind, with no parameter for the limit."""

    @limit("2/minute", limiter=limiter)
    async def value(q: int = 1) -> dict[str, int]:
        return {"q": q}

    @limit("2/minute", limiter=limiter)
    def blocking(q: int = 1) -> dict[str, int]:
        return {"q": q}

    @limit("2/minute", limiter=limiter)
    async def response(q: int = 1) -> JSONResponse:
        return JSONResponse({"q": q})

    @limit("2/minute", limiter=limiter)
    def blocking_response(asked: Request, q: int = 1) -> JSONResponse:
        return JSONResponse({"q": q}, headers={"x-path": asked.url.path})

    @limit("2/minute", limiter=limiter)
    async def streaming(q: int = 1) -> StreamingResponse:
        return StreamingResponse(iter([f'{{"q":{q}}}']))

    @limit("2/minute", limiter=limiter)
    async def yielding(q: int = 1) -> AsyncIterable[dict[str, int]]:
        yield {"q": q}

    made = (value, blocking, response, blocking_response, streaming, yielding)
    return {function.__name__: function for function in made}


def test_every_kind_of_endpoint_is_limited_and_tells_of_it_once() -> None:
    for app, limiter in apps():
        client = Client(app)
        for name, endpoint in endpoints(limiter).items():
            app.add_api_route(f"/{name}", endpoint)
            first, _, third = (client.get(f"/{name}?q=4") for _ in range(3))
            assert first.json() == {"q": 4}
            assert first.headers["ratelimit"] == f'"{name}";r=1;t=30'
            assert third.status_code == 429
            assert third.json()["limit"] == name
            for reply in (first, third):
                for field in RATES:
                    assert len(reply.headers.get_list(field)) == 1


def test_a_blocking_endpoint_runs_in_a_thread() -> None:
    threads: list[threading.Thread] = []
    for app, limiter in apps():

        @app.get("/")
        @limit("1/minute", limiter=limiter)
        def hello() -> None:
            threads.append(threading.current_thread())

        assert Client(app).statuses("/", 2) == [200, 429]
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_stacked_limits_are_one_check() -> None:
    for app, limiter in apps():

        @app.get("/")
        @limit("3/hour", name="hour", limiter=limiter)
        @limit("1/minute", name="minute", limiter=limiter)
        async def hello() -> None: ...

        client = Client(app)
        assert client.statuses("/", 3) == [200, 429, 429]
        assert '"hour";r=2' in client.get("/").headers["ratelimit"]


def test_a_decorator_and_a_dependency_tell_of_both() -> None:
    for app, limiter in apps():

        @app.get("/", dependencies=[Depends(RateLimit("5/minute", limiter=limiter))])
        @limit("2/minute", limiter=limiter)
        async def hello() -> Response:
            return PlainTextResponse("hello")

        client = Client(app)
        shown = client.get("/").headers.get_list("ratelimit")
        assert shown == ['"hello";r=4;t=12, "hello-2";r=1;t=30']
        assert client.statuses("/", 2) == [200, 429]


def test_functions_of_the_request_see_what_dependencies_did() -> None:
    async def known(request: Request) -> str:
        request.state.user = request.headers["user"]
        return request.headers["user"]

    async def limits(request: Request) -> str:
        return "3/minute" if request.state.user == "paid" else "1/minute"

    for app, limiter in apps():

        @app.get("/")
        @limit(limits, key=lambda request: request.state.user, limiter=limiter)
        async def hello(user: Annotated[str, Depends(known)]) -> str:
            return user

        client = Client(app)
        assert client.statuses("/", 2, headers={"user": "free"}) == [200, 429]
        assert client.statuses("/", 4, headers={"user": "paid"}) == [200, 200, 200, 429]


def test_only_failed_logins_count_however_many_come_at_once() -> None:
    for app, limiter in apps():

        @app.post("/login")
        @limit("3/minute", charge_when=lambda shown: shown.status_code == 401, limiter=limiter)
        async def login(password: str, response: Response, how: str = "raise") -> Any:
            await asyncio.sleep(0)
            if password == "right":  # noqa: S105 (not one)
                return {}
            if how == "return":
                return JSONResponse({}, 401)
            if how == "set":
                response.status_code = 401
                return {}
            raise HTTPException(401)

        client = Client(app)
        assert [client.post("/login?password=right").status_code for _ in range(5)] == [200] * 5
        assert client.post("/login").status_code == 422
        each = [client.post(f"/login?password=x&how={how}") for how in ("return", "set")]
        assert [reply.status_code for reply in each] == [401, 401]
        statuses = client.together("POST", "/login?password=wrong", 18)
        assert sorted(statuses) == [401] + [429] * 17


def test_the_middleware_sees_what_a_handler_makes_of_an_error() -> None:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=still_limiter())

    @app.exception_handler(PermissionError)
    async def unknown(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({}, 401)

    @app.get("/")
    @limit("1/minute", charge_when=lambda response: response.status_code == 401)
    async def login() -> None:
        raise PermissionError

    assert Client(app).statuses("/", 2) == [401, 429]


def test_a_status_of_the_route_is_an_outcome_too() -> None:
    for app, limiter in apps():

        @app.post("/", status_code=201)
        @limit("1/minute", charge_when=lambda shown: shown.status_code == 201, limiter=limiter)
        async def make() -> str:
            return "made"

        client = Client(app)
        assert [client.post("/").status_code for _ in range(2)] == [201, 429]


def test_what_an_endpoint_reports_is_what_is_charged() -> None:
    for app, limiter in apps():

        @app.get("/response")
        @limit("100/hour", name="tokens", cost=50, is_estimate=True, limiter=limiter)
        async def response(request: Request) -> StreamingResponse:
            async def words() -> Any:
                yield "some "
                report(request, tokens=30)
                yield "words"

            return StreamingResponse(words())

        @app.get("/yield")
        @limit("100/hour", name="other-tokens", cost=50, is_estimate=True, limiter=limiter)
        async def yielding(request: Request) -> AsyncIterable[str]:
            yield "some "
            report(request, {"other-tokens": 30})
            yield "words"

        client = Client(app)
        # 50 are held, 30 are used: after two, 40 are left, which is not enough for 50.
        assert client.statuses("/response", 3) == [200, 200, 429]
        assert client.statuses("/yield", 3) == [200, 200, 429]


def test_a_slot_is_free_again_when_the_client_goes_in_the_middle() -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    for app, limiter in apps():

        @app.get("/")
        @limit(Concurrency(1, ttl=60), limiter=limiter)
        async def answer() -> StreamingResponse:
            async def words() -> Any:
                while True:
                    yield "word "
                    await asyncio.sleep(0)

            return StreamingResponse(words())

        for _ in range(3):
            sent = asyncio.run(converse(app, "/", gone))
            assert [one["status"] for one in sent if "status" in one] in ([], [200])


def test_a_slot_is_free_again_after_an_error_and_the_error_is_the_apps_own() -> None:
    async def asked() -> dict[str, Any]:
        return {"type": "http.request"}

    for app, limiter in apps():

        @app.get("/")
        @limit(Concurrency(1, ttl=60), limiter=limiter)
        def answer() -> None:
            raise ZeroDivisionError("the app's own")

        assert Client(app).statuses("/", 2) == [500, 500]
        with pytest.raises(ZeroDivisionError, match="the app's own"):
            asyncio.run(converse(app, "/", asked))


def test_background_tasks_run() -> None:
    done: list[str] = []
    for app, limiter in apps():

        @app.get("/")
        @limit("5/minute", limiter=limiter)
        def answer(tasks: BackgroundTasks) -> str:
            tasks.add_task(done.append, "done")
            return "begun"

        assert Client(app).get("/").json() == "begun"
    assert done == ["done", "done"]


def test_a_websocket_is_refused_before_it_is_accepted() -> None:
    for app, limiter in apps():

        @app.websocket("/live")
        @limit("1/minute", limiter=limiter)
        async def live(anything: WebSocket) -> None:
            await anything.accept()
            await anything.close()

        assert websocket(app, "/live")[0]["type"] == "websocket.accept"
        assert websocket(app, "/live")[0]["code"] == 1008
        start, body = websocket(app, "/live", extensions=[DENIAL])
        assert (start["type"], start["status"]) == (f"{DENIAL}.start", 429)
        assert b"rate_limit_exceeded" in body["body"]


def test_routes_of_starlette_in_the_same_app_are_limited_too() -> None:
    for app, limiter in apps():

        @limit("1/minute", limiter=limiter)
        async def hello(request: Request) -> Response:
            return PlainTextResponse("hello")

        app.add_route("/", hello)
        client = Client(app)
        assert client.get("/").headers["x-ratelimit-remaining"] == "0"
        assert client.get("/").status_code == 429


def test_a_blocking_route_of_starlette_is_told_which_decorator_to_use() -> None:
    @limit("1/minute")
    def hello(request: Request) -> None: ...

    with pytest.raises(UsageError, match=r"limit\(\) of headgate\.integrations\.starlette"):
        hello(None)  # type: ignore[arg-type]
