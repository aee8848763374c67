"""A throttle for Django REST framework.

Its denials are the framework's own: `Throttled`, with its body and `Retry-After`. The throttles of
one request are all or nothing: what one charged is given back when another denies, and those after
it only peek.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from headgate.errors import not_installed
from headgate.runtime.drivers import drive

try:
    import rest_framework  # noqa: F401 (to say at once what is missing)
except ModuleNotFoundError as error:
    raise not_installed("drf", error) from error

from django.core.exceptions import ImproperlyConfigured
from rest_framework.exceptions import APIException
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from headgate.engine.verdict import rule_answers
from headgate.integrations.django import (
    DjangoRequest,
    context_of,
    current_limiter,
    http_request,
    new_context,
)
from headgate.integrations.route_limit import Names, RouteLimit, named_limits, shown_name
from headgate.responses.answer import CLOSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rest_framework.request import Request
    from rest_framework.views import APIView

    from headgate.engine.stack import Limits
    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.request_limiter import RequestLimiter, RequestPlan
    from headgate.integrations.route_limit import KeyValue
    from headgate.policy.model import OnStoreFailure
    from headgate.responses import DenialResponse
    from headgate.runtime.effects import Effects


class LimitsUnavailable(APIException):
    """The store is gone, and the limits fail closed."""

    status_code = 503
    default_detail = "Limits cannot be checked at the moment."
    default_code = "limits_unavailable"

    def __init__(self, denial: DenialResponse) -> None:
        super().__init__()
        self.status_code = denial.status
        waits = [int(value) for name, value in denial.headers if name == "Retry-After"]
        self.wait = waits[0] if waits else None  # which the framework sends


class RateLimitThrottle(BaseThrottle):
    """Limits views, by the user or else the address.

    - `limits`: text, a Limit or several. Without, the rate of the `scope` in
      `DEFAULT_THROTTLE_RATES`; without that, of the `throttle_scope` of the view. A view without
      any of them is not limited.
    - `cost`: the cost of a request.
    - `name`: the name of the counter, shared with all limits of that name. Without, all views with
      the same `scope`, else with the same class of throttle, share a counter.
    - `on_store_failure`: as in a rule.
    - `limiter`: by default that of the project.

    Override `get_limits`, `get_key` and `get_cost` for values that depend on the request.
    """

    limits: ClassVar[Limits | None] = None
    scope: ClassVar[str | None] = None
    scope_attr: ClassVar[str] = "throttle_scope"
    cost: ClassVar[int] = 1
    name: ClassVar[str | None] = None
    on_store_failure: ClassVar[OnStoreFailure] = "fail_open"
    limiter: ClassVar[RequestLimiter | None] = None

    request: Request
    view: APIView
    _wait: float | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        """True if *request* is allowed; if not, `wait` says how long it has to wait."""
        self.request, self.view = request, view
        http = http_request(request)
        context = context_of(http) or new_context(
            http, self.limiter or current_limiter(), is_managed=False
        )
        limiter = self.limiter or context.limiter
        is_allowed = drive(self._check(limiter, DjangoRequest(http), context))
        if not context.is_managed:
            _add_headers(view, context)
        return is_allowed

    def wait(self) -> float | None:
        """Seconds until the request would be allowed; None if never."""
        return self._wait

    def get_limits(self, request: Request, view: APIView) -> Limits | None:
        """The limits of the caller; None for no limit."""
        if self.limits is not None:
            return self.limits
        scope = self._scope
        if scope is None:
            return None
        try:
            rates: Mapping[str, Any] = api_settings.DEFAULT_THROTTLE_RATES
            rate: Limits | None = rates[scope]
        except KeyError:
            raise ImproperlyConfigured(
                f"no rate for the scope {scope!r} in DEFAULT_THROTTLE_RATES"
            ) from None
        return rate

    def get_key(self, request: Request, view: APIView) -> KeyValue:
        """The owner of the counter; None: the client IP."""
        user: Any = request.user  # None if the project has no anonymous user
        return user.pk if user is not None and user.is_authenticated else None

    def get_cost(self, request: Request, view: APIView) -> int:
        """The cost of the request."""
        return self.cost

    @property
    def _scope(self) -> str | None:
        return self.scope or getattr(self.view, self.scope_attr, None)

    @property
    def _names(self) -> Names:
        scope, own = self._scope, type(self)
        if self.limits is None and scope is not None:
            return Names(shown_name(scope), f":rest_framework/{scope}")
        return Names(shown_name(own.__name__), f":{own.__module__}.{own.__qualname__}")

    def _check(
        self, limiter: RequestLimiter, request: DjangoRequest, context: RequestContext
    ) -> Effects[bool]:
        limit = _limit(self.name, self.on_store_failure)
        names = self._names
        before = 0 if self.name is not None else context.count_unnamed(names.shown)
        named = named_limits((limit,), *names, 0, before)
        planned = yield from limiter.plan_route(named, self, request)
        if planned is None:
            return True
        if planned.plan.lease is not None and not context.is_managed:
            raise ImproperlyConfigured(
                "a throttle does not see when a request ends, which a limit of how many there are "
                "at once needs: add headgate.integrations.django.RateLimitMiddleware to MIDDLEWARE"
            )
        if context.denial is not None:
            return (yield from self._peek(limiter, planned, context))
        verdict = limiter.engine.decide_now(planned.plan)
        if (yield from context.check(limiter, planned, verdict)):
            return True
        denial = context.denial
        assert denial is not None  # noqa: S101 (mypy: it was denied)
        if denial.source == CLOSED:
            raise LimitsUnavailable(context.denial_response(limiter))
        self._wait = denial.retry_after
        return False

    def _peek(
        self, limiter: RequestLimiter, planned: RequestPlan, context: RequestContext
    ) -> Effects[bool]:
        """Peek, as another throttle has denied: nothing is charged."""
        verdict = yield from limiter.engine.peek(planned.plan)
        context.denial_answers += rule_answers(verdict)
        self._wait = verdict.retry_after
        return verdict.allowed


@cache
def _limit(name: str | None, on_store_failure: OnStoreFailure) -> RouteLimit:
    """The limit of a throttle, by functions of one that has its request."""
    return RouteLimit(
        limits=lambda throttle: throttle.get_limits(throttle.request, throttle.view),
        key=lambda throttle: throttle.get_key(throttle.request, throttle.view),
        cost=lambda throttle: throttle.get_cost(throttle.request, throttle.view),
        name=name,
        on_store_failure=on_store_failure,
    )


def _add_headers(view: APIView, context: RequestContext) -> None:
    """Add the headers to those of the view, as no middleware sees the response.

    The framework itself sends `Retry-After`.
    """
    for name, value in context.with_headers([], 200 if context.denial is None else 429):
        if name.lower() != "retry-after":
            view.headers[name] = value
