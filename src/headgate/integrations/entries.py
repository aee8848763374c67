"""What rules and allowances ask about a request, together: one plan. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.engine.holds import charged_after
from headgate.engine.plan import Plan
from headgate.errors import UsageError
from headgate.integrations.allowance import Allowance, free_name
from headgate.integrations.passage import NOTHING, Entry
from headgate.runtime.holds import new_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headgate.engine.plan import Queueing, RulePlan

Asked = tuple["RulePlan", Allowance[Any]]
"""What an allowance asks, and which it is."""


def entry_of(
    revision: int,
    rules: Sequence[RulePlan],
    asked: Sequence[Asked],
    *,
    queues: tuple[Queueing, ...] = (),
    is_preflight: bool = False,
    charges_after: bool = False,
) -> Entry | None:
    """What *rules* and allowances ask together; None if there are none.

    *queues* are where it takes turns. A preflight is counted apart, and takes no turns.
    *charges_after*: a rule may have to be told what it has cost.
    """
    asked = _apart(rules, asked)
    every = (*rules, *[one for one, _ in asked])
    if not every and not queues:
        return None
    if is_preflight:
        every, queues = tuple(_of_preflights(one) for one in every), ()
    later = [(one.rule.id, allowance) for one, allowance in asked if allowance.is_settled_later]
    has_slots = any(one.has_slots for one in every)
    opened = frozenset(rule for rule, _ in later)
    lease = new_name() if has_slots else None
    plan = Plan(revision, every, lease, opened, queues, awaits_turns=bool(queues))
    after = charged_after(every) if charges_after else ()
    if not later:
        return Entry(plan, after=after) if after else Entry(plan)
    minds = {rule: one.charge_when for rule, one in later if one.charge_when is not None}
    at_once = not any(one.is_estimate for _, one in later)
    ttl_ns = max(one.ttl_ns for _, one in later)
    return Entry(plan, minds or NOTHING, ttl_ns, at_once, after)


def _apart(rules: Sequence[RulePlan], asked: Sequence[Asked]) -> Sequence[Asked]:
    """*asked*, each under an id of its own: what each said is told apart by that.

    A rule of the policy may well be called as the limits of the app are; it keeps its name then.
    """
    if not asked or (not rules and len(asked) == 1):
        return asked
    known = {one.rule.id for one in rules}
    own = [one.rule.id for one, _ in asked]
    if len(set(own)) < len(own):
        twice = next(name for name in own if own.count(name) > 1)
        raise UsageError(f"two limits of one request are called {twice!r}: each needs its own name")
    if known.isdisjoint(own):
        return asked
    return [(_renamed(one, known.union(own)), allowance) for one, allowance in asked]


def _renamed(plan: RulePlan, known: Collection[str]) -> RulePlan:
    return replace(plan, rule=replace(plan.rule, id=free_name(plan.rule.id, known)))


def _of_preflights(plan: RulePlan) -> RulePlan:
    """*plan* with counters of its own, which nobody is told of.

    A browser asks before it asks, and that must neither use up what its user has nor fail when it
    is used up. But whether the app takes it for more than a preflight is for the app to say, so
    there is an end to them too: as many as of all other requests.
    """
    checks = tuple(replace(check, group=f"{check.group}!preflight") for check in plan.checks)
    rule = plan.rule
    if rule.headers != "redacted":
        rule = replace(rule, headers="off")
    return replace(plan, rule=rule, checks=checks, marker=None)
