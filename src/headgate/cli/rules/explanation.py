"""What becomes of a request: which rules are for it, whose counters, and what would be sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headgate.algorithms import algorithm_for
from headgate.cli.rules.softness import softly, turns
from headgate.decision import Decision, combine
from headgate.engine.hold_times import HoldTimes
from headgate.engine.use_cases import Calls, asking
from headgate.engine.verdict import answer_of, verdict_of, verdict_unasked
from headgate.limits import Concurrency, LeakyQueue, PacedLimit
from headgate.policy.explain import Membership
from headgate.policy.matcher import normalised_path, readings
from headgate.responses import headers_for, refusal
from headgate.runtime.drivers import drive
from headgate.runtime.holds import new_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.engine.request import Request
    from headgate.engine.rule import Priority
    from headgate.engine.verdict import Verdict
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.explain import Member
    from headgate.stores.base import Store

Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Response:
    """What is sent: all of it if the request is refused, else only what is added. Status None: that
    of whoever answers the request."""

    status: int | None
    headers: Lines
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say about *request*. *path* is the one that counts, *others* how else servers
    may read it; *tier* is the caller's. *priority* is the class of the request, None if the policy
    has none."""

    request: Request
    path: str
    others: tuple[str, ...]
    tier: str | None
    members: tuple[Member, ...]
    verdict: Verdict
    response: Response
    priority: Priority | None = None
    soft: Mapping[str, Lines] = field(default_factory=dict)
    """What rules say of delays, slots, turns and pressure, by their ids: a name and a line each."""


@dataclass(frozen=True, slots=True)
class Enquirer:
    """Asks *engine* about requests, with the counters in *store*, at the time *now_ns*."""

    engine: CompiledPolicy
    store: Store
    now_ns: int

    def spend(self, request: Request, *, cost: int | None) -> Verdict:
        """Let *request* pass, if it may, and count it."""
        return self._ask(request, cost, consume=True)

    def foresee(self, request: Request, *, cost: int | None) -> Verdict:
        """What `spend` would say; nothing is counted."""
        verdict = self._ask(request, cost, consume=False)
        return _as_if_charged(verdict, self.now_ns)

    def explain(self, request: Request, verdict: Verdict) -> Explanation:
        """How *verdict* came about."""
        ways = ["/" + "/".join(way) for way in readings(request.path)]
        path, *others = dict.fromkeys([normalised_path(request.path), *ways])
        membership = Membership(self.engine, request, verdict)
        members = membership.all()
        return Explanation(
            request,
            path,
            tuple(others),
            membership.reasons.tier,
            members,
            verdict,
            response_to(request, verdict, self.now_ns),
            self.engine.priority_of(request) if self.engine.policy.priorities else None,
            dict(self._softness(request, members)),
        )

    def _ask(self, request: Request, cost: int | None, *, consume: bool) -> Verdict:
        plan = self.engine.plan(request, cost=cost, lease=new_name())
        unasked = verdict_unasked(plan)
        if unasked is not None:
            return unasked
        replies, without = drive(asking(plan, Calls(self.store), consume=consume))
        verdict = verdict_of(plan, replies, consumed=consume, without=without)
        return HoldTimes().estimated(verdict)

    def _softness(self, request: Request, members: Iterable[Member]) -> Iterator[tuple[str, Lines]]:
        found, priority = self.engine.identifier.find(request), self.engine.priority_of(request)
        for member in members:
            rule, said = member.rule, member.said
            if member.turn is not None:
                yield rule.id, tuple(turns(member.turn))
            elif said is not None:
                yield rule.id, tuple(softly(rule, said.decision, found, priority))


def response_to(request: Request, verdict: Verdict, now_ns: int) -> Response:
    """What is sent to whoever made *request*."""
    answer = answer_of(verdict)
    if verdict.allowed:
        return Response(None, tuple(headers_for(answer, now_ns=now_ns)))
    full = refusal(answer, now_ns=now_ns, accept=request.header("accept"))
    return Response(full.status, full.headers, full.body)


def _as_if_charged(verdict: Verdict, now_ns: int) -> Verdict:
    """*verdict*, of a look, with the figures it would have had if it had counted the request."""
    is_charged = verdict.allowed and not verdict.is_replay
    rules = tuple(
        replace(one, decision=_charged(one.decision, one.cost, now_ns))
        if (one.decision.allowed if one.is_shadow else is_charged)
        else one
        for one in verdict.rules
    )
    return replace(verdict, rules=rules)


def _charged(decision: Decision, cost: int, now_ns: int) -> Decision:
    return combine([_charged_part(part, cost, now_ns) for part in decision.limits])


def _charged_part(part: Decision, cost: int, now_ns: int) -> Decision:
    limit = part.limit
    amount = 1 if isinstance(limit, Concurrency) else cost
    if not amount:
        return part
    delay_ns = _delay(part)
    return Decision(
        part.key,
        limit,
        allowed=part.allowed,
        remaining=max(part.remaining - amount, 0),  # a queue takes more than it has places
        retry_after_ns=part.retry_after_ns,
        reset_after_ns=_reset_after(part, amount, now_ns),
        source=part.source,
        delay_ns=delay_ns,
        turn_ns=now_ns + delay_ns if delay_ns else 0,
    )


def _delay(part: Decision) -> int:
    """How long it would wait: until all that is queued now has had its turn."""
    is_queue = isinstance(part.limit, LeakyQueue) and part.allowed
    return part.delay_ns or part.reset_after_ns if is_queue else 0


def _reset_after(part: Decision, amount: int, now_ns: int) -> int:
    """When the counter of *part* is as new once *amount* has been charged: a pace takes that much
    longer, a window lasts as long as its latest charge, and slots as long as their latest lease."""
    limit, before_ns = part.limit, part.reset_after_ns
    if isinstance(limit, Concurrency):
        return max(before_ns, limit.ttl_ns)
    algorithm = algorithm_for(limit)
    own_ns = algorithm.fresh_in(algorithm.charge(None, amount, now_ns), now_ns)
    adds_up = isinstance(limit, PacedLimit | LeakyQueue)
    return before_ns + own_ns if adds_up else max(before_ns, own_ns)
