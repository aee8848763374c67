"""Decides requests and builds the replies.

A concurrency slot that a check or a gateway's request takes is released when its lease expires,
because the end of the request is not reported here. Use a reservation to report it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headgate.chance import chance
from headgate.engine.tracing import limit_in_words, traced_lines
from headgate.engine.verdict import answer_of
from headgate.responses import encoded_lines, headers_for, response_for
from headgate.responses.debug import DEBUG
from headgate.runtime.drivers import adrive
from headgate.runtime.heartbeat import new_name
from headgate.service.core import is_debugged
from headgate.service.http.body import document_of
from headgate.service.http.check_request import CHECK_FIELDS, read_check
from headgate.service.http.replies import (
    JSON_LINE,
    NO_STORE,
    RETRY_SOON,
    RejectedError,
    Reply,
    header_of,
    problem,
)
from headgate.units import MILLISECOND, seconds_at_least, seconds_up

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


CACHED_LIMITS: Final = 4096
"""Number of limits whose constant part of the JSON is cached."""


class LimitTemplate(NamedTuple):
    """The constant part of the JSON about *rule* and its deciding *limit*."""

    rule: CompiledRule
    limit: Limit
    id: str
    text: str


class ResponseEncoder:
    """Encodes verdicts by *options*. *clock* is for times in headers."""

    def __init__(self, options: ResponseOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._templates: dict[tuple[int, int], LimitTemplate] = {}

    def lines(self, verdict: Verdict) -> Headers:
        """The response headers of an allowed request."""
        if verdict.is_replay or not self._options.has_usual_families:
            return self.slow_lines(verdict)
        lines = verdict.header_lines(self._clock())
        return self.slow_lines(verdict) if lines is None else lines

    def slow_lines(self, verdict: Verdict) -> Headers:
        """The same for the unusual cases."""
        answer = answer_of(verdict)
        return encoded_lines(headers_for(answer, now_ns=self._clock(), options=self._options))

    def _template(self, rule: CompiledRule, limit: Limit) -> LimitTemplate:
        # By identity: hashing a limit would take longer than all the rest. The cache keeps the
        # objects alive, so their ids cannot be reused.
        known = id(rule), id(limit)
        found = self._templates.get(known)
        if found is None:
            if len(self._templates) >= CACHED_LIMITS:
                self._templates.clear()
            template = {
                "id": rule.id,
                "mode": rule.mode,
                "limit": limit_in_words(limit),
                "quota": limit.quota,
            }
            text = json.dumps(template)[:-1]
            found = self._templates[known] = LimitTemplate(rule, limit, json.dumps(rule.id), text)
        return found

    def text(self, verdict: Verdict) -> str:
        """All results of a request as JSON. *limit* is the tightest rule, as in the body of a
        denial. *is_estimate* is present if `retry_after` is one, *delay_ms* if the request has to
        wait.

        For the code that enforces: includes shadow rules and rules that hide their figures.
        Formatting it takes a fifth of the time of `json.dumps`, which was half of a check.
        """
        binding: LimitTemplate | None = None
        least = reset_ns = delay_ns = 0
        source = "store"
        texts = []
        for one, decision in verdict.pairs:
            remaining, back_ns, by = decision.remaining, decision.reset_after_ns, decision.source
            template = self._template(one.rule, decision.limit)
            if one.rule.mode == "enforce":
                if binding is None or remaining < least:
                    binding, least = template, remaining
                reset_ns = max(reset_ns, back_ns)
                delay_ns = max(delay_ns, decision.delay_ns)
                source = _source(source, by)
            texts.append(
                f'{template.text}, "cost": {one.cost}, '
                f'"allowed": {"true" if decision.allowed else "false"}, "remaining": {remaining}, '
                f'"retry_after_ms": {_milliseconds(decision.retry_after_ns)}, '
                f"{_ESTIMATE if decision.is_estimate else ''}"
                f'"reset_after": {seconds_at_least(back_ns)!r}, "source": "{by}"}}'
            )
        rules = f'"revision": {verdict.revision}, "rules": [{", ".join(texts)}]}}'
        waits = '"retry_after": 0, "retry_after_ms": 0, '
        if binding is None:
            return (
                '{"allowed": true, "limit": null, "quota": null, "remaining": null, '
                f'{waits}"reset_after": 0.0, "source": null, {rules}'
            )
        denial = verdict.denied_by
        if denial is not None:
            binding, source = self._template(denial.rule, denial.decision.limit), verdict.source
            wait_ns = denial.decision.retry_after_ns
            seconds = "null" if wait_ns is None else seconds_up(wait_ns)
            waits = f'"retry_after": {seconds}, "retry_after_ms": {_milliseconds(wait_ns)}, '
            waits += _ESTIMATE if verdict.is_estimate else ""
        elif delay_ns:
            waits += f'"delay_ms": {_milliseconds(delay_ns)}, '
        return (
            f'{{"allowed": {"true" if denial is None else "false"}, "limit": {binding.id}, '
            f'"quota": {binding.limit.quota}, "remaining": {least}, {waits}'
            f'"reset_after": {seconds_at_least(reset_ns)!r}, "source": "{source}", {rules}'
        )

    def denial(self, verdict: Verdict) -> dict[str, Any]:
        """The same of a denial that may be passed on to the client: rules that hide their figures
        are not listed."""
        pairs = zip(verdict.plan.rules, verdict.decisions, strict=True)
        shown = [decision if one.rule.headers == "on" else None for one, decision in pairs]
        denied_by = verdict.denied_by
        is_shown = denied_by is not None and denied_by.rule.headers == "on"
        text = self.text(verdict.with_decisions(shown, allowed=not is_shown))
        data: dict[str, Any] = json.loads(text)
        return data if is_shown else {**data, **_HIDDEN, "source": verdict.source}


_ESTIMATE: Final = '"is_estimate": true, '
_HIDDEN: Final = {
    "allowed": False,
    **dict.fromkeys(("limit", "quota", "remaining", "retry_after", "retry_after_ms")),
    "reset_after": 0.0,
}
"""The figures of a denial by a rule that hides them."""


def _milliseconds(wait_ns: int | None) -> str:
    return "null" if wait_ns is None else str(-(-wait_ns // MILLISECOND))


def _source(known: str, other: str) -> str:
    """The source of an allowing verdict, like `Verdict.source`: a fallback, the first by name."""
    if other == "store":
        return known
    return other if known == "store" or other < known else known


T = TypeVar("T")

TOO_MANY_REQUESTS: Final = 429
_JSON_LINES: Final = (JSON_LINE, NO_STORE)
_DEBUG: Final = DEBUG.lower().encode()


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
        raise RejectedError(problem(503, detail, headers=(RETRY_SOON,)))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has its answer already

    async def check(self, body: bytes, scope: Scope) -> Reply:
        """Decide the request that *body* describes; *scope* is the request that carries it."""
        asked = read_check(document_of(body), CHECK_FIELDS)
        plan = self.plan(asked.request, asked.cost)
        if asked.peek:
            verdict = await self.within_deadline(adrive(self.engine.peek(plan)))
        else:
            verdict = await self.decide(plan)
        if not verdict.allowed:
            return self.denial(verdict, scope)
        lines = self.encoder.lines(verdict)
        lines += _JSON_LINES
        return self.debugged(scope, verdict, 200, lines, self.encoder.text(verdict).encode("ascii"))

    def authorization_denial(
        self, verdict: Verdict, scope: Scope, *, denied_as: int, is_below_500: bool = False
    ) -> Reply:
        """The denial for a gateway to pass on. It has the status *denied_as*; an outage has its
        own, and so has load shedding unless *is_below_500*."""
        options = self._below_500 if is_below_500 else self.core.answers
        status, headers, body = self._denied(verdict, scope, options)
        status = denied_as if status == TOO_MANY_REQUESTS else status
        return self.debugged(scope, verdict, status, headers, body)

    def denial(self, verdict: Verdict, scope: Scope) -> Reply:
        """The denial for a client, with the figures of rules that show them."""
        status, headers, body = self._denied(verdict, scope, self.core.answers)
        content = json.dumps({**self.encoder.denial(verdict), **json.loads(body)})
        return self.debugged(scope, verdict, status, headers, content.encode("ascii"))

    def debugged(
        self, scope: Scope, verdict: Verdict, status: int, headers: Headers, body: bytes
    ) -> Reply:
        """The reply to *scope*, with the trace of the decision if it has a valid debug token."""
        for name, value in scope["headers"]:
            if name == _DEBUG and is_debugged(self.core, value.decode("latin-1")):
                ours = encoded_lines(traced_lines([verdict], self.core.hash_key))
                headers.extend(line for line in ours if line not in headers)
                break
        return Reply(status, headers, body)

    def _denied(
        self, verdict: Verdict, scope: Scope, options: ResponseOptions
    ) -> tuple[int, Headers, bytes]:
        answer = answer_of(verdict, jitter=chance())
        now_ns, accept = self.core.clock(), header_of(scope, b"accept")
        response = response_for(answer, now_ns=now_ns, options=options, accept=accept)
        return response.status, encoded_lines(response.headers), response.body
