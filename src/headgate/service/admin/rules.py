"""Calls about rules: one, many, what would change, the switch and the candidate of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.control.candidates import candidate_id
from headgate.control.listing import RuleFilter
from headgate.rules.reading.rules import MODES
from headgate.service.admin.call import Call, etag
from headgate.service.admin.telling import edited_reply, rule_data
from headgate.service.http.asked import Flaws, invalid
from headgate.service.http.replies import Flaw, RefusedError, Reply, json_reply, problem

if TYPE_CHECKING:
    from headgate.control.editing import PolicyEditor
    from headgate.service.admin.previews import Previews

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
        page = await self._editor.rules(wanted, offset=offset, limit=limit)
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
        version, rule = await self._editor.rule(call.parts["rule_id"])
        if call.has(version):
            return Reply(304, [etag(version)], b"")
        return _tagged(json_reply(rule_data(rule, version)), version)

    async def put(self, call: Call) -> Reply:
        """PUT /rules/{rule_id}."""
        call.query()
        rule_id = call.parts["rule_id"]
        document, wish = await call.document(), call.wish()
        await call.begin(f"put rule {rule_id}")
        edited = call.edited(await self._editor.put_rule(rule_id, document, wish))
        version = edited.version_of(rule_id)
        content = {"rule_id": rule_id, "version": version}
        return edited_reply(content, edited, etag(version), rule_id=rule_id)

    async def deleted(self, call: Call) -> Reply:
        """DELETE /rules/{rule_id}."""
        call.query()
        rule_id, wish = call.parts["rule_id"], call.wish()
        await call.begin(f"delete rule {rule_id}")
        edited = call.edited(await self._editor.delete_rule(rule_id, wish))
        content = {"rule_id": rule_id, "revision": edited.revision.number}
        return edited_reply(content, edited, rule_id=rule_id)

    async def switched_off(self, call: Call) -> Reply:
        """POST /rules/{rule_id}:disable."""
        call.query()
        rule_id, wish = call.parts["rule_id"], call.wish()
        _check_empty(await call.document_if_any(), ())
        await call.begin(f"switch off {rule_id}")
        edited = call.edited(await self._editor.switch_off(rule_id, wish))
        version = edited.version_of(rule_id)
        content = {"rule_id": rule_id, "version": version, "mode": "off"}
        return edited_reply(content, edited, etag(version), rule_id=rule_id)

    async def switched_on(self, call: Call) -> Reply:
        """POST /rules/{rule_id}:enable, with a mode or in the one before."""
        call.query()
        rule_id, wish = call.parts["rule_id"], call.wish()
        document = await call.document_if_any()
        _check_empty(document, ("mode",))
        mode = document.get("mode")
        if mode is not None and mode not in _ON:
            flaws = Flaws()
            flaws.add("mode", mode, "enforce or shadow")
            raise invalid(flaws)
        await call.begin(f"switch on {rule_id}")
        edited = call.edited(await self._editor.switch_on(rule_id, wish, mode=mode))
        version = edited.version_of(rule_id)
        rules = edited.revision.document["rules"]
        now = next(rule.get("mode", "enforce") for rule in rules if rule.get("id") == rule_id)
        content = {"rule_id": rule_id, "version": version, "mode": now}
        return edited_reply(content, edited, etag(version), rule_id=rule_id)

    async def tried(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/candidate: a rule to be tried in shadow beside it."""
        call.query()
        rule_id = call.parts["rule_id"]
        document, wish = await call.document(), call.wish()
        await call.begin(f"try a candidate of {rule_id}")
        edited = call.edited(await self._editor.put_candidate(rule_id, document, wish))
        name = candidate_id(edited.revision.document, rule_id) or ""
        version = edited.version_of(name)
        content = {"rule_id": name, "version": version, "mode": "shadow", "candidate_of": rule_id}
        return edited_reply(content, edited, etag(version), rule_id=name)

    async def adopted(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/adopt: its candidate in its place."""
        call.query()
        rule_id, wish = call.parts["rule_id"], call.wish()
        _check_empty(await call.document_if_any(), ())
        await call.begin(f"adopt the candidate of {rule_id}")
        edited = call.edited(await self._editor.adopt(rule_id, wish))
        version = edited.version_of(rule_id)
        return edited_reply(
            {"rule_id": rule_id, "version": version}, edited, etag(version), rule_id=rule_id
        )

    async def trial_previewed(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/candidate:preview."""
        call.query()
        document = await call.document()
        preview = await self._editor.preview_candidate(call.parts["rule_id"], document)
        return await self._previews.reply(preview)

    async def adoption_previewed(self, call: Call) -> Reply:
        """POST /rules/{rule_id}/adopt:preview."""
        call.query()
        _check_empty(await call.document_if_any(), ())
        preview = await self._editor.preview_adoption(call.parts["rule_id"])
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
        return await self._previews.reply(await self._editor.preview_rules(rules))


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
