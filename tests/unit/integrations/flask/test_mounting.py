"""Apps in apps, and middlewares around them: each limiter is asked once, and none is left out."""

from __future__ import annotations

from typing import Any

from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from headgate.integrations import RequestLimiter
from headgate.integrations.flask import RateLimits
from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from headgate.testing import ManualClock
from tests.support.flask_apps import ask, made


def test_a_middleware_with_the_same_gate_around_the_app_asks_for_both() -> None:
    limiter = RequestLimiter(limits="9/minute", clock=ManualClock(100))
    app = Flask("asked")
    RateLimits(app, limiter)
    app.add_url_rule("/", "index", lambda: "hello")
    answer = Client(RateLimitMiddleware(app, limiter)).get("/")
    assert answer.headers["X-RateLimit-Remaining"] == "8"


def test_a_middleware_with_another_gate_tells_of_both() -> None:
    clock = ManualClock(100)
    app, _ = made(limits="5/minute", name="in", clock=clock)
    app.add_url_rule("/", "index", lambda: "hello")
    client = Client(RateLimitMiddleware(app, limits="9/minute", clock=clock))
    answer = client.get("/")
    assert answer.headers["RateLimit-Policy"] == '"default";q=9;w=60, "in";q=5;w=60'


def test_mounted_apps_do_not_escape_and_their_paths_are_whole() -> None:
    rules = "{version: 1, rules: [{id: a, match: {endpoint: /api/x}, key_by: ip, limit: 1/m}]}"
    limiter = RequestLimiter(policy=read_policy(rules), clock=ManualClock(100))
    outside, inside = Flask("outside"), Flask("inside")
    RateLimits(inside, limiter)
    inside.add_url_rule("/x", "x", lambda: "x")
    client = Client(DispatcherMiddleware(outside, {"/api": inside}))
    assert [client.get("/api/x").status_code for _ in range(2)] == [200, 429]


def mounted(environ: Any, start_response: Any) -> list[bytes]:
    """An app that is not Flask's."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"mounted"]


def test_a_view_that_passes_on_to_an_app_with_the_same_gate_is_counted_once() -> None:
    limiter = RequestLimiter(limits="2/minute", clock=ManualClock(100))
    app = Flask("asked")
    RateLimits(app, limiter)
    app.add_url_rule("/", "index", lambda: RateLimitMiddleware(mounted, limiter))
    assert ask(app).headers["X-RateLimit-Remaining"] == "1"


def test_what_is_mounted_in_the_app_with_its_gate_is_limited() -> None:
    limiter = RequestLimiter(limits="2/minute", clock=ManualClock(100))
    app = Flask("asked")
    app.add_url_rule("/", "index", lambda: "hello")
    inside: Any = RateLimitMiddleware(mounted, limiter)
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/api": inside})  # type: ignore[method-assign]
    RateLimits(app, limiter)
    assert [ask(app, path).status_code for path in ("/api/x", "/", "/api/x")] == [200, 200, 429]


def test_routes_of_apps_that_are_mounted_apart_are_different_endpoints() -> None:
    rules = "{version: 1, rules: [{id: a, key_by: [ip, endpoint], limit: 1/m}]}"
    limiter = RequestLimiter(policy=read_policy(rules), clock=ManualClock(100))
    apps = [Flask("first"), Flask("second")]
    for app in apps:
        RateLimits(app, limiter)
        app.add_url_rule("/x", "x", lambda: "x")
    client = Client(DispatcherMiddleware(apps[0], {"/second": apps[1]}))
    assert [client.get(path).status_code for path in ("/x", "/second/x", "/x")] == [200, 200, 429]
