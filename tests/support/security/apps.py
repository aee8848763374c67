"""One app for each framework. Each records what reached its handlers, as its framework reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from aiohttp import web
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from fastapi import Cookie, Depends, FastAPI, Header
from fastapi import Request as FastApiRequest
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from flask import Flask
from flask import request as flask_request
from litestar import Litestar, route
from litestar import Request as LitestarRequest
from rest_framework.authentication import get_authorization_header
from rest_framework.views import APIView
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headgate.integrations import aiohttp_server, asgi, fastapi, flask, litestar, starlette, wsgi
from headgate.policy.loader import read_policy
from tests.support.django_project import OURS
from tests.support.security.readings import KINDS, METHODS, POLICY, Reading, bearer, simple_cookie

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import ExitStack
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from starlette.requests import Request

    from tests.support.security.readings import Journal

_USUAL = ("GET", "HEAD", "POST")


def _places(slot: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """The kind, the path and the methods of each handler; *slot* is a framework's `{name}`."""
    own = [(kind, f"/by/{kind}", METHODS if kind == "method" else _USUAL) for kind in KINDS]
    fixed = [("login", "/login", ("POST",)), ("free", "/free", _USUAL)]
    return [*fixed, ("account", f"/acct/{slot}", _USUAL), *own]


def place_of(path: str, method: str) -> tuple[str, str] | None:
    """The kind of the handler at *path* and the name in it, for apps without a router."""
    front, _, name = path.rpartition("/")
    for kind, where, methods in _places("*"):
        if path == where and kind != "account":
            return (kind, "") if method in methods else None
    return ("account", name) if front == "/acct" and name else None


# Without a framework.


