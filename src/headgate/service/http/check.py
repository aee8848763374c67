"""Decides requests and builds the replies.

A concurrency slot that a check or a gateway's request takes is released when its lease expires,
because the end of the request is not reported here. Use a reservation to report it.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headgate.engine.verdict import answer_of
from headgate.responses import encoded_lines, headers_for, response_for
from headgate.runtime.drivers import adrive
from headgate.runtime.heartbeat import new_name
from headgate.service.http.body import document_of
from headgate.service.http.check_request import TO_CHECK, read_asked
from headgate.service.http.replies import (
    JSON_LINE,
    NO_STORE,
    RejectedError,
    Reply,
    header_of,
    problem,
)
from headgate.service.http.verdict_json import debugged, denial_json, limit_text
from headgate.units import MILLISECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headgate.clock import Clock
    from headgate.engine.plan import CompiledRule, Plan
    from headgate.engine.request import Request
    from headgate.engine.verdict import Verdict
    from headgate.limits import Limit
    from headgate.policy.compiled import Costs
    from headgate.responses import ResponseOptions
    from headgate.service.core import Core
    from headgate.service.http.replies import Headers, HttpOptions, Scope


# Headers and JSON of an allowing verdict.
#
# The JSON equals that of `verdict_json`, with the constant part of each limit encoded once; a test
# compares the two.


CACHED_LIMITS: Final = 4096
"""Number of limits whose constant part of the JSON is cached."""


class LimitTemplate(NamedTuple):
    """The constant part of the JSON about *rule* and its deciding *limit*."""

    rule: CompiledRule
    limit: Limit
    id: str
    text: str


class ResponseEncoder:
    """Encodes allowing verdicts by *options*. *clock* is for times in headers."""

    def __init__(self, options: ResponseOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._texts: dict[tuple[int, int], LimitTemplate] = {}

    def lines(self, verdict: Verdict) -> Headers:
        """The response headers of an allowed request."""
        if verdict.is_replay:
            return self.slow_lines(verdict)
        lines = verdict.header_lines(self._clock()) if self._options.has_usual_families else None
        return self.slow_lines(verdict) if lines is None else lines

    def slow_lines(self, verdict: Verdict) -> Headers:
        """The same for the unusual cases."""
        answer = answer_of(verdict)
        return encoded_lines(headers_for(answer, now_ns=self._clock(), options=self._options))

    def _rule_text(self, rule: CompiledRule, limit: Limit) -> LimitTemplate:
        # By identity: hashing a limit would take longer than all the rest. The cache keeps the
        # objects alive, so their ids cannot be reused.
        known = id(rule), id(limit)
        found = self._texts.get(known)
        if found is None:
            if len(self._texts) >= CACHED_LIMITS:
                self._texts.clear()
            template = {
                "id": rule.id,
                "mode": rule.mode,
                "limit": limit_text(limit),
                "quota": limit.quota,
            }
            text = json.dumps(template)[:-1]
            found = self._texts[known] = LimitTemplate(rule, limit, json.dumps(rule.id), text)
        return found

    def text(self, verdict: Verdict) -> str:
        """The JSON of an allowing verdict; equal to `verdict_json`."""
        tightest: LimitTemplate | None = None
        least = reset_ns = delay_ns = 0
        source = "store"
        texts = []
        for one, decision in verdict.pairs:
            remaining, back_ns, by = decision.remaining, decision.reset_after_ns, decision.source
            template = self._rule_text(one.rule, decision.limit)
            if one.rule.mode == "enforce":
                if tightest is None or remaining < least:
                    tightest, least = template, remaining
                reset_ns = max(reset_ns, back_ns)
                delay_ns = max(delay_ns, decision.delay_ns)
                source = _source(source, by)
            wait = decision.retry_after_ns
            estimate = '"is_estimate": true, ' if wait and decision.is_estimate else ""
            texts.append(
                f'{template.text}, "cost": {one.cost}, '
                f'"allowed": {"true" if decision else "false"}, "remaining": {remaining}, '
                f'"retry_after_ms": {"null" if wait is None else -(-wait // MILLISECOND)}, '
                f'{estimate}"reset_after": {seconds_at_least(back_ns)!r}, "source": "{by}"}}'
            )
        rules = ", ".join(texts)
        if tightest is None:
            return (
                '{"allowed": true, "limit": null, "quota": null, "remaining": null, '
                '"retry_after": 0, "retry_after_ms": 0, "reset_after": 0.0, "source": null, '
                f'"revision": {verdict.revision}, "rules": [{rules}]}}'
            )
        delay = f'"delay_ms": {-(-delay_ns // MILLISECOND)}, ' if delay_ns else ""
        return (
            f'{{"allowed": true, "limit": {tightest.id}, "quota": {tightest.limit.quota}, '
            f'"remaining": {least}, "retry_after": 0, "retry_after_ms": 0, {delay}'
            f'"reset_after": {seconds_at_least(reset_ns)!r}, "source": "{source}", '
            f'"revision": {verdict.revision}, "rules": [{rules}]}}'
        )


def _source(known: str, other: str) -> str:
    """The source of an allowing verdict, like `Verdict.source`: a fallback, the first by name."""
    if other == "store":
        return known
    return other if known == "store" or other < known else known


T = TypeVar("T")

TOO_MANY_REQUESTS: Final = 429
_RETRY_SOON: Final = (b"retry-after", b"1")
_JSON_LINES: Final = (JSON_LINE, NO_STORE)


class Checker:
    """Decides requests by *core* within the deadline of *options*."""

    def __init__(self, core: Core, options: HttpOptions) -> None:
        self.core = core
        self.encoder = ResponseEncoder(core.answers, core.clock)
        self._below_500 = replace(core.answers, shed_status=TOO_MANY_REQUESTS)
        self._deadline = options.deadline
        self._late: set[asyncio.Task[Any]] = set()
        self._in_force = core.rules.in_force
        self.engine = core.rules.engine

    def plan(self, request: Request, cost: Costs = None) -> Plan:
        """The plan of *request* under the policy in force."""
        compiled = self._in_force.compiled
        return compiled.plan(request, cost=cost, lease=new_name() if compiled.has_slots else None)

    async def decide(self, plan: Plan) -> Verdict:
        """Decide *plan*, and wait for the store only if it has to be asked."""
        verdict = self.engine.decide_now(plan)
        if verdict is None:
            verdict = await self.within_deadline(adrive(self.engine.decide(plan)))
        return verdict

    async def within_deadline(self, asking: Coroutine[None, None, T]) -> T:
        """Await *asking*. Raises `RejectedError` (503) if it exceeds the deadline.

        A store operation in flight is not abandoned and may last as long as the store's timeout.
        The answer does not wait for it.
        """
        task = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({task}, timeout=self._deadline)
        finally:
            if not task.done():
                self._late.add(task)
                task.add_done_callback(self._ended)
                task.cancel()
        if task.done():
            return task.result()
        detail = f"no decision within {self._deadline:g} seconds"
        raise RejectedError(problem(503, detail, headers=(_RETRY_SOON,)))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has its answer already

    async def check(self, body: bytes, scope: Scope) -> Reply:
        """Decide the request that *body* describes; *scope* is the request that carries it."""
        asked = read_asked(document_of(body), TO_CHECK)
        plan = self.plan(asked.request, asked.cost)
        if asked.peek:
            verdict = await self.within_deadline(adrive(self.engine.peek(plan)))
        else:
            verdict = await self.decide(plan)
        return self._reply(verdict, scope)

    def _reply(self, verdict: Verdict, scope: Scope) -> Reply:
        if not verdict.allowed:
            denied = self.denial(verdict, header_of(scope, b"accept"))
            return debugged(self.core, scope, verdict, denied)
        lines = self.encoder.lines(verdict)
        lines += _JSON_LINES
        reply = Reply(200, lines, self.encoder.text(verdict).encode("ascii"))
        return debugged(self.core, scope, verdict, reply)

    def authorization_denial(
        self, verdict: Verdict, accept: str | None, *, denied_as: int, is_below_500: bool = False
    ) -> Reply:
        """The denial for a gateway to pass on. It has the status *denied_as*; an outage has its
        own, and so has load shedding unless *is_below_500*."""
        options = self._below_500 if is_below_500 else None
        status, headers, body = self._denied(verdict, accept, options)
        return Reply(denied_as if status == TOO_MANY_REQUESTS else status, headers, body)

    def denial(self, verdict: Verdict, accept: str | None) -> Reply:
        """The denial for a client, with the figures of rules that show them."""
        status, headers, body = self._denied(verdict, accept)
        content = {**denial_json(verdict), **json.loads(body)}
        return Reply(status, headers, json.dumps(content).encode("ascii"))

    def _denied(
        self, verdict: Verdict, accept: str | None, options: ResponseOptions | None = None
    ) -> tuple[int, Headers, bytes]:
        answer = answer_of(verdict, jitter=random.random())  # noqa: S311 (not a secret)
        core = self.core
        response = response_for(
            answer, now_ns=core.clock(), options=options or core.answers, accept=accept
        )
        return response.status, encoded_lines(response.headers), response.body
