"""All limits of a caller as JSON, without consuming any.

These are the limits of the whole app: those of its policy, for all endpoints, and those of its
limiter. Rules that are hidden from callers are left out. A limit has no figures if the caller has
several counters for it (one for each endpoint), or if the store could not be reached.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headgate.decision import decide_blocked
from headgate.engine.tracing import limit_in_words
from headgate.errors import StoreError
from headgate.limits import Concurrency
from headgate.policy.compiled import Concern
from headgate.responses import limit_template
from headgate.stores.base import concluded
from headgate.stores.operations import Take, TakeEach
from headgate.units import seconds_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decision import Decision
    from headgate.engine.request import Request
    from headgate.integrations.request_limiter import RequestLimiter
    from headgate.policy.model import Rule
    from headgate.runtime.effects import Effects
    from headgate.stores.operations import Outcomes

    Replies = tuple[Outcomes | StoreError, ...]
    Decisions = tuple[Decision, ...]


def status_body(limiter: RequestLimiter, request: Request) -> Effects[bytes]:
    """The limits of the caller that made *request*."""
    limiter.watch()
    own = yield from limiter.own_plans(request)
    found = [Concern(plan.rule, plan.limits, plan) for plan in own]
    if limiter.rules is not None:
        found = [*limiter.rules.compiled.concerning(request), *found]
    shown = [one for one in found if one.rule.headers == "on" and one.rule.mode == "enforce"]
    peek = peek_at(shown)
    try:
        replies: Replies = yield from limiter.engine.store.effects(peek)
    except StoreError:
        replies = unknown(peek)
    return page_of(shown, replies, limiter.now_ns())


def peek_at(shown: Sequence[Concern]) -> TakeEach:
    """The operation that peeks at all counters of *shown*."""
    planned = [one.plan for one in shown if one.is_looked_up and one.plan is not None]
    return TakeEach(tuple(Take(plan.checks, consume=False) for plan in planned))


def unknown(peek: TakeEach) -> Replies:
    """The replies to *peek* of a store that is gone."""
    return (StoreError("the store cannot be reached"),) * len(peek.takes)


def page_of(shown: Sequence[Concern], replies: Replies, now_ns: int) -> bytes:
    """The JSON page of the limits in *shown*; *replies* are those of the store to `peek_at`."""
    left = iter(replies)
    entries = []
    for one in shown:
        found = _replied(one, next(left)) if one.is_looked_up else _blocked(one)
        entries += [_entry(one, place, found, now_ns) for place in range(len(one.limits))]
    return json.dumps({"limits": entries}).encode("ascii")


def _replied(one: Concern, reply: Outcomes | StoreError) -> Decisions | None:
    if isinstance(reply, StoreError):
        return None
    pairs = zip(one.limits, reply, strict=True)
    return tuple(concluded("", limit, outcome) for limit, outcome in pairs)


def _blocked(one: Concern) -> Decisions | None:
    if one.plan is None or one.plan.block is None:
        return None
    return decide_blocked(one.plan.block.wait_ns, [("", limit) for limit in one.limits]).limits


def _entry(one: Concern, place: int, found: Decisions | None, now_ns: int) -> dict[str, object]:
    limit = one.limits[place]
    name = one.rule.id if place == 0 else f"{one.rule.id}/{place + 1}"
    entry: dict[str, object] = {"name": name, "limit": limit_in_words(limit), "quota": limit.quota}
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
