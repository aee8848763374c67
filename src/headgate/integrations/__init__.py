"""Rate limits inside an app: middlewares, decorators and framework extensions.

Read `request_context` first: one request, checked when it begins, settled when it ends. Its limits
come from `request_limiter` (the app) and `route_limit` (a route); each framework is one module.
"""

from headgate.integrations.check_result import CompletedResponse
from headgate.integrations.request_context import RequestContext
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.route_limit import RouteLimit, by_address, by_header

__all__ = [
    "CompletedResponse",
    "RequestContext",
    "RequestLimiter",
    "RouteLimit",
    "by_address",
    "by_header",
]
