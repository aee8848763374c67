"""Verdicts: the decision on a request, and that of each of its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headgate.decision import combine, decide, decide_blocked, decide_without_store
from headgate.engine.holds import Once
from headgate.errors import StoreError
from headgate.responses import Answer, Told
from headgate.runtime.fallback import ELSEWHERE
from headgate.stores.base import concluded
from headgate.stores.operations import Outcomes
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headgate.decision import Decision
    from headgate.engine.holds import Held
    from headgate.engine.plan import Plan, RulePlan
    from headgate.engine.rule import CompiledRule
    from headgate.stores.operations import ReleaseSlot


@dataclass(slots=True)
class RuleVerdict:
    """The decision of one rule on a request of *cost*, counted under *key*.

    Never changed. (Not frozen: one is made for every request, and that would triple the time.)
    """

    rule: CompiledRule
    key: str
    cost: int
    decision: Decision

    @property
    def is_shadow(self) -> bool:
        """True if the rule only reports what it would have decided."""
        return self.rule.mode == "shadow"


@dataclass(slots=True)
class Verdict:
    """The decision on a request under the policy of *revision*: true when it is allowed.

    *rules* are all that matched and apply, in the order of the policy. *is_replay* says that
    it repeats a request that had been charged before under rules that are not among them therefore.
    *slots* is what gives back the slots that it holds under concurrency limits; None if it holds
    none. (*local_slots* is the same for those that this process granted while the store was gone.)
    *held* is what is to be settled when the cost is known. *plan* is what was asked. *since_ns* is
    when its slots were granted.
    """

    allowed: bool
    revision: int
    rules: tuple[RuleVerdict, ...] = ()
    is_replay: bool = False
    slots: ReleaseSlot | None = None
    local_slots: ReleaseSlot | None = None
    held: Held | None = None
    plan: Plan | None = field(default=None, repr=False, compare=False)
    since_ns: int = field(default=0, repr=False, compare=False)
    _once: dict[str, Once] = field(default_factory=dict, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def undone(self) -> Once:
        """The guard of a refund: it is made once."""
        return self._once.setdefault("undone", Once())

    @property
    def vacated(self) -> Once:
        """The guard of giving up places in queues: a second time could take those of others."""
        return self._once.setdefault("vacated", Once())

    @property
    def enforced(self) -> tuple[RuleVerdict, ...]:
        """The decisions of the rules that decide."""
        return tuple([one for one in self.rules if one.rule.mode != "shadow"])

    @property
    def would_deny(self) -> tuple[RuleVerdict, ...]:
        """The decisions of the shadow rules that would have denied."""
        return tuple([one for one in self.rules if one.is_shadow and not one.decision.allowed])

    @property
    def decision(self) -> Decision | None:
        """The decisions of all rules that decide, as one; None if there is no such rule."""
        parts = [part for one in self.enforced for part in one.decision.limits]
        return combine(parts) if parts else None

    @property
    def denied_by(self) -> RuleVerdict | None:
        """The rule that denied; of several the one with the longest wait. None if allowed."""
        if self.allowed:
            return None
        refusals = [one for one in self.enforced if not one.decision.allowed]
        never = [one for one in refusals if one.decision.retry_after_ns is None]
        return (
            never[0] if never else max(refusals, key=lambda one: one.decision.retry_after_ns or 0)
        )

    @property
    def retry_after_ns(self) -> int | None:
        """Nanoseconds until the same request would be allowed; 0 if it was, None if never."""
        binding = self.denied_by
        return 0 if binding is None else binding.decision.retry_after_ns

    @property
    def retry_after(self) -> float | None:
        """The same in seconds."""
        wait = self.retry_after_ns
        return None if wait is None else seconds_at_least(wait)

    @property
    def is_estimate(self) -> bool:
        """True if `retry_after` is an estimate, as that of a concurrency limit."""
        binding = self.denied_by
        return binding is not None and binding.decision.is_estimate

    @property
    def slots_last_ns(self) -> int | None:
        """The nanoseconds until its slots expire unless they are renewed; None if it has none."""
        if self.slots is None and self.local_slots is None:
            return None
        held = [*(self.slots.checks if self.slots else ())]
        held += self.local_slots.checks if self.local_slots else ()
        return min((check.limit.period_ns for check in held), default=None)

    @property
    def delay_ns(self) -> int:
        """Nanoseconds that an allowed request has to wait for its place in a queue."""
        if not self.allowed:
            return 0
        longest = 0
        for one in self.rules:
            if one.rule.mode != "shadow" and (delay := one.decision.delay_ns) > longest:
                longest = delay
        return longest

    @property
    def delay(self) -> float:
        """The same in seconds."""
        return seconds_at_least(self.delay_ns)

    @property
    def source(self) -> str:
        """The source of the decision: `store`, or its substitute in the rule that binds."""
        binding = self.denied_by
        if binding is not None:
            return binding.decision.source
        others = {one.decision.source for one in self.enforced} - {"store"}
        return min(others) if others else "store"


def answer_of(verdict: Verdict, *, jitter: float = 0.0) -> Answer:
    """The answer for `headgate.responses`: the rules that decide, never shadow rules.

    *jitter*, from 0 to 1, is the part of the permitted extra wait that this caller gets.
    """
    return Answer(verdict.allowed, told_of(verdict), jitter, is_replay=tells_replay(verdict))


def tells_replay(verdict: Verdict) -> bool:
    """True if the response says that the request is a free retry: a rule under which it is one
    does not hide that."""
    if not verdict.is_replay or verdict.plan is None:
        return False
    spoken = {one.rule.id for one in verdict.rules}
    silent = [one.rule for one in verdict.plan.deciding if one.rule.id not in spoken]
    return any(rule.headers in ("on", "brief") for rule in silent)


def told_of(verdict: Verdict) -> tuple[Told, ...]:
    """The answer of each rule that decides."""
    shedding: Collection[str] = ()
    if not verdict.allowed and verdict.plan is not None:
        shedding = {one.rule.id for one in verdict.plan.rules if one.sheds}
    told = []
    for one in verdict.rules:
        rule = one.rule
        if rule.mode != "shadow":
            told.append(Told(rule.id, one.decision, rule.headers, rule.id in shedding))
    return tuple(told)


Replies = Sequence[Outcomes | StoreError]

_new: Final = object.__new__


def verdict_of(
    plan: Plan, replies: Replies, *, consumed: bool = True, without: Collection[str] = ()
) -> Verdict:
    """The verdict on a request from the *replies* to its plan's operation.

    *without* are the rules under which it is a free retry: they have no say. Raises the
    `StoreError` that came in place of what the deciding rules say.
    """
    deciding = [one for one in plan.deciding if one.rule.id not in without]
    left = list(replies)
    decisions: dict[str, Decision] = {}
    if plan.deciding:
        decided = left.pop(0)
        if isinstance(decided, StoreError):
            raise decided
        decisions = _split(deciding, decided)
    for one, reply in zip(plan.shadows, left, strict=True):
        if isinstance(reply, StoreError):
            decisions[one.rule.id] = _without_store(one)
        elif one.rule.id not in without:
            decisions[one.rule.id] = _concluded(one, reply[: len(one.checks)])
    for one in plan.blocked:
        decisions[one.rule.id] = _blocked(one)
    verdict = _verdict(plan, decisions, is_replay=len(deciding) < len(plan.deciding))
    if plan.lease is None or not consumed:
        return verdict
    granted = [one for one in deciding if verdict.allowed]
    granted += [one for one in plan.shadows if _is_granted(decisions.get(one.rule.id))]
    return replace(verdict, slots=plan.leaving(granted))


def verdict_unasked(plan: Plan) -> Verdict | None:
    """The verdict on a request for which the store need not be asked; None if it must be.

    That is if nothing applies, or if the counter of a rule that decides is blocked: then only what
    is blocked has a say, and nothing is charged.
    """
    if (plan.deciding or plan.shadows) and not plan.is_refused:
        return None
    decisions = {one.rule.id: _blocked(one) for one in plan.blocked}
    return _verdict(plan, decisions, is_replay=False)


def verdict_on(plan: Plan, outcomes: Outcomes, shadows: Replies = ()) -> Verdict:
    """The verdict on a plain plan, from the *outcomes* of the checks of the rules that decide, in
    their order, and the reply to each shadow rule."""
    rules = []
    allowed = True
    place = shadow = 0
    for one in plan.rules:
        if one.rule.mode == "shadow":
            reply = shadows[shadow]
            shadow += 1
            if isinstance(reply, StoreError):
                decision = _without_store(one)
            else:
                decision = decide(one.key, one.limits, reply)
        else:
            end = place + len(one.limits)
            decision = decide(one.key, one.limits, outcomes[place:end])
            place = end
            if not decision.allowed:
                allowed = False
        rules.append(_rule_verdict(one, decision))
    return _verdict_at_once(plan, tuple(rules), allowed=allowed)


def single_verdict(plan: Plan, decision: Decision) -> Verdict:
    """The verdict on a plain plan with one rule, from its decision."""
    rule = _rule_verdict(plan.rules[0], decision)
    return _verdict_at_once(plan, (rule,), allowed=decision.allowed)


def _rule_verdict(one: RulePlan, decision: Decision) -> RuleVerdict:
    # Filled in by hand, as an `__init__` takes longer than all that it does; the next one too.
    made = _new(RuleVerdict)
    made.rule, made.key, made.cost, made.decision = one.rule, one.key, one.cost, decision
    return made


def _verdict_at_once(plan: Plan, rules: tuple[RuleVerdict, ...], *, allowed: bool) -> Verdict:
    verdict = _new(Verdict)
    verdict.allowed, verdict.revision, verdict.rules = allowed, plan.revision, rules
    verdict.plan, verdict.is_replay, verdict.since_ns = plan, False, 0
    verdict.slots = verdict.local_slots = verdict.held = None
    verdict._once = {}  # noqa: SLF001
    return verdict


def verdict_without_store(plan: Plan, decided: Mapping[str, Decision]) -> Verdict:
    """The verdict when the store could not decide: *decided* has the decisions of the rules that
    decide, by id. Shadow rules were not counted."""
    decisions = {one.rule.id: _without_store(one) for one in plan.rules}
    decisions.update(decided)
    return _verdict(plan, decisions, is_replay=False)


def _split(deciding: Sequence[RulePlan], outcomes: Outcomes) -> dict[str, Decision]:
    """The decision of each rule that decides."""
    place = 0
    decisions = {}
    for one in deciding:
        decisions[one.rule.id] = _concluded(one, outcomes[place : place + len(one.checks)])
        place += len(one.checks)
    return decisions


def _concluded(one: RulePlan, outcomes: Outcomes) -> Decision:
    """The decision of a rule by its outcomes."""
    pairs = zip(one.checks, outcomes, strict=True)
    return combine([concluded(check.key, check.limit, said) for check, said in pairs])


def _is_granted(decision: Decision | None) -> bool:
    return decision is not None and decision.allowed and decision.source not in ELSEWHERE


def _blocked(one: RulePlan) -> Decision:
    wait_ns = 0 if one.block is None else one.block.wait_ns
    return decide_blocked(wait_ns, [(check.key, check.limit) for check in one.checks])


def _without_store(one: RulePlan) -> Decision:
    if one.block is not None:
        return _blocked(one)
    policy = one.rule.on_failure.mode
    asked = [(check.key, check.limit) for check in one.checks]
    return decide_without_store("fail_closed" if policy == "fail_closed" else "fail_open", asked)


def _verdict(plan: Plan, decisions: Mapping[str, Decision], *, is_replay: bool) -> Verdict:
    """The verdict that *decisions*, by rule, make together."""
    rules = tuple(
        [
            RuleVerdict(one.rule, one.key, one.cost, decisions[one.rule.id])
            for one in plan.rules
            if one.rule.id in decisions
        ]
    )
    allowed = all(one.decision.allowed for one in rules if not one.is_shadow)
    return Verdict(allowed, plan.revision, rules, is_replay, plan=plan)
