"""Which requests are counted together where a limit has no name, and where it has no limiter."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from headgate.integrations import RequestLimiter
from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, TooManyRequests, limit
from tests.support.asgi_client import Client, still_limiter


def crud(name: str, limiter: RequestLimiter | None) -> APIRouter:
    """A router like others, but for its *name*."""
    router = APIRouter()

    def reading() -> Any:
        @limit("1/minute", limiter=limiter)
        async def item(number: int) -> str:
            return name

        return item

    for method in ("GET", "POST"):
        router.add_api_route("/{number}", reading(), methods=[method])

    @limit("1/minute", limiter=limiter)
    async def plain(request: Request) -> Response:
        return PlainTextResponse(name)

    router.add_route("/plain/{number}", plain)
    return router


@pytest.mark.parametrize("is_watched", [False, True])
def test_routers_that_one_function_makes_have_counters_of_their_own(is_watched: bool) -> None:
    limiter = still_limiter()
    app, inner, outer = FastAPI(), FastAPI(), APIRouter()
    if is_watched:
        app.add_middleware(RateLimitMiddleware, limiter=limiter)
    outer.include_router(crud("c", limiter), prefix="/c")
    inner.include_router(crud("a", limiter), prefix="/a")
    app.include_router(crud("a", limiter), prefix="/a")
    app.include_router(crud("b", limiter), prefix="/b")
    app.include_router(outer, prefix="/v1")
    app.mount("/inner/{tenant}", inner)
    client = Client(app)
    for path in ("/a", "/b", "/v1/c", "/inner/1/a"):
        for method in ("GET", "POST"):
            assert client.ask(method, f"{path}/1").json() == path[-1]
            assert client.ask(method, f"{path}/2").status_code == 429
        assert client.get(f"{path}/plain/1").text == path[-1]
        assert client.get(f"{path}/plain/2").status_code == 429
    assert client.get("/inner/2/a/1").status_code == 429


def of_a_partial(number: int, limiter: RequestLimiter) -> Any:
    async def shared(known: int) -> int:
        return known

    return limit("1/minute", limiter=limiter)(functools.partial(shared, known=number))


def nameless(number: int, limiter: RequestLimiter) -> Any:
    return limit("1/minute", limiter=limiter)(lambda: number)


@pytest.mark.parametrize("make", [of_a_partial, nameless])
def test_functions_of_one_name_have_two_counters(
    make: Callable[[int, RequestLimiter], Any],
) -> None:
    limiter = still_limiter()
    app = FastAPI()
    for number in (1, 2):
        app.add_api_route(f"/{number}", make(number, limiter))
    client = Client(app)
    for number in (1, 2):
        assert client.get(f"/{number}").json() == number
        assert client.get(f"/{number}").status_code == 429


def test_a_function_on_two_routes_counts_for_each() -> None:
    app = FastAPI()

    @app.get("/1")
    @app.get("/2")
    @limit("1/minute", limiter=still_limiter())
    def hello() -> None: ...

    client = Client(app)
    assert client.statuses("/1", 2) == [200, 429]
    assert client.statuses("/2", 2) == [200, 429]


@limit("1/minute")
async def known(request: Request) -> str:
    """A dependency that has a limit."""
    return "somebody"


def test_a_dependency_with_a_limit_counts_wherever_it_is_one() -> None:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=still_limiter())
    for path in ("/1", "/2"):
        app.add_api_route(path, lambda: None, dependencies=[Depends(known)])
    client = Client(app)
    assert [client.get(path).status_code for path in ("/1", "/2")] == [200, 429]


def test_a_decorator_and_a_dependency_of_one_route_have_two_counters() -> None:
    limiter = still_limiter()
    app = FastAPI()

    @app.get("/", dependencies=[Depends(RateLimit("3/minute", limiter=limiter))])
    @limit("3/minute", limiter=limiter)
    async def hello() -> None: ...

    client = Client(app)
    assert client.statuses("/", 4) == [200, 200, 200, 429]


def test_each_app_counts_for_itself_where_there_is_no_gate() -> None:
    limited = RateLimit("2/minute", name="own-limiter-of-test")
    for _ in range(2):
        app = FastAPI()
        app.add_api_route("/", lambda: None, dependencies=[Depends(limited)])
        assert Client(app).statuses("/", 3) == [200, 200, 429]


def lenient(app: FastAPI) -> None:
    """Let *app* answer refusals as if nothing were."""

    @app.exception_handler(TooManyRequests)
    async def well(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse("refused, but well")


@pytest.mark.parametrize("has_dependency", [False, True])
def test_a_refusal_that_the_app_answers_otherwise_counts_for_the_app(has_dependency: bool) -> None:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=still_limiter(limits="5/minute"))
    lenient(app)
    if has_dependency:
        app.add_api_route("/", lambda: "well", dependencies=[Depends(RateLimit("3/minute"))])
    else:
        app.add_api_route("/", limit("3/minute")(lambda: "well"))
    client = Client(app)
    replies = [client.get("/") for _ in range(6)]
    assert [reply.status_code for reply in replies] == [200] * 5 + [429]
    assert [reply.json() for reply in replies[2:4]] == ["well", "refused, but well"]
    assert "retry-after" not in replies[3].headers


def test_where_nobody_sees_the_response_a_refusal_gives_back_at_once() -> None:
    limiter = still_limiter()
    app = FastAPI(dependencies=[Depends(RateLimit("5/minute", name="app", limiter=limiter))])
    lenient(app)
    app.add_api_route(
        "/",
        lambda: "well",
        dependencies=[Depends(RateLimit("3/minute", name="inner", limiter=limiter))],
    )
    app.add_api_route("/other", lambda: "well")
    client = Client(app)
    assert client.statuses("/", 9) == [200] * 9
    assert client.get("/other").headers["x-ratelimit-remaining"] == "1"
