"""One small app in every framework, with limits; and the clients that ask them.

A path says what the app does: `/fail` answers 401, `/boom` raises, `/own` has rate limit headers of
its own, `/tokens` tells a cost in a header, `/report` reports one, `/stream` sends parts, `/nested`
asks the app itself for `/` while it is served.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fastapi
import flask
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import re_path
from rest_framework.response import Response as DrfResponse
from rest_framework.views import APIView
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from tests.golden.http_exchange import Asked, Log, ask_asgi, ask_wsgi
from tests.golden.python_api import (
    DJANGO_MIDDLEWARE,
    AsgiMiddleware,
    AsgiStatus,
    AsyncFairGate,
    DrfThrottle,
    FairMiddleware,
    FastAPIDependency,
    FlaskExtension,
    ManualClock,
    RequestLimiter,
    WsgiMiddleware,
    WsgiStatus,
    asgi_report,
    django_limit,
    django_limiter,
    django_report,
    django_status,
    fastapi_limit,
    limiter_options,
    starlette_limit,
    wsgi_report,
)

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
Options = dict[str, Any]
Steps = Sequence[str | float]
Limits = Sequence[tuple[Any, Options]]
"""Limits of one route, each with its options."""

OWN = (
    ("X-RateLimit-Limit", "5000"),
    ("RateLimit", '"origin";r=9;t=1'),
    ("RateLimit-Policy", '"origin";q=10;w=1'),
    ("Retry-After", "9"),
    ("Cache-Control", "public"),
    ("Access-Control-Expose-Headers", "ETag"),
)


@dataclass(frozen=True)
class Served:
    """What the app answers."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    parts: tuple[bytes, ...] = (b"hello",)


def served(path: str) -> Served:
    """What the app answers to *path*."""
    last = path.rstrip("/").rpartition("/")[2]
    if last == "boom":
        raise RuntimeError("boom")
    if last == "fail":
        return Served(401)
    if last == "own":
        return Served(headers=OWN)
    if last == "tokens":
        return Served(headers=(("x-tokens", "7"),))
    return Served(parts=(b"one ", b"two")) if last == "stream" else Served()


class Run:
    """Steps against one app: requests, and seconds by which the clock moves on."""

    def __init__(self, steps: Steps, clock: Any) -> None:
        self.steps, self.clock = steps, clock
        self.log = Log()

    def of_asgi(self, app: Any, limiter: Any = None) -> Log:
        """Ask an ASGI app."""
        self._app = app

        async def ask() -> None:
            for step in self.steps:
                if isinstance(step, str):
                    await ask_asgi(app, Asked.read(step), self.log)
                else:
                    self.clock.advance(step)
            if limiter is not None:
                await limiter.aclose()

        asyncio.run(ask())
        return self.log

    def of_wsgi(self, app: Any, limiter: Any = None) -> Log:
        """Ask a WSGI app."""
        self._app = app
        for step in self.steps:
            if isinstance(step, str):
                ask_wsgi(app, Asked.read(step), self.log)
            else:
                self.clock.advance(step)
        if limiter is not None:
            limiter.close()
        return self.log

    async def again(self, path: str) -> None:
        """Ask for `/` within the request for */nested*."""
        if path.endswith("/nested"):
            await ask_asgi(self._app, Asked.read(f"GET {path[: -len('nested')]}"), self.log)

    def again_blocking(self, path: str) -> None:
        """The same for a WSGI app."""
        if path.endswith("/nested"):
            ask_wsgi(self._app, Asked.read(f"GET {path[: -len('nested')]}"), self.log)


def _run(steps: Steps, options: Options) -> tuple[Run, Any]:
    clock = ManualClock(1_800_000_000)
    return Run(steps, clock), RequestLimiter(clock=clock, **limiter_options(options))


# The whole app is limited.


def _bare_asgi(run: Run, status: Any = None) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 1000})
            return
        path = scope["path"]
        if path == "/rate_limit":
            await status(scope, receive, send)
            return
        await run.again(path)
        if path.endswith("/report"):
            asgi_report(_Connection(scope), default=3)
        answer = served(path)
        lines = [("content-type", "text/plain"), *answer.headers]
        headers = [(name.lower().encode(), value.encode()) for name, value in lines]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        for part in answer.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    return app


def asgi(options: Options, steps: Steps) -> Log:
    """The ASGI middleware around a bare app."""
    run, limiter = _run(steps, options)
    return run.of_asgi(AsgiMiddleware(_bare_asgi(run, AsgiStatus(limiter)), limiter), limiter)


