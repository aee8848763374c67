"""Operations on single counters: look one up, reset it, grant it more, block it for a while."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.control import edits
from headgate.engine.plan import plan_rule
from headgate.engine.request import Request
from headgate.limits import with_extra
from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.fields import AN_INSTANT, MAX_KEY, instant_ns, instant_text
from headgate.policy.identity.parts import claim_of, spelled
from headgate.policy.limit_forms import DEFAULT_TIER
from headgate.policy.model import BUILT_IN_PARTS, GLOBAL, compiled_rule
from headgate.service.admin.call import (
    MOST_LISTED,
    edited_reply,
    tagged_reply,
    to_thread,
    wrong_query,
)
from headgate.service.admin.operations import MOMENT, Operation, Query, whole
from headgate.service.http.check_request import CALLER_FIELDS, Flaws, invalid, read_check
from headgate.service.http.replies import Flaw, RejectedError, Reply, json_reply, problem
from headgate.service.http.schemas import TEXT, a_map, an_object, of
from headgate.stores.operations import Reset, Take
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.policy.model import Identity, Override, Rule
    from headgate.service.admin.call import Call
    from headgate.stores.operations import Check


# ---- the shape of keys: a key that cannot be one of a rule is rejected -------------------------
#
# A key that no caller ever has would be blocked in vain; and a raw credential in the place of its
# digest would be kept for ever, in the policy and in the audit log.

_DIGEST: Final = "~[0-9a-f]{32}"
_VALUE: Final = "[^&]*"
_SHAPES: Final = {_DIGEST: "~DIGEST", _VALUE: "..."}


def has_shape(key: str, rule: Rule, identity: Identity) -> bool:
    """True if *key* can be a key of *rule*."""
    pattern = "&".join(
        re.escape(label)
        if value is None
        else f"{re.escape(label)}(?:={value}|!shared|!ip={_VALUE})"
        for label, value in (_part(name, identity) for name in rule.key_by)
    )
    return re.fullmatch(pattern, key) is not None


def _check_shape(key: str, rule: Rule, identity: Identity) -> None:
    """Reject a text that cannot be a key of *rule*; it may be a secret, so it is not repeated."""
    if not has_shape(key, rule, identity):
        parts = [_part(name, identity) for name in rule.key_by]
        shape = "&".join(f"{label}={_SHAPES[value]}" if value else label for label, value in parts)
        hint = f"expected {shape}; or pass identity to name the caller"
        raise invalid([Flaw("key", f"no key of the rule {rule.id!r}", hint)])


def _part(name: str, identity: Identity) -> tuple[str, str | None]:
    """The label of a part of a key, and the pattern of its value if it has one."""
    if name == GLOBAL:
        return name, None
    if name in BUILT_IN_PARTS:
        return name, _VALUE
    claim = claim_of(name, identity)
    return spelled(claim.name), _DIGEST if claim.secret else _VALUE


# ---- naming a counter: by its key, by a request, or by the caller's identity -----------------

Data = dict[str, Any]
LONGEST: Final = 10 * 366 * 86_400
"""Seconds that an override may last."""
_NAMED_BY: Final = ("key", "request", "identity")
_WHO: Final = "Instead of a key: the identity of the caller, such as user_id or ip."
_COUNTER: Final = {
    "rule": of("string", "The id of a rule."),
    "key": of("string", "The key of a counter.", minLength=1, maxLength=MAX_KEY),
    "tier": of("string", "With a key: its tier, if the limits differ by tier."),
    "request": of("object", "Instead of a key: a request as in /v1/check."),
    "identity": {**a_map(TEXT), "description": _WHO},
}
_UNTIL: Final = {
    "until": MOMENT,
    "ttl": of("number", "Seconds, instead of until.", minimum=0.001, maximum=LONGEST),
}


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of *rule*, under *limits*, with its *override* if there is one.

    *applies*: the rule matches the request that named the counter; None if none did.
    """

    rule: Rule
    key: str
    limits: tuple[Limit, ...]
    override: Override | None
    applies: bool | None

    def checks(self, namespace: str) -> tuple[Check, ...]:
        """The checks that look at it: each limit, for one unit."""
        extra = 0 if self.override is None else self.override.extra
        limits = tuple(with_extra(one, extra) if extra else one for one in self.limits)
        return plan_rule(compiled_rule(self.rule), limits, self.key, 1, namespace).checks

    def every_check(self, namespace: str) -> tuple[Check, ...]:
        """All places where something may be counted for it, of any tier."""
        plans = (
            plan_rule(compiled_rule(self.rule), limits, self.key, 1, namespace)
            for limits in self.rule.limits.values()
        )
        return tuple(dict.fromkeys(check for plan in plans for check in plan.checks))


