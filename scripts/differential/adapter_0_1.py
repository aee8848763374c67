"""What the worker needs of release 0.1.

The paths are in pieces so that a tool which moves modules of the working tree leaves them alone.
"""

from importlib import import_module
from typing import Any


def _module(*path: str) -> Any:
    return import_module(".".join(("headgate", *path)))


Hit = _module().Hit
ManualClock = _module("testing").ManualClock
RateLimitMiddleware = _module("enforcement", "asgi").RateLimitMiddleware
RateLimiter = _module().RateLimiter
Request = _module("rules", "request").Request
RuleEngine = _module("engine").RuleEngine
WsgiMiddleware = _module("enforcement", "wsgi").RateLimitMiddleware
answer_of = _module("engine").answer_of
headers_for = _module("responses").headers_for
limits = _module("limits")
read_policy = _module("rules", "reading").read_policy


def close_middleware(app: Any) -> None:
    app.gate.close()
