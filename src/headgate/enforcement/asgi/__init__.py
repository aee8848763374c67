"""For ASGI apps: the middlewares, and a page that tells callers of their limits."""

from headgate.enforcement.asgi.fair import FairMiddleware
from headgate.enforcement.asgi.incoming import AsgiRequest, report
from headgate.enforcement.asgi.middleware import RateLimitMiddleware
from headgate.enforcement.asgi.status import StatusApp

__all__ = ["AsgiRequest", "FairMiddleware", "RateLimitMiddleware", "StatusApp", "report"]
