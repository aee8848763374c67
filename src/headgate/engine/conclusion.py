"""From what the store said, or did not say, to a verdict. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.decisions import decide_without_store
from headgate.engine.verdict import RuleVerdict, Verdict
from headgate.errors import StoreError
from headgate.stores.port import conclude

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.decisions import Decision
    from headgate.engine.plan import Plan, RulePlan
    from headgate.stores.operations import Outcomes


def verdict_of(
    plan: Plan, replies: Sequence[Outcomes | StoreError], *, consumed: bool = True
) -> Verdict:
    """The verdict on a request from the *replies* to its plan's operation.

    Raises the `StoreError` that came in place of what the deciding rules say.
    """
    left = list(replies)
    decisions: dict[str, Decision] = {}
    is_replay = False
    if plan.deciding:
        decided = left.pop(0)
        if isinstance(decided, StoreError):
            raise decided
        decisions, is_replay = _split(plan, decided)
    for one, reply in zip(plan.shadows, left, strict=True):
        if isinstance(reply, StoreError):
            decisions[one.rule.id] = _without_store(one)
        else:
            decisions[one.rule.id] = conclude(one.checks, reply)
    verdict = _verdict(plan, decisions, is_replay=is_replay)
    if plan.lease is None or not consumed:
        return verdict
    is_charged = verdict.allowed and not is_replay
    granted = [one for one in plan.deciding if is_charged]
    granted += [one for one in plan.shadows if decisions[one.rule.id].allowed]
    return replace(verdict, slots=plan.leaving(granted))


def verdict_without_store(plan: Plan, local: Mapping[str, Decision]) -> Verdict:
    """The verdict when the store could not decide: each rule as it says.

    *local* has the decisions of those rules, by id, that a store of this process has decided.
    """
    decisions = {one.rule.id: _without_store(one) for one in plan.rules}
    decisions.update(local)
    return _verdict(plan, decisions, is_replay=False)


def _split(plan: Plan, outcomes: Outcomes) -> tuple[dict[str, Decision], bool]:
    """The decision of each rule that decides, and whether the request has been here before."""
    place = 0
    decisions = {}
    for one in plan.deciding:
        own = outcomes[place : place + len(one.checks)]
        decisions[one.rule.id] = conclude(one.checks, own)
        place += len(one.checks)
    seen = outcomes[place:]
    return decisions, not all(outcome.allowed for outcome in seen)


def _without_store(one: RulePlan) -> Decision:
    policy = one.rule.on_store_failure
    asked = [(check.key, check.limit) for check in one.checks]
    return decide_without_store("fail_closed" if policy == "fail_closed" else "fail_open", asked)


def _verdict(plan: Plan, decisions: Mapping[str, Decision], *, is_replay: bool) -> Verdict:
    rules = tuple(
        RuleVerdict(one.rule, one.key, one.cost, decisions[one.rule.id]) for one in plan.rules
    )
    deciding = [decisions[one.rule.id] for one in plan.deciding]
    allowed = is_replay or all(decision.allowed for decision in deciding)
    return Verdict(allowed, plan.revision, rules, is_replay)
