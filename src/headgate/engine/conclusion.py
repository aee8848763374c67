"""From what the store said, or did not say, to a verdict. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.decisions import combine, decide_blocked, decide_without_store
from headgate.engine.verdict import RuleVerdict, Verdict
from headgate.errors import StoreError
from headgate.fallback import ELSEWHERE
from headgate.stores.operations import Outcomes, source_of
from headgate.stores.port import concluded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headgate.decisions import Decision
    from headgate.engine.plan import Plan, RulePlan


Replies = Sequence[Outcomes | StoreError]

_new: Final = object.__new__


def repeated(plan: Plan, replies: Replies) -> frozenset[str]:
    """The ids of the deciding rules that have seen the request before and been charged for it."""
    if not plan.deciding or isinstance(replies[0], StoreError):
        return frozenset()
    marked = [one for one in plan.deciding if one.marker is not None]
    seen = replies[0][len(replies[0]) - len(marked) :]
    pairs = zip(marked, seen, strict=True)
    return frozenset(one.rule.id for one, outcome in pairs if not outcome.allowed)


def verdict_of(
    plan: Plan, replies: Replies, *, consumed: bool = True, without: Collection[str] = ()
) -> Verdict:
    """The verdict on a request from the *replies* to its plan's operation.

    *without* are the rules that have seen the request before: they have no say, and the first reply
    is that of the others, if there are any. Raises the `StoreError` that came in place of what the
    deciding rules say.
    """
    deciding = [one for one in plan.deciding if one.rule.id not in without]
    left = list(replies)
    decisions: dict[str, Decision] = {}
    if deciding:
        decided = left.pop(0)
        if isinstance(decided, StoreError):
            raise decided
        decisions = _split(deciding, decided)
    for one, reply in zip(plan.shadows, left, strict=True):
        if isinstance(reply, StoreError):
            decisions[one.rule.id] = _without_store(one)
        elif one.marker is None or reply[-1].allowed:
            decisions[one.rule.id] = _concluded(one, reply[: len(one.checks)])
    for one in plan.blocked:
        decisions[one.rule.id] = _blocked(one)
    verdict = _verdict(plan, decisions, is_replay=bool(without))
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


def verdict_on_one(plan: Plan, decision: Decision) -> Verdict:
    """The verdict on a request that only one limit is for."""
    return _verdict_at_once(plan, (_said(plan.rules[0], decision),), allowed=decision.allowed)


def verdict_on_each(plan: Plan, decisions: Iterable[Decision]) -> Verdict:
    """The verdict on a plain request, from the decision of each check, in their order."""
    said = []
    allowed = True
    left = iter(decisions)
    for one in plan.rules:
        count = len(one.checks)
        decision = next(left) if count == 1 else combine(list(islice(left, count)))
        if not decision.allowed and one.rule.mode == "enforce":
            allowed = False
        said.append(_said(one, decision))
    return _verdict_at_once(plan, tuple(said), allowed=allowed)


def _said(one: RulePlan, decision: Decision) -> RuleVerdict:
    # Filled in by hand, as an `__init__` takes longer than all that it does; the next one too.
    said = _new(RuleVerdict)
    said.rule, said.key, said.cost, said.decision = one.rule, one.key, one.cost, decision
    return said


def _verdict_at_once(plan: Plan, rules: tuple[RuleVerdict, ...], *, allowed: bool) -> Verdict:
    verdict = _new(Verdict)
    verdict.allowed, verdict.revision, verdict.rules, verdict.plan = (
        allowed,
        plan.revision,
        rules,
        plan,
    )
    verdict.is_replay = False
    verdict.slots = verdict.local_slots = verdict.held = None
    verdict._undone = verdict._vacated = None  # noqa: SLF001
    return verdict


def verdict_without_store(plan: Plan, decided: Mapping[str, Decision]) -> Verdict:
    """The verdict when the store could not decide: *decided* has what each rule said that decides,
    by id. Those in shadow were not counted."""
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
    """The decision of a rule, by whoever gave its outcomes."""
    pairs = zip(one.checks, outcomes, strict=True)
    return combine(
        [concluded(check.key, check.limit, said, source_of(said)) for check, said in pairs]
    )


def _is_granted(decision: Decision | None) -> bool:
    return decision is not None and decision.allowed and decision.source not in ELSEWHERE


def _blocked(one: RulePlan) -> Decision:
    wait_ns = 0 if one.block is None else one.block.wait_ns
    return decide_blocked(wait_ns, [(check.key, check.limit) for check in one.checks])


def _without_store(one: RulePlan) -> Decision:
    if one.block is not None:
        return _blocked(one)
    policy = one.rule.on_store_failure
    asked = [(check.key, check.limit) for check in one.checks]
    return decide_without_store("fail_closed" if policy == "fail_closed" else "fail_open", asked)


def _verdict(plan: Plan, decisions: Mapping[str, Decision], *, is_replay: bool) -> Verdict:
    """The verdict that *decisions*, by rule, make together."""
    rules = tuple(
        RuleVerdict(one.rule, one.key, one.cost, decisions[one.rule.id])
        for one in plan.rules
        if one.rule.id in decisions
    )
    allowed = all(one.decision.allowed for one in rules if not one.is_shadow)
    return Verdict(allowed, plan.revision, rules, is_replay, plan=plan)
