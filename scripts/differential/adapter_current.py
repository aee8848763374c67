"""What the worker needs of the working tree, in the shape that release 0.1 has."""

from headgate import Hit, RateLimiter, limits
from headgate.engine.request import Request
from headgate.engine.verdict import answer_of
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from headgate.policy.loader import read_policy
from headgate.responses import headers_for
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock

__all__ = [
    "Hit",
    "ManualClock",
    "RateLimitMiddleware",
    "RateLimiter",
    "Request",
    "RuleEngine",
    "WsgiMiddleware",
    "answer_of",
    "close_middleware",
    "headers_for",
    "limits",
    "read_policy",
]


def close_middleware(app: WsgiMiddleware) -> None:
    app.limiter.close()
