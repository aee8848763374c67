"""`FairMiddleware`: a fair queue before an app, by tenant, cost, weight and priority.

Rules with `fair` do not need it: `RateLimitMiddleware` has a queue for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.engine.plan import CompiledRule, Plan, Queueing
from headgate.errors import OptionError
from headgate.integrations.asgi.middleware import RateLimitMiddleware
from headgate.integrations.exemptions import is_preflight
from headgate.integrations.fair_queues import FairQueues
from headgate.integrations.request_limiter import RequestLimiter, RequestPlan
from headgate.integrations.route_limit import check_function, resolved
from headgate.overload import AsyncFairGate

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.engine.plan import Priority
    from headgate.engine.request import Request
    from headgate.integrations.asgi.request import App, Receive, Scope, Send
    from headgate.responses import ResponseOptions
    from headgate.runtime.effects import Effects
    from headgate.units import Seconds

    Of = Callable[[Request], Any]


class FairMiddleware(RateLimitMiddleware):
    """Has the requests to *app* wait for places at *gate*.

    *tenant* is the owner of a place: a function of the request; without one, or if it returns None,
    the client IP. *cost*, *weight* and *priority* are values or functions. All functions may be
    async. *timeout*: the seconds that a request waits, if less than `max_wait` of the gate.

    Denied requests are answered with 503. CORS preflights, exempt endpoints, websockets and all
    that is not HTTP do not wait.
    """

    def __init__(
        self,
        app: App,
        gate: AsyncFairGate,
        *,
        tenant: Of | None = None,
        cost: int | Of = 1,
        weight: int | Of | None = None,
        priority: Priority | Of = "default",
        timeout: Seconds | None = None,
        responses: ResponseOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_function("tenant", tenant)
        if not isinstance(gate, AsyncFairGate):
            raise OptionError(f"gate is {gate!r}; expected an AsyncFairGate")
        limiter = _GateLimiter(responses=responses, clock=clock)
        limiter.queues = _GateQueue(gate, timeout)
        limiter.gate = gate
        limiter.asked = tenant, cost, weight, priority
        super().__init__(app, limiter)
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        serve = super().__call__ if scope["type"] == "http" else self.app
        await serve(scope, receive, send)


class _GateLimiter(RequestLimiter):
    """Plans a place at *gate* for each request."""

    gate: AsyncFairGate
    asked: tuple[Any, ...]

    def simple_plan(self, request: Request) -> Plan | None:
        """None: each request may have to wait."""
        return None

    def plan(self, request: Request) -> Effects[RequestPlan | None]:
        """The plan of *request*; None if it does not wait."""
        if is_preflight(request):
            return None
        values = []
        for given in self.asked:
            is_function = callable(given)
            values.append((yield from resolved(given(request))) if is_function else given)
        tenant, cost, weight, priority = values
        if tenant is None or tenant == "":  # each client for itself, not all as one
            tenant = self.address(request)
        rule = CompiledRule(self.gate.name)
        queueing = Queueing(rule, str(tenant), cost, weight, priority)
        return RequestPlan(Plan(0, (), queues=(queueing,), awaits_places=True))


class _GateQueue(FairQueues):
    """The only queue of an app: *gate*."""

    def __init__(self, gate: AsyncFairGate, timeout: Seconds | None) -> None:
        super().__init__(None)
        self._gates[AsyncFairGate, gate.name] = None, gate
        self._gate: Any = gate
        self._timeout = timeout

    def gate(self, rule: CompiledRule, kind: Any) -> Any:
        """The gate, whatever the *rule*."""
        return self._gate

    def asking(self, one: Queueing) -> dict[str, Any]:
        """The arguments with which *one* asks for its place."""
        return {**super().asking(one), "timeout": self._timeout}
