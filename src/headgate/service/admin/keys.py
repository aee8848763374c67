"""Calls about single counters: look at one, forget it, give it more, refuse it for a while."""

from __future__ import annotations

import re
from asyncio import to_thread
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.control.edits import UnknownOverrideError, override_of
from headgate.engine.plan import plan_rule
from headgate.engine.request import Request
from headgate.limits import with_extra
from headgate.policy.identity.parts import claim_of, spelled
from headgate.policy.loader.limits import DEFAULT_TIER
from headgate.policy.loader.overrides import LONGEST_KEY
from headgate.policy.loader.scalars import AN_INSTANT, instant_ns, instant_text
from headgate.policy.model import BUILT_IN_PARTS, GLOBAL, compiled_rule
from headgate.service.admin.call import edited_reply, etag
from headgate.service.http.check_request import TO_LOOK, Flaws, invalid, read_asked
from headgate.service.http.replies import Flaw, RefusedError, Reply, json_reply, problem
from headgate.stores.operations import Reset, Take
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.control.editor import PolicyEditor
    from headgate.control.live_counters import LiveCounters
    from headgate.limits import Limit
    from headgate.policy.model import Identity, Override, Policy, Rule
    from headgate.service.admin.call import Call
    from headgate.service.core import Core
    from headgate.stores.operations import Check


# What the keys of a rule look like, so that none is taken for one that cannot be.
#
# A key that no caller ever has would be blocked in vain; and one who gives a raw credential in the
# place of its digest would have it kept for ever, in the policy and in what is noted.


_DIGEST: Final = "~[0-9a-f]{32}"
_VALUE: Final = "[^&]*"


def key_shape(rule: Rule, identity: Identity) -> str:
    """What a key of *rule* looks like, in words: `tenant=...&api_key=~DIGEST`."""
    return "&".join(map(partial(_shape, identity=identity), rule.key_by))


def fits(key: str, rule: Rule, identity: Identity) -> bool:
    """Whether *key* may be one of *rule*."""
    parts = map(partial(_pattern, identity=identity), rule.key_by)
    return re.fullmatch("&".join(parts), key) is not None


def _shape(name: str, identity: Identity) -> str:
    if name == GLOBAL:
        return name
    label, is_secret = _claimed(name, identity)
    return f"{label}=~DIGEST" if is_secret else f"{label}=..."


def _pattern(name: str, identity: Identity) -> str:
    if name == GLOBAL:
        return re.escape(name)
    label, is_secret = _claimed(name, identity)
    value = _DIGEST if is_secret else _VALUE
    return f"{re.escape(label)}(?:={value}|!shared|!ip={_VALUE})"


def _claimed(name: str, identity: Identity) -> tuple[str, bool]:
    if name in BUILT_IN_PARTS:
        return name, False
    claim = claim_of(name, identity)
    return spelled(claim.name), claim.secret


# Whose counter is meant: by its key, by a request, or by what is known of the caller.


WAYS: Final = ("key", "request", "identity")
_ABOUT: Final = frozenset(("rule", "key", "tier", "request", "identity"))


@dataclass(frozen=True, slots=True)
class Named:
    """A counter of *rule*, under *limits*; with what is otherwise for it now, if anything is.

    *applies* is whether the rule is for the request that it was named by; None if it was not.
    """

    rule: Rule
    key: str
    limits: tuple[Limit, ...]
    override: Override | None
    applies: bool | None

    def checks(self, namespace: str) -> tuple[Check, ...]:
        """How to look at it: each limit, for one unit."""
        extra = 0 if self.override is None else self.override.extra
        limits = tuple(with_extra(one, extra) if extra else one for one in self.limits)
        return plan_rule(compiled_rule(self.rule), limits, self.key, 1, namespace).checks

    def every_check(self, namespace: str) -> tuple[Check, ...]:
        """All the places where something may be counted for it, of whatever tier."""
        found: dict[Check, None] = {}
        for limits in self.rule.limits.values():
            found |= dict.fromkeys(
                plan_rule(compiled_rule(self.rule), limits, self.key, 1, namespace).checks
            )
        return tuple(found)