async def counter_named(call: Call) -> Counter:
    """Find the counter that the body names. Raises `RejectedError` with all that is wrong."""
    core, document = call.api.core, call.body
    given = [way for way in _NAMED_BY if way in document]
    if len(given) != 1:
        flaw = Flaw("key", f"found {len(given)} of {', '.join(_NAMED_BY)}", "expected one")
        call.flaws.append(flaw)
    if "tier" in document and "key" not in document:
        call.flaws.append(Flaw("tier", "it is for a key", "expected it in request or identity"))
    call.check()
    engine = core.rules.in_force.compiled
    policy = engine.policy
    rule = next((one for one in policy.rules if one.id == document["rule"]), None)
    if rule is None:
        message = f"there is no rule {document['rule'][:100]!r} in force"
        raise RejectedError(problem(404, message))
    if rule.fair is not None:
        message = f"the rule {rule.id!r} has no counters: it is a fair queue in each app"
        raise RejectedError(problem(422, message))
    applies = None
    if "key" in document:
        named = await clear_key(call, document["key"])
        _check_shape(named, rule, policy.identity)
        key: str | None = named
        limits = rule.limits_for(_tier(rule, document.get("tier")))
    else:
        if "request" in document:
            request = read_check(document["request"], CALLER_FIELDS).request
            applies = any(one.id == rule.id for one in engine.matching(request))
        else:
            request = request_of(document["identity"], policy.identity)
        found = engine.identifier.find(request)
        key = engine.identifier.key(rule, request, found)
        limits = rule.limits_for(found["tier"])
    if key is None or not limits:
        message = f"the rule {rule.id!r} does not limit this caller: it has no counter"
        raise RejectedError(problem(422, message))
    return Counter(rule, key, limits, override_of(call, rule.id, key), applies)


def override_of(call: Call, rule_id: str, key: str) -> Override | None:
    """Return the override of a counter that is in force."""
    core = call.api.core
    now_ns, overrides = core.clock(), core.rules.in_force.policy.overrides
    counter = rule_id, key
    active = (one for one in overrides if (one.rule, one.key) == counter and one.until_ns > now_ns)
    return next(active, None)


_SHOWN: Final = re.compile(r"~[0-9a-f]{12}(&|$)")
"""A value that is displayed as a hash."""


async def clear_key(call: Call, key: str) -> str:
    """Return the key that is displayed as *key*, if that is a hash: one that is busy, or has an
    override.

    Raises `RejectedError` if it is not among them, because a hash says nothing by itself.
    """
    if not _SHOWN.search(key):
        return key
    core = call.api.core
    overridden = [one.key for one in core.rules.in_force.policy.overrides]
    for known in (*overridden, *(one for _, one in await call.api.live.busy_keys())):
        if core.show_key(known) == key:
            return known
    message = "this hash is not one of the busy keys now; name the caller by identity or key"
    raise RejectedError(problem(404, message))


def _tier(rule: Rule, named: object) -> str | None:
    """Return the tier whose limits a key is under."""
    tiers = [DEFAULT_TIER if tier is None else tier for tier in rule.limits]
    if named is None and len(rule.limits) == 1:
        return next(iter(rule.limits))
    if named not in tiers:
        flaws = Flaws()
        flaws.add("tier", named, f"one of {', '.join(tiers[:20])}: the limits differ")
        raise invalid(flaws)
    return None if named == DEFAULT_TIER else str(named)


