"""What every integration answers: statuses, headers and bodies, for policies and limits in code."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.integrations import request_context
from tests.golden import framework_apps as apps
from tests.golden.http_exchange import Log
from tests.golden.python_api import Concurrency, signed_debug_token
from tests.golden.recorder import check_text, check_wire

NOW = 1_800_000_000
SECRET = b"known to those who look"
TOKEN = signed_debug_token(SECRET, NOW)
GONE = "redis://127.0.0.1:1/0?timeout=10"
"""A store that nobody serves; asked without haste, or a busy machine is an outage of its own."""

PROBLEM = "'accept=application/problem+json'"
CORS = "origin=https://shop.example"
PREFLIGHT = f"OPTIONS / {CORS} access-control-request-method=GET"

ALGORITHMS = {
    "token bucket": "2/minute burst 3",
    "gcra": "2/minute burst 3 gcra",
    "leaky bucket": "2/minute burst 3 leaky_bucket",
    "fixed window": "2/minute fixed_window",
    "sliding window counter": "2/minute sliding_window_counter",
    "sliding window log": "2/minute sliding_window_log",
    "burst credits": "1/s peak 3/s for 5s",
}

RULES = """\
version: 1
identity:
  api_key: {header: x-api-key}
  tier: {header: x-tier, default: free}
  ip: {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
rules:
  - id: per-key
    match: {endpoint: /api/**}
    key_by: api_key
    limits: {free: 2/minute; 5/hour, paid: 10/minute burst 20, default: 3/minute}
    cost: {default: 1, endpoints: {"POST /api/export": 2}}
  - id: global
    key_by: global
    limit: 1000/s
    headers: "off"
  - id: tried
    match: {endpoint: /api/**}
    key_by: ip
    limit: 1/hour
    mode: shadow
  - id: login
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 2/minute sliding_window_log
    headers: redacted
  - id: retries
    match: {endpoint: /once}
    key_by: ip
    limit: 2/minute
    idempotency: {ttl: 1h}
  - id: by-endpoint
    match: {endpoint: /items/**}
    key_by: [ip, endpoint]
    limit: 1/minute
  - id: metered
    match: {endpoint: /tokens}
    key_by: ip
    limit: 10/minute
    cost: {default: 1, after: {header: x-tokens, max: 20}}
  - id: bytes
    match: {endpoint: /stream}
    key_by: ip
    limit: 10/minute
    cost: {after: {bytes: true, per: 2}}
  - id: units
    match: {endpoint: /units}
    key_by: ip
    limit: 10/minute
    cost: {header: x-units, max: 8}
  - id: switched-off
    key_by: ip
    limit: 1/day
    mode: "off"
overrides:
  - {rule: login, key: ip=198.51.100.9, block: true, until: 2028-01-01T00:00:00Z}
  - {rule: login, key: ip=198.51.100.8, extra: 1, until: 2028-01-01T00:00:00Z}
"""

SOFT = """\
version: 1
identity: {tier: {header: x-tier, default: free}}
rules:
  - id: slots
    match: {endpoint: /slots/**}
    key_by: global
    concurrency: {limit: 1, ttl: 30s}
  - id: shared
    match: {endpoint: /shared/**}
    key_by: global
    concurrency: {limit: 2, ttl: 30s, share_by: tier, shares: {paid: 1}, lends: false}
  - id: reserved
    match: {endpoint: /reserved/**}
    key_by: global
    concurrency: {limit: 2, ttl: 30s, reserve: {critical: 50%}}
  - id: queue
    match: {endpoint: /queue}
    key_by: ip
    shape: {rate: 100/s, queue: 1}
  - id: full
    match: {endpoint: /full}
    key_by: ip
    shape: {rate: 1/s, queue: 0}
  - id: turns
    match: {endpoint: /turns/**}
    key_by: tier
    fair: {slots: 1, queue: 0}
priority:
  - {class: critical, match: {headers: {x-critical: true}}}
"""

OUTAGE = """\
version: 1
rules:
  - {id: open, match: {endpoint: /open}, key_by: ip, limit: 2/minute}
  - id: closed
    match: {endpoint: /closed}
    key_by: ip
    limit: 2/minute
    on_store_failure: fail_closed
  - {id: local, match: {endpoint: /local}, key_by: ip, limit: 2/minute, on_store_failure: local}
  - id: half
    match: {endpoint: /half}
    key_by: ip
    limit: 4/minute
    on_store_failure: {mode: fail_open, share: 50%, max_fail_open: 10s, then: local}
"""

SHED = """\
version: 1
priority:
  - {class: critical, match: {endpoint: /pay/**}}
  - {class: sheddable, match: {endpoint: /export/**}}
rules:
  - {id: all, key_by: ip, limit: 3/minute}
"""

Case = tuple[dict[str, Any], list[str | float]]

CASES: dict[str, Case] = {
    "one limit": (
        {"limits": "3/minute"},
        [
            "GET /",
            "GET /",
            7.5,
            "GET /",
            "GET /",
            "HEAD /",
            "POST /",
            f"GET / {PROBLEM}",
            20,
            "GET /",
        ],
    ),
    "callers by address": (
        {"limits": "1/minute"},
        ["GET /", "GET /", "GET / @192.0.2.1", "GET / @2001:db8::1", "GET / @2001:db8::2"],
    ),
    "trusted proxies": (
        {"limits": "1/minute", "trusted_proxies": ["10.0.0.0/8"]},
        [
            "GET / @10.0.0.1 x-forwarded-for=192.0.2.1",
            "GET / @10.0.0.2 'x-forwarded-for=198.51.100.1, 192.0.2.1, 10.0.0.9'",
            "GET / @203.0.113.9 x-forwarded-for=192.0.2.1",
        ],
    ),
    "two limits": (
        {"limits": "2/minute; 3/hour fixed_window", "name": "stacked"},
        ["GET /", "GET /", "GET /", 31, "GET /", 600, "GET /"],
    ),
    **{
        f"algorithm: {name}": ({"limits": limit}, ["GET /"] * 3 + [10.25] + ["GET /"] * 2)
        for name, limit in ALGORITHMS.items()
    },
    "a limit by the request": (
        {"limits": lambda request: {"free": "1/minute"}.get(request.header("x-plan") or "free")},
        ["GET /", "GET /", "GET / x-plan=other"],
    ),
    "a key": (
        {"limits": "1/minute", "key": lambda request: request.header("x-user")},
        ["GET / x-user=ada", "GET / x-user=ada", "GET / x-user=bob", "GET /", "GET / x-user="],
    ),
    "costs": (
        {"limits": "10/minute", "cost": lambda request: int(request.header("x-cost") or 1)},
        ["GET / x-cost=4", "GET / x-cost=7", "GET / x-cost=0", "GET / x-cost=6", "GET / x-cost=11"],
    ),
    "a fixed cost": ({"limits": "10/minute", "cost": 4}, ["GET /", "GET /", "GET /"]),
    "exemptions": (
        {
            "limits": "1/minute",
            "exempt": ["/health", "/static/**"],
            "exempt_when": lambda request: request.header("x-internal") == "1",
        },
        ["GET /", "GET /health", "GET /static/a/b", "GET / x-internal=1", "GET /"],
    ),
    "preflights": (
        {"limits": "1/minute"},
        [f"GET / {CORS}", f"GET / {CORS}", PREFLIGHT, PREFLIGHT, "OPTIONS /", f"GET /own {CORS}"],
    ),
    "preflights that count": ({"limits": "1/minute", "limits_preflights": True}, [PREFLIGHT] * 2),
    "headers of the app": ({"limits": "2/minute"}, ["GET /own", f"GET /own {CORS}", "GET /own"]),
    "headers off": ({"limits": "1/minute", "headers": "off"}, ["GET /", "GET /"]),
    "headers brief": (
        {"limits": "1/minute", "headers": "brief"},
        ["GET /", "GET /", f"GET / {PROBLEM}"],
    ),
    "headers redacted": (
        {"limits": "1/minute", "headers": "redacted"},
        ["GET /", "GET /", f"GET / {PROBLEM}"],
    ),
    "shadow": ({"limits": "1/minute", "mode": "shadow"}, ["GET /", "GET /"]),
    "switched off": ({"limits": "1/minute", "mode": "off"}, ["GET /", "GET /"]),
    "all headers": (
        {
            "limits": "2/minute; 5/hour",
            "responses": {"draft03": True, "bucket": True, "bucket_secret": b"s", "orca": True},
        },
        ["GET /", "GET /", "GET /"],
    ),
    "few headers": (
        {"limits": "1/minute", "responses": {"x_ratelimit": False, "ratelimit": False}},
        ["GET /", "GET /"],
    ),
    "only the standard": (
        {"limits": "1/minute", "responses": {"x_ratelimit": False, "problem": True}},
        ["GET /", "GET /", "GET / accept=application/json"],
    ),
    "jitter": (
        {"limits": "1/minute", "responses": {"jitter": 0.5}},
        ["GET /", "GET /"],
    ),
    "accepted types": (
        {"limits": "1/minute"},
        [
            "GET /",
            "GET / accept=*/*",
            "GET / accept=text/html",
            "GET / 'accept=application/json, application/problem+json;q=0.5'",
            "GET / 'accept=application/problem+json, application/json;q=0.5'",
            "GET / 'accept=application/*'",
        ],
    ),
    "only failures count": (
        {"limits": "1/minute", "charge_when": lambda response: response.status_code == 401},
        ["GET /", "GET /fail", "GET /", "GET /fail"],
    ),
    "errors": ({"limits": "3/minute"}, ["GET /boom", "GET /fail", "GET /", "GET /"]),
    "streams": ({"limits": "2/minute"}, ["GET /stream", "HEAD /stream", "GET /stream"]),
    "costs reported": (
        {"limits": "10/minute", "cost": 5, "charge_when": lambda _response: True},
        ["GET /report", "GET /", "GET /"],
    ),
    "slots": ({"limits": Concurrency(1, 30)}, ["GET /nested", "GET /"]),
    "what is left": (
        {"limits": "5/minute; 100/day fixed_window", "exempt": ["/rate_limit"]},
        ["GET /rate_limit", "GET /", "GET /rate_limit", "HEAD /rate_limit", "POST /rate_limit"],
    ),
    "debug header": (
        {"limits": "1/minute; 5/hour", "debug_secret": SECRET},
        [
            f"GET / headgate-debug={TOKEN}",
            f"GET / headgate-debug={TOKEN}",
            f"GET /own headgate-debug={TOKEN} {CORS} @192.0.2.1",
            "GET / headgate-debug=1900000000.00 @192.0.2.2",
            61,
            f"GET / headgate-debug={TOKEN} @192.0.2.3",
        ],
    ),
    "rules": (
        {"policy": RULES},
        [
            "GET /api/x x-api-key=k1",
            "GET /api/x x-api-key=k1",
            "GET /api/x x-api-key=k1",
            "POST /api/export x-api-key=k2 x-tier=paid",
            "GET /api/x x-api-key=k3 x-tier=unknown",
            "GET /api/x",
            "GET /elsewhere",
            "POST /login",
            "POST /LOGIN/",
            "POST //login",
            "POST /login @198.51.100.9",
            f"POST /login @198.51.100.9 {PROBLEM}",
            "POST /login @198.51.100.8",
            "GET /once idempotency-key=a",
            "GET /once idempotency-key=a",
            "GET /once idempotency-key=b",
            "GET /once idempotency-key=c",
            "GET /once idempotency-key=a",
            "GET /items/1",
            "GET /items/1",
            "GET /items/2",
            "GET /tokens",
            "GET /tokens",
            "GET /stream",
            "GET /stream",
            "GET /units x-units=6",
            "GET /units x-units=99",
            "GET /units x-units=4",
        ],
    ),
    "rules and what is left": (
        {"policy": RULES},
        ["GET /api/x x-api-key=k1", "GET /rate_limit x-api-key=k1", "GET /rate_limit x-tier=paid"],
    ),
    "rules and limits": (
        {"policy": RULES, "limits": "2/minute", "debug_secret": SECRET},
        [
            "GET /api/x x-api-key=k1",
            f"GET /api/x x-api-key=k1 headgate-debug={TOKEN}",
            "GET /api/x",
        ],
    ),
    "slots, queues and turns": (
        {"policy": SOFT},
        [
            "GET /slots/nested",
            "GET /slots/",
            "GET /shared/nested",
            "GET /shared/nested x-tier=paid",
            "GET /reserved/nested",
            "GET /reserved/nested x-critical=1",
            "GET /queue",
            "GET /full",
            "GET /full",
            "GET /turns/nested",
            "GET /turns/",
        ],
    ),
    "a load shedder": (
        {"policy": SHED, "shedder": 1},
        ["GET /export/1", f"GET /export/1 {PROBLEM}", "GET /", "GET /pay/1"],
    ),
    "a load shedder at its height": (
        {"policy": SHED, "shedder": 2},
        ["GET /export/1", "GET /", "GET /pay/1"],
    ),
    "no store": (
        {"policy": OUTAGE, "store": GONE},
        [
            "GET /open",
            "GET /open",
            "GET /open",
            "GET /closed",
            f"GET /closed {PROBLEM}",
            "GET /local",
            "GET /local",
            "GET /local",
            "GET /half",
            "GET /half",
            "GET /half",
            11,
            "GET /half",
        ],
    ),
    "no store, a limit in code": (
        {"limits": "1/minute", "store": GONE, "on_store_failure": "fail_closed"},
        ["GET /", "GET /"],
    ),
    "no store, another status": (
        {
            "limits": "1/minute",
            "store": GONE,
            "on_store_failure": "fail_closed",
            "responses": {"outage_status": 429, "outage_spread": 0},
        },
        ["GET /", f"GET / {PROBLEM}"],
    ),
}

