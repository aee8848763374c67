"""Asking the engine about a request, and what is answered.

A place under a concurrency limit that a check or a gateway's request takes is free again when its
lease has run out: nobody says here when a request is over. Who can say so makes a reservation.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.enforcement.asgi.sending import encoded
from headgate.engine import answer_of
from headgate.holding import new_name
from headgate.responses import refusal
from headgate.service.http.asked import TO_CHECK, read_asked
from headgate.service.http.debugging import debugged
from headgate.service.http.documents import document_of
from headgate.service.http.familiar import Familiar
from headgate.service.http.portrait import portrait
from headgate.service.http.replies import (
    JSON_LINE,
    NO_STORE,
    RefusedError,
    Reply,
    header_of,
    problem,
)
from headgate.service.http.telling import Teller

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headgate.engine import Engine, Plan, Verdict
    from headgate.engine.engine import Costs
    from headgate.responses import ResponseOptions
    from headgate.rules.request import Request
    from headgate.service.core import Core
    from headgate.service.http.options import HttpOptions
    from headgate.service.http.replies import Headers, Scope

T = TypeVar("T")

TOO_MANY_REQUESTS: Final = 429
_RETRY_SOON: Final = (b"retry-after", b"1")
_JSON_LINES: Final = (JSON_LINE, NO_STORE)


class Checking:
    """Decides by *core*, within the deadline of *options*."""

    def __init__(self, core: Core, options: HttpOptions) -> None:
        self.core = core
        self.teller = Teller(core.answers, core.clock)
        self._below_500 = replace(core.answers, shed_status=TOO_MANY_REQUESTS)
        self._deadline = options.deadline
        self._in_force = core.engine.in_force
        self.runner = core.engine.runner
        self._familiar = Familiar(self._in_force.engine, self._in_force.scale.factor)

    @property
    def familiar(self) -> Familiar:
        """What is known of requests under the rules in force."""
        engine, factor = self._in_force.engine, self._in_force.scale.factor
        familiar = self._familiar
        if engine is not familiar.engine or factor is not familiar.factor:
            familiar = self._familiar = Familiar(engine, factor)
        return familiar

    def plan(self, engine: Engine, request: Request, cost: Costs = None) -> Plan:
        """What is asked about *request* under the rules of *engine*."""
        return engine.plan(request, cost=cost, lease=new_name() if engine.has_slots else None)

    def at_once(self, plan: Plan) -> Verdict | None:
        """What comes of *plan*; None if that has to be waited for."""
        return self.runner.decide_now(plan)

    async def decided(self, plan: Plan) -> Verdict:
        """What comes of *plan*, waited for."""
        return await self.within_deadline(self.runner.decide(plan))

    async def within_deadline(self, asking: Coroutine[None, None, T]) -> T:
        """What comes of *asking*; `RefusedError` (503) if it takes too long."""
        try:
            async with asyncio.timeout(self._deadline):
                return await asking
        except TimeoutError:
            detail = f"no decision within {self._deadline:g} seconds"
            raise RefusedError(problem(503, detail, headers=(_RETRY_SOON,))) from None

    async def check(self, body: bytes, scope: Scope) -> Reply:
        """What somebody is told who described a request in *body*; *scope* is that of his own."""
        familiar = self.familiar
        plan = familiar.described(body)
        if plan is None:
            asked = read_asked(document_of(body), TO_CHECK)
            plan = self.plan(familiar.engine, asked.request, asked.cost)
            if asked.peek:
                looking = self.runner.decide(plan, consume=False)
                return self._told(await self.within_deadline(looking), scope)
            familiar.keep_described(body, plan)
        verdict = self.at_once(plan)
        return self._told(await self.decided(plan) if verdict is None else verdict, scope)

    def _told(self, verdict: Verdict, scope: Scope) -> Reply:
        if not verdict.allowed:
            denied = self.denial(verdict, header_of(scope, b"accept"))
            return debugged(self.core, scope, verdict, denied)
        lines = self.teller.lines(verdict)
        lines += _JSON_LINES
        reply = Reply(200, lines, self.teller.text(verdict).encode("ascii"))
        return debugged(self.core, scope, verdict, reply)

    def refusal(
        self, verdict: Verdict, accept: str | None, *, denied_as: int, is_below_500: bool = False
    ) -> Reply:
        """A refusal for a gateway to pass on; it has the status *denied_as*, an outage its own, and
        want of capacity, too, unless it *is_below_500* that it has to be."""
        options = self._below_500 if is_below_500 else None
        status, headers, body = self._refused(verdict, accept, options)
        return Reply(denied_as if status == TOO_MANY_REQUESTS else status, headers, body)

    def denial(self, verdict: Verdict, accept: str | None) -> Reply:
        """A refusal as it may be passed on to a client, with all that came of the request."""
        status, headers, body = self._refused(verdict, accept)
        content = {**portrait(verdict), **json.loads(body)}
        return Reply(status, headers, json.dumps(content).encode("ascii"))

    def _refused(
        self, verdict: Verdict, accept: str | None, options: ResponseOptions | None = None
    ) -> tuple[int, Headers, bytes]:
        answer = answer_of(verdict, jitter=random.random())  # noqa: S311 (not a secret)
        core = self.core
        told = refusal(answer, now_ns=core.clock(), options=options or core.answers, accept=accept)
        return told.status, encoded(told.headers), told.body
