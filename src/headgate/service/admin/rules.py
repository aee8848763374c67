"""Calls about rules: one, many, what would change, the switch and the candidate of each."""

from __future__ import annotations

from asyncio import to_thread
from typing import TYPE_CHECKING, Any, Final

from headgate.control.edits import RuleFilter, candidate_id
from headgate.control.live_counters import affected_by, judged
from headgate.control.preview import differences, to_data
from headgate.control.revision import Revision, UnknownRevisionError
from headgate.errors import StoreError
from headgate.policy.loader.rules import MODES
from headgate.service.admin.call import (
    Call,
    change_data,
    edited_reply,
    etag,
    problems_data,
    rule_data,
)
from headgate.service.http.check_request import Flaws, invalid
from headgate.service.http.replies import Flaw, RefusedError, Reply, json_reply, problem

if TYPE_CHECKING:
    from headgate.control.editor import Edited, PolicyEditor
    from headgate.control.live_counters import Affected, LiveCounters
    from headgate.control.preview import Preview
    from headgate.service.core import ShowKey


MOST_LISTED: Final = 1_000
_USUAL: Final = 100
_FILTERS: Final = ("mode", "key_by", "endpoint", "tier", "q", "limit", "offset")
_ON: Final = ("enforce", "shadow")


class RuleCalls:
    """What can be done with rules."""

    def __init__(self, editor: PolicyEditor, previews: Previews) -> None:
        self._editor = editor
        self._previews = previews

    async def listed(self, call: Call) -> Reply:
        """GET /rules: those that fit all filters."""
        query = call.query(*_FILTERS)
        mode = query.get("mode")
        if mode is not None and mode not in MODES:
            flaw = Flaw("mode", f"found {mode[:40]!r}", f"expected one of {', '.join(MODES)}")
            raise RefusedError(problem(400, "the query is wrong", flaws=(flaw,)))
        wanted = RuleFilter(
            mode=mode,
            key_by=query.get("key_by"),
            endpoint=query.get("endpoint"),
            tier=query.get("tier"),
            text=query.get("q"),
        )
        limit = call.number(query, "limit", _USUAL, MOST_LISTED)
        offset = call.number(query, "offset", 0, 10**9)
        page = await to_thread(self._editor.rules, wanted, offset=offset, limit=limit)
        after = offset + len(page.rules)
        content = {
            "revision": page.revision,
            "total": page.total,
            "rules": [rule_data(rule, version) for version, rule in page.rules],
            "next_offset": after if after < page.total and page.rules else None,
        }
        return _tagged(json_reply(content), page.revision)

    async def got(self, call: Call) -> Reply:
        """GET /rules/{rule_id}."""
        call.query()
        version, rule = await to_thread(self._editor.rule, call.parts["rule_id"])
        if call.has(version):
            return Reply(304, [etag(version)], b"")
        return _tagged(json_reply(rule_data(rule, version)), version)

    async def put(self, call: Call) -> Reply:
        """PUT /rules/{rule_id}."""
        call.query()
        rule_id = call.parts["rule_id"]
        document, request = await call.document(), call.edit_request()
        await call.begin(f"put rule {rule_id}")
        edited = call.edited(await to_thread(self._editor.put_rule, rule_id, document, request))
        version = edited.version_of(rule_id)
        content = {"rule_id": rule_id, "version": version}
        return edited_reply(content, edited, etag(version), rule_id=rule_id)

    async def deleted(self, call: Call) -> Reply:
        """DELETE /rules/{rule_id}."""
        call.query()
        rule_id, request = call.parts["rule_id"], call.edit_request()
        await call.begin(f"delete rule {rule_id}")
        edited = call.edited(await to_thread(self._editor.delete_rule, rule_id, request))
        content = {"rule_id": rule_id, "revision": edited.revision.number}
        return edited_reply(content, edited, rule_id=rule_id)

    async def switched_off(self, call: Call) -> Reply:
        """POST /rules/{rule_id}:disable."""
        call.query()
        rule_id, request = call.parts["rule_id"], call.edit_request()
        _check_empty(await call.document_if_any(), ())
        await call.begin(f"switch off {rule_id}")
        edited = call.edited(await to_thread(self._editor.switch_off, rule_id, request))
        version = edited.version_of(rule_id)
        content = {"rule_id": rule_id, "version": version, "mode": "off"}
        return edited_reply(content, edited, etag(version), rule_id=rule_id)

    async def switched_on(self, call: Call) -> Reply:
        """POST /rules/{rule_id}:enable, with a mode or in the one before."""
        call.query()
        rule_id, request = call.parts["rule_id"], call.edit_request()
        document = await call.document_if_any()
        _check_empty(document, ("mode",))
        mode = document.get("mode")
        if mode is not None and mode not in _ON:
            flaws = Flaws()
            flaws.add("mode", mode, "enforce or shadow")
            raise invalid(flaws)
        await call.begin(f"switch on {rule_id}")
        edited = call.edited(await to_thread(self._editor.switch_on, rule_id, request, mode=mode))
        version = edited.version_of(rule_id)
        rules = edited.revision.document["rules"]
        now = next(rule.get("mode", "enforce") for rule in rules if rule.get("id") == rule_id)
        content = {"rule_id": rule_id, "version": version, "mode": now}
        return edited_reply(content, edited, etag(version), rule_id=rule_id)

    async def tried(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/candidate: a rule to be tried in shadow beside it."""
        call.query()
        rule_id = call.parts["rule_id"]
        document, request = await call.document(), call.edit_request()
        await call.begin(f"try a candidate of {rule_id}")
        edited = call.edited(
            await to_thread(self._editor.put_candidate, rule_id, document, request)
        )
        name = candidate_id(edited.revision.document, rule_id) or ""
        version = edited.version_of(name)
        content = {"rule_id": name, "version": version, "mode": "shadow", "candidate_of": rule_id}
        return edited_reply(content, edited, etag(version), rule_id=name)

    async def adopted(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/adopt: its candidate in its place."""
        call.query()
        rule_id, request = call.parts["rule_id"], call.edit_request()
        _check_empty(await call.document_if_any(), ())
        await call.begin(f"adopt the candidate of {rule_id}")
        edited = call.edited(await to_thread(self._editor.adopt, rule_id, request))
        version = edited.version_of(rule_id)
        return edited_reply(
            {"rule_id": rule_id, "version": version}, edited, etag(version), rule_id=rule_id
        )

    async def trial_previewed(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/candidate:preview."""
        call.query()
        document = await call.document()
        preview = await to_thread(self._editor.preview_candidate, call.parts["rule_id"], document)
        return await self._previews.reply(preview)

    async def adoption_previewed(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/adopt:preview."""
        call.query()
        _check_empty(await call.document_if_any(), ())
        preview = await to_thread(self._editor.preview_adoption, call.parts["rule_id"])
        return await self._previews.reply(preview)

    async def previewed(self, call: Call) -> Reply:
        """POST /rules:preview, of rules by their ids; null deletes."""
        call.query()
        document = await call.document()
        _check_empty(document, ("rules",))
        rules = document.get("rules")
        if not isinstance(rules, dict) or not rules or not all(map(_is_rule, rules.values())):
            flaws = Flaws()
            flaws.add("rules", rules, "an object of rules by their ids, null to delete one")
            raise invalid(flaws)
        return await self._previews.reply(await to_thread(self._editor.preview_rules, rules))


def _is_rule(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _check_empty(document: dict[str, Any], known: tuple[str, ...]) -> None:
    """Refuse fields that nobody knows."""
    hint = f"expected {', '.join(known)}" if known else "expected none"
    flaws = [Flaw(name[:40], "no such field", hint) for name in document if name not in known]
    if flaws:
        raise invalid(flaws)


def _tagged(reply: Reply, version: int) -> Reply:
    return reply._replace(headers=[*reply.headers, etag(version)])


# Calls about the whole policy: as it is, in its place another, its history, going back.


POLICIES_MOST_LISTED: Final = 500
_POLICIES_USUAL: Final = 50
_LARGEST: Final = 10**15


class PolicyCalls:
    """What can be done with the policy as a whole."""

    def __init__(self, editor: PolicyEditor, previews: Previews) -> None:
        self._editor = editor
        self._previews = previews

    async def got(self, call: Call) -> Reply:
        """GET /policy."""
        call.query()
        newest = await to_thread(self._editor.head)
        if call.has(newest.number):
            return Reply(304, [etag(newest.number)], b"")
        reply = json_reply(_portrait(newest))
        return reply._replace(headers=[*reply.headers, etag(newest.number)])

    async def put(self, call: Call) -> Reply:
        """PUT /policy: all at once, or nothing."""
        call.query()
        document, request = await call.document(), call.edit_request()
        await call.begin("replace the policy")
        return _revised(call.edited(await to_thread(self._editor.replace, document, request)))

    async def previewed(self, call: Call) -> Reply:
        """POST /policy:preview."""
        call.query()
        return await self._previews.reply(
            await to_thread(self._editor.preview, await call.document())
        )

    async def history(self, call: Call) -> Reply:
        """GET /history: the newest first."""
        query = call.query("before", "limit")
        limit = max(1, call.number(query, "limit", _POLICIES_USUAL, POLICIES_MOST_LISTED))
        before = call.number(query, "before", _LARGEST, _LARGEST)
        found = await to_thread(self._editor.source.history, before=before, most=limit)
        content = {
            "revisions": [change_data(number, change) for number, change in found],
            "next_before": found[-1][0] if len(found) == limit else None,
        }
        return json_reply(content)

    async def revision(self, call: Call) -> Reply:
        """GET /history/{number}: with what it changed, if the one before is still there."""
        call.query()
        number = int(call.parts["number"])
        source = self._editor.source
        revision = await to_thread(source.at, number)
        try:
            before = Revision(0) if number == 1 else await to_thread(source.at, number - 1)
        except UnknownRevisionError:
            changes = None
        else:
            changes = to_data(differences(before.document, revision.document))
        return json_reply({**_portrait(revision), "changes": changes})

    async def rolled_back(self, call: Call) -> Reply:
        """POST /rollback {"revision": n}."""
        call.query()
        document = await call.document()
        flaws = Flaws(
            Flaw(name[:40], "no such field", "expected revision")
            for name in document
            if name != "revision"
        )
        number = document.get("revision")
        if type(number) is not int or not 0 < number <= _LARGEST:
            flaws.add("revision", number, "the number of a revision")
        if flaws or number is None:
            raise invalid(flaws)
        request = call.edit_request()
        await call.begin(f"roll back to revision {number}")
        return _revised(call.edited(await to_thread(self._editor.rollback, number, request)))


def _portrait(revision: Revision) -> dict[str, Any]:
    return {
        **change_data(revision.number, revision.change),
        "policy": dict(revision.document),
        "versions": dict(revision.versions),
    }


def _revised(edited: Edited) -> Reply:
    number = edited.revision.number
    content = {"revision": number, "changed": edited.is_changed}
    return edited_reply(content, edited, etag(number))


# What is answered to a preview: what would change, and for whom.


Data = dict[str, Any]


class Previews:
    """Tells previews, with counters of the store if it can be looked through, whose keys are shown
    to people as *show_key* says."""

    def __init__(self, live: LiveCounters | None, show_key: ShowKey) -> None:
        self._live = live
        self._show_key = show_key

    async def reply(self, preview: Preview) -> Reply:
        """All that *preview* says. It is 200 too if the policy could not be put in force."""
        errors = [one for one in preview.problems if one.severity == "error"]
        warnings = [one for one in preview.problems if one.severity == "warning"]
        content = {
            "revision": preview.number,
            "valid": preview.is_good,
            "errors": problems_data(errors),
            "warnings": problems_data(warnings),
            "changes": to_data(preview.differences),
            "consequences": [
                {"rule_id": one.rule, "effect": one.effect, "message": one.message}
                for one in preview.consequences
            ],
            "counters": await self._counters(preview),
        }
        return json_reply(content)

    async def _counters(self, preview: Preview) -> Data:
        if self._live is None:
            return {"available": False, "reason": "the counters of this store cannot be listed"}
        try:
            look = await affected_by(preview, self._live)
        except StoreError as error:
            return {"available": False, "reason": f"the store cannot be asked ({error.reason})"}
        found = [_affected(one, self._show_key) for one in judged(look, preview)]
        return {"available": True, "affected": found, "more": look.has_more}


def _affected(one: Affected, show_key: ShowKey) -> Data:
    counter = one.counter
    return {
        "rule_id": counter.rule,
        "key": counter.key,
        "shown_key": counter.key if counter.is_digest else show_key(counter.key),
        "is_digest": counter.is_digest,
        "limit": counter.place,
        "used": counter.used,
        "refused_now": one.was_refused,
        "refused_after": one.would_be_refused,
    }
