"""ASGI apps: the middlewares, and a page with the limits of a caller. Read `middleware` first."""

from headgate.integrations.asgi.fair import FairMiddleware
from headgate.integrations.asgi.middleware import RateLimitMiddleware, StatusApp
from headgate.integrations.asgi.request import AsgiRequest, report

__all__ = ["AsgiRequest", "FairMiddleware", "RateLimitMiddleware", "StatusApp", "report"]