def fair_turns(steps: Steps) -> Log:
    """A bare ASGI app whose requests take turns, one at a time, nobody waiting."""
    run = Run(steps, ManualClock(1_800_000_000))
    turns = AsyncFairGate(slots=1, queue=0, clock=run.clock)
    return run.of_asgi(FairMiddleware(_bare_asgi(run), turns, clock=run.clock))


@dataclass
class _Connection:
    scope: Any


def wsgi(options: Options, steps: Steps) -> Log:
    """The WSGI middleware around a bare app."""
    run, limiter = _run(steps, options)
    status = WsgiStatus(limiter)

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/rate_limit":
            return status(environ, start_response)
        run.again_blocking(path)
        if path.endswith("/report"):
            wsgi_report(environ, default=3)
        answer = served(path)
        line = {200: "200 OK", 401: "401 Unauthorized"}[answer.status]
        start_response(line, [("Content-Type", "text/plain"), *answer.headers])
        return iter(answer.parts)

    return run.of_wsgi(WsgiMiddleware(app, limiter), limiter)


def _starlette_endpoint(run: Run, report: str = "default") -> Callable[[Any], Any]:
    async def endpoint(request: Any) -> Any:
        path = request.scope["path"]
        await run.again(path)
        if path.endswith("/report"):
            asgi_report(request, {report: 3})
        answer = served(path)
        if len(answer.parts) > 1:
            return StreamingResponse(_async_parts(answer), media_type="text/plain")
        return Response(answer.parts[0], answer.status, dict(answer.headers), "text/plain")

    return endpoint


async def _async_parts(answer: Served) -> Any:
    for part in answer.parts:
        yield part


async def _accept(websocket: Any) -> None:
    await websocket.accept()
    await websocket.close()


def starlette(options: Options, steps: Steps) -> Log:
    """The middleware in a Starlette app."""
    run, limiter = _run(steps, options)
    endpoint = _starlette_endpoint(run)
    app = Starlette(
        routes=[
            Route("/items/{id}", endpoint, methods=METHODS),
            WebSocketRoute("/", _accept),
            Route("/{path:path}", endpoint, methods=METHODS),
        ]
    )
    app.add_middleware(AsgiMiddleware, limiter=limiter)
    return run.of_asgi(app, limiter)


def _fastapi_endpoint(run: Run, report: str = "default") -> Callable[..., Any]:
    inner = _starlette_endpoint(run, report)

    async def endpoint(request: fastapi.Request) -> Any:
        found = await inner(request)
        if (
            isinstance(found, StreamingResponse)
            or found.status_code != 200
            or found.raw_headers[2:]
        ):
            return found
        return {"hello": "world"}

    return endpoint


def fastapi_middleware(options: Options, steps: Steps) -> Log:
    """The middleware in a FastAPI app."""
    run, limiter = _run(steps, options)
    app = fastapi.FastAPI()
    endpoint = _fastapi_endpoint(run)
    app.api_route("/items/{id}", methods=METHODS)(endpoint)
    app.websocket("/")(_fastapi_accept)
    app.api_route("/{path:path}", methods=METHODS)(endpoint)
    app.add_middleware(AsgiMiddleware, limiter=limiter)
    return run.of_asgi(app, limiter)


async def _fastapi_accept(websocket: fastapi.WebSocket) -> None:
    await _accept(websocket)


def _flask_view(run: Run, report: str = "default") -> Callable[..., Any]:
    def view(**_: object) -> Any:
        path = flask.request.path
        run.again_blocking(path)
        if path.endswith("/report"):
            wsgi_report(flask.request, {report: 3})
        answer = served(path)
        parts = iter(answer.parts) if len(answer.parts) > 1 else answer.parts[0]
        return flask.Response(parts, answer.status, list(answer.headers), "text/plain")

    return view


def _flask_app() -> flask.Flask:
    app = flask.Flask("golden", static_folder=None)
    app.config["PROPAGATE_EXCEPTIONS"] = True
    return app


def _flask_rule(app: flask.Flask, rule: str, view: Any, endpoint: str) -> None:
    app.add_url_rule(rule, endpoint, view, methods=METHODS, provide_automatic_options=False)


