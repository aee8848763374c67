"""Calls about single counters: look at one, forget it, give it more, refuse it for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.control.edits import UnknownOverrideError, override_of
from headgate.rules.reading.instants import AN_INSTANT, instant_ns, instant_text
from headgate.service.admin.call import etag
from headgate.service.admin.naming import Naming
from headgate.service.admin.telling import edited_reply
from headgate.service.http.asked import Flaws, invalid
from headgate.service.http.replies import Flaw, RefusedError, Reply, json_reply, problem
from headgate.stores.operations import Reset, Take
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.control.editing import PolicyEditor
    from headgate.control.live_counters import LiveCounters
    from headgate.limits import Limit
    from headgate.service.admin.call import Call
    from headgate.service.admin.naming import Named
    from headgate.service.core import Core

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
        document, wish = await call.document(), call.wish()
        named = self._naming.named(document)
        await self._editor.check_revision(wish)
        await call.begin(f"reset {named.key} under {named.rule.id}")
        checks = named.every_check(self._core.namespace)
        await self._core.engine.runner.store.run(Reset(checks))
        call.outcome = "changed"
        return json_reply({"rule_id": named.rule.id, "key": named.key, "reset": True})

    async def granted(self, call: Call) -> Reply:
        """POST /keys:grant: every limit is larger by `extra`, until then."""
        call.query()
        document, wish = await call.document(), call.wish()
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
            await self._editor.grant(rule_id, key, extra=extra, until_ns=until_ns, wish=wish)
        )
        content = {"rule_id": rule_id, "key": key, "extra": extra, "until": instant_text(until_ns)}
        return edited_reply(content, edited, rule_id=rule_id)

    async def blocked(self, call: Call) -> Reply:
        """POST /keys:block: everything is refused, until then."""
        call.query()
        document, wish = await call.document(), call.wish()
        named = self._naming.named(document, "until", "ttl")
        until_ns = self._until(document)
        rule_id, key = named.rule.id, named.key
        await call.begin(f"block {key} under {rule_id}")
        edited = call.edited(await self._editor.block(rule_id, key, until_ns=until_ns, wish=wish))
        content = {"rule_id": rule_id, "key": key, "block": True, "until": instant_text(until_ns)}
        return edited_reply(content, edited, rule_id=rule_id)

    async def unblocked(self, call: Call) -> Reply:
        """POST /keys:unblock."""
        call.query()
        document, wish = await call.document(), call.wish()
        named = self._naming.named(document)
        rule_id, key = named.rule.id, named.key
        if not (await self._standing(rule_id, key)).get("block"):
            raise UnknownOverrideError(f"the key {key!r} is not blocked under {rule_id!r}")
        await call.begin(f"unblock {key} under {rule_id}")
        edited = call.edited(await self._editor.remove_override(rule_id, key, wish))
        return edited_reply(
            {"rule_id": rule_id, "key": key, "block": False}, edited, rule_id=rule_id
        )

    async def overrides(self, call: Call) -> Reply:
        """GET /overrides: those that have not ended."""
        query = call.query("rule", "key")
        newest = await self._editor.head()
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
        query, wish = call.query("rule", "key"), call.wish()
        missing = [Flaw(name, "it is missing") for name in ("rule", "key") if name not in query]
        if missing:
            raise RefusedError(problem(400, "the query is wrong", flaws=tuple(missing)))
        rule_id, key = query["rule"], query["key"]
        await self._standing(rule_id, key)  # or it is nothing to be noted, and may be a secret
        await call.begin(f"end the override of {key} under {rule_id}")
        edited = call.edited(await self._editor.remove_override(rule_id, key, wish))
        return edited_reply({"rule_id": rule_id, "key": key}, edited, rule_id=rule_id)

    async def _standing(self, rule_id: str, key: str) -> Data:
        """What is otherwise for *key*. Raises `UnknownOverrideError`."""
        standing = override_of((await self._editor.head()).document, rule_id, key)
        if standing is None:
            raise UnknownOverrideError(f"the key {key!r} has no override under {rule_id!r}")
        return standing

    async def _portrait(self, named: Named) -> Reply:
        checks = named.checks(self._core.namespace)
        outcomes = await self._core.engine.runner.store.run(Take(checks, consume=False))
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
