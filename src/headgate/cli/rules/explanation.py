"""What becomes of a request: which rules are for it, whose counters, and what would be sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.algorithms import algorithm_for
from headgate.cli.rules.reasons import Reasons
from headgate.cli.rules.softness import softly, turns
from headgate.decisions import OVERRIDE, combine
from headgate.decisions.decision import Concluded
from headgate.engine import Engine, answer_of, repeated, verdict_of, verdict_unasked
from headgate.holding import new_name
from headgate.limits import Concurrency, LeakyQueue, PacedLimit
from headgate.responses import headers_for, refusal
from headgate.rules.matching import normalised_path, readings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.decisions import Decision
    from headgate.engine.plan import Queueing
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.rules.model import Rule
    from headgate.rules.request import Request
    from headgate.rules.soft import Priority
    from headgate.stores.port import Store

Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A rule of the policy and what it has to do with the request.

    *reason* says why it does not apply, "" if it does. *account* says whose counter it is, if the
    rule matches. *said* is what it said, if it applies.
    """

    rule: Rule
    matches: bool
    reason: str = ""
    account: tuple[str, ...] = ()
    said: RuleVerdict | None = None
    is_near: bool = False
    """Whether at least the path is one that the rule is for."""
    turn: Queueing | None = None
    """How it takes turns under the rule, if it does."""
    soft: tuple[tuple[str, str], ...] = ()
    """What the rule says of delays, slots, turns and pressure: a name and a line for each."""


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


@dataclass(frozen=True, slots=True)
class Enquirer:
    """Asks *engine* about requests, with the counters in *store*, at the time *now_ns*."""

    engine: Engine
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
        found = self.engine.identifier.find(request)
        reasons = Reasons(self.engine.policy, request, found)
        return Explanation(
            request,
            path,
            tuple(others),
            reasons.tier,
            self._members(request, verdict, reasons),
            verdict,
            response_to(request, verdict, self.now_ns),
            self.engine.priority_of(request) if self.engine.policy.priorities else None,
        )

    def _ask(self, request: Request, cost: int | None, *, consume: bool) -> Verdict:
        plan = self.engine.plan(request, cost=cost, lease=new_name())
        unasked = verdict_unasked(plan)
        if unasked is not None:
            return unasked
        replies = self.store.run(plan.operation(consume=consume))
        seen = repeated(plan, replies)
        if seen:
            replies = (*self.store.run(plan.again(seen, consume=consume)), *replies[1:])
        return verdict_of(plan, replies, consumed=consume, without=seen)

    def _members(self, request: Request, verdict: Verdict, reasons: Reasons) -> tuple[Member, ...]:
        matching = {rule.id for rule in self.engine.matching(request)}
        said = {one.rule.id: one for one in verdict.rules}
        is_blocked = verdict.source == OVERRIDE
        turn = {one.rule.id: one for one in self.engine.plan(request).queues}
        return tuple(
            self._turning(rule, request, turn.get(rule.id))
            if rule.id in matching and rule.fair is not None
            else self._matched(rule, request, said.get(rule.id), reasons, is_blocked=is_blocked)
            if rule.id in matching
            else _unmatched(rule, reasons)
            for rule in self.engine.policy.rules
        )

    def _matched(
        self,
        rule: Rule,
        request: Request,
        said: RuleVerdict | None,
        reasons: Reasons,
        *,
        is_blocked: bool,
    ) -> Member:
        account = tuple(self.engine.identifier.account(rule, request))
        reason = ""
        if said is None and is_blocked:
            reason = "it is not asked, as another one is blocked"
        elif said is None:
            reason = reasons.no_limit(rule) or "it is not known whose counter it is"
        soft = () if said is None else tuple(self._softly(said, request))
        return Member(
            rule,
            matches=True,
            reason=reason,
            account=account,
            said=said,
            is_near=True,
            soft=soft,
        )

    def _softly(self, said: RuleVerdict, request: Request) -> Iterator[tuple[str, str]]:
        found = self.engine.identifier.find(request)
        return softly(said.rule, said.decision, found, self.engine.priority_of(request))

    def _turning(self, rule: Rule, request: Request, turn: Queueing | None) -> Member:
        """A rule under which requests take turns, which no store is asked about."""
        account = tuple(self.engine.identifier.account(rule, request))
        reason = ""
        if turn is None:
            is_off = rule.mode != "enforce"
            reason = (
                "in shadow nobody takes turns" if is_off else "it is not known whose turn it is"
            )
        soft = () if turn is None else tuple(turns(turn))
        return Member(
            rule,
            matches=True,
            reason=reason,
            account=account,
            is_near=True,
            turn=turn,
            soft=soft,
        )


def _unmatched(rule: Rule, reasons: Reasons) -> Member:
    reason = reasons.no_match(rule) or ""
    return Member(rule, matches=False, reason=reason, is_near=reasons.fits_path(rule))


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
    return Concluded(
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