def flask_extension(options: Options, steps: Steps) -> Log:
    """The extension of a Flask app."""
    run, limiter = _run(steps, options)
    app = _flask_app()
    limits = FlaskExtension(app, limiter)
    view = _flask_view(run)
    app.add_url_rule("/rate_limit", view_func=limits.status)
    _flask_rule(app, "/items/<id>", view, "items")
    _flask_rule(app, "/", view, "index")
    _flask_rule(app, "/<path:path>", view, "any")
    return run.of_wsgi(app, limiter)


def _django_view(run: Run, report: str = "default") -> Callable[..., Any]:
    def view(request: Any, **_: object) -> Any:
        run.again_blocking(request.path)
        if request.path.endswith("/report"):
            django_report(request, {report: 3})
        answer = served(request.path)
        if len(answer.parts) > 1:
            found: Any = StreamingHttpResponse(iter(answer.parts), content_type="text/plain")
        else:
            found = HttpResponse(answer.parts[0], "text/plain", answer.status)
        for name, value in answer.headers:
            found[name] = value
        return found

    return view


def _django_urls(view: Any) -> tuple[Any, ...]:
    return (
        re_path("^rate_limit$", django_status),
        re_path("^items/(?P<id>[0-9]+)$", view),
        re_path("^.*$", view),
    )


def _django(run: Run, options: Options, urls: Any, **others: Any) -> Iterator[Any]:
    given = limiter_options(options)
    middleware = [DJANGO_MIDDLEWARE] if others.pop("has_middleware", True) else []
    with override_settings(
        ROOT_URLCONF=urls,
        MIDDLEWARE=middleware,
        HEADGATE={"clock": run.clock, **given},
        DEBUG_PROPAGATE_EXCEPTIONS=True,
        **others,
    ):
        yield django_limiter()


def django_middleware(options: Options, steps: Steps) -> Log:
    """The middleware of a Django project, under WSGI."""
    run = Run(steps, ManualClock(1_800_000_000))
    for limiter in _django(run, options, _django_urls(_django_view(run))):
        run.of_wsgi(WSGIHandler(), limiter)
    return run.log


def django_asgi_middleware(options: Options, steps: Steps) -> Log:
    """The same under ASGI."""
    run = Run(steps, ManualClock(1_800_000_000))

    async def view(request: Any, **_: object) -> Any:
        await run.again(request.path)
        answer = served(request.path)
        if len(answer.parts) > 1:
            return StreamingHttpResponse(_async_parts(answer), content_type="text/plain")
        found = HttpResponse(answer.parts[0], "text/plain", answer.status)
        for name, value in answer.headers:
            found[name] = value
        return found

    for limiter in _django(run, options, (re_path("^.*$", view),)):
        run.of_asgi(ASGIHandler(), limiter)
    return run.log


# Single routes are limited: /a, /b, and all below them; any other path is not.


def _starlette_routes(run: Run, limits: Limits, limit: Any, endpoint: Any) -> list[Any]:
    def limited() -> Any:
        async def a(request: fastapi.Request) -> Any:
            return await endpoint(run, "named")(request)

        for given, options in reversed(limits):
            a = limit(given, **options)(a)
        return a

    return [limited(), limited(), endpoint(run)]


PATHS = ("/a", "/a/{path:path}", "/b", "/{path:path}")


def _route_run(steps: Steps, options: Options) -> tuple[Run, Any, bool]:
    given = dict(options)
    has_middleware = given.pop("has_middleware", True)
    run, limiter = _run(steps, given)
    return run, limiter, has_middleware


def starlette_decorator(options: Options, limits: Limits, steps: Steps) -> Log:
    """Decorated endpoints of a Starlette app."""
    run, limiter, has_middleware = _route_run(steps, options)
    extra = {} if has_middleware else {"limiter": limiter}
    limits = [(given, {**more, **extra}) for given, more in limits]
    a, b, any_ = _starlette_routes(run, limits, starlette_limit, _starlette_endpoint)
    pairs = zip(PATHS, (a, a, b, any_), strict=True)
    app = Starlette(routes=[Route(path, one, methods=METHODS) for path, one in pairs])
    if has_middleware:
        app.add_middleware(AsgiMiddleware, limiter=limiter)
    return run.of_asgi(app, limiter)


