"""`RequestContext`: one request on its way through an app.

Several parts of an app may check a request: a middleware, a route, a function. They find each other
in its context. If one denies it, what the others charged is given back: a denial consumes nothing.
The response has the headers of all checks. At the end, holds are settled and slots released.

`begin` checks, `complete` ends; both are generators of effects, for `drive` and `adrive`. `start`
is the fast path: it decides at once where one take is all there is to do.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.chance import chance
from headgate.engine.plan import Plan
from headgate.engine.recorder import record_again, record_places
from headgate.engine.tracing import traced_lines, traced_place
from headgate.engine.verdict import rule_answers, shows_replay
from headgate.errors import StoreError
from headgate.integrations.check_result import CheckResult, CompletedResponse
from headgate.integrations.fair_queues import HeldPlaces, WaitForPlaces, denial_by
from headgate.integrations.request_limiter import NO_CHARGE_WHEN, RequestPlan
from headgate.integrations.route_limit import free_name
from headgate.policy.identity.parts import hashed_key
from headgate.responses import (
    Answer,
    ResponseOptions,
    allowed_lines,
    expose_headers,
    headers_for,
    merged,
    response_for,
)
from headgate.responses.debug import DEBUG, DECISION, is_genuine
from headgate.responses.headers import text_lines
from headgate.runtime.heartbeat import StartHeartbeat, new_name
from headgate.stores.base import checked_cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headgate.engine.plan import Queueing
    from headgate.engine.request import Request
    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.integrations.fair_queues import FairQueues, Meanwhile
    from headgate.integrations.request_limiter import RequestLimiter
    from headgate.integrations.route_limit import NamedLimits
    from headgate.llm.call import ModelCall
    from headgate.overload import Place
    from headgate.responses import DenialResponse, RuleAnswer
    from headgate.responses.headers import Lines, Pairs
    from headgate.responses.pressure import Load
    from headgate.runtime.effects import Effects

ALLOW_ORIGIN: Final = "access-control-allow-origin"
EXPOSE: Final = "Access-Control-Expose-Headers"
MERGED: Final = frozenset(
    name.lower()
    for name in (*expose_headers(ResponseOptions(draft03=True, bucket=True)), ALLOW_ORIGIN)
)
"""The headers of a response that ours are merged with; after others ours simply follow."""

TOKEN: Final = DEBUG.lower()
"""The header of a request with a debug token."""

READ: Final = ("origin", "accept", TOKEN)
"""The headers of a request that its response depends on."""

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_LENGTH: Final = re.compile("[0-9]{1,18}")


_ABANDONED: Final = CompletedResponse(499)
"""The status that nginx logs when a client goes away."""
_DENIED: Final = CompletedResponse(429)


class RequestContext:
    """The checks of *request*; made by the first part of the app that checks it, with *limiter*.

    *is_managed*: a middleware or a decorator writes the headers of the response and completes it.
    `checked` are the limiters that have checked the request as a whole. The writer of the response
    adds the bytes of its body to `sent` if it `counts_bytes`.
    """

    # Defaults are those of the class, without slots: a request changes few of them, and to set all
    # takes 0.5 us.
    meanwhile: Meanwhile | None = None
    """A function that waits for places in queues, and does something else meanwhile."""
    checked: tuple[RequestLimiter, ...] = ()
    open_checks: tuple[CheckResult, ...] = ()
    """The checks that have yet to end. The fast path leaves nothing to end."""
    denial: Verdict | None = None
    denial_answers: tuple[RuleAnswer, ...] = ()
    is_replay = False
    counts_bytes = False
    jitter = 0.0  # drawn once: header and body have the same wait
    used: Mapping[str, int] = _NOTHING
    _unnamed: Mapping[str, int] = _NOTHING
    sent = 0
    call: ModelCall | None = None
    """The call of a language model that the request is, if rules need to know."""
    places: tuple[Place, ...] = ()
    queues: tuple[tuple[FairQueues, Queueing], ...] = ()
    is_cross_origin = False
    """True if a browser may have sent the request for a page of another origin."""
    _header: Mapping[str, str] = MappingProxyType({})
    _quick: Verdict | None = None
    _rule_answers: tuple[RuleAnswer, ...] = ()

    def __init__(
        self, limiter: RequestLimiter, request: Request, *, is_managed: bool = False
    ) -> None:
        self.limiter = limiter
        self.is_managed = is_managed
        # Not the request, which refers to the context: a cycle would outlive the response.
        read = {name: request.header(name) for name in READ}
        self._header = {name: value for name, value in read.items() if value is not None}
        self.is_cross_origin = "origin" in self._header

    # ---- begin -----------------------------------------------------------------------------

    def start(self, limiter: RequestLimiter, request: Request) -> Effects[bool] | None:
        """Check *request* by the limits of the whole app; None if it is allowed.

        Else the rest of the check is returned, to be driven; its result is True if allowed.
        """
        self.checked += (limiter,)
        plan = limiter.simple_plan(request)
        if plan is None:
            return self.begin(limiter, limiter.plan(request))
        return self._start(limiter, plan)

    def start_route(
        self,
        limiter: RequestLimiter,
        limits: NamedLimits,
        native: Any,
        request: Request,
        *,
        is_preflight: bool = False,
    ) -> Effects[bool] | None:
        """Check *native*, the request of a framework, by the *limits* of a route: see `start`.

        *request* is the same as Headgate sees it. A preflight has counters of its own.
        """
        plan = None if is_preflight else limiter.simple_route_plan(limits, request)
        if plan is None:
            planning = limiter.plan_route(limits, native, request, is_preflight=is_preflight)
            return self.begin(limiter, planning)
        return self._start(limiter, plan)

    def _start(self, limiter: RequestLimiter, plan: Plan) -> Effects[bool] | None:
        """Check the request by *plan*, which is plain: see `start`."""
        if not plan.rules:
            return None
        verdict = limiter.engine.decide_now(plan)
        if verdict is not None and self._keep(limiter, verdict):
            return None
        return self.check(limiter, RequestPlan(plan, NO_CHARGE_WHEN), verdict)

    def _keep(self, limiter: RequestLimiter, verdict: Verdict) -> bool:
        """Keep the *verdict* on a plain plan, if that is all there is to know: the first check,
        which allows at once and leaves nothing to end."""
        if (
            not verdict.allowed
            or (verdict.plan.may_delay and verdict.delay_ns)
            or self._quick is not None
            or self.open_checks
            or limiter is not self.limiter
            or limiter.is_measured
        ):
            return False
        self._quick = verdict
        return True

    def begin(
        self, limiter: RequestLimiter, planning: Effects[RequestPlan | None]
    ) -> Effects[bool]:
        """Check the request by the plan that *planning* makes; True if it is allowed.

        A denial refunds what was charged before: at the end, if the response is the denial, or
        at once if no part of the app completes the request.
        """
        planned = yield from planning
        if planned is None:
            return True
        verdict, plan = planned.denial, planned.plan
        if verdict is None and plan.is_plain and not plan.queues and not planned.after:
            rest = self._start(limiter, plan)
            return True if rest is None else (yield from rest)
        if verdict is None:
            verdict = limiter.engine.decide_now(plan)
        return (yield from self.check(limiter, planned, verdict))

    def check(
        self, limiter: RequestLimiter, planned: RequestPlan, verdict: Verdict | None
    ) -> Effects[bool]:
        """Check the request by *planned*, or go on with its *verdict*; True if it is allowed."""
        engine, plan = limiter.engine, planned.plan
        if verdict is None:
            if plan.open:
                name = plan.lease or new_name()
                verdict = yield from engine.reserve(plan, name, planned.ttl_ns)
            else:
                verdict = yield from engine.decide(plan)
        is_plain = plan.is_plain and not (planned.after or plan.queues)
        if is_plain and self._keep(limiter, verdict):
            return True
        is_repeated = bool(self.results)
        if verdict.allowed:
            denial = yield from self._admit(limiter, planned, verdict)
            if is_repeated:
                record_again()
            if denial is None:
                return True
            verdict = denial
        elif is_repeated:
            record_again()
        undoing: list[Effects[Any]] = [self._undo(one) for one in self._deny(limiter, verdict)]
        if verdict.slots is not None or verdict.local_slots is not None:  # of shadow rules
            undoing.append(engine.release(verdict))
        yield from all_of(undoing)
        return False

    def _admit(
        self, limiter: RequestLimiter, planned: RequestPlan, verdict: Verdict
    ) -> Effects[Verdict | None]:
        """Keep what an allowed request holds, once it has its places in queues; the denial if a
        queue is full: then everything was given back."""
        result = CheckResult(limiter, planned, verdict)
        full: Queueing | None = None
        places: tuple[Place, ...] = ()
        figures: tuple[RuleAnswer, ...] = ()
        try:
            if verdict.slots is not None or verdict.local_slots is not None:
                renew = partial(limiter.engine.renew, verdict)
                result.beat = yield StartHeartbeat(renew, verdict.slots_last_ns or 0, self)
            delay_ns, queues = verdict.delay_ns, planned.plan.queues
            if delay_ns or queues:
                places, full = yield WaitForPlaces(limiter.queues, delay_ns, queues, self.meanwhile)
            if full is None:
                result.places = HeldPlaces(places) if places else ()
                if shows_replay(verdict):
                    figures = yield from _replay_figures(limiter.engine, verdict)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._undo(result)
            raise
        if full is not None:
            yield from self._undo(result)
            return denial_by(full, places[0], verdict.revision)
        if places:
            record_places(verdict)
        if limiter.pressure is not None:
            result.began_ns = limiter.pressure.begin()
        self._add(result, figures)
        return None

    # ---- state -----------------------------------------------------------------------------

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """The checks that allowed the request and have not ended."""
        if self._quick is not None:
            self._expand()
        return self.open_checks

    @property
    def rule_answers(self) -> tuple[RuleAnswer, ...]:
        """The decisions that the response shows."""
        if self._quick is not None:
            self._expand()
        return self._rule_answers

    def _expand(self) -> None:
        """Replace the result of the fast path by that of an ordinary check."""
        quick, self._quick = self._quick, None
        if quick is not None:
            self._add(CheckResult(self.limiter, RequestPlan(quick.plan), quick))

    def _add(self, result: CheckResult, figures: tuple[RuleAnswer, ...] = ()) -> None:
        self.open_checks += (result,)
        planned, verdict = result.planned, result.verdict
        if planned.after and planned.counts_bytes:
            self.counts_bytes = True
        if result.places:
            self.places += result.places
            self._add_queues(result.limiter, planned.plan)
        if shows_replay(verdict):
            self.is_replay = True
        shown = (*rule_answers(verdict), *figures)
        if self._rule_answers:  # two limiters may have limits with one name
            shown = tuple(_renamed(shown, {one.name for one in self._rule_answers}))
        self._rule_answers += shown

    def _add_queues(self, limiter: RequestLimiter, plan: Plan) -> None:
        self.queues += tuple([(limiter.queues, one) for one in plan.queues])

    def _loads(self) -> tuple[Load, ...]:
        return tuple([load for queues, one in self.queues for load in queues.loads(one)])

    def _deny(self, limiter: RequestLimiter, verdict: Verdict) -> Sequence[CheckResult]:
        """Record a denial; the results to undo at once.

        If a part of the app completes the request, the response decides: an app may catch a denial
        and serve the request all the same.
        """
        undone = () if self.is_managed else self._take()
        self.denial = verdict
        self.denial_answers = rule_answers(verdict)
        self._add_queues(limiter, verdict.plan)
        self.jitter = chance()
        return undone

    def _take(self) -> Sequence[CheckResult]:
        """Remove the results, the latest first: each ends once."""
        taken, self.open_checks = self.results[::-1], ()
        return taken

    def report(self, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Set the real cost of the request, by the name of a limit or the id of a rule.

        It is charged at the end of the response, in place of the held cost. *amounts* is for names
        that are no identifiers. The last report counts.
        """
        used = {**(amounts or {}), **named}
        for name, amount in used.items():
            checked_cost(amount, f"what was used of {name!r}")
        self.used = {**self.used, **used}

    def count_unnamed(self, shown: str, count: int = 1) -> int:
        """Add *count* limits without a name that are called *shown*; how many came before."""
        before = self._unnamed.get(shown, 0)
        if count:
            self._unnamed = {**self._unnamed, shown: before + count}
        return before

    def header(self, name: str) -> str | None:
        """The header *name*, one of `READ`, of the request."""
        return self._header.get(name)

    @property
    def is_debugged(self) -> bool:
        """True if the response shows how the request was decided."""
        secret = self.limiter.debug_secret
        if not secret or (token := self.header(TOKEN)) is None:
            return False
        return is_genuine(token, secret, now_ns=self.limiter.now_ns())

    def is_denial(self, status: int) -> bool:
        """True if a response with *status* is that of a denial, which consumes nothing."""
        options = self.limiter.responses
        denying = (429, 414, options.outage_status, options.shed_status)
        return self.denial is not None and status in denying

    # ---- report ----------------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """True if the response has no headers about limits."""
        if self._quick is not None or self._rule_answers or self.denial_answers:
            return False
        return not self.is_replay and not self.queues and not self.is_debugged

    def answer(self, status: int | None = None) -> Answer:
        """The outcome that a response with *status* shows; None: that of the denial.

        If an app answers a denial with a success, the response shows what allowed the request.
        """
        if self.denial is None or (status is not None and status < 400):
            answer = Answer(allowed=True, rules=self.rule_answers, is_replay=self.is_replay)
        else:
            answer = Answer(allowed=False, rules=self.denial_answers, jitter=self.jitter)
        if self.call is not None:
            answer.protocol = self.call.asked.protocol
        if self.queues:
            answer.loads = self._loads()
            answer.delayed_ns = sum(place.waited_ns for place in self.places)
        return answer

    def with_headers(self, lines: Sequence[tuple[str, str]], status: int) -> Lines:
        """The header *lines* of a response with *status*, with those about limits."""
        ours = None if self.is_cross_origin else self.usual_headers()
        if ours is not None:
            for line in lines:
                if line[0].lower() in MERGED:
                    break
            else:
                return [*lines, *text_lines(ours)]
        return self.with_all_headers(lines, status)

    def with_all_headers(self, lines: Sequence[tuple[str, str]], status: int) -> Lines:
        """`with_headers` for any request, and any *lines*."""
        ours = self.header_lines(status)
        if not ours:
            return list(lines)
        everything = merged(lines, ours)
        is_shared = self.is_cross_origin or any(name.lower() == ALLOW_ORIGIN for name, _ in lines)
        return with_exposed(everything, self.limiter.responses) if is_shared else everything

    def header_lines(self, status: int) -> Lines:
        """The headers about limits, for a response with *status*."""
        answer = self.answer(status)
        debug = self._debug_lines(self.limiter)
        if not answer.rules and not answer.loads and not answer.is_replay:
            return debug
        now_ns = _count(self.limiter, answer)
        return headers_for(answer, now_ns=now_ns, options=self.limiter.responses) + debug

    def usual_headers(self) -> Pairs | None:
        """The headers of an allowed request as bytes; None if it needs others."""
        limiter = self.limiter
        if not limiter.has_usual_headers:
            return None
        quick = self._quick
        if quick is not None and not limiter.debug_secret and self.call is None:
            return quick.header_lines(limiter.now_ns())
        if self.denial is not None or self.is_replay or self.queues or self.call is not None:
            return None
        if self.is_debugged:
            return None
        shown = [(one.name, one.decision) for one in self.rule_answers if one.headers == "on"]
        return allowed_lines(shown, limiter.now_ns())

    def denial_response(self, limiter: RequestLimiter) -> DenialResponse:
        """The response to the request, which *limiter* denied."""
        answer, accept = self.answer(), self.header("accept")
        now_ns = _count(limiter, answer)
        response = response_for(answer, now_ns=now_ns, options=limiter.responses, accept=accept)
        lines = list(response.headers)
        if self.is_debugged:
            lines = merged(lines, self._debug_lines(limiter))
        if self.is_cross_origin:
            lines = with_exposed(lines, limiter.responses)
        return replace(response, headers=tuple(lines))

    def _debug_lines(self, limiter: RequestLimiter) -> Lines:
        """The debug header; none without a valid token."""
        if not self.is_debugged:
            return []
        verdicts = [result.verdict for result in self.results]
        if self.denial is not None:
            verdicts.append(self.denial)
        show_key = partial(hashed_key, salt=limiter.debug_salt)
        places = [
            traced_place(queueing, result.verdict.revision, show_key)
            for result in self.results
            if result.places
            for queueing in result.planned.plan.queues
        ]
        return traced_lines(verdicts, show_key, places)

    # ---- complete --------------------------------------------------------------------------

    @property
    def has_end(self) -> bool:
        """True if there is anything to do at the end of the request."""
        if self.denial is not None:
            return bool(self.results)
        for result in self.open_checks:  # noqa: SIM110 (half the time of any())
            if result.has_end:
                return True
        return False

    def complete_now(self, status: int, error: BaseException | None = None) -> bool:
        """Complete as far as no store is needed; True if nothing is left to do."""
        if self.denial is not None:
            return not self.results
        self._quick = None
        while self.open_checks and not self.open_checks[-1].needs_store:
            *rest, last = self.open_checks
            self.open_checks = tuple(rest)
            if last.has_end:
                last.end(CompletedResponse(status, (), error), is_denial=False)
        return not self.open_checks

    def complete(self, response: CompletedResponse) -> Effects[None]:
        """Settle what is held, and release what is occupied. A second call does nothing."""
        if not self.has_end:
            return
        is_denial = self.is_denial(response.status_code)
        ending: list[Effects[Any]] = []
        for result in self._take():
            result.end(response, is_denial=is_denial)
            if is_denial:
                ending.append(result.limiter.engine.undo(result.verdict))
            elif result.needs_store:
                ending.append(self._end(result, response))
        yield from all_of(ending)

    def abandon(self) -> Effects[None]:
        """Give back everything: the client has gone, and the app has not begun."""
        yield from all_of([self._undo(result, _ABANDONED) for result in self._take()])

    def settle_at_start(self, response: CompletedResponse) -> Effects[None]:
        """Settle what depends on the start of the *response* alone."""
        for result in self.results:
            if result.planned.is_known_at_start and result.is_open:
                yield from _settle(result, result.amounts(response, self.used, self.call))

    def _undo(self, result: CheckResult, response: CompletedResponse = _DENIED) -> Effects[None]:
        result.end(response, is_denial=True)
        yield from result.limiter.engine.undo(result.verdict)

    def _end(self, result: CheckResult, response: CompletedResponse) -> Effects[None]:
        engine, verdict = result.limiter.engine, result.verdict
        amounts: Mapping[str, int] = {}
        try:
            if result.is_open:
                amounts = result.amounts(response, self.used, self.call)
        finally:  # if a function of the app raises, the held amount is charged
            try:
                if result.is_open:
                    yield from _settle(result, amounts)
            finally:
                yield from engine.release(verdict)
        if result.planned.after:
            charges = result.late_charges(response, self.used, self.sent)
            left = yield from engine.charge(charges)
            result.limiter.late_charges.record_lost(left)


