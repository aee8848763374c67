"""Rate limits for Django: a middleware, a decorator for views, and their setting.

MIDDLEWARE = [..., "headgate.integrations.django.RateLimitMiddleware"]
HEADGATE = {"limits": "100/minute", "store": "redis://localhost:6379/0"}
"""

from typing import TYPE_CHECKING, Any

from headgate.errors import not_installed

try:
    import django  # noqa: F401 (to say at once what is missing)
except ModuleNotFoundError as error:
    raise not_installed("django", error) from error

from headgate.integrations.django.decorators import limit
from headgate.integrations.django.middleware import RateLimitMiddleware, exempt
from headgate.integrations.django.request import DjangoRequest, report
from headgate.integrations.django.settings import current_limiter

if TYPE_CHECKING:
    from headgate.integrations.django.views import status

__all__ = [
    "DjangoRequest",
    "RateLimitMiddleware",
    "current_limiter",
    "exempt",
    "limit",
    "report",
    "status",
]


def __getattr__(name: str) -> Any:
    # A view that is exempt makes the middleware look for views; who has no such view need not pay.
    if name == "status":
        from headgate.integrations.django.views import status

        return status
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
