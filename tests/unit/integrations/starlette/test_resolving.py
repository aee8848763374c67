"""Which route a request is for, found before the app looks; and endpoints that are exempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute

from headgate.errors import UsageError
from headgate.integrations.exemptions import is_exempt
from headgate.integrations.starlette import RateLimitMiddleware, exempt, limit, resolve
from tests.support.asgi_client import Client, still_limiter

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.websockets import WebSocket


async def users(request: Request) -> PlainTextResponse:
    return PlainTextResponse("users")


async def user(request: Request) -> PlainTextResponse:
    return PlainTextResponse("user")


async def socket(websocket: WebSocket) -> None: ...


async def other(scope: Any, receive: Any, send: Any) -> None:
    """An app that says nothing of its routes."""
    await PlainTextResponse("other")(scope, receive, send)


class Page(HTTPEndpoint):
    async def get(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse("page")


def scope_of(app: Any, path: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "app": app,
        "method": method,
        "path": path,
        "root_path": "",
        "headers": [(b"host", b"api.app.test")],
        **more,
    }


APP = Starlette(
    routes=[
        Route("/users", users),
        Route("/users/{id:int}", user),
        Route("/users/{id:int}", users, methods=["POST"]),
        Route("/page", Page),
        WebSocketRoute("/live/{room}", socket),
        Mount("/api/{version}", routes=[Route("/users/{id}", user), Mount("/raw", other)]),
        Mount("/router", Router([Route("/", users)])),
        Host("api.app.test", Router([Route("/hosted/{name}", user)])),
    ]
)


@pytest.mark.parametrize(
    ("path", "template", "endpoint"),
    [
        ("/users", "/users", users),
        ("/users/42", "/users/{id}", user),
        ("/page", "/page", Page),
        ("/api/v2/users/42", "/api/{version}/users/{id}", user),
        ("/api/v2/raw/anything/at/all", "/api/{version}/raw", other),
        ("/router/", "/router/", users),
        ("/hosted/x", "/hosted/{name}", user),
    ],
)
def test_a_route_is_found_with_its_whole_template(path: str, template: str, endpoint: Any) -> None:
    assert resolve(scope_of(APP, path)) == (template, endpoint)


def test_a_route_is_found_by_its_method_and_without_one_by_its_path() -> None:
    assert resolve(scope_of(APP, "/users/42", "POST")) == ("/users/{id}", users)
    assert resolve(scope_of(APP, "/users/42", "DELETE", headers=[])) == ("/users/{id}", user)


def test_a_websocket_is_found_too() -> None:
    scope = {**scope_of(APP, "/live/7"), "type": "websocket"}
    assert resolve(scope) == ("/live/{room}", socket)


def test_what_is_nowhere_is_none() -> None:
    assert resolve(scope_of(APP, "/nowhere", headers=[])) is None
    assert resolve(scope_of(None, "/users")) is None
    assert resolve({**scope_of(APP, "/users"), "type": "lifespan"}) is None


def test_a_route_may_be_an_app_by_itself() -> None:
    mount = Mount("/m", Router([Route("/users", users)]))
    scope = scope_of(None, "/m/users")
    assert resolve(scope, mount) == ("/m/users", users)
    assert resolve(scope_of(None, "/users"), mount) is None


def test_the_routes_of_another_framework_are_left_alone() -> None:
    class Another:
        routes = ("/users",)

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    class Itself:
        @property
        def app(self) -> Any:
            return self

    for app in (Another(), Itself(), other):
        assert resolve(scope_of(app, "/users"), app) is None


def test_within_a_mount_that_serves_nothing_there_the_template_ends_with_the_mount() -> None:
    found = resolve(scope_of(APP, "/api/v2/nowhere"))
    assert found is not None
    assert found.template == "/api/{version}"


def test_a_server_that_serves_the_app_below_a_path_makes_no_difference() -> None:
    scope = scope_of(APP, "/below/users/42", root_path="/below")
    assert resolve(scope) == ("/users/{id}", user)


def test_resolving_changes_nothing_in_the_scope() -> None:
    app = FastAPI()
    router = APIRouter()
    router.add_api_route("/users/{id}", lambda: None)
    app.include_router(router, prefix="/v1")
    app.mount("/api", APP)
    for path in ("/v1/users/1", "/api/users/1", "/nowhere"):
        scope = scope_of(app, path)
        before = dict(scope)
        resolve(scope)
        assert scope == before


def test_routers_of_fastapi_are_looked_into_with_their_prefixes() -> None:
    async def item(id: int) -> None: ...  # noqa: A002 (as in its path)

    inner, outer = APIRouter(prefix="/inner"), APIRouter()
    inner.add_api_route("/{id}", item)
    inner.add_route("/plain", users)
    inner.mount("/raw", other)
    inner.add_api_websocket_route("/live", socket)
    outer.include_router(inner, prefix="/outer")
    app = FastAPI()
    app.add_api_route("/first", item)
    app.include_router(outer, prefix="/v1")
    app.include_router(inner, prefix="/v2")
    sub = FastAPI()
    sub.include_router(outer)
    app.mount("/sub/{name}", sub)

    found = {
        path: resolve(scope_of(app, path))
        for path in (
            "/first",
            "/v1/outer/inner/7",
            "/v2/inner/7",
            "/v2/plain",
            "/v2/raw/x",
            "/sub/a/outer/inner/7",
        )
    }
    assert list(found.values()) == [
        ("/first", item),
        ("/v1/outer/inner/{id}", item),
        ("/v2/inner/{id}", item),
        ("/v2/plain", users),
        ("/v2/raw", other),
        ("/sub/{name}/outer/inner/{id}", item),
    ]
    live = resolve({**scope_of(app, "/v1/outer/inner/live"), "type": "websocket"})
    assert live == ("/v1/outer/inner/live", socket)


def test_the_whole_template_is_found_from_inside_a_mounted_app() -> None:
    found: list[Any] = []

    async def inside(request: Request) -> PlainTextResponse:
        found.append(resolve(request.scope))
        return PlainTextResponse("inside")

    app = Starlette(
        routes=[Mount("/tenants/{tenant}", Starlette(routes=[Route("/x/{y}", inside)]))]
    )
    assert Client(app).get("/tenants/a/x/b").text == "inside"
    assert found == [("/tenants/{tenant}/x/{y}", inside)]


def test_an_exempt_endpoint_is_skipped_by_the_limits_of_the_app_alone() -> None:
    @exempt
    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("well")

    @limit("2/minute")
    @exempt
    async def own(request: Request) -> PlainTextResponse:
        return PlainTextResponse("own")

    @limit("2/minute", name="outer")
    @exempt
    @limit("2/minute", name="inner")
    async def between(request: Request) -> PlainTextResponse:
        return PlainTextResponse("between")

    @exempt
    class Still(HTTPEndpoint):
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("still")

    class Half(HTTPEndpoint):
        @exempt
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("half")

        async def post(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("half")

    inner = Starlette(routes=[Route("/health", health)])
    app = Starlette(
        routes=[
            Route("/", users),
            Route("/health", health),
            Route("/own", own),
            Route("/between", between),
            Route("/still", Still),
            Route("/half", Half),
            Mount("/inner", inner),
        ],
        middleware=[Middleware(RateLimitMiddleware, limiter=still_limiter(limits="1/minute"))],
    )
    client = Client(app)
    assert client.statuses("/", 2) == [200, 429]
    for path in ("/health", "/inner/health", "/still", "/half"):
        assert client.statuses(path, 2) == [200, 200]
        assert "ratelimit" not in client.get(path).headers
    assert client.ask("HEAD", "/half").status_code == 200
    assert client.post("/half").status_code == 429
    for path in ("/own", "/between"):
        assert client.statuses(path, 3) == [200, 200, 429]


def test_a_walk_goes_on_in_the_app_of_a_middleware_that_is_mounted() -> None:
    found: list[Any] = []

    class Noting:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            found.append(resolve(scope, self.app))
            await self.app(scope, receive, send)

    sub = Starlette(routes=[Route("/users/{id}", user)], middleware=[Middleware(Noting)])
    app = Starlette(
        routes=[
            Route("/health", users),
            Mount("/a/{tenant}", Noting(Starlette(routes=[Route("/users/{id}", user)]))),
            Mount("/b", GZipMiddleware(sub)),
            Mount("/c", Noting(GZipMiddleware(Router([Mount("/d", sub)])))),
            Mount("/e", Noting(other)),
            Mount("", Noting(Router([Route("/root", users)]))),
        ]
    )
    client = Client(Noting(app))

    def templates(path: str) -> list[str]:
        found.clear()
        client.get(path)
        return [one.template for one in found]

    assert templates("/a/1/users/2") == ["/a/{tenant}", "/a/{tenant}/users/{id}"]
    assert templates("/b/users/2") == ["/b", "/b/users/{id}"]
    assert templates("/c/d/users/2")[:2] == ["/c", "/c/d/users/{id}"]
    assert templates("/root") == ["/", "/root"]
    # What is mounted has no such route: that the outer app has one says nothing.
    assert templates("/e/health") == ["/e", "/e"]
    assert templates("/health") == ["/health"]


def test_an_exempt_endpoint_is_skipped_by_a_middleware_that_is_mounted() -> None:
    @exempt
    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("well")

    limiter = still_limiter(limits="1/minute")
    sub = Starlette(routes=[Route("/health", health), Route("/users", users)])
    hidden = Starlette(
        routes=sub.routes, middleware=[Middleware(RateLimitMiddleware, limiter=limiter)]
    )
    others = [
        Route("/health", health),
        Mount("/other", RateLimitMiddleware(other, limiter=limiter)),
    ]
    app = Starlette(
        routes=[
            *others,
            Mount("/sub", RateLimitMiddleware(sub, limiter=limiter)),
            Mount("/hidden", GZipMiddleware(hidden)),
            Mount("/further", GZipMiddleware(Starlette(routes=others))),
        ]
    )
    client = Client(app)
    for path in ("/sub/health", "/hidden/health"):
        assert client.statuses(path, 3) == [200] * 3
    assert client.statuses("/sub/users", 2) == [200, 429]
    for path in ("/other/health", "/further/other/health"):  # which is not the /health beside it
        assert client.statuses(path, 1) == [429]


def test_a_class_does_not_inherit_that_another_is_exempt() -> None:
    @exempt
    class Health(HTTPEndpoint):
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("well")

    class Admin(Health): ...

    app = Starlette(
        routes=[Route("/health", Health), Route("/admin", Admin)],
        middleware=[Middleware(RateLimitMiddleware, limiter=still_limiter(limits="1/minute"))],
    )
    client = Client(app)
    assert client.statuses("/health", 3) == [200] * 3
    assert client.statuses("/admin", 3) == [200, 429, 429]


def test_an_instance_is_exempt_if_it_or_its_own_class_is() -> None:
    @exempt
    class Health:
        def __call__(self) -> None: ...

    class Admin(Health): ...

    one = exempt(Admin())
    assert [is_exempt(given) for given in (Health, Health(), one)] == [True] * 3
    assert [is_exempt(given) for given in (Admin, Admin(), None, "x")] == [False] * 4


def test_only_endpoints_can_be_exempt() -> None:
    with pytest.raises(UsageError, match="cannot exempt '/health'"):
        exempt("/health")