def all_of(flows: Iterable[Effects[Any]]) -> Effects[None]:
    """Run all *flows*, one after the other; then raise the first error."""
    first: BaseException | None = None
    for flow in flows:
        try:
            yield from flow
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 (raised below)
            first = first or error
    if first is not None:
        raise first


def announced_size(headers: Iterable[tuple[str, str]]) -> int | None:
    """The `Content-Length` of a response; None if it has none."""
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    return int(lengths[0]) if len(lengths) == 1 and _LENGTH.fullmatch(lengths[0]) else None


def _renamed(shown: Iterable[RuleAnswer], taken: set[str]) -> Iterator[RuleAnswer]:
    for one in shown:
        name = free_name(one.name, taken)
        taken.add(name)
        yield replace(one, name=name)


def _replay_figures(engine: Engine, verdict: Verdict) -> Effects[tuple[RuleAnswer, ...]]:
    """The figures of the rules under which a request is a free retry: the check left them out."""
    pairs = zip(verdict.plan.rules, verdict.decisions, strict=True)
    rules = [one for one, decision in pairs if decision is None and not one.has_slots]
    free = [
        replace(one, marker=None, checks=tuple(replace(check, cost=0) for check in one.checks))
        for one in rules
        if one.rule.headers in ("on", "brief")
    ]
    try:
        peeked = yield from engine.peek(Plan(verdict.revision, tuple(free)))
    except StoreError:
        return ()
    return rule_answers(peeked)