def fastapi_decorator(options: Options, limits: Limits, steps: Steps) -> Log:
    """Decorated endpoints of a FastAPI app."""
    run, limiter, has_middleware = _route_run(steps, options)
    extra = {} if has_middleware else {"limiter": limiter}
    limits = [(given, {**more, **extra}) for given, more in limits]
    a, b, any_ = _starlette_routes(run, limits, fastapi_limit, _fastapi_endpoint)
    app = fastapi.FastAPI()
    for path, one in zip(PATHS, (a, a, b, any_), strict=True):
        app.api_route(path, methods=METHODS)(one)
    if has_middleware:
        app.add_middleware(AsgiMiddleware, limiter=limiter)
    return run.of_asgi(app, limiter)


def fastapi_dependency(options: Options, limits: Limits, steps: Steps) -> Log:
    """Dependencies of routes of a FastAPI app."""
    run, limiter, has_middleware = _route_run(steps, options)
    extra = {} if has_middleware else {"limiter": limiter}
    app = fastapi.FastAPI()
    made = [FastAPIDependency(given, **more, **extra) for given, more in limits]
    depends = [fastapi.Depends(one) for one in made]
    for path in PATHS:
        dependencies = [] if path == PATHS[-1] else depends
        endpoint = _fastapi_endpoint(run, "named")
        app.api_route(path, methods=METHODS, dependencies=dependencies)(endpoint)
    if has_middleware:
        app.add_middleware(AsgiMiddleware, limiter=limiter)
    return run.of_asgi(app, limiter)


def flask_decorator(options: Options, limits: Limits, steps: Steps) -> Log:
    """Decorated views of a Flask app."""
    run, limiter, _ = _route_run(steps, options)
    app = _flask_app()
    extension = FlaskExtension(app, limiter)

    def limited() -> Any:
        view = _flask_view(run, "named")
        for given, more in reversed(limits):
            view = extension.limit(given, **more)(view)
        return view

    a = limited()
    _flask_rule(app, "/a", a, "a")
    _flask_rule(app, "/a/<path:path>", a, "below_a")
    _flask_rule(app, "/b", limited(), "b")
    _flask_rule(app, "/", _flask_view(run), "index")
    _flask_rule(app, "/<path:path>", _flask_view(run), "any")
    return run.of_wsgi(app, limiter)


def _django_limited(run: Run, limits: Limits, name: str) -> Any:
    view = _django_view(run, "named")
    view.__name__ = view.__qualname__ = name
    for given, more in reversed(limits):
        view = django_limit(given, **more)(view)
    return view


def django_decorator(options: Options, limits: Limits, steps: Steps) -> Log:
    """Decorated views of a Django project."""
    run = Run(steps, ManualClock(1_800_000_000))
    a, b = (_django_limited(run, limits, name) for name in ("a", "b"))
    urls = (re_path("^a", a), re_path("^b$", b), re_path("^.*$", _django_view(run)))
    given = {name: value for name, value in options.items() if name != "has_middleware"}
    has_middleware = options.get("has_middleware", True)
    for limiter in _django(run, given, urls, has_middleware=has_middleware):
        run.of_wsgi(WSGIHandler(), limiter)
    return run.log


def drf_throttle(options: Options, limits: Limits, steps: Steps) -> Log:
    """Throttles of views of Django REST framework."""
    run = Run(steps, ManualClock(1_800_000_000))
    classes = [
        type(f"Throttle{number}", (DrfThrottle,), {"limits": given, **_throttle_options(more)})
        for number, (given, more) in enumerate(limits)
    ]

    class View(APIView):
        authentication_classes: Sequence[Any] = ()
        permission_classes: Sequence[Any] = ()
        throttle_classes: Sequence[Any] = classes

        def get(self, request: Any, **_: object) -> DrfResponse:
            run.again_blocking(request.path)
            return DrfResponse({"hello": "world"})

    class Unlimited(View):
        throttle_classes: Sequence[Any] = ()

    urls = (re_path("^[ab](?:/.*)?$", View.as_view()), re_path("^.*$", Unlimited.as_view()))
    given = {name: value for name, value in options.items() if name != "has_middleware"}
    has_middleware = options.get("has_middleware", True)
    for limiter in _django(run, given, urls, has_middleware=has_middleware):
        run.of_wsgi(WSGIHandler(), limiter)
    return run.log


def _throttle_options(options: Options) -> Options:
    """Options of a limit as attributes of a throttle; functions of the request as its methods."""
    found = dict(options)
    for name in ("key", "cost"):
        function = found.get(name)
        if callable(function):
            del found[name]
            found[f"get_{name}"] = lambda _self, request, _view, ask=function: ask(request)
    return found
