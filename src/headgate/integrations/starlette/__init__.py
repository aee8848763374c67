"""Limits in a Starlette app: for all of it, for some of its endpoints, for none of some.

    app.add_middleware(RateLimitMiddleware, limits="100/minute", exempt=["/health"])

    @limit("5/minute")
    async def login(request): ...

A FastAPI app has `headgate.integrations.fastapi`, which knows dependencies too.
"""

from __future__ import annotations

from headgate.errors import not_installed

try:
    import starlette  # noqa: F401 (to say at once what is missing)
except ModuleNotFoundError as error:
    raise not_installed("starlette", error) from error

from headgate.integrations.allowance import LimitOptions
from headgate.integrations.asgi.middleware import RateLimitMiddleware
from headgate.integrations.asgi.request import Resolved
from headgate.integrations.starlette.limits import limit
from headgate.integrations.starlette.routing import resolve
from headgate.integrations.starlette.visiting import TooManyRequests, exempt, report

__all__ = [
    "LimitOptions",
    "RateLimitMiddleware",
    "Resolved",
    "TooManyRequests",
    "exempt",
    "limit",
    "report",
    "resolve",
]
