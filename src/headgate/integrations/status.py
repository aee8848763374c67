"""Every limit of a caller as a page of JSON, without consuming any.

Those are the limits of the whole app: of its policy, whatever the endpoint, and of its gate. Rules
that callers are not told of are left out. What has no one counter (a rule that counts each endpoint
apart), or could not be looked up, is told without figures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.decision import decide_blocked
from headgate.errors import StoreError
from headgate.integrations.passing import answered, answered_async
from headgate.limits import Concurrency
from headgate.policy.model import compiled_rule
from headgate.responses import limit_template
from headgate.stores.base import concluded
from headgate.stores.operations import Take, TakeEach
from headgate.units import seconds_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decision import Decision
    from headgate.engine.plan import RulePlan
    from headgate.engine.request import Request
    from headgate.engine.rule import CompiledRule
    from headgate.integrations.allowance import Asking
    from headgate.integrations.gate import Gate
    from headgate.limits import Limit
    from headgate.policy.model import Rule
    from headgate.stores.operations import Outcomes

    Replies = tuple[Outcomes | StoreError, ...]
    Decisions = tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A rule to be shown, with its limits for the caller, and its counters if there are any."""

    rule: CompiledRule
    limits: tuple[Limit, ...]
    plan: RulePlan | None

    @property
    def is_asked(self) -> bool:
        """Whether the store is to be asked: it has one counter, and that is not blocked."""
        return self.plan is not None and self.plan.block is None


def status_body(gate: Gate, request: Request) -> bytes:
    """The limits of the caller that made *request*, for code that may block."""
    shown = answered(shown_to(gate, request))
    looking = looking_at(shown)
    try:
        return page_of(shown, gate.engine.store.run(looking), gate.now_ns())
    except StoreError:
        return page_of(shown, unknown(looking), gate.now_ns())


async def status_body_async(gate: Gate, request: Request) -> bytes:
    """The same for an event loop."""
    shown = await answered_async(shown_to(gate, request))
    looking = looking_at(shown)
    try:
        return page_of(shown, await gate.engine.store.arun(looking), gate.now_ns())
    except StoreError:
        return page_of(shown, unknown(looking), gate.now_ns())


def shown_to(gate: Gate, request: Request) -> Asking[list[Shown]]:
    """What the caller that made *request* may see."""
    gate.watch()
    shown: list[Shown] = []
    if gate.rules is not None:
        concerns = gate.rules.compiled.concerning(request)
        shown += [Shown(compiled_rule(one.rule), one.limits, one.plan) for one in concerns]
    for plan in (yield from gate.own_plans(request)):
        shown.append(Shown(plan.rule, plan.limits, plan))
    return [one for one in shown if one.rule.headers == "on" and one.rule.mode == "enforce"]


def looking_at(shown: Sequence[Shown]) -> TakeEach:
    """What to ask a store about *shown*."""
    planned = [one.plan for one in shown if one.is_asked and one.plan is not None]
    return TakeEach(tuple(Take(plan.checks, consume=False) for plan in planned))


def unknown(looking: TakeEach) -> Replies:
    """What stands in for the replies of a store that could not be asked."""
    return (StoreError("the store could not be asked"),) * len(looking.takes)


def page_of(shown: Sequence[Shown], replies: Replies, now_ns: int) -> bytes:
    """The page: *shown* with what the store replied to `looking_at`."""
    left = iter(replies)
    entries = []
    for one in shown:
        found = _replied(one, next(left)) if one.is_asked else _blocked(one)
        entries += [_entry(one, place, found, now_ns) for place in range(len(one.limits))]
    return json.dumps({"limits": entries}).encode("ascii")


def _replied(one: Shown, reply: Outcomes | StoreError) -> Decisions | None:
    if isinstance(reply, StoreError):
        return None
    pairs = zip(one.limits, reply, strict=True)
    return tuple(concluded("", limit, outcome) for limit, outcome in pairs)


def _blocked(one: Shown) -> Decisions | None:
    if one.plan is None or one.plan.block is None:
        return None
    return decide_blocked(one.plan.block.wait_ns, [("", limit) for limit in one.limits]).limits


def _entry(one: Shown, place: int, found: Decisions | None, now_ns: int) -> dict[str, object]:
    limit = one.limits[place]
    name = one.rule.id if place == 0 else f"{one.rule.id}/{place + 1}"
    entry: dict[str, object] = {"name": name, "limit": _text(limit), "quota": limit.quota}
    if not isinstance(limit, Concurrency):
        entry["window"] = seconds_up(limit.period_ns)
    if found is not None:
        decision = found[place]
        entry["remaining"] = decision.remaining
        entry["reset"] = limit_template(name, limit).reset_of(decision, now_ns)
        entry["reset_after"] = decision.reset_after
    declared: Rule | None = one.rule.declared
    if declared is not None and declared.match.endpoints:
        entry["endpoints"] = list(declared.match.endpoints)
    if declared is not None and declared.match.methods:
        entry["methods"] = list(declared.match.methods)
    return entry


def _text(limit: Limit) -> str:
    if isinstance(limit, Concurrency):
        return f"{limit.quota} at the same time"
    return str(limit)
