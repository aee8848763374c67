"""For WSGI apps: the middleware, and a page that tells callers of their limits."""

from headgate.enforcement.wsgi.incoming import WsgiRequest
from headgate.enforcement.wsgi.middleware import RateLimitMiddleware
from headgate.enforcement.wsgi.reporting import report
from headgate.enforcement.wsgi.status import StatusApp

__all__ = ["RateLimitMiddleware", "StatusApp", "WsgiRequest", "report"]