def request_of(values: dict[str, Any], identity: Identity) -> Request:
    """Make a request of the caller with these *values*."""
    flaws = Flaws()
    headers: list[tuple[str, str]] = []
    attributes: dict[str, str] = {}
    peer = ""
    for name, value in values.items():
        source = identity.sources.get(name)
        if not isinstance(value, str):
            flaws.add(f"identity.{name[:40]}", value, "a text")
        elif name == "ip":
            peer = value
        elif source is None or source.lookup is not None:
            known = [one for one, each in identity.sources.items() if each.lookup is None]
            hint = f"expected ip, {', '.join(known)}"
            flaws.append(Flaw(f"identity.{name[:40]}", "not a part of the identity", hint))
        elif source.header is not None:
            headers.append((source.header, value))
        elif source.cookie is not None:
            headers.append(("cookie", f"{source.cookie}={value}"))
        elif source.attribute is not None:
            attributes[source.attribute] = value
    if flaws:
        raise invalid(flaws)
    return Request(headers=tuple(headers), peer=peer, attributes=attributes)


# ---- operations ----------------------------------------------------------------------------

_KEYS: Final = (
    Query("rule", "the id of a rule"),
    Query("key", "one key; without it some of those in use are listed"),
    Query("tier", "the tier of the key, if the limits differ by tier"),
    Query("pattern", "only keys like this: * ?"),
    Query("limit", "how many at most", whole(MOST_LISTED)),
)
_BY_KEY: Final = (Query("rule", "the id of a rule"), Query("key", "the key of a counter"))


def _named(*needed: str, **more: Data) -> Data:
    """The schema of a body that names a counter, with *more* fields, of which some are *needed*."""
    fields = {**_COUNTER, **more}
    return an_object(*(name for name in fields if name not in ("rule", *needed)), **fields)


_NAMED: Final = _named()
_BLOCKED: Final = _named(**_UNTIL)
_GRANTED: Final = _named("extra", extra=whole(LARGEST_QUOTA, 1), **_UNTIL)


@Operation("GET /keys", query=_KEYS)
async def list_keys(call: Call) -> Reply:
    """Get one counter, or list some of a rule."""
    query = call.query
    if "key" in query:
        call.body = dict(query)
        call.check_body(_NAMED)
        return await _reply(call)
    if "rule" not in query:
        raise RejectedError(problem(400, "expected rule, the id of a rule"))
    if call.api.counters is None:
        message = "the counters of this store cannot be listed; name one by key"
        raise RejectedError(problem(501, message))
    limit = max(1, query.get("limit", 100))
    rule, pattern = query["rule"], query.get("pattern")
    found = await call.api.counters.find([rule], most=limit, pattern=pattern)
    counters = [
        {"key": one.key, "is_digest": one.is_digest, "limit": one.place, "used": one.used}
        for one in found.counters
    ]
    return json_reply({"rule_id": rule, "counters": counters, "more": found.has_more})


@Operation("POST /keys:lookup", body=_NAMED)
async def look_up(call: Call) -> Reply:
    """Get one counter."""
    return await _reply(call)


@Operation("POST /keys:reset", body=_NAMED, role="write")
async def reset(call: Call) -> Reply:
    """Reset a counter."""
    core, found = call.api.core, await counter_named(call)
    await to_thread(call.api.editor.check_revision, call.request)
    await call.begin(f"reset {found.key} under {found.rule.id}")
    await core.rules.engine.store.arun(Reset(found.every_check(core.namespace)))
    call.outcome = "changed"
    return json_reply({"rule_id": found.rule.id, "key": found.key, "reset": True})


@Operation("POST /keys:grant", body=_GRANTED, role="write")
async def grant(call: Call) -> Reply:
    """Grant a caller more, for a while."""
    found = await counter_named(call)
    return await _override(call, found, {"extra": call.body["extra"]})


@Operation("POST /keys:block", body=_BLOCKED, role="write")
async def block(call: Call) -> Reply:
    """Block a caller for a while."""
    return await _override(call, await counter_named(call), {"block": True})


@Operation("POST /keys:unblock", body=_NAMED, role="write")
async def unblock(call: Call) -> Reply:
    """End a block."""
    found = await counter_named(call)
    rule_id, key = found.rule.id, found.key
    newest = await to_thread(call.api.editor.head)
    if not edits.override_in(newest.document, rule_id, key).get("block"):
        raise edits.UnknownOverrideError(f"the key {key!r} is not blocked under {rule_id!r}")
    return await _end(call, rule_id, key, block=False)


