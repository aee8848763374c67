"""WSGI and Flask apps, bare and with a limit, and requests through them without a server."""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from benchmarks.asgi import NEVER_REACHED
from headgate.integrations.flask import RateLimits
from headgate.integrations.wsgi import RateLimitMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import WSGIApplication

ENVIRON: dict[str, Any] = {
    "REQUEST_METHOD": "GET",
    "SCRIPT_NAME": "",
    "PATH_INFO": "/items",
    "QUERY_STRING": "",
    "SERVER_NAME": "127.0.0.1",
    "SERVER_PORT": "8000",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "REMOTE_ADDR": "203.0.113.7",
    "REMOTE_PORT": "50000",
    "HTTP_HOST": "api.example.com",
    "HTTP_USER_AGENT": "benchmark/1.0",
    "HTTP_ACCEPT": "application/json",
    "HTTP_ACCEPT_ENCODING": "gzip, deflate",
    "HTTP_CONNECTION": "keep-alive",
    "HTTP_X_API_KEY": "0123456789abcdef",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "http",
    "wsgi.multithread": False,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
    "wsgi.input": None,
    "wsgi.errors": None,
}


@dataclass(frozen=True, slots=True)
class Contestant:
    """An app with a limit that sends X-RateLimit headers, and the name of the same without it."""

    name: str
    app: WSGIApplication
    bare: str


def plain(_environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]


def _flask(decorator: Callable[[Any], Any] = lambda view: view) -> Flask:
    app = Flask(__name__)

    def items() -> str:
        return "ok"

    app.add_url_rule("/items", view_func=decorator(items))
    return app


def bare_apps() -> dict[str, WSGIApplication]:
    return {"bare": plain, "flask": _flask()}


def our_apps() -> list[Contestant]:
    extended = _flask()
    RateLimits(extended, limits=NEVER_REACHED)
    limits = RateLimits()
    decorated = _flask(limits.limit(NEVER_REACHED))
    limits.init_app(decorated)
    return [
        Contestant("WSGI middleware", RateLimitMiddleware(plain, limits=NEVER_REACHED), "bare"),
        Contestant("Flask extension", extended, "flask"),
        Contestant("Flask decorator", decorated, "flask"),
    ]


def peers() -> list[Contestant]:
    options: dict[str, Any] = {"headers_enabled": True, "storage_uri": "memory://"}
    extended = _flask()
    Limiter(get_remote_address, app=extended, default_limits=[NEVER_REACHED], **options)
    limiter = Limiter(get_remote_address, **options)
    decorated = _flask(limiter.limit(NEVER_REACHED))
    limiter.init_app(decorated)
    return [
        Contestant("Flask-Limiter", extended, "flask"),
        Contestant("Flask-Limiter decorator", decorated, "flask"),
    ]


def sample_of(app: WSGIApplication, sample_ns: int) -> Callable[[], float]:
    """What takes one sample of *app*: nanoseconds a request."""

    def run(count: int) -> int:
        environs = [ENVIRON.copy() for _ in range(count)]
        start = thread_time_ns()
        while environs:  # a server drops each environ after its request
            _serve(app, environs.pop())
        return thread_time_ns() - start

    fastest = min(run(50) for _ in range(5))
    count = max(50, sample_ns * 50 // fastest)
    return lambda: run(count) / count


def _serve(app: WSGIApplication, environ: dict[str, Any]) -> None:
    body: Iterable[bytes] = app(environ, _start_response)
    for _ in body:
        pass
    if hasattr(body, "close"):
        body.close()


def _start_response(_status: str, _headers: Any, _exc_info: Any = None) -> Any:
    return None


def response_of(app: WSGIApplication) -> tuple[str, dict[str, str]]:
    """The status and the headers that *app* answers with."""
    got: list[tuple[str, dict[str, str]]] = []

    def start_response(status: str, headers: Any, _exc_info: Any = None) -> Any:
        got.append((status, {name.lower(): value for name, value in headers}))

    body = app(ENVIRON.copy(), start_response)
    for _ in body:
        pass
    if hasattr(body, "close"):
        body.close()
    return got[0]