class Naming:
    """Finds the counters that are meant, in the policy in force."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def named(self, document: dict[str, Any], *more: str) -> Named:
        """The counter that *document* means, which may have the fields *more* besides.

        Raises `RefusedError` with all that is wrong with it.
        """
        _check(document, more)
        engine = self._core.rules.in_force.compiled
        policy = engine.policy
        rule = next((one for one in policy.rules if one.id == document["rule"]), None)
        if rule is None:
            told = f"there is no rule {document['rule'][:100]!r} in force"
            raise RefusedError(problem(404, told))
        if rule.fair is not None:
            told = f"the rule {rule.id!r} has no counters: its requests take turns, in each app"
            raise RefusedError(problem(422, told))
        if "key" in document:
            _check_shape(document["key"], rule, policy.identity)
            tier = _tier(rule, document.get("tier"))
            return self._named(policy, rule, document["key"], rule.limits_for(tier), None)
        request = _request(document, policy.identity)
        found = engine.identifier.find(request)
        key = engine.identifier.key(rule, request, found)
        limits = rule.limits_for(found["tier"])
        if key is None or not limits:
            told = f"the rule {rule.id!r} does not limit this caller: it has no counter"
            raise RefusedError(problem(422, told))
        applies = None
        if "request" in document:
            applies = any(one.id == rule.id for one in engine.matching(request))
        return self._named(policy, rule, key, limits, applies)

    def _named(
        self,
        policy: Policy,
        rule: Rule,
        key: str,
        limits: tuple[Limit, ...],
        applies: bool | None,  # noqa: FBT001 (it is told, it chooses nothing)
    ) -> Named:
        now_ns = self._core.clock()
        override = next(
            (
                one
                for one in policy.overrides
                if (one.rule, one.key) == (rule.id, key) and one.until_ns > now_ns
            ),
            None,
        )
        return Named(rule, key, limits, override, applies)


def _check(document: dict[str, Any], more: tuple[str, ...]) -> None:
    """Refuse what does not name one counter."""
    flaws = Flaws()
    known = sorted({*_ABOUT, *more})
    for name in document:
        if name not in known:
            flaws.append(Flaw(name[:40], "no such field", f"expected {', '.join(known)}"))
    if not isinstance(document.get("rule"), str):
        flaws.add("rule", document.get("rule"), "the id of a rule")
    given = [way for way in WAYS if way in document]
    if len(given) != 1:
        flaws.append(Flaw("key", f"found {len(given)} of {', '.join(WAYS)}", "expected one"))
    key = document.get("key", "x")
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        flaws.add("key", key, "the key of a counter, as explain shows it")
    for name in ("request", "identity"):
        if name in document and not isinstance(document[name], dict):
            flaws.add(name, document[name], "an object")
    if "tier" in document and "key" not in document:
        flaws.append(Flaw("tier", "it is for a key", "expected it in request or identity"))
    if flaws:
        raise invalid(flaws)


def _check_shape(key: str, rule: Rule, identity: Identity) -> None:
    """Refuse what cannot be a key of *rule*; it may be a secret, so it is not repeated."""
    if not fits(key, rule, identity):
        hint = f"expected {key_shape(rule, identity)}; or say identity, to name a caller by it"
        raise invalid([Flaw("key", f"no key of the rule {rule.id!r}", hint)])


def _tier(rule: Rule, named: object) -> str | None:
    """The tier whose limits a key is under."""
    tiers = [DEFAULT_TIER if tier is None else tier for tier in rule.limits]
    if named is None and len(rule.limits) == 1:
        return next(iter(rule.limits))
    if named not in tiers:
        flaws = Flaws()
        flaws.add("tier", named, f"one of {', '.join(tiers[:20])}: the limits differ")
        raise invalid(flaws)
    return None if named == DEFAULT_TIER else str(named)


def _request(document: dict[str, Any], identity: Identity) -> Request:
    if "request" in document:
        return read_asked(document["request"], TO_LOOK).request
    return _request_of(document["identity"], identity)


def _request_of(values: dict[str, Any], identity: Identity) -> Request:
    """A request of the caller who is known by *values*."""
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
            flaws.append(Flaw(f"identity.{name[:40]}", "nothing that a caller says", hint))
        elif source.header is not None:
            headers.append((source.header, value))
        elif source.cookie is not None:
            headers.append(("cookie", f"{source.cookie}={value}"))
        elif source.attribute is not None:
            attributes[source.attribute] = value
    if flaws:
        raise invalid(flaws)
    return Request(headers=tuple(headers), peer=peer, attributes=attributes)


Data = dict[str, Any]
MOST_LISTED: Final = 1_000
LONGEST: Final = 10 * 366 * 86_400
"""Seconds that an override may last."""
_LARGEST_EXTRA: Final = 10**15 - 1


class KeyCalls:
    """What can be done with the counter of one caller under one rule."""

    def __init__(self, core: Core, editor: PolicyEditor, live: LiveCounters | None) -> None:
        self._core = core
        self._editor = editor
        self._live = live
        self._naming = Naming(core)

    async def listed(self, call: Call) -> Reply:
        """GET /keys: one counter (`key`), or some of those of a rule."""
        query = call.query("rule", "key", "tier", "pattern", "limit")
        if "key" in query:
            return await self._portrait(self._naming.named(query))
        if "rule" not in query:
            raise RefusedError(problem(400, "expected rule, the id of a rule"))
        if self._live is None:
            told = "the counters of this store cannot be listed; say key, the one that is meant"
            raise RefusedError(problem(501, told))
        limit = max(1, call.number(query, "limit", 100, MOST_LISTED))
        rule, pattern = query["rule"], query.get("pattern")
        look = await self._live.find([rule], most=limit, pattern=pattern)
        found = [
            {"key": one.key, "is_digest": one.is_digest, "limit": one.place, "used": one.used}
            for one in look.counters
        ]
        return json_reply({"rule_id": rule, "counters": found, "more": look.has_more})

    async def looked_up(self, call: Call) -> Reply:
        """POST /keys:lookup."""
        call.query()
        return await self._portrait(self._naming.named(await call.document()))

    async def reset(self, call: Call) -> Reply:
        """POST /keys:reset: as if it had never been used, reservations included."""
        call.query()
        document, request = await call.document(), call.edit_request()
        named = self._naming.named(document)
        await to_thread(self._editor.check_revision, request)
        await call.begin(f"reset {named.key} under {named.rule.id}")
        checks = named.every_check(self._core.namespace)
        await self._core.rules.engine.store.arun(Reset(checks))
        call.outcome = "changed"
        return json_reply({"rule_id": named.rule.id, "key": named.key, "reset": True})

    async def granted(self, call: Call) -> Reply:
        """POST /keys:grant: every limit is larger by `extra`, until then."""
        call.query()
        document, request = await call.document(), call.edit_request()
        named = self._naming.named(document, "extra", "until", "ttl")
        extra = document.get("extra")
        if type(extra) is not int or not 0 < extra <= _LARGEST_EXTRA:
            flaws = Flaws()
            flaws.add("extra", extra, f"a whole number from 1 to {_LARGEST_EXTRA}")
            raise invalid(flaws)
        until_ns = self._until(document)
        rule_id, key = named.rule.id, named.key
        await call.begin(f"grant {extra} more to {key} under {rule_id}")
        edited = call.edited(
            await to_thread(
                self._editor.grant, rule_id, key, extra=extra, until_ns=until_ns, request=request
            )
        )
        content = {"rule_id": rule_id, "key": key, "extra": extra, "until": instant_text(until_ns)}
        return edited_reply(content, edited, rule_id=rule_id)

    async def blocked(self, call: Call) -> Reply:
        """POST /keys:block: everything is refused, until then."""
        call.query()
        document, request = await call.document(), call.edit_request()
        named = self._naming.named(document, "until", "ttl")
        until_ns = self._until(document)
        rule_id, key = named.rule.id, named.key
        await call.begin(f"block {key} under {rule_id}")
        edited = call.edited(
            await to_thread(self._editor.block, rule_id, key, until_ns=until_ns, request=request)
        )
        content = {"rule_id": rule_id, "key": key, "block": True, "until": instant_text(until_ns)}
        return edited_reply(content, edited, rule_id=rule_id)

    async def unblocked(self, call: Call) -> Reply:
        """POST /keys:unblock."""
        call.query()
        document, request = await call.document(), call.edit_request()
        named = self._naming.named(document)
        rule_id, key = named.rule.id, named.key
        if not (await self._standing(rule_id, key)).get("block"):
            raise UnknownOverrideError(f"the key {key!r} is not blocked under {rule_id!r}")
        await call.begin(f"unblock {key} under {rule_id}")
        edited = call.edited(await to_thread(self._editor.remove_override, rule_id, key, request))
        return edited_reply(
            {"rule_id": rule_id, "key": key, "block": False}, edited, rule_id=rule_id
        )

    async def overrides(self, call: Call) -> Reply:
        """GET /overrides: those that have not ended."""
        query = call.query("rule", "key")
        newest = await to_thread(self._editor.head)
        now_ns = self._core.clock()
        found = [
            one
            for one in newest.document.get("overrides") or ()
            if (instant_ns(str(one.get("until"))) or 0) > now_ns
            and query.get("rule") in (None, one.get("rule"))
            and query.get("key") in (None, one.get("key"))
        ]
        reply = json_reply({"revision": newest.number, "overrides": found})
        return reply._replace(headers=[*reply.headers, etag(newest.number)])

    async def override_ended(self, call: Call) -> Reply:
        """DELETE /overrides?rule=&key=: a block or a grant."""
        query, request = call.query("rule", "key"), call.edit_request()
        missing = [Flaw(name, "it is missing") for name in ("rule", "key") if name not in query]
        if missing:
            raise RefusedError(problem(400, "the query is wrong", flaws=tuple(missing)))
        rule_id, key = query["rule"], query["key"]
        await self._standing(rule_id, key)  # or it is nothing to be noted, and may be a secret
        await call.begin(f"end the override of {key} under {rule_id}")
        edited = call.edited(await to_thread(self._editor.remove_override, rule_id, key, request))
        return edited_reply({"rule_id": rule_id, "key": key}, edited, rule_id=rule_id)

    async def _standing(self, rule_id: str, key: str) -> Data:
        """What is otherwise for *key*. Raises `UnknownOverrideError`."""
        standing = override_of((await to_thread(self._editor.head)).document, rule_id, key)
        if standing is None:
            raise UnknownOverrideError(f"the key {key!r} has no override under {rule_id!r}")
        return standing

    async def _portrait(self, named: Named) -> Reply:
        checks = named.checks(self._core.namespace)
        outcomes = await self._core.rules.engine.store.arun(Take(checks, consume=False))
        override = named.override
        content: Data = {
            "rule_id": named.rule.id,
            "key": named.key,
            "mode": named.rule.mode,
            "blocked_until": None,
            "extra": 0,
            "limits": [
                _limit(check.limit, outcome)
                for check, outcome in zip(checks, outcomes, strict=True)
            ],
        }
        if override is not None:
            until = instant_text(override.until_ns)
            content |= {"blocked_until": until} if override.block else {"extra": override.extra}
            content["until"] = until
        if named.applies is not None:
            content["applies"] = named.applies
        return json_reply(content)

    def _until(self, document: Data) -> int:
        """When an override is to end, in nanoseconds since the epoch: at a time, or after one."""
        flaws = Flaws()
        now_ns, ends_ns = self._core.clock(), 0
        until, ttl = document.get("until"), document.get("ttl")
        if (until is None) == (ttl is None):
            flaws.append(Flaw("until", "expected one of until, ttl (seconds)"))
        elif until is not None:
            ends_ns = (instant_ns(until) if isinstance(until, str) else None) or 0
            if not now_ns < ends_ns <= now_ns + LONGEST * SECOND:
                flaws.add("until", until, f"{AN_INSTANT}, to come, within ten years")
        elif ttl is None or type(ttl) not in (int, float) or not 0.001 <= ttl <= LONGEST:
            flaws.add("ttl", ttl, f"seconds, at least 0.001, at most {LONGEST}")
        else:
            ends_ns = now_ns + int(ttl * SECOND)
        if flaws:
            raise invalid(flaws)
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