@Operation("GET /overrides", query=_BY_KEY)
async def overrides(call: Call) -> Reply:
    """List blocks and grants that have not ended."""
    newest = await to_thread(call.api.editor.head)
    now_ns = call.api.core.clock()
    found = [
        one
        for one in newest.document.get("overrides") or ()
        if (instant_ns(str(one.get("until"))) or 0) > now_ns
        and all(one.get(name) == value for name, value in call.query.items())
    ]
    return tagged_reply({"revision": newest.number, "overrides": found}, newest.number)


@Operation("DELETE /overrides", query=_BY_KEY, role="write")
async def delete_override(call: Call) -> Reply:
    """End a block or a grant."""
    missing = [Flaw(name, "it is missing") for name in ("rule", "key") if name not in call.query]
    if missing:
        raise wrong_query(*missing)
    rule_id, key = call.query["rule"], await clear_key(call, call.query["key"])
    newest = await to_thread(call.api.editor.head)
    edits.override_in(newest.document, rule_id, key)  # else it is not recorded: it may be a secret
    return await _end(call, rule_id, key)


async def _override(call: Call, found: Counter, given: Data) -> Reply:
    until_ns = _until(call)
    rule_id, key = found.rule.id, found.key
    edited = await call.apply(edits.put_override(rule_id, key, until_ns=until_ns, **given))
    content = {"rule_id": rule_id, "key": key, **given, "until": instant_text(until_ns)}
    return edited_reply(content, edited, rule_id=rule_id)


async def _end(call: Call, rule_id: str, key: str, **more: Any) -> Reply:
    edited = await call.apply(edits.remove_override(rule_id, key))
    return edited_reply({"rule_id": rule_id, "key": key, **more}, edited, rule_id=rule_id)


async def _reply(call: Call) -> Reply:
    """Describe the counter that *call* names, and its state in the store."""
    found = await counter_named(call)
    content = await counter_data(call, found)
    if found.applies is not None:
        content["applies"] = found.applies
    return json_reply(content)


async def counter_data(call: Call, found: Counter) -> Data:
    """Describe a counter and its state in the store."""
    core, override = call.api.core, found.override
    checks = found.checks(core.namespace)
    outcomes = await core.rules.engine.store.arun(Take(checks, consume=False))
    content: Data = {
        "rule_id": found.rule.id,
        "key": found.key,
        "mode": found.rule.mode,
        "blocked_until": None,
        "extra": 0,
        "limits": [
            _limit(check.limit, outcome) for check, outcome in zip(checks, outcomes, strict=True)
        ],
    }
    if override is not None:
        until = instant_text(override.until_ns)
        content |= {"blocked_until": until} if override.block else {"extra": override.extra}
        content["until"] = until
    return content


def _until(call: Call) -> int:
    """Return when an override ends, in nanoseconds since the epoch: `until`, or after `ttl`."""
    now_ns, ends_ns = call.api.core.clock(), 0
    until, ttl = call.body.get("until"), call.body.get("ttl")
    if (until is None) == (ttl is None):
        call.flaws.append(Flaw("until", "expected one of until, ttl (seconds)"))
    elif until is not None:
        ends_ns = instant_ns(until) or 0
        if not now_ns < ends_ns <= now_ns + LONGEST * SECOND:
            call.flaws.add("until", until, f"{AN_INSTANT}, to come, within ten years")
    elif ttl is not None:
        ends_ns = now_ns + int(ttl * SECOND)
    call.check()
    return ends_ns


def _limit(limit: Limit, outcome: Outcome) -> Data:
    after = outcome.retry_after_ns
    return {
        "limit": str(limit),
        "algorithm": limit.algorithm,
        "quota": limit.quota,
        "used": max(0, limit.quota - outcome.remaining),
        "remaining": outcome.remaining,
        "refused": not outcome.allowed,
        "retry_after": None if after is None else seconds_at_least(after),
        "reset_after": seconds_at_least(outcome.reset_after_ns),
    }
