"""A throttle for Django REST framework.

Its refusals are the framework's own: `Throttled`, with the body and `Retry-After` that they always
have. Throttles that are asked about one request are all or nothing: what one charged is given back
when another refuses, and those after it only look.
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

from headgate.engine.verdict import told_of
from headgate.integrations.allowance import Allowance, Names, shown_name
from headgate.integrations.debugging import with_limits
from headgate.integrations.django.request import (
    DjangoRequest,
    begin,
    http_request,
    passage_of,
    told_apart,
)
from headgate.integrations.django.settings import current_gate
from headgate.integrations.passing import answered, enter
from headgate.responses.answer import CLOSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rest_framework.request import Request
    from rest_framework.views import APIView

    from headgate.engine.stack import Limits
    from headgate.integrations.allowance import KeyValue
    from headgate.integrations.gate import Gate
    from headgate.integrations.passage import Entry, Passage
    from headgate.policy.model import OnStoreFailure
    from headgate.responses import Refusal


class LimitsUnavailable(APIException):
    """The store of the limits is gone, and they are to be closed then. Not the caller's fault."""

    status_code = 503
    default_detail = "Limits cannot be checked at the moment."
    default_code = "limits_unavailable"

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self.status_code = refusal.status
        waits = [int(value) for name, value in refusal.headers if name == "Retry-After"]
        self.wait = waits[0] if waits else None  # which the framework tells the client


class RateLimitThrottle(BaseThrottle):
    """Limits views, by the user or else the address.

    - `limits`: text, a Limit or several. Without, the rate of the `scope` in
      `DEFAULT_THROTTLE_RATES`; without that, of the `throttle_scope` of the view. A view without
      any of them is not limited.
    - `cost`: what a request takes.
    - `name`: what the counter is called; shared with all limits of that name. Without, all views
      with the same `scope`, else with the same class of throttle, share a counter.
    - `on_store_failure`: as in a rule.
    - `gate`: where it is counted, that of the project if not said.

    `get_limits`, `get_key` and `get_cost` may be overridden for what depends on the request.
    """

    limits: ClassVar[Limits | None] = None
    scope: ClassVar[str | None] = None
    scope_attr: ClassVar[str] = "throttle_scope"
    cost: ClassVar[int] = 1
    name: ClassVar[str | None] = None
    on_store_failure: ClassVar[OnStoreFailure] = "fail_open"
    gate: ClassVar[Gate | None] = None

    request: Request
    view: APIView
    _wait: float | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Whether *request* may go on; if not, `wait` says how long it has to wait."""
        self.request, self.view = request, view
        http = http_request(request)
        passage = passage_of(http)
        if passage is None:
            passage = begin(http, self.gate or current_gate())
            passage.is_watched = False
        gate = self.gate or passage.gate
        asking = self._ask(gate, DjangoRequest(http), passage)
        if passage.refusal is None:
            is_allowed = self._enter(gate, asking, passage)
        else:
            is_allowed = self._look(gate, answered(asking), passage)
        if not passage.is_watched:
            _tell(view, passage)
        return is_allowed

    def wait(self) -> float | None:
        """Seconds until the request would be admitted; None if it never would be."""
        return self._wait

    def get_limits(self, request: Request, view: APIView) -> Limits | None:
        """What the caller is allowed; None is no limit."""
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
        """Whose counter it is; None is the client's address."""
        user: Any = request.user  # None if the project has no anonymous user
        return user.pk if user is not None and user.is_authenticated else None

    def get_cost(self, request: Request, view: APIView) -> int:
        """What the request takes."""
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

    def _ask(self, gate: Gate, request: DjangoRequest, passage: Passage) -> Any:
        names = told_apart([self._names], passage)
        entry: Entry | None = yield from gate.entry_for(
            [(_allowance(self.name, self.on_store_failure), names[0])], self, request
        )
        if entry is not None and entry.plan.lease is not None and not passage.is_watched:
            raise ImproperlyConfigured(
                "a throttle does not see when a request ends, which a limit of how many there are "
                "at once needs: add headgate.integrations.django.RateLimitMiddleware to MIDDLEWARE"
            )
        return entry

    def _enter(self, gate: Gate, asking: Any, passage: Passage) -> bool:
        if enter(passage, gate, asking):
            return True
        verdict = passage.refusal
        assert verdict is not None  # noqa: S101 (mypy: that is why it may not)
        if verdict.source == CLOSED:
            raise LimitsUnavailable(gate.refusal(passage, None))
        self._wait = verdict.retry_after
        return False

    def _look(self, gate: Gate, entry: Entry | None, passage: Passage) -> bool:
        """Another throttle has refused: what this one would say, without charging anything."""
        if entry is None:
            return True
        verdict = drive(gate.engine.peek(entry.plan))
        passage.refusal_told += told_of(verdict)
        self._wait = verdict.retry_after
        return verdict.allowed


@cache
def _allowance(name: str | None, on_store_failure: OnStoreFailure) -> Allowance[RateLimitThrottle]:
    """What a throttle allows, as functions of one that has its request."""
    return Allowance(
        limits=lambda asked: asked.get_limits(asked.request, asked.view),
        key=lambda asked: asked.get_key(asked.request, asked.view),
        cost=lambda asked: asked.get_cost(asked.request, asked.view),
        name=name,
        on_store_failure=on_store_failure,
    )


def _tell(view: APIView, passage: Passage) -> None:
    """Nobody sees the response but the view, whose headers the framework adds to it.

    When to come back is said by the framework itself.
    """
    for name, value in with_limits(
        [], passage.gate, passage, 200 if passage.refusal is None else 429
    ):
        if name.lower() != "retry-after":
            view.headers[name] = value