WEBSOCKETS: dict[str, Case] = {
    "websockets": ({"limits": "1/minute"}, ["WS /", "WS /", f"WS / {PROBLEM}", "GET /"]),
    "websockets under slots": ({"limits": Concurrency(1, 30)}, ["WS /", "WS /"]),
    "websockets under rules": ({"policy": RULES}, ["WS / x-api-key=k", "WS /"]),
}

APPS: dict[str, Callable[..., Log]] = {
    "asgi": apps.asgi,
    "wsgi": apps.wsgi,
    "starlette": apps.starlette,
    "fastapi": apps.fastapi_middleware,
    "flask": apps.flask_extension,
    "django": apps.django_middleware,
    "django_asgi": apps.django_asgi_middleware,
}
WITH_WEBSOCKETS = ("asgi", "starlette", "fastapi")
IN_PART = ("django_asgi",)
"""Django's own ASGI handler leaves a file open when a view raises, and is not asked to report."""

RouteCase = tuple[dict[str, Any], list[tuple[Any, dict[str, Any]]], list[str | float]]


def header(name: str) -> Callable[[Any], Any]:
    """A function of a framework's own request."""
    return lambda request: request.headers.get(name)


ROUTES: dict[str, RouteCase] = {
    "one limit": (
        {},
        [("2/minute", {})],
        ["GET /a", "GET /a", "GET /a", f"GET /a {PROBLEM}", "GET /b", "GET /", 30, "GET /a"],
    ),
    "without the middleware": (
        {"has_middleware": False},
        [("2/minute", {})],
        ["GET /a", "GET /a", "GET /a", f"GET /a {PROBLEM}", "GET /b", "GET /"],
    ),
    "two limits in one": ({}, [("2/minute; 3/hour", {})], ["GET /a"] * 3 + [60.0] + ["GET /a"] * 2),
    "two limits": (
        {},
        [("2/minute", {"name": "minute"}), ("3/hour", {"name": "hour"})],
        ["GET /a"] * 3 + [60.0] + ["GET /a"] * 2,
    ),
    "one name": ({}, [("2/minute", {"name": "named"})], ["GET /a", "GET /b", "GET /a", "GET /b"]),
    "below a limit of the app": (
        {"limits": "3/minute"},
        [("1/minute", {"name": "named"})],
        ["GET /a", "GET /a", "GET /", "GET /", "GET /"],
    ),
    "a key": (
        {},
        [("1/minute", {"key": header("x-user"), "name": "named"})],
        ["GET /a x-user=ada", "GET /a x-user=ada", "GET /a x-user=bob", "GET /a"],
    ),
    "a cost": (
        {},
        [("10/minute", {"cost": lambda request: int(request.headers.get("x-cost", 1))})],
        ["GET /a x-cost=4", "GET /a x-cost=7", "GET /a"],
    ),
    "no store, closed": (
        {"store": GONE},
        [("2/minute", {"on_store_failure": "fail_closed", "name": "named"})],
        ["GET /a", f"GET /a {PROBLEM}"],
    ),
    "no store, open": (
        {"store": GONE},
        [("1/minute", {"name": "named"})],
        ["GET /a", "GET /a"],
    ),
    "slots": ({}, [(Concurrency(1, 30), {"name": "named"})], ["GET /a/nested", "GET /a"]),
}
"""What throttles know too."""