def asgi_echo(journal: Journal) -> Any:
    """Reads a header from a dict of the lines, and cookies with the standard library."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        lines = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        reading = Reading(
            scope["method"],
            lambda: lines.get("host", ""),
            lines.get,
            lambda name: simple_cookie(lines.get("cookie"), name),
            lambda: bearer(lines.get("authorization")),
        )
        place = place_of(scope["path"], scope["method"])
        if place is not None:
            journal.reach(place[0], reading, place[1])
            while (await receive()).get("more_body"):
                """Read the body."""
        status = 404 if place is None else 200
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    return app


def asgi_app(journal: Journal, _closing: ExitStack) -> Any:
    return asgi.RateLimitMiddleware(asgi_echo(journal), policy=read_policy(POLICY))


def wsgi_app(journal: Journal, _closing: ExitStack) -> WSGIApplication:
    """Reads the environ, and cookies with the standard library."""

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        def header(name: str) -> str | None:
            return environ.get(f"HTTP_{name.upper().replace('-', '_')}")

        reading = Reading(
            environ["REQUEST_METHOD"],
            lambda: environ.get("HTTP_HOST", ""),
            header,
            lambda name: simple_cookie(header("cookie"), name),
            lambda: bearer(header("authorization")),
        )
        place = place_of(environ["PATH_INFO"], environ["REQUEST_METHOD"])
        if place is not None:
            journal.reach(place[0], reading, place[1])
            environ["wsgi.input"].read()
        start("404 Not Found" if place is None else "200 OK", [("Content-Length", "2")])
        return [b"ok"]

    return wsgi.RateLimitMiddleware(app, policy=read_policy(POLICY))


# ASGI frameworks.


def _starlette_reading(request: Request) -> Reading:
    return Reading(
        request.method,
        lambda: request.headers.get("host", ""),
        request.headers.get,
        request.cookies.get,
        lambda: bearer(request.headers.get("authorization")),
    )


def starlette_app(journal: Journal, _closing: ExitStack) -> Any:
    def handler(kind: str) -> Callable[..., Any]:
        async def endpoint(request: Request) -> PlainTextResponse:
            journal.reach(kind, _starlette_reading(request), request.path_params.get("name", ""))
            await request.body()
            return PlainTextResponse("ok")

        return endpoint

    routes = [Route(at, handler(kind), methods=ways) for kind, at, ways in _places("{name}")]
    limits = Middleware(starlette.RateLimitMiddleware, policy=read_policy(POLICY))
    return Starlette(routes=routes, middleware=[limits])


def fastapi_app(journal: Journal, _closing: ExitStack) -> Any:
    """Reads what its handlers declare."""

    def handler(kind: str) -> Callable[..., Any]:
        async def endpoint(
            request: FastApiRequest,
            x_user_id: Annotated[str | None, Header()] = None,
            x_api_key: Annotated[str | None, Header()] = None,
            x_tenant_id: Annotated[str | None, Header()] = None,
            x_plan: Annotated[str | None, Header()] = None,
            sid: Annotated[str | None, Cookie()] = None,
            plan: Annotated[str | None, Cookie()] = None,
            credentials: Any = Depends(HTTPBearer(auto_error=False)),  # noqa: B008
            name: str = "",
        ) -> str:
            headers = {
                "x-user-id": x_user_id,
                "x-api-key": x_api_key,
                "x-tenant-id": x_tenant_id,
                "x-plan": x_plan,
                "x-entry": request.headers.get("x-entry"),
            }
            found = cast("HTTPAuthorizationCredentials | None", credentials)
            reading = Reading(
                request.method,
                lambda: request.headers.get("host", ""),
                headers.get,
                {"sid": sid, "plan": plan}.get,
                lambda: None if found is None else found.credentials.strip(),
            )
            journal.reach(kind, reading, name)
            await request.body()
            return "ok"

        endpoint.__annotations__ = {**endpoint.__annotations__, "request": FastApiRequest}
        return endpoint

    app = FastAPI(openapi_url=None)
    for kind, at, ways in _places("{name}"):
        app.add_api_route(at, handler(kind), methods=list(ways))
    app.add_middleware(fastapi.RateLimitMiddleware, policy=read_policy(POLICY))
    return app


def litestar_app(journal: Journal, _closing: ExitStack) -> Any:
    def handler(kind: str, at: str, ways: tuple[str, ...]) -> Any:
        async def endpoint(request: LitestarRequest[Any, Any, Any]) -> str:
            reading = Reading(
                request.method,
                lambda: request.headers.get("host", ""),
                request.headers.get,
                request.cookies.get,
                lambda: bearer(request.headers.get("authorization")),
            )
            journal.reach(kind, reading, request.path_params.get("name", ""))
            await request.body()
            return "ok"

        endpoint.__annotations__ = {"request": LitestarRequest[Any, Any, Any], "return": str}
        return route(at, http_method=cast("Any", list(ways)), status_code=200)(endpoint)

    handlers = [handler(*place) for place in _places("{name:str}")]
    limits = litestar.RateLimitPlugin(policy=read_policy(POLICY))
    return Litestar(handlers, plugins=[limits], openapi_config=None)


def aiohttp_app(journal: Journal, _closing: ExitStack) -> Any:
    def handler(kind: str) -> Callable[..., Any]:
        async def endpoint(request: web.Request) -> web.Response:
            reading = Reading(
                request.method,
                lambda: request.host,
                request.headers.get,
                request.cookies.get,
                lambda: bearer(request.headers.get("authorization")),
            )
            journal.reach(kind, reading, request.match_info.get("name", ""))
            await request.read()
            return web.Response(text="ok")

        return endpoint

    app = web.Application()
    for kind, at, ways in _places("{name}"):
        for way in ways:
            app.router.add_route(way, at, handler(kind))
    aiohttp_server.setup(app, policy=read_policy(POLICY))
    return app


# WSGI frameworks.


def flask_app(journal: Journal, _closing: ExitStack) -> Any:
    def handler(kind: str) -> Callable[..., Any]:
        def view(name: str = "") -> str:
            found = flask_request.authorization
            reading = Reading(
                flask_request.method,
                lambda: flask_request.host,
                flask_request.headers.get,
                flask_request.cookies.get,
                lambda: found.token if found is not None and found.type == "bearer" else None,
            )
            journal.reach(kind, reading, name)
            flask_request.get_data()
            return "ok"

        return view

    app = Flask("attacked")
    for kind, at, ways in _places("<name>"):
        app.add_url_rule(at, endpoint=kind, view_func=handler(kind), methods=ways)
    flask.RateLimits(app, policy=read_policy(POLICY))
    return app


def django_app(journal: Journal, closing: ExitStack) -> Any:
    def handler(kind: str, ways: tuple[str, ...]) -> Callable[..., Any]:
        @csrf_exempt
        def view(request: Any, name: str = "") -> HttpResponse:
            if request.method not in ways:
                return HttpResponse(status=405)
            reading = _django_reading(request, lambda: bearer(request.headers.get("authorization")))
            journal.reach(kind, reading, name)
            _ = request.body
            return HttpResponse("ok")

        return view

    patterns = [path(at[1:], handler(kind, ways)) for kind, at, ways in _places("<name>")]
    return _project(patterns, closing)


def drf_app(journal: Journal, closing: ExitStack) -> Any:
    def handler(kind: str, ways: tuple[str, ...]) -> Any:
        def respond(_view: APIView, request: Any, name: str = "") -> HttpResponse:
            def token() -> str | None:
                parts = get_authorization_header(request).split()
                is_bearer = len(parts) == 2 and parts[0].lower() == b"bearer"
                return parts[1].decode("latin-1") if is_bearer else None

            journal.reach(kind, _django_reading(request, token), name)
            _ = request.body
            return HttpResponse("ok")

        contents = {way.lower(): respond for way in ways}
        return type(f"View {kind}", (APIView,), contents).as_view()  # type: ignore[attr-defined]

    patterns = [path(at[1:], handler(kind, ways)) for kind, at, ways in _places("<name>")]
    return _project(patterns, closing, REST_FRAMEWORK={"UNAUTHENTICATED_USER": None})


def _django_reading(request: Any, token: Callable[[], str | None]) -> Reading:
    return Reading(
        request.method,
        request.get_host,
        request.headers.get,
        request.COOKIES.get,
        token,
    )


def _project(patterns: list[Any], closing: ExitStack, **others: Any) -> Any:
    settings = override_settings(
        ROOT_URLCONF=tuple(patterns),
        MIDDLEWARE=[OURS, "django.middleware.common.CommonMiddleware"],
        ALLOWED_HOSTS=["*"],
        HEADGATE={"policy": read_policy(POLICY)},
        DEBUG=False,
        **others,
    )
    settings.enable()
    closing.callback(settings.disable)
    return WSGIHandler()
