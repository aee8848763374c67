"""Which requests are counted together where a limit has no name, and where it has no limiter."""

from __future__ import annotations

import functools
import gc
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router, WebSocketRoute

from headgate.integrations.starlette import RateLimitMiddleware, limit
from tests.support.asgi_client import Client, app_of, still_limiter, websocket

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from headgate.integrations import RequestLimiter


async def said(text: str, request: Request) -> PlainTextResponse:
    return PlainTextResponse(text)


@dataclass
class Saying:
    """An endpoint that has no hash."""

    text: str

    async def __call__(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(self.text)


class Speaker:
    def __init__(self, text: str) -> None:
        self.text = text

    async def say(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(self.text)


def partial(text: str, limiter: RequestLimiter) -> Any:
    return limit("1/minute", limiter=limiter)(functools.partial(said, text))


def partial_of_a_limited_one(text: str, limiter: RequestLimiter) -> Any:
    return functools.partial(limit("1/minute", limiter=limiter)(said), text)


def closure(text: str, limiter: RequestLimiter) -> Any:
    @limit("1/minute", limiter=limiter)
    async def view(request: Request) -> PlainTextResponse:
        return PlainTextResponse(text)

    return view


def nameless(text: str, limiter: RequestLimiter) -> Any:
    return limit("1/minute", limiter=limiter)(lambda _: PlainTextResponse(text))


def instance(text: str, limiter: RequestLimiter) -> Any:
    return limit("1/minute", limiter=limiter)(Saying(text))


def bound(text: str, limiter: RequestLimiter) -> Any:
    return limit("1/minute", limiter=limiter)(Speaker(text).say)


def careless(function: Any) -> Any:
    """Decorate *function*, and say nothing of it."""

    async def call(request: Request) -> Any:
        return await function(request)

    return call


def careless_closure(text: str, limiter: RequestLimiter) -> Any:
    return careless(closure(text, limiter))


def careless_bound(text: str, limiter: RequestLimiter) -> Any:
    return careless(bound(text, limiter))


MAKERS = [
    partial,
    partial_of_a_limited_one,
    closure,
    nameless,
    instance,
    bound,
    careless_closure,
    careless_bound,
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("is_watched", [False, True])
def test_functions_of_one_name_on_two_routes_have_two_counters(
    make: Callable[[str, RequestLimiter], Any], is_watched: bool
) -> None:
    limiter = still_limiter()
    routes = [Route("/a", make("a", limiter)), Route("/b", make("b", limiter))]
    client = Client(app_of(*routes, limiter=limiter if is_watched else None))
    for path in ("/a", "/b"):
        assert client.get(path).text == path[1:]
        assert client.get(path).status_code == 429


@pytest.mark.parametrize("make", [closure, nameless])
def test_functions_of_one_name_have_a_counter_in_each_mount_and_for_each_method(
    make: Callable[[str, RequestLimiter], Any],
) -> None:
    limiter = still_limiter()

    def routes() -> list[Route]:
        return [
            Route("/x/{number}", make("got", limiter)),
            Route("/x/{number}", make("posted", limiter), methods=["POST"]),
        ]

    app = app_of(
        Mount("/a/{tenant}", routes=routes()),
        Mount("/b", Router(routes())),
        Mount("/c", GZipMiddleware(Starlette(routes=routes()))),
    )
    client = Client(app)
    for path in ("/a/1/x/1", "/b/x/1", "/c/x/1"):
        assert client.statuses(path, 2) == [200, 429]
        assert client.post(path).text == "posted"
        assert client.post(path).status_code == 429
    assert client.get("/a/2/x/2").status_code == 429  # what a client chooses makes no counter


class Page(HTTPEndpoint):
    @limit("1/minute")
    async def get(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(type(self).__name__)

    @limit("1/minute")
    async def post(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(type(self).__name__)


class One(Page): ...


class Two(Page): ...


def test_a_method_that_two_endpoints_inherit_counts_for_each() -> None:
    client = Client(app_of(Route("/1", One), Route("/2", Two), limiter=still_limiter()))
    assert [client.get("/1").text, client.get("/2").text] == ["One", "Two"]
    assert [client.get(path).status_code for path in ("/1", "/2")] == [429, 429]
    assert client.post("/1").status_code == 200


def test_websockets_of_one_name_have_two_counters() -> None:
    limiter = still_limiter()

    def make() -> Any:
        @limit("1/minute", limiter=limiter)
        async def live(socket: WebSocket) -> None:
            await socket.accept()

        return live

    app = app_of(WebSocketRoute("/a", make()), WebSocketRoute("/b", make()))
    for path in ("/a", "/b"):
        kinds = [websocket(app, path)[0]["type"] for _ in range(2)]
        assert kinds == ["websocket.accept", "websocket.close"]


def test_a_route_has_one_counter_for_all_its_methods() -> None:
    app = app_of(Route("/", closure("x", still_limiter()), methods=["GET", "POST"]))
    client = Client(app)
    assert [client.ask(method, "/").status_code for method in ("HEAD", "GET", "POST")] == [
        200,
        429,
        429,
    ]


@limit("1/minute")
async def checked(request: Request) -> None:
    """A function that is no endpoint."""


def test_a_function_that_is_no_endpoint_counts_whoever_calls_it() -> None:
    async def one(request: Request) -> PlainTextResponse:
        await checked(request)
        return PlainTextResponse("one")

    async def two(request: Request) -> PlainTextResponse:
        await checked(request)
        return PlainTextResponse("two")

    client = Client(app_of(Route("/1", one), Route("/2", two), limiter=still_limiter()))
    assert [client.get(path).status_code for path in ("/1", "/2")] == [200, 429]


def test_limits_below_and_above_another_decorator_have_two_counters() -> None:
    limiter = still_limiter()

    def passing(function: Any) -> Any:
        @functools.wraps(function)
        async def call(request: Request) -> Any:
            return await function(request)

        return call

    @limit("3/minute", limiter=limiter)
    @passing
    @limit("3/minute", limiter=limiter)
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    shown = Client(app_of(Route("/", hello), limiter=limiter)).get("/").headers["ratelimit"]
    assert '"hello";r=2' in shown
    assert '"hello-2";r=2' in shown


def test_the_order_in_which_functions_are_made_makes_no_counters() -> None:
    """Another process may have made others before, or the same ones the other way round."""
    limiter = still_limiter()

    def client(*names: str) -> Client:
        made = [Route(f"/{name}", closure(name, limiter)) for name in names]
        return Client(app_of(Mount("/m", routes=made)))

    first, second = client("a", "b"), client("c", "b", "a")
    for path in ("/m/a", "/m/b"):
        assert first.get(path).status_code == 200
        assert second.get(path).status_code == 429
    assert second.get("/m/c").status_code == 200


def test_each_app_counts_for_itself_where_there_is_no_gate() -> None:
    endpoint = limit("1/minute", name="own-limiter-of-test")(functools.partial(said, "hello"))
    for _ in range(2):
        assert Client(app_of(Route("/", endpoint))).statuses("/", 2) == [200, 429]


def test_mounted_apps_count_with_the_one_they_are_mounted_in() -> None:
    endpoint = limit("2/minute", name="both")(functools.partial(said, "hello"))
    inner = Starlette(routes=[Route("/", endpoint)])
    hidden = GZipMiddleware(Starlette(routes=[Route("/", endpoint)]))
    client = Client(app_of(Route("/", endpoint), Mount("/inner", inner), Mount("/hidden", hidden)))
    assert [client.get(path).status_code for path in ("/", "/inner/", "/hidden/")] == [
        200,
        200,
        429,
    ]


def test_an_app_that_has_counted_can_be_forgotten() -> None:
    app = app_of(Route("/", limit("1/minute")(functools.partial(said, "hello"))))
    Client(app).get("/")
    known = weakref.ref(app)
    del app
    gc.collect()
    assert known() is None


def test_without_an_app_what_has_no_gate_counts_in_this_process() -> None:
    endpoint = limit("1/minute", name="no-app-of-test")(functools.partial(said, "hello"))
    assert Client(Route("/", endpoint)).get("/").status_code == 200
    assert Client(Route("/other", endpoint)).get("/other").status_code == 429


def test_a_subclass_of_the_middleware_may_have_a_call_of_its_own() -> None:
    seen: list[str] = []

    class Noting(RateLimitMiddleware):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["path"])
            await super().__call__(scope, receive, send)

    middleware = [Middleware(Noting, limits="1/minute")]
    app = Starlette(routes=[Route("/", functools.partial(said, "x"))], middleware=middleware)
    assert Client(app).statuses("/", 2) == [200, 429]
    assert seen == ["/", "/"]