MORE_ROUTES: dict[str, RouteCase] = {
    "a limit by the request": (
        {},
        [(lambda request: {"free": "1/minute"}.get(request.headers.get("x-plan", "free")), {})],
        ["GET /a", "GET /a", "GET /a x-plan=other"],
    ),
    "exempt": (
        {},
        [("1/minute", {"exempt_when": lambda request: "x-internal" in request.headers})],
        ["GET /a", "GET /a", "GET /a x-internal=1"],
    ),
    "only failures count": (
        {},
        [("1/minute", {"charge_when": lambda response: response.status_code == 401})],
        ["GET /a", "GET /a/fail", "GET /a/fail", "GET /a"],
    ),
    "an estimate": (
        {},
        [("10/minute", {"cost": 6, "is_estimate": True, "name": "named"})],
        ["GET /a/report", "GET /a", "GET /a"],
    ),
    "shadow": ({}, [("1/minute", {"mode": "shadow"})], ["GET /a", "GET /a"]),
    "headers off": ({}, [("1/minute", {"headers": "off"})], ["GET /a", "GET /a"]),
    "headers brief": ({}, [("1/minute", {"headers": "brief"})], ["GET /a", "GET /a"]),
    "headers redacted": ({}, [("1/minute", {"headers": "redacted"})], ["GET /a", "GET /a"]),
    "headers of the app": ({}, [("2/minute", {"name": "named"})], ["GET /a/own", "GET /a/own"]),
    "errors": ({}, [("2/minute", {"name": "named"})], ["GET /a/boom", "GET /a"]),
    "streams": ({}, [("2/minute", {"name": "named"})], ["GET /a/stream", "HEAD /a/stream"]),
    "debug header": (
        {"debug_secret": SECRET},
        [("1/minute", {"name": "named"})],
        [f"GET /a headgate-debug={TOKEN}", f"GET /a headgate-debug={TOKEN}"],
    ),
    "all headers": (
        {"responses": {"draft03": True, "bucket": True, "jitter": 0.1}},
        [("1/minute", {"name": "named"})],
        ["GET /a", "GET /a"],
    ),
}

