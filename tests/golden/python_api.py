"""The one place where recordings call Python names of Headgate: a redesign edits it alone."""

from collections.abc import Sequence
from typing import Any

import headgate
from headgate import Accuracy, AsyncRateLimiter, HeadgateError, Hit, RateLimiter
from headgate.algorithms import Outcome
from headgate.cli import main
from headgate.config import Address
from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.values import Places
from headgate.integrations import RequestLimiter, RouteLimit, by_header
from headgate.integrations.asgi import FairMiddleware
from headgate.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from headgate.integrations.asgi import StatusApp as AsgiStatus
from headgate.integrations.django import RateLimitMiddleware as DjangoMiddleware
from headgate.integrations.django import current_limiter as django_limiter
from headgate.integrations.django import limit as django_limit
from headgate.integrations.django import report as django_report
from headgate.integrations.django import status as django_status
from headgate.integrations.drf import RateLimitThrottle as DrfThrottle
from headgate.integrations.fastapi import RateLimit as FastAPIDependency
from headgate.integrations.fastapi import limit as fastapi_limit
from headgate.integrations.flask import RateLimits as FlaskExtension
from headgate.integrations.starlette import limit as starlette_limit
from headgate.integrations.starlette import report as asgi_report
from headgate.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from headgate.integrations.wsgi import StatusApp as WsgiStatus
from headgate.integrations.wsgi import report as wsgi_report
from headgate.limits import Concurrency, LeakyQueue, parse_limit
from headgate.overload import AsyncFairGate, LoadShedder
from headgate.policy.loader import read_policy
from headgate.responses import ResponseOptions
from headgate.responses.debug import debug_token
from headgate.stores.operations import (
    Check,
    GrantLease,
    Hold,
    MergeUsage,
    Operation,
    PublishValue,
    Settle,
    Take,
)
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock

DJANGO_MIDDLEWARE = f"{DjangoMiddleware.__module__}.{DjangoMiddleware.__qualname__}"

PUBLIC: dict[str, Any] = {
    **{name: getattr(headgate, name) for name in headgate.__all__},
    "RouteLimit": RouteLimit,
    "AsgiMiddleware": AsgiMiddleware,
    "FastAPIDependency": FastAPIDependency,
    "FlaskExtension": FlaskExtension,
    "RequestLimiter": RequestLimiter,
    "ManualClock": ManualClock,
    "ResponseOptions": ResponseOptions,
    "WsgiMiddleware": WsgiMiddleware,
    "by_header": by_header,
    "debug_token": debug_token,
    "django_limit": django_limit,
    "fastapi_limit": fastapi_limit,
    "read_policy": read_policy,
    "starlette_limit": starlette_limit,
}
"""Names that expressions in the corpus of messages use."""

__all__ = [
    "DJANGO_MIDDLEWARE",
    "PUBLIC",
    "Accuracy",
    "AsgiMiddleware",
    "AsgiStatus",
    "AsyncFairGate",
    "AsyncRateLimiter",
    "Concurrency",
    "DrfThrottle",
    "FairMiddleware",
    "FastAPIDependency",
    "FlaskExtension",
    "HeadgateError",
    "Hit",
    "LeakyQueue",
    "ManualClock",
    "RateLimiter",
    "RedisStore",
    "RequestLimiter",
    "WsgiMiddleware",
    "WsgiStatus",
    "asgi_report",
    "django_limit",
    "django_limiter",
    "django_report",
    "django_status",
    "envoy_files",
    "fastapi_limit",
    "limiter_options",
    "main",
    "operation",
    "outcome_figures",
    "signed_debug_token",
    "starlette_limit",
    "wsgi_report",
]


def limiter_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a middleware: a policy as text, options of responses as a mapping, a load
    shedder as the level that it has come to."""
    options = dict(given)
    if "shedder" in options:
        shedder = LoadShedder(rise=1, fall=10)
        for second in range(options["shedder"] + 1):
            shedder.observe(1, now_ns=second * 10**9)
        options["shedder"] = shedder
    if "policy" in options:
        options["policy"] = read_policy(options["policy"])
    if "responses" in options:
        options["responses"] = ResponseOptions(**options["responses"])
    return options


def signed_debug_token(secret: bytes, now: int) -> str:
    """A token for the debug header, good for a minute from *now* on."""
    return debug_token(secret, now_ns=now * 10**9, ttl_s=60)[0]


def envoy_files(policy: str, upstreams: Sequence[str], **settings: Any) -> dict[str, Any]:
    """What `headgate up` writes for Envoy, how each rule is decided, and what it says of that."""
    if "listen" in settings:
        settings["listen"] = tuple(Address(*address) for address in settings["listen"])
    made = documents(
        read_policy(policy),
        GatewaySettings(upstream=tuple(map(parse_upstream, upstreams)), **settings),
        Places("/run/gateway", ("/run/gateway/grpc.sock",), "/run/gateway/admin.sock"),
    )
    return {
        "files": {"bootstrap.json": made.bootstrap, **made.discovered},
        "decided": {one.rule: one.decide for one in made.decided},
        "prose": [*(f"{one.rule}: {one.why}" for one in made.decided if one.why), *made.warnings],
    }


def operation(verb: str, given: dict[str, Any]) -> Operation[Any]:
    """An operation of a store that no verb of a limiter shows; times are in seconds."""
    options = dict(given)
    if "ttl" in options:
        options["ttl_ns"] = round(options.pop("ttl") * 10**9)
    if "limit" in options:
        limit = parse_limit(options.pop("limit"))
        check = Check("8:headgate:0", options.pop("key"), limit, options.pop("cost", 1))
        return _OPERATIONS[verb](check, options)
    return PublishValue(group="8:headgate:0", **options)


def outcome_figures(reply: Any) -> Any:
    """The figures of an outcome, without the source, which no store writes; else *reply*."""
    return tuple(reply)[:-1] if isinstance(reply, Outcome) else reply


def _lend(check: Check, options: dict[str, Any]) -> Operation[Any]:
    return GrantLease(check, **options)


def _merge(check: Check, options: dict[str, Any]) -> Operation[Any]:
    return MergeUsage((check,), **options)


def _hold(check: Check, options: dict[str, Any]) -> Operation[Any]:
    return Hold((check,), **options)


def _settle(check: Check, options: dict[str, Any]) -> Operation[Any]:
    return Settle((check,), charge_lapsed=True, **options)


def _take(check: Check, options: dict[str, Any]) -> Operation[Any]:
    return Take((check,), **options)


_OPERATIONS = {"lend": _lend, "merge": _merge, "hold": _hold, "settle": _settle, "take": _take}
