"""Verdicts: the decision on a request, and that of each of its rules."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.decision import combine, decide, decide_blocked, decide_without_store
from headgate.engine.plan import Block
from headgate.errors import StoreError
from headgate.responses import Answer, RuleAnswer, allowed_lines
from headgate.runtime.local_share import ELSEWHERE, HERE
from headgate.stores.base import conclude
from headgate.stores.operations import Outcomes
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.decision import Decision
    from headgate.engine.holds import Held
    from headgate.engine.plan import CompiledRule, Plan, RulePlan
    from headgate.responses.headers import Pairs
    from headgate.stores.operations import ReleaseSlot


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """The decision of one rule on a request of *cost*, counted under *key*."""

    rule: CompiledRule
    key: str
    cost: int
    decision: Decision

    @property
    def is_shadow(self) -> bool:
        """True if the rule only reports what it would have decided."""
        return self.rule.mode == "shadow"


class Verdict:
    """The decision on the request of *plan*: true when it is allowed.

    *decisions* has that of each rule of the plan, in their order; None if the rule has no say: the
    request is a free retry under it, or another rule is blocked.
    """

    # Defaults are those of the class, without slots: few requests change them.
    is_replay = False
    """True if a rule has no say because it charged the same request before."""
    slots: ReleaseSlot | None = None
    """The operation that releases its slots under concurrency limits."""
    local_slots: ReleaseSlot | None = None
    """The same for slots that this process granted while the store was gone."""
    since_ns = 0
    """The time when its slots were granted."""
    held: Held | None = None
    """The amounts to settle when the cost is known."""

    def __init__(
        self,
        plan: Plan,
        decisions: Sequence[Decision | None],
        allowed: bool,  # noqa: FBT001 (by name it takes twice the time)
    ) -> None:
        self.plan = plan
        self.decisions = decisions
        self.allowed = allowed

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return f"Verdict(allowed={self.allowed}, revision={self.revision}, rules={self.rules})"

    def is_first(self, what: str) -> bool:
        """True for the first caller that does *what*, a word; by one thread, if several try."""
        caller = object()
        return self.__dict__.setdefault(f"_{what}_by", caller) is caller

    def with_decisions(self, decisions: Sequence[Decision | None], *, allowed: bool) -> Verdict:
        """A copy with other *decisions*."""
        changed = copy(self)
        changed.decisions, changed.allowed = decisions, allowed
        return changed

    @property
    def revision(self) -> int:
        """The revision of the policy; 0 without one."""
        return self.plan.revision

    @property
    def pairs(self) -> list[tuple[RulePlan, Decision]]:
        """The rules that have a say, in the order of the policy, with their decisions."""
        pairs = zip(self.plan.rules, self.decisions, strict=True)
        # No generator: an interrupt that comes as one is closed is only printed.
        return [(one, decision) for one, decision in pairs if decision is not None]

    @property
    def rules(self) -> tuple[RuleVerdict, ...]:
        """The rules that have a say, in the order of the policy."""
        return tuple([RuleVerdict(one.rule, one.key, one.cost, own) for one, own in self.pairs])

    def header_lines(self, now_ns: int) -> Pairs | None:
        """The usual families of headers of an allowed request; None if there is more to say."""
        template = self.plan.template
        if template is not None:
            only = self.decisions[0]
            if only is not None and only.source not in ELSEWHERE:
                return template.lines(only, now_ns)
        return allowed_lines(
            [(one.rule.id, decision) for one, decision in self.pairs if one.is_shown], now_ns
        )

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
        denials = [one for one in self.enforced if not one.decision.allowed]
        never = [one for one in denials if one.decision.retry_after_ns is None]
        return never[0] if never else max(denials, key=lambda one: one.decision.retry_after_ns or 0)

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
        held = [slots for slots in (self.slots, self.local_slots) if slots is not None]
        times_ns = [check.limit.period_ns for slots in held for check in slots.checks]
        return min(times_ns, default=None)

    @property
    def delay_ns(self) -> int:
        """Nanoseconds that an allowed request has to wait for its place in a queue."""
        if not self.allowed:
            return 0
        longest_ns = 0
        for one, own in zip(self.plan.rules, self.decisions, strict=True):
            if own is not None and own.delay_ns > longest_ns and one.rule.mode != "shadow":
                longest_ns = own.delay_ns
        return longest_ns

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
    return Answer(verdict.allowed, rule_answers(verdict), jitter, is_replay=shows_replay(verdict))


def shows_replay(verdict: Verdict) -> bool:
    """True if the response shows that the request is a free retry: a rule under which it is one
    does not hide that."""
    pairs = zip(verdict.plan.rules, verdict.decisions, strict=True)
    silent = [
        one.rule for one, decision in pairs if decision is None and one.rule.mode == "enforce"
    ]
    return verdict.is_replay and any(rule.headers in ("on", "brief") for rule in silent)


def rule_answers(verdict: Verdict) -> tuple[RuleAnswer, ...]:
    """The answer of each rule that decides."""
    return tuple(
        [
            RuleAnswer(
                one.rule.id,
                decision,
                one.rule.headers,
                one.sheds and not verdict.allowed,
                one.rule.counts,
            )
            for one, decision in verdict.pairs
            if one.rule.mode != "shadow"
        ]
    )


Replies = Sequence[Outcomes | StoreError]


def verdict_of(
    plan: Plan, replies: Replies, *, consumed: bool = True, without: frozenset[str] = frozenset()
) -> Verdict:
    """The verdict on a request from the *replies* to the takes of its plan.

    *without* are the rules under which it is a free retry: they have no say. Raises the
    `StoreError` that came in place of what the deciding rules say.
    """
    outcomes = replies[0] if plan.deciding else ()
    if isinstance(outcomes, StoreError):
        raise outcomes
    if plan.is_plain and len(plan.rules) == 1 and outcomes:
        one = plan.rules[0]
        only = decide(one.key, one.limits, outcomes)
        return Verdict(plan, (only,), only.allowed)
    left = iter(replies[1:] if plan.deciding else replies)
    decisions: list[Decision | None] = []
    place, allowed = 0, True
    for one in plan.rules:
        decision: Decision | None = None
        count = len(one.checks)
        if one.block is not None:
            decision = _blocked(one)
        elif one.rule.mode == "shadow":
            reply = next(left)
            if isinstance(reply, StoreError):
                decision = _without_store(one)
            else:
                decision = None if one.rule.id in without else _decided(plan, one, reply[:count])
        elif one.rule.id not in without:
            decision = _decided(plan, one, outcomes[place : place + count])
            place += count
            allowed = allowed and decision.allowed
        decisions.append(decision)
    verdict = Verdict(plan, decisions, allowed=allowed)
    if without:
        verdict.is_replay = not without.isdisjoint(one.rule.id for one in plan.deciding)
    if plan.lease is not None and consumed:
        verdict.slots = plan.leaving([one for one, _ in charged(verdict, is_in_store)])
    return verdict


def verdict_at_once(plan: Plan) -> Verdict | None:
    """The verdict on a request for which the store need not be called; None if it must be.

    That is if nothing applies, or if the counter of a rule that decides is blocked: then only what
    is blocked has a say, and nothing is charged.
    """
    if (plan.deciding or plan.shadows) and not plan.is_denied:
        return None
    decisions = [None if one.block is None else _blocked(one) for one in plan.rules]
    return Verdict(plan, decisions, allowed=not plan.is_denied)


def verdict_without_store(plan: Plan, decided: Iterable[Decision]) -> Verdict:
    """The verdict when the store could not decide, from the decision of each rule that decides.
    Shadow rules were not counted."""
    left = iter(decided)
    decisions = [
        _without_store(one) if one.rule.mode == "shadow" else next(left) for one in plan.rules
    ]
    pairs = zip(plan.rules, decisions, strict=True)
    allowed = all(own.allowed for one, own in pairs if one.rule.mode != "shadow")
    return Verdict(plan, decisions, allowed=allowed)


def charged(
    verdict: Verdict, is_meant: Callable[[str], bool]
) -> Iterator[tuple[RulePlan, Decision]]:
    """The rules of *verdict* that have charged something, where *is_meant* is true of the source of
    their decision: those that decide if all of them allow, a shadow rule if it would allow itself,
    and only in the store."""
    for one, decision in verdict.pairs:
        if one.rule.mode == "shadow":
            has_charged = decision.allowed and is_in_store(decision.source)
        else:
            has_charged = verdict.allowed
        if has_charged and is_meant(decision.source):
            yield one, decision


def is_in_store(source: str) -> bool:
    """True if the store knows the decisions of *source*: its own, or those of leases."""
    return source not in ELSEWHERE


def is_here(source: str) -> bool:
    """True if this process decided, and charged, as the store was gone."""
    return source in HERE


NO_WAIT: Final = Block(0, 0)


def _decided(plan: Plan, one: RulePlan, outcomes: Outcomes) -> Decision:
    if plan.is_plain:
        return decide(one.key, one.limits, outcomes)
    return conclude(one.checks, outcomes)  # whose keys may differ


def _blocked(one: RulePlan) -> Decision:
    block = one.block or NO_WAIT
    pairs = [(check.key, check.limit) for check in one.checks]
    return decide_blocked(block.wait_ns, pairs, block.source)


def _without_store(one: RulePlan) -> Decision:
    if one.block is not None:
        return _blocked(one)
    policy = one.rule.on_failure.mode
    pairs = [(check.key, check.limit) for check in one.checks]
    return decide_without_store("fail_closed" if policy == "fail_closed" else "fail_open", pairs)