DECORATORS: dict[str, Callable[..., Log]] = {
    "starlette_decorator": apps.starlette_decorator,
    "fastapi_decorator": apps.fastapi_decorator,
    "fastapi_dependency": apps.fastapi_dependency,
    "flask_decorator": apps.flask_decorator,
    "django_decorator": apps.django_decorator,
    "drf_throttle": apps.drf_throttle,
}


@pytest.fixture(autouse=True)
def _the_same_chance_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_context, "chance", lambda: 0.5)


def record(name: str, logs: dict[str, Log]) -> None:
    """Compare what an integration answered in every case."""
    check_wire(f"middleware_{name}", {case: log.wire for case, log in logs.items()})
    text = [
        f"=== {case}\n" + "".join(f"{one}\n" for one in log.prose) for case, log in logs.items()
    ]
    check_text(f"middleware_{name}", "".join(text))


@pytest.mark.parametrize("name", APPS)
def test_an_app_with_limits_answers_as_recorded(name: str) -> None:
    cases = {**CASES, **WEBSOCKETS} if name in WITH_WEBSOCKETS else CASES
    left_out = {"costs reported", "errors"} if name in IN_PART else set()
    logs = {
        case: APPS[name](options, steps)
        for case, (options, steps) in cases.items()
        if case not in left_out
    }
    record(name, logs)


@pytest.mark.parametrize("name", DECORATORS)
def test_a_route_with_limits_answers_as_recorded(name: str) -> None:
    cases = ROUTES if name == "drf_throttle" else {**ROUTES, **MORE_ROUTES}
    logs = {}
    for case, (options, limits, steps) in cases.items():
        logs[case] = DECORATORS[name](options, limits, steps)
    record(name, logs)


def test_requests_that_take_turns_are_answered_as_recorded() -> None:
    steps = ["GET /nested", "GET /", f"GET /nested {CORS}", PREFLIGHT, "GET /own", "GET /boom"]
    record("fair", {"one slot": apps.fair_turns(steps)})