def _settle(result: CheckResult, amounts: Mapping[str, int]) -> Effects[None]:
    with suppress(StoreError):  # the hold expires
        yield from result.limiter.engine.settle(result.verdict, amounts)


def with_exposed(lines: Lines, options: ResponseOptions) -> Lines:
    """*lines* with ours in `Access-Control-Expose-Headers`, beside the names that are there.

    Added for every request with an `Origin`: another layer, further out perhaps, decides if other
    origins may read the response at all.
    """
    exposing = [value for name, value in lines if name.lower() == EXPOSE.lower()]
    named = [word.strip() for value in exposing for word in value.split(",") if word.strip()]
    known = {word.lower() for word in named}
    sent = {name.lower() for name, _ in lines}
    ours = [name for name in (*expose_headers(options), DECISION) if name.lower() in sent]
    added = [name for name in ours if name.lower() not in known]
    if not added:
        return lines
    rest = [(name, value) for name, value in lines if name.lower() != EXPOSE.lower()]
    return [*rest, (EXPOSE, ", ".join(named + added))]


def _count(limiter: RequestLimiter, answer: Answer) -> int:
    """Count an allowed request in the load for balancers; the time.

    Denials are not counted: a process that denies quickly would be sent more.
    """
    now_ns = limiter.now_ns()
    if answer.loads and limiter.responses.orca:
        if answer.allowed:
            limiter.throughput.add(now_ns)
        answer.requests_per_second = limiter.throughput.per_second(now_ns)
    return now_ns
