"""Limits in a Starlette app: for all of it, for some of its endpoints, for none of some.

    app.add_middleware(RateLimitMiddleware, limits="100/minute", exempt=["/health"])

    @limit("5/minute")
    async def login(request): ...

A FastAPI app has `headgate.enforcement.fastapi`, which knows dependencies too.
"""

from __future__ import annotations

from headgate.enforcement.missing import not_installed

try:
    import starlette  # noqa: F401 (to say at once what is missing)
except ModuleNotFoundError as error:
    raise not_installed("starlette", error) from error

from headgate.enforcement.allowance import LimitOptions
from headgate.enforcement.asgi.middleware import RateLimitMiddleware
from headgate.enforcement.asgi.routing import Resolved
from headgate.enforcement.starlette.limiting import limit
from headgate.enforcement.starlette.marking import exempt, report
from headgate.enforcement.starlette.refusing import TooManyRequests
from headgate.enforcement.starlette.resolving import resolve

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
