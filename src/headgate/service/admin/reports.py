"""Operations that report: status, live figures, the audit log, explain; and debug tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.engine.tracing import limit_in_words
from headgate.policy.fields import instant_text
from headgate.responses.debug import DEBUG, DECISION, LONGEST_TTL_S, debug_token
from headgate.service.admin.call import MOST_LISTED, change_data, problems_data, to_thread
from headgate.service.admin.operations import ANY, REQUEST, Operation, Query, whole
from headgate.service.http.check_request import CHECK_FIELDS, read_check
from headgate.service.http.replies import JSON_LINE, NO_STORE, Reply, json_reply
from headgate.service.http.schemas import TEXT, WHOLE, a_list, a_map, an_object, of
from headgate.service.live.snapshot import bounds, hot_keys
from headgate.service.live.traffic import RANGES
from headgate.stores.factory import health_of

if TYPE_CHECKING:
    from headgate.decision import Decision
    from headgate.policy.explain import Explanation, Member
    from headgate.service.admin.call import Call
    from headgate.service.core import ShowKey


Data = dict[str, Any]

MOST_EXPLAINED: Final = 200
"""The most rules that are listed as not applying: those that come nearest."""
_USUAL_S: Final = 900
"""The default lifetime of a debug token, in seconds."""
_NOT_ALWAYS: Final = ("node", "nodes", "factor", "latency", "bounds", "queues", "candidates")
_LIVE: Final = an_object(
    *("busiest_keys", "refused_keys", "hot_keys", *_NOT_ALWAYS),
    at=of("number"),
    began=of("number"),
    version=TEXT,
    workers=WHOLE,
    node=of("string", "The name of this node."),
    nodes=of("array", "What each node reports that shares the store.", items=ANY),
    policy=ANY,
    store=ANY,
    factor=of("number"),
    requests=an_object(allowed=WHOLE, denied=WHOLE),
    latency=of(
        "object", "Seconds: p50, p90 and p99 of the last minute, null if nothing was decided."
    ),
    rules=a_list(ANY),
    series=of("object", "By rule and outcome: 120 seconds until `end`, oldest first."),
    busiest_keys=a_list(ANY),
    refused_keys=a_list(ANY),
    hot_keys=a_list(ANY),
    bounds=a_list(ANY),
    queues=a_list(ANY),
    candidates=a_list(ANY),
)


@Operation("GET /live", answer=_LIVE)
async def live(call: Call) -> Reply:
    """Live figures of all workers of this node."""
    return Reply(200, [JSON_LINE, NO_STORE], await call.api.live.answer())


_COUNTS: Final = a_map(a_list(WHOLE))
_TRAFFIC: Final = an_object(
    range=TEXT,
    end=of("integer", "When the last point begins, in seconds since the epoch."),
    step=of("integer", "The seconds of a point."),
    seconds=of("array", "By point: recorded seconds; 0 is a gap.", items=WHOLE),
    outage=of("array", "By point: seconds without the store; empty if none.", items=WHOLE),
    requests=_COUNTS,
    latency=of("object", "By point: p50, p90 and p99 in seconds, null without decisions."),
    rule=of(["object", "null"], "The decisions of the rule by outcome."),
    busiest_keys=a_list(ANY),
    refused_keys=a_list(ANY),
)


@Operation(
    "GET /traffic",
    answer=_TRAFFIC,
    query=(
        Query("range", "the time range, by default 5m", {"enum": list(RANGES)}),
        Query("rule", "the id of a rule"),
    ),
)
async def traffic(call: Call) -> Reply:
    """Traffic and latency of this node over a time range."""
    query = call.query
    return json_reply(await call.api.live.traffic(query.get("range", "5m"), query.get("rule")))


@Operation("GET /status")
async def status(call: Call) -> Reply:
    """The policy in force in this worker, and its state."""
    core, watcher = call.api.core, call.api.watcher
    state, policy = watcher.state, core.rules.in_force.policy
    loaded = state.loaded_at_ns
    content = {
        "caller": {"name": call.caller.name, "role": call.caller.role},
        "place": watcher.place,
        "revision": state.revision,
        "change": None
        if state.change is None or state.revision is None
        else change_data(state.revision, state.change),
        "loaded_at": None if loaded is None else instant_text(loaded),
        "current": state.is_current,
        "stale": state.is_stale,
        "trouble": state.trouble,
        "refused_revision": state.rejected,
        "problems": problems_data(state.problems or ()),
        "warnings": problems_data(state.warnings),
        "failures": state.failures,
        "rules": len(policy.rules),
        "overrides": len(policy.overrides),
        "not_ready": list(core.not_ready()),
    }
    return json_reply(content)


@Operation("GET /pressure", query=(Query("limit", "", whole(MOST_LISTED)),))
async def pressure(call: Call) -> Reply:
    """The hottest keys of this worker, how far limits may be overshot, the circuit breaker, and
    the factor that limits are lowered by.
    """
    core, count = call.api.core, max(1, call.query.get("limit", 20))
    hot = [
        {"rule_id": rule, "key": core.show_key(key), "per_second": least, "at_most": most}
        for rule, key, least, most in hot_keys(core, count)
    ]
    may_overshoot = [
        {"rule_id": rule, "holders": holders, "units": units}
        for rule, holders, units in bounds(core)
    ]
    health = health_of(core.rules.engine.store)
    found = {
        "hot_keys": hot,
        "bounds": may_overshoot,
        "breaker": None if health is None else "open" if health.is_open else "closed",
        "factor": float(core.rules.in_force.scale.factor),
    }
    return json_reply(found)


@Operation("GET /audit", query=(Query("limit", "", whole(MOST_LISTED)),))
async def audit(call: Call) -> Reply:
    """The audit log, newest first; without an audit file, of this worker."""
    limit = call.query.get("limit", 100)
    return json_reply({"events": list(await call.api.audit.latest(limit))})


@Operation(
    "POST /debug-tokens",
    body=an_object("ttl", ttl=whole(LONGEST_TTL_S, 1)),
    role="write",
    is_versionless=True,
)
async def make_token(call: Call) -> Reply:
    """Make a token that has responses explain their decision (Headgate-Debug)."""
    ttl_s = call.body.get("ttl", _USUAL_S)
    call.check()
    await call.begin(f"create a debug token that is valid for {ttl_s} s")
    core = call.api.core
    token, ends = debug_token(core.secret, now_ns=core.clock(), ttl_s=int(ttl_s))
    call.outcome = "changed"
    content = {"token": token, "expires": ends, "header": DEBUG, "answered_in": DECISION}
    return json_reply(content)


@Operation("POST /explain", body=REQUEST)
async def explain(call: Call) -> Reply:
    """Explain the decision of a request; nothing is counted."""
    asked = read_check(call.body, CHECK_FIELDS)
    core = call.api.core
    explanation = await core.rules.explain(asked.request, cost=asked.cost)
    # There may be thousands of rules to find reasons for: not while others wait.
    return json_reply(await to_thread(_explained, explanation, core.show_key))


def _explained(explanation: Explanation, show_key: ShowKey) -> Data:
    verdict, identifier = explanation.verdict, explanation.compiled.identifier
    identity = identifier.shown(explanation.request)
    others, count = explanation.not_applied(MOST_EXPLAINED)
    denying = verdict.denied_by
    return {
        "allowed": verdict.allowed,
        "denied_by": None if denying is None else denying.rule.id,
        "retry_after": verdict.retry_after,
        "delay": verdict.delay,
        "is_replay": verdict.is_replay,
        "revision": verdict.revision,
        "source": verdict.source if verdict.enforced else None,  # as a check says it
        "identity": identity | {"tier": explanation.reasons.tier},
        "priority": explanation.priority,
        "rules": [_applied(member, show_key) for member in explanation.applied()],
        "not_applied": [_not_applied(member) for member in others],
        "not_applied_count": count,
    }


def _applied(member: Member, show_key: ShowKey) -> Data:
    rule, found, place = member.rule, member.verdict, member.queueing
    content: Data = {"rule_id": rule.id, "mode": rule.mode}
    if place is not None:
        return content | {
            "key": show_key(place.key),
            "cost": place.cost,
            "allowed": True,
            "limits": [],
            "source": None,
            "denies": False,
            "turn": {"weight": place.weight},
        }
    if found is None:
        raise RuntimeError(f"the rule {rule.id!r} has no decision")
    decision = found.decision
    return content | {
        "key": show_key(found.key),
        "cost": found.cost,
        "allowed": decision.allowed,
        "limits": [_limit(part) for part in decision.limits],
        "source": decision.source,
        "denies": not decision.allowed and not found.is_shadow,
    }


def _limit(part: Decision) -> Data:
    return {
        "limit": limit_in_words(part.limit),
        "allowed": part.allowed,
        "remaining": part.remaining,
        "retry_after": part.retry_after,
        "reset_after": part.reset_after,
    }


def _not_applied(member: Member) -> Data:
    return {"rule_id": member.rule.id, "mode": member.rule.mode, "why": member.reason}
