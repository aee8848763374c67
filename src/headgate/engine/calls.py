"""Decide a call of several parts: limits that are charged, looked at, reported to or refunded.

The parts that decide are one take, all or nothing. Each shadow is a take of its own beside it;
reports and refunds are recorded beside that. A part that is closed or blocked denies the call, and
all others are then only looked at.

Two round trips are needed where something has to be known before anything may be charged:

- a call that looks at some limits, or reports, and charges others: what is looked at, or used up by
  the report, must not deny after the others have been charged;
- quotas, of which one that has room is enough: only those that have are charged;
- a report to a hidden shadow. The request passed though the rule may have denied it, and then would
  have cost nothing: if nothing is left there, nothing is recorded. Otherwise its debt would grow
  without end, and be there on the day that the rule is enforced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from headgate.algorithms import Outcome
from headgate.decision import Decision, combine, decide_blocked
from headgate.engine.plan import Plan
from headgate.engine.recorder import record
from headgate.engine.use_cases import Calls, rule_checks
from headgate.engine.verdict import Verdict
from headgate.errors import StoreError
from headgate.limits import SlidingWindowCounter
from headgate.observability.decision_recorder import read_timer
from headgate.runtime.effects import Interrupted, RunAll
from headgate.runtime.local_share import ELSEWHERE
from headgate.stores.base import conclude, concluded
from headgate.stores.operations import Charge, Check, Operation, Refund, Take, TakeEach
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.engine.plan import RulePlan
    from headgate.engine.use_cases import Engine
    from headgate.limits import Limit
    from headgate.runtime.effects import Effects
    from headgate.runtime.local_share import RuleChecks
    from headgate.stores.operations import Outcomes

Verb = Literal["take", "look", "report", "refund"]
"""Charge if it fits; see whether one would fit; record in full; give back."""

Role = Literal["decides", "quota", "shadow", "hidden"]
"""Denies a call; denies it only together with all other quotas; never denies, but is shown; never
denies, and is not shown."""

CLOSED: Final = "rule"
"""The source of the denial by a limit of 0."""

Places = tuple[int, ...]
"""Parts, by their places in the call."""


class Part(NamedTuple):
    """A limit that a call has to pass, as *planned*. The answer calls it *name* and *title*."""

    planned: RulePlan
    verb: Verb = "take"
    role: Role = "decides"
    name: str = ""
    title: str = ""
    closed: str | None = None
    """The unit of a limit of 0, which has no counter."""
    allows_full: bool = False
    """True if a look denies only beyond the limit, not when it is just used up."""

    @property
    def is_question(self) -> bool:
        """True if it asks for something, rather than reporting it."""
        return self.verb in ("take", "look")

    @property
    def is_denied(self) -> bool:
        """True if it needs no call to the store."""
        return self.closed is not None or (self.planned.block is not None and self.is_question)

    def at_once(self) -> Decision | None:
        """The decision on it without the store; None if the store has to be called."""
        planned = self.planned
        if self.closed is not None:
            figures = Outcome(self.verb == "refund", 0, None, 0, source=CLOSED)
            return concluded(planned.key, planned.limits[0], figures)
        if planned.block is None or not self.is_question:
            return None
        pairs = [(check.key, check.limit) for check in planned.checks]
        return decide_blocked(planned.block.wait_ns, pairs, planned.block.source)

    def concluded(self, outcomes: Outcomes) -> Decision:
        """The decision that the *outcomes* of its checks make together."""
        checks = self.planned.checks
        if self.is_question and not (self.allows_full and self.verb == "look"):
            return conclude(checks, outcomes)
        pairs = zip(checks, outcomes, strict=True)
        is_refund = self.verb == "refund"
        return combine([_recorded(check, one, is_refund=is_refund) for check, one in pairs])


class CallPlan:
    """The *parts* of a call, under the policy of *revision*. A call may be decided many times.

    With *each_alone* each part is charged, whatever the others decide, and one that denies is
    filled up. *plan* is the one of the takes among the parts, if it exists already.
    """

    __slots__ = ("_steps", "each_alone", "is_plain", "parts", "plan")

    def __init__(
        self,
        revision: int,
        parts: tuple[Part, ...],
        *,
        each_alone: bool = False,
        plan: Plan | None = None,
    ) -> None:
        self.parts = parts
        self.each_alone = each_alone
        if plan is None:
            plan = Plan(revision, tuple([one.planned for one in parts if one.verb == "take"]))
        self.plan = plan
        self.is_plain = plan.is_plain and self._is_one_take()
        """True if `Engine.decide` on the plan is all there is to do."""
        self._steps: Steps | None = None

    @property
    def steps(self) -> Steps:
        """The parts by their verbs and roles."""
        if self._steps is None:
            self._steps = Steps(self.parts, each_alone=self.each_alone)
        return self._steps

    def _is_one_take(self) -> bool:
        parts = self.parts
        for one in parts:
            if one.verb != "take" or one.role == "quota" or one.closed is not None:
                return False
        if self.each_alone:  # a limit that denies one unit has nothing left to fill up
            return len(parts) == 1 and parts[0].role == "decides" and parts[0].planned.cost == 1
        return len(parts) <= 1 or len({one.planned.rule.id for one in parts}) == len(parts)


def is_allowed(parts: Sequence[Part], decisions: Sequence[Decision]) -> bool:
    """True if a call is allowed: no part that decides denies, and not all quotas do."""
    quotas = allowed = 0
    for part, decision in zip(parts, decisions, strict=True):
        if part.role == "quota":
            quotas += 1
            allowed += decision.allowed
        elif part.role == "decides" and not decision.allowed:
            return False
    return allowed > 0 or not quotas


class DecidedCall(Protocol):
    """The decisions on the parts of a call, none of which is None."""

    @property
    def decisions(self) -> Sequence[Any]: ...


def decide_call_now(engine: Engine, call: CallPlan) -> DecidedCall | None:
    """Decide *call* at once; None if it needs `decide_call`."""
    return engine.decide_now(call.plan) if call.is_plain else None


def decide_call(engine: Engine, call: CallPlan) -> Effects[DecidedCall]:
    """Decide *call*.

    Raises `StoreError` if the store is gone and a rule is to raise then.
    """
    return engine.decide(call.plan) if call.is_plain else _Deciding(engine, call).decide()


def went_beyond(limit: Limit, outcome: Outcome) -> bool:
    """True if more is recorded than *limit* holds, by the *outcome* for one more.

    A limit that is just full is as new after its period; with debt it takes longer. Only a sliding
    counter cannot tell: it counts a full one as one beyond. (Stores may round to microseconds.)
    """
    if outcome.allowed:
        return False
    if isinstance(limit, SlidingWindowCounter):
        return True
    return outcome.reset_after_ns >= limit.period_ns + MICROSECOND


# The steps of a call: operations of one round trip, and the parts that they decide. No I/O.


class Step(NamedTuple):
    """Operations of one round trip: takes that consume, looks, reports and refunds.

    The parts of one entry in *takes* are taken together, all or none.
    """

    takes: tuple[Places, ...] = ()
    looks: tuple[Places, ...] = ()
    reports: Places = ()
    refunds: Places = ()

    def operations(self, parts: Sequence[Part]) -> list[Operation[Any]]:
        """The operations, which are independent of each other."""
        takes = [Take(_checks(parts, one)) for one in self.takes]
        takes += [Take(_checks(parts, one), consume=False) for one in self.looks]
        operations: list[Operation[Any]] = [TakeEach(tuple(takes))] if takes else []
        if self.reports:
            operations.append(Charge(_checks(parts, self.reports)))
        if self.refunds:
            operations.append(Refund(_checks(parts, self.refunds)))
        return operations

    def replied(self, replies: Sequence[Any]) -> list[tuple[Places, Outcomes | StoreError]]:
        """The reply to each set of parts, from those to the operations."""
        left = list(replies)
        found: list[tuple[Places, Outcomes | StoreError]] = []
        if takes := (*self.takes, *self.looks):
            reply = left.pop(0)
            each = [reply] * len(takes) if isinstance(reply, StoreError) else reply
            found += zip(takes, each, strict=True)
        found += zip([one for one in (self.reports, self.refunds) if one], left, strict=True)
        return found


class Steps:
    """The *parts* of a call by their verbs and roles."""

    __slots__ = (
        "first",
        "first_operations",
        "hidden_reports",
        "is_denied",
        "looks",
        "quotas",
        "refunds",
        "reports",
        "shadows",
        "takers",
        "takes",
    )

    def __init__(self, parts: Sequence[Part], *, each_alone: bool) -> None:
        left = [(n, part.verb, part.role) for n, part in enumerate(parts) if not part.is_denied]
        reports = [(n, role) for n, verb, role in left if verb == "report"]
        self.reports = tuple([n for n, role in reports if role != "hidden"])
        self.hidden_reports = tuple([n for n, role in reports if role == "hidden"])
        self.refunds = tuple([n for n, verb, _ in left if verb == "refund"])
        self.looks = tuple([n for n, verb, _ in left if verb == "look"])
        takers = [(n, role) for n, verb, role in left if verb == "take"]
        self.takers = tuple([n for n, _ in takers])
        self.takes = tuple([n for n, role in takers if role == "decides"])
        self.quotas = tuple([n for n, role in takers if role == "quota"])
        self.shadows = tuple([n for n, role in takers if role in ("shadow", "hidden")])
        self.is_denied = any(
            part.is_denied and part.is_question and part.role == "decides" for part in parts
        )
        self.first = self._first(each_alone=each_alone)
        """The first step; the only one of most calls."""
        self.first_operations = self.first.operations(parts)

    @property
    def needs_more(self) -> bool:
        """True if something is to be known before anything may be charged."""
        return bool(self.looks or self.quotas or (self.reports and self.takes))

    def _first(self, *, each_alone: bool) -> Step:
        takes: list[Places] = []
        looks: list[Places] = [(n,) for n in (*self.looks, *self.hidden_reports)]
        if each_alone:
            takes += [(n,) for n in self.takers]
        else:
            looks += [(n,) for n in self.quotas]
            (looks if self.is_denied else takes).extend([(n,) for n in self.shadows])
            if self.takes:
                (looks if self.is_denied or self.needs_more else takes).append(self.takes)
        return Step(tuple(takes), tuple(looks), self.reports, self.refunds)


class _Deciding:
    """The use case `decide_call` while it runs."""

    def __init__(self, engine: Engine, call: CallPlan) -> None:
        self._engine = engine
        self._call = call
        self._calls = Calls(engine.store)
        self._parts = call.parts
        self._steps = call.steps
        self._here: set[int] = set()  # parts that were decided without the store
        self.decisions: list[Any] = [one.at_once() for one in self._parts]

    def decide(self) -> Effects[_Deciding]:
        began_ns = read_timer()
        steps, call = self._steps, self._call
        if steps.first_operations:
            yield from self._perform(
                steps.first, steps.first_operations, is_open=not steps.is_denied
            )
        if steps.hidden_reports:
            yield from self._record_hidden()
        if call.each_alone:
            yield from self._fill_up()
        elif steps.needs_more and not steps.is_denied:
            yield from self._take_what_fits()
        if self._calls.is_interrupted:
            yield from self._undo()
            self._calls.end()
        if call.plan.rules:
            pairs = zip(call.parts, self.decisions, strict=True)
            taken = [one for part, one in pairs if part.verb == "take"]  # others decide nothing
            record(Verdict(call.plan, taken, is_allowed(call.parts, self.decisions)), began_ns)
        return self

    def _perform(
        self, step: Step, operations: Sequence[Operation[Any]], *, is_open: bool = True
    ) -> Effects[None]:
        replies = yield from self._replies(operations)
        silent: list[int] = []
        errors: list[StoreError] = []
        for places, reply in step.replied(replies):
            if isinstance(reply, StoreError):
                silent += places
                errors.append(reply)
            else:
                self._conclude(places, reply)
        if not silent:
            pairs = zip(self._parts, self.decisions, strict=True)
            self._engine.succeed((part.planned, one) for part, one in pairs if one is not None)
            return
        # Of several errors one that leaves open whether something was done.
        error = min(errors, key=lambda one: one.is_undone)
        self._here.update(silent)
        self._decide_here(sorted(silent), error, is_open=is_open)

    def _replies(self, operations: Sequence[Operation[Any]]) -> Effects[Sequence[Any]]:
        """The reply to each of *operations*, or the error in place of it."""
        if len(operations) > 1:
            try:
                replies: list[Any] = yield RunAll(self._engine.store, operations)
            except Interrupted as interrupted:
                replies = self._calls.keep(interrupted)
            return replies
        (operation,) = operations
        try:
            if isinstance(operation, TakeEach):
                return ((yield from self._calls.take_each(operation.takes)),)
            return ((yield from self._calls.run(operation)),)
        except StoreError as error:
            return (error,)

    def _conclude(self, places: Places, outcomes: Outcomes) -> None:
        start = 0
        for place in places:
            part = self._parts[place]
            end = start + len(part.planned.checks)
            self.decisions[place] = part.concluded(outcomes[start:end])
            start = end

    def _record_hidden(self) -> Effects[None]:
        """Record reports to hidden shadows, as far as they have something left."""
        checked = [n for n in self._steps.hidden_reports if n not in self._here]
        places = tuple([n for n in checked if self.decisions[n].remaining])
        if not places:
            return
        (reply,) = yield from self._replies(Step(reports=places).operations(self._parts))
        if not isinstance(reply, StoreError):
            self._conclude(places, reply)

    def _take_what_fits(self) -> Effects[None]:
        """Charge, now that the call is known to be allowed, what the store decides.

        Should a quota be used up meanwhile, the others are taken again without it.
        """
        decisions = self.decisions
        while is_allowed(self._parts, decisions):
            fitting = [n for n in self._steps.quotas if decisions[n].allowed]
            places = tuple([n for n in (*self._steps.takes, *fitting) if n not in self._here])
            if not places:
                return
            step = Step((places,))
            yield from self._perform(step, step.operations(self._parts))
            if not self._here.isdisjoint(places) or all(decisions[n].allowed for n in places):
                return

    def _fill_up(self) -> Effects[None]:
        """Charge parts that deny what is left there, as if they had been counted in full."""
        takes = []
        for place in self._steps.takers:
            decision = self.decisions[place]
            if decision.allowed or decision.source in ELSEWHERE:
                continue
            if decision.remaining:
                (check,) = self._parts[place].planned.checks
                takes.append(Take((check.with_cost(decision.remaining),)))
            self.decisions[place] = decision._replace(remaining=0)
        if takes:
            yield from self._calls.try_all([TakeEach(tuple(takes))])

    def _undo(self) -> Effects[None]:
        """Give back all that an interrupted caller was charged; reports and refunds stay."""
        call, decisions = self._call, self.decisions
        is_charged = call.each_alone or is_allowed(self._parts, decisions)
        for n in self._steps.takers:
            part = self._parts[n]
            is_shadow = part.role in ("shadow", "hidden")
            if decisions[n].allowed and (is_charged or is_shadow) and not self._steps.is_denied:
                plan = Plan(call.plan.revision, (part.planned,))
                yield from self._engine.undo(Verdict(plan, (decisions[n],), allowed=True))

    # ---- without the store -----------------------------------------------------------------

    def _decide_here(self, silent: Sequence[int], error: StoreError, *, is_open: bool) -> None:
        """Decide the parts in *silent* in this process, as the store has raised *error*.

        All or nothing: if another part denies, these are only looked at.
        """
        parts, decisions, fallback = self._parts, self.decisions, self._engine.fallback
        rules = {n: rule_checks(parts[n].planned) for n in silent}
        fallback.raise_if_required(rules.values(), error)
        others = [n for n in range(len(parts)) if n not in rules]
        is_open = is_open and not any(self._keeps_others(n) for n in others)
        for n in silent:
            if parts[n].verb == "report":
                charged = fallback.charge(rules[n], error, is_counted=False)
                decisions[n] = _recorded_here(charged, is_refund=False)
            elif parts[n].verb == "refund":
                refunded = fallback.refund(rules[n], error, is_counted=False)
                decisions[n] = _recorded_here(refunded, is_refund=True)
            elif parts[n].verb == "look":
                self._take_here([n], rules, error, consume=False)
                is_open = is_open and not self._keeps_others(n)
        takers = [n for n in silent if parts[n].verb == "take"]
        together = [n for n in takers if parts[n].role == "decides"]
        self._take_here(together, rules, error, consume=is_open)
        is_open = is_open and all(decisions[n].allowed for n in together)
        for n in takers:
            if parts[n].role != "decides":
                self._take_here([n], rules, error, consume=is_open)
        # The call counts once: by what decides it, or else by what is recorded.
        binding = [n for n in silent if parts[n].role in ("decides", "quota")] or silent
        fallback.count_request([rules[n] for n in binding], [decisions[n] for n in binding])

    def _take_here(
        self, places: list[int], rules: dict[int, RuleChecks], error: StoreError, *, consume: bool
    ) -> None:
        fallback = self._engine.fallback
        together = [rules[n] for n in places]
        decided = fallback.decide(together, error, consume=consume, is_counted=False)
        for n, decision in zip(places, decided, strict=True):
            self.decisions[n] = decision

    def _keeps_others(self, place: int) -> bool:
        """True if a part keeps the others from being charged."""
        part, decision = self._parts[place], self.decisions[place]
        if part.role != "decides" or not part.is_question or decision is None:
            return False
        return not decision.allowed


def _checks(parts: Sequence[Part], places: Places) -> tuple[Check, ...]:
    return tuple([check for place in places for check in parts[place].planned.checks])


def _recorded(check: Check, outcome: Outcome, *, is_refund: bool) -> Decision:
    """The figures after an amount was recorded or given back, which denies only beyond a limit."""
    if is_refund or not went_beyond(check.limit, outcome):
        outcome = outcome._replace(allowed=True, retry_after_ns=0)
    return concluded(check.key, check.limit, outcome)


def _recorded_here(decision: Decision, *, is_refund: bool) -> Decision:
    """The same after it was done in this process."""
    if decision.source == "fail_closed":
        return decision
    found = []
    for one in decision.limits:
        figures = Outcome(one.allowed, one.remaining, one.retry_after_ns, one.reset_after_ns)
        if not is_refund and went_beyond(one.limit, figures):
            found.append(one._replace(allowed=False))
        else:
            source = "fail_open" if one.source == "fallback" else one.source
            found.append(one._replace(allowed=True, retry_after_ns=0, source=source))
    return combine(found)
