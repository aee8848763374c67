"""Asking the engine about a request, and what is answered.

A place under a concurrency limit that a check or a gateway's request takes is free again when its
lease has run out: nobody says here when a request is over. Who can say so makes a reservation.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headgate.engine.verdict import answer_of
from headgate.responses import allowed_lines, encoded_lines, headers_for, refusal
from headgate.runtime.drivers import adrive
from headgate.runtime.holds import new_name
from headgate.service.http.body import document_of
from headgate.service.http.check_request import TO_CHECK, read_asked
from headgate.service.http.replies import (
    JSON_LINE,
    NO_STORE,
    RefusedError,
    Reply,
    header_of,
    problem,
)
from headgate.service.http.verdict_json import debugged, denial_json, limit_text
from headgate.units import MILLISECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headgate.clock import Clock
    from headgate.engine.plan import Plan
    from headgate.engine.request import Request
    from headgate.engine.rule import CompiledRule
    from headgate.engine.verdict import Verdict
    from headgate.limits import Limit
    from headgate.policy.compiled import Costs
    from headgate.responses import ResponseOptions
    from headgate.service.core import Core
    from headgate.service.http.replies import Headers, HttpOptions, Scope


# Headers and JSON of a verdict that allows.
#
# The JSON is that of `portrait`, with what is the same for all requests under a limit made once;
# a test compares the two.


REMEMBERED: Final = 4096
"""For how many limits the constant part of the JSON is kept."""


class RuleText(NamedTuple):
    """The constant part of the JSON about *rule* and the *limit* that decided."""

    rule: CompiledRule
    limit: Limit
    id: str
    text: str


class Teller:
    """Encodes verdicts that allow, as *options* have it. *clock* is for times in headers."""

    def __init__(self, options: ResponseOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._texts: dict[tuple[int, int], RuleText] = {}

    def lines(self, verdict: Verdict) -> Headers:
        """The headers of the response to a request that was allowed."""
        if verdict.is_replay:
            return self.slow_lines(verdict)
        told = [
            (one.rule.id, one.decision)
            for one in verdict.rules
            if one.rule.headers == "on" and one.rule.mode == "enforce"
        ]
        lines = allowed_lines(told, self._clock()) if self._options.has_usual_families else None
        return self.slow_lines(verdict) if lines is None else lines

    def slow_lines(self, verdict: Verdict) -> Headers:
        """The same for whatever is out of the ordinary."""
        answer = answer_of(verdict)
        return encoded_lines(headers_for(answer, now_ns=self._clock(), options=self._options))

    def _rule_text(self, rule: CompiledRule, limit: Limit) -> RuleText:
        # By identity: the hash of a limit takes longer than all the rest. What is kept here lives,
        # so that nothing else can be at its place in memory.
        known = id(rule), id(limit)
        found = self._texts.get(known)
        if found is None:
            if len(self._texts) >= REMEMBERED:
                self._texts.clear()
            said = {
                "id": rule.id,
                "mode": rule.mode,
                "limit": limit_text(limit),
                "quota": limit.quota,
            }
            text = json.dumps(said)[:-1]
            found = self._texts[known] = RuleText(rule, limit, json.dumps(rule.id), text)
        return found

    def text(self, verdict: Verdict) -> str:
        """The JSON of a verdict that admits; as `portrait` has it."""
        tightest: RuleText | None = None
        least = reset_ns = delay_ns = 0
        source = "store"
        texts = []
        for one in verdict.rules:
            decision = one.decision
            remaining, back_ns, by = decision.remaining, decision.reset_after_ns, decision.source
            said = self._rule_text(one.rule, decision.limit)
            if one.rule.mode == "enforce":
                if tightest is None or remaining < least:
                    tightest, least = said, remaining
                reset_ns = max(reset_ns, back_ns)
                delay_ns = max(delay_ns, decision.delay_ns)
                source = _source(source, by)
            wait = decision.retry_after_ns
            estimate = '"is_estimate": true, ' if wait and decision.is_estimate else ""
            texts.append(
                f'{said.text}, "cost": {one.cost}, '
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
    """As `Verdict.source` of one that admits: what stood in for the store, the first by name."""
    if other == "store":
        return known
    return other if known == "store" or other < known else known


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
        self._late: set[asyncio.Task[Any]] = set()
        self._in_force = core.rules.in_force
        self.engine = core.rules.engine

    def plan(self, request: Request, cost: Costs = None) -> Plan:
        """The plan of *request* under the rules in force."""
        compiled = self._in_force.compiled
        return compiled.plan(request, cost=cost, lease=new_name() if compiled.has_slots else None)

    def at_once(self, plan: Plan) -> Verdict | None:
        """What comes of *plan*; None if that has to be waited for."""
        return self.engine.decide_now(plan)

    async def decided(self, plan: Plan) -> Verdict:
        """What comes of *plan*, waited for."""
        return await self.within_deadline(adrive(self.engine.decide(plan)))

    async def within_deadline(self, asking: Coroutine[None, None, T]) -> T:
        """What comes of *asking*; `RefusedError` (503) if it takes too long.

        A store operation in flight is not abandoned, and may take as long as the store's timeout.
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
        raise RefusedError(problem(503, detail, headers=(_RETRY_SOON,)))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has its answer already

    async def check(self, body: bytes, scope: Scope) -> Reply:
        """What somebody is told who described a request in *body*; *scope* is that of his own."""
        asked = read_asked(document_of(body), TO_CHECK)
        plan = self.plan(asked.request, asked.cost)
        if asked.peek:
            looking = adrive(self.engine.peek(plan))
            return self._told(await self.within_deadline(looking), scope)
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
        """A refusal as it may be passed on to a client, with what its rules tell."""
        status, headers, body = self._refused(verdict, accept)
        content = {**denial_json(verdict), **json.loads(body)}
        return Reply(status, headers, json.dumps(content).encode("ascii"))

    def _refused(
        self, verdict: Verdict, accept: str | None, options: ResponseOptions | None = None
    ) -> tuple[int, Headers, bytes]:
        answer = answer_of(verdict, jitter=random.random())  # noqa: S311 (not a secret)
        core = self.core
        told = refusal(answer, now_ns=core.clock(), options=options or core.answers, accept=accept)
        return told.status, encoded_lines(told.headers), told.body
