"""`FairMiddleware`: a fair queue before an app, by tenant, cost, weight and priority.

Rules with `fair` do not need it: `RateLimitMiddleware` has a queue for each of them.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.errors import OptionError
from headgate.integrations.asgi.disconnects import ClientGoneError, DisconnectListener
from headgate.integrations.asgi.middleware import LAST, START, send_denial
from headgate.integrations.asgi.request import AsgiRequest
from headgate.integrations.exemptions import is_preflight
from headgate.integrations.fair_queues import SOON_NS, load_of
from headgate.integrations.request_context import CompletedResponse, decoded
from headgate.integrations.response_headers import with_exposed
from headgate.integrations.route_limit import by_address, check_function, resolved
from headgate.overload import AsyncFairGate
from headgate.responses import Answer, ResponseOptions, Throughput, encoded_lines, refusal
from headgate.responses.answer import turned_away
from headgate.responses.headers import headers_for
from headgate.runtime.drivers import adrive

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headgate.clock import Clock
    from headgate.engine.request import Request
    from headgate.engine.rule import Priority
    from headgate.integrations.asgi.request import App, Message, Receive, Scope, Send
    from headgate.overload import Turn
    from headgate.responses.headers import Pairs
    from headgate.responses.pressure import Load
    from headgate.units import Seconds

    Of = Callable[[Request], Any]

UNKNOWN: Final = "unknown"
"""The tenant of a request without a client IP."""


class _Asked(NamedTuple):
    """What is known of a request."""

    tenant: str
    cost: int
    weight: int | None
    priority: Priority
    is_cross_origin: bool
    """True if a browser may have sent it for a page of another origin."""


class FairMiddleware:
    """Has the requests to *app* take turns at *gate*.

    *tenant* says whose turn a request takes (the client's address if there is none, or if it says
    None), *cost*, *weight* and *priority* the rest: values, or functions of the request; all of
    them may be async.
    *timeout* is how long a request waits, if that is less than the gate's `max_wait`. Denied ones
    are answered with 503. CORS preflights, websockets and whatever else is not HTTP pass.
    """

    __slots__ = (
        "_address",
        "_asked",
        "_now_ns",
        "_responses",
        "_throughput",
        "_timeout",
        "app",
        "gate",
    )

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
        self.app = app
        self.gate = gate
        self._address = by_address()
        self._asked = tenant or self._address, cost, weight, priority
        self._timeout = timeout
        self._responses = responses or ResponseOptions()
        self._throughput = Throughput()
        self._now_ns: Clock = clock or time.time_ns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request, listening = AsgiRequest(scope), DisconnectListener(receive)
        if is_preflight(request):  # which takes no turns under rules either
            await self.app(scope, receive, send)
            return
        asked = await self._ask(request)
        try:
            turn = await self._turn(asked, listening)
        except ClientGoneError:
            return  # no client waits for an answer
        if not turn:
            await self._refuse(send, request, asked, turn)
            return
        with turn:
            response = _Response(self, asked, turn, send)
            receiving = listening.receive if listening.has_listened else receive
            try:
                await self.app(scope, receiving, response.send)
            except BaseException as error:
                response.finish(error)
                raise

    async def _ask(self, request: AsgiRequest) -> _Asked:
        tenant, cost, weight, priority = [await _value(one, request) for one in self._asked]
        if tenant is None or tenant == "":  # each client for itself, not all as one
            tenant = self._address(request) or UNKNOWN
        is_cross_origin = request.header("origin") is not None
        return _Asked(str(tenant), cost, weight, priority, is_cross_origin)

    async def _turn(self, asked: _Asked, listening: DisconnectListener) -> Turn:
        (tenant, cost, weight, priority, _), gate = asked, self.gate
        turn = gate.try_enter(tenant, cost, priority=priority)
        if turn is not None:
            return turn
        waiting = gate.enter(tenant, cost, weight=weight, priority=priority, timeout=self._timeout)
        return await listening.meanwhile(waiting)

    async def _refuse(self, send: Send, request: AsgiRequest, asked: _Asked, turn: Turn) -> None:
        wait_ns = SOON_NS if turn.retry_after_ns is None else turn.retry_after_ns
        told = turned_away(self.gate.name, wait_ns)
        jitter = random.random()  # noqa: S311 (not a secret)
        answer = Answer(allowed=False, told=(told,), jitter=jitter)
        answer.loads = (self._load(asked),)
        accept, now_ns = request.header("accept"), self._now_ns()
        answer.requests_per_second = self._throughput.per_second(now_ns)
        denial = refusal(answer, now_ns=now_ns, options=self._responses, accept=accept)
        if asked.is_cross_origin:
            lines = with_exposed(list(denial.headers), self._responses)
            denial = replace(denial, headers=tuple(lines))
        await send_denial(send, request, denial)

    def completed(self, lines: Pairs, asked: _Asked, turn: Turn) -> Pairs:
        """The header *lines* of a response, with how the gate stands."""
        answer = Answer(allowed=True, loads=(self._load(asked),))
        answer.delayed_ns, now_ns = turn.waited_ns, self._now_ns()
        self._throughput.add(now_ns)
        answer.requests_per_second = self._throughput.per_second(now_ns)
        lines += encoded_lines(headers_for(answer, now_ns=now_ns, options=self._responses))
        if not asked.is_cross_origin:
            return lines
        return encoded_lines(with_exposed(list(decoded(lines)), self._responses))

    def _load(self, asked: _Asked) -> Load:
        return load_of(self.gate.name, self.gate, asked.tenant, asked.weight, asked.priority)


class _Response:
    """The response to a request that has its turn: at its end the turn is over."""

    __slots__ = ("_asked", "_middleware", "_send", "_status", "_turn")

    def __init__(self, middleware: FairMiddleware, asked: _Asked, turn: Turn, send: Send) -> None:
        self._middleware = middleware
        self._asked = asked
        self._turn = turn
        self._send = send
        self._status = 500

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == START:
            self._status = message["status"]
            lines = list(message.get("headers", ()))
            lines = self._middleware.completed(lines, self._asked, self._turn)
            message = {**message, "headers": lines}
        await self._send(message)
        if kind in LAST and not message.get("more_body", False):
            self.finish()

    def finish(self, error: BaseException | None = None) -> None:
        response = CompletedResponse(self._status, error=error)
        self._turn.release(succeeded=not response.lacks_capacity)


async def _value(given: Any, request: Request) -> Any:
    """*given*, or its result for *request* if it is a function."""
    return await adrive(resolved(given(request))) if callable(given) else given
