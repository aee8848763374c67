"""Operations on rules and on the policy as a whole: read, edit, preview, history, rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.control.edits import RuleFilter, candidate_id
from headgate.control.live_counters import affected_by, judged
from headgate.control.preview import differences
from headgate.control.revision import Revision, UnknownRevisionError
from headgate.errors import StoreError
from headgate.policy.model import MODES
from headgate.service.admin.call import (
    change_data,
    edited_reply,
    not_modified,
    problems_data,
    rule_data,
    rule_reply,
    tagged_reply,
    to_thread,
    wrong_query,
)
from headgate.service.admin.operations import (
    ANY,
    MOMENT,
    NOTHING,
    POLICY,
    PROBLEM,
    RULE,
    TEXT,
    WHOLE,
    Query,
    a_list,
    an_object,
    operation,
)
from headgate.service.http.check_request import invalid
from headgate.service.http.replies import Flaw, Reply, json_reply

if TYPE_CHECKING:
    from headgate.control.editor import Edited, PolicyEditor
    from headgate.control.live_counters import Affected, LiveCounters
    from headgate.control.preview import Preview
    from headgate.service.admin.call import Call
    from headgate.service.core import ShowKey

    Data = dict[str, Any]

MOST_LISTED: Final = 1_000
MOST_REVISIONS: Final = 500
_LARGEST: Final = 10**15

_ONE_RULE: Final = an_object(("rule_id", "version", "rule"), rule_id=TEXT, version=WHOLE, rule=RULE)
_EDITED_RULE: Final = an_object(
    ("rule_id", "version"),
    rule_id=TEXT,
    version=WHOLE,
    mode=TEXT,
    candidate_of=TEXT,
    warnings=a_list(PROBLEM),
)
_DELETED: Final = an_object(
    ("rule_id", "revision"), rule_id=TEXT, revision=WHOLE, warnings=a_list(PROBLEM)
)
_RULES: Final = an_object(
    ("revision", "total", "rules"),
    revision=WHOLE,
    total=WHOLE,
    rules=a_list(_ONE_RULE),
    next_offset={"type": ["integer", "null"]},
)
_FILTERS: Final = (
    Query("mode", "enforce, shadow or off"),
    Query("key_by", "a part of the key"),
    Query("endpoint", "a pattern, or a path that the rule is for"),
    Query("tier", "one that the rule is for, or has limits for"),
    Query("q", "a text anywhere in the rule"),
    Query("limit", "how many at most", WHOLE),
    Query("offset", "how many to leave out first", WHOLE),
)
_PREVIEW: Final = an_object(
    ("revision", "valid", "changes"),
    revision=WHOLE,
    valid={"type": "boolean"},
    errors=a_list(PROBLEM),
    warnings=a_list(PROBLEM),
    changes=ANY,
    consequences=a_list(an_object(rule_id=TEXT, effect=TEXT, message=TEXT)),
    counters=ANY,
)
_SOME_RULES: Final = an_object(
    ("rules",), rules={"type": "object", "additionalProperties": {"type": ["object", "null"]}}
)
_CHANGE: Final = {"revision": WHOLE, "author": TEXT, "time": MOMENT, "what": TEXT, "note": TEXT}
_REVISION: Final = an_object(
    ("revision", "policy"),
    **_CHANGE,
    policy=POLICY,
    versions={"type": "object", "additionalProperties": WHOLE},
    changes={"type": ["object", "null"]},
)
_REVISED: Final = an_object(
    ("revision",), revision=WHOLE, changed={"type": "boolean"}, warnings=a_list(PROBLEM)
)
_HISTORY: Final = an_object(
    ("revisions",),
    revisions=a_list(an_object(("revision", "author", "time", "what"), **_CHANGE)),
    next_before={"type": ["integer", "null"]},
)


class RuleCalls:
    """Operations on rules."""

    def __init__(self, editor: PolicyEditor, previews: Previews) -> None:
        self._editor = editor
        self._previews = previews

    @operation("GET /rules", "List rules.", answer=_RULES, query=_FILTERS)
    async def list_rules(self, call: Call) -> Reply:
        query = call.query
        mode = query.get("mode")
        if mode is not None and mode not in MODES:
            raise wrong_query(
                Flaw("mode", f"found {mode[:40]!r}", f"expected one of {', '.join(MODES)}")
            )
        wanted = RuleFilter(
            mode=mode,
            key_by=query.get("key_by"),
            endpoint=query.get("endpoint"),
            tier=query.get("tier"),
            text=query.get("q"),
        )
        limit, offset = call.number("limit", 100, MOST_LISTED), call.number("offset", 0, 10**9)
        page = await to_thread(self._editor.rules, wanted, offset=offset, limit=limit)
        after = offset + len(page.rules)
        content = {
            "revision": page.revision,
            "total": page.total,
            "rules": [rule_data(rule, version) for version, rule in page.rules],
            "next_offset": after if after < page.total and page.rules else None,
        }
        return tagged_reply(content, page.revision)

    @operation("GET /rules/{rule_id}", "Get a rule.", answer=_ONE_RULE)
    async def get(self, call: Call) -> Reply:
        version, rule = await to_thread(self._editor.rule, call.rule_id)
        if call.has(version):
            return not_modified(version)
        return tagged_reply(rule_data(rule, version), version)

    @operation(
        "PUT /rules/{rule_id}",
        "Create or change a rule.",
        answer=_EDITED_RULE,
        body=RULE,
        role="write",
    )
    async def put(self, call: Call) -> Reply:
        rule_id = call.rule_id
        edited = await call.edit(f"put rule {rule_id}", self._editor.put_rule, rule_id, call.body)
        return rule_reply(edited, rule_id)

    @operation(
        "DELETE /rules/{rule_id}",
        "Delete a rule and its candidate.",
        answer=_DELETED,
        role="write",
    )
    async def delete(self, call: Call) -> Reply:
        rule_id = call.rule_id
        edited = await call.edit(f"delete rule {rule_id}", self._editor.delete_rule, rule_id)
        content = {"rule_id": rule_id, "revision": edited.revision.number}
        return edited_reply(content, edited, rule_id=rule_id)

    @operation(
        "POST /rules/{rule_id}:disable",
        "Take a rule out of force.",
        answer=_EDITED_RULE,
        body=NOTHING,
        needs_body=False,
        role="write",
    )
    async def disable(self, call: Call) -> Reply:
        rule_id = call.rule_id
        edited = await call.edit(f"switch off {rule_id}", self._editor.switch_off, rule_id)
        return rule_reply(edited, rule_id, mode="off")

    @operation(
        "POST /rules/{rule_id}:enable",
        "Put a rule in force again, by default in the mode that it had.",
        answer=_EDITED_RULE,
        body=an_object(mode={"enum": ["enforce", "shadow"]}),
        needs_body=False,
        role="write",
    )
    async def enable(self, call: Call) -> Reply:
        rule_id, mode = call.rule_id, call.body.get("mode")
        if mode not in (None, "enforce", "shadow"):
            call.flaws.add("mode", mode, "enforce or shadow")
        edited = await call.edit(f"switch on {rule_id}", self._editor.switch_on, rule_id, mode=mode)
        rules = edited.revision.document["rules"]
        now = next(rule.get("mode", "enforce") for rule in rules if rule.get("id") == rule_id)
        return rule_reply(edited, rule_id, mode=now)

    @operation(
        "POST /rules/{rule_id}/candidate",
        "Try a rule in shadow beside this one.",
        answer=_EDITED_RULE,
        body=RULE,
        role="write",
    )
    async def try_candidate(self, call: Call) -> Reply:
        rule_id = call.rule_id
        what = f"try a candidate of {rule_id}"
        edited = await call.edit(what, self._editor.put_candidate, rule_id, call.body)
        name = candidate_id(edited.revision.document, rule_id) or ""
        return rule_reply(edited, name, mode="shadow", candidate_of=rule_id)

    @operation(
        "POST /rules/{rule_id}/adopt",
        "Replace a rule by its candidate.",
        answer=_EDITED_RULE,
        body=NOTHING,
        needs_body=False,
        role="write",
    )
    async def adopt(self, call: Call) -> Reply:
        what = f"adopt the candidate of {call.rule_id}"
        edited = await call.edit(what, self._editor.adopt, call.rule_id)
        return rule_reply(edited, call.rule_id)

    @operation(
        "POST /rules/{rule_id}/candidate:preview",
        "Preview a candidate.",
        answer=_PREVIEW,
        body=RULE,
    )
    async def preview_candidate(self, call: Call) -> Reply:
        preview = await to_thread(self._editor.preview_candidate, call.rule_id, call.body)
        return await self._previews.reply(preview)

    @operation(
        "POST /rules/{rule_id}/adopt:preview",
        "Preview the adoption of a candidate.",
        answer=_PREVIEW,
        body=NOTHING,
        needs_body=False,
    )
    async def preview_adoption(self, call: Call) -> Reply:
        call.check()
        return await self._previews.reply(
            await to_thread(self._editor.preview_adoption, call.rule_id)
        )

    @operation(
        "POST /rules:preview",
        "Preview changed rules; null deletes one.",
        answer=_PREVIEW,
        body=_SOME_RULES,
    )
    async def preview(self, call: Call) -> Reply:
        call.check()
        rules = call.body.get("rules")
        if not isinstance(rules, dict) or not rules or not all(map(_is_rule, rules.values())):
            call.flaws.add("rules", rules, "an object of rules by their ids, null to delete one")
            raise invalid(call.flaws)
        return await self._previews.reply(await to_thread(self._editor.preview_rules, rules))


def _is_rule(value: Any) -> bool:
    return value is None or isinstance(value, dict)


class PolicyCalls:
    """Operations on the policy as a whole."""

    def __init__(self, editor: PolicyEditor, previews: Previews) -> None:
        self._editor = editor
        self._previews = previews

    @operation("GET /policy", "Get the whole policy.", answer=_REVISION)
    async def get(self, call: Call) -> Reply:
        newest = await to_thread(self._editor.head)
        if call.has(newest.number):
            return not_modified(newest.number)
        return tagged_reply(_revision_data(newest), newest.number)

    @operation(
        "PUT /policy", "Replace the whole policy.", answer=_REVISED, body=POLICY, role="write"
    )
    async def put(self, call: Call) -> Reply:
        return _revised(await call.edit("replace the policy", self._editor.replace, call.body))

    @operation("POST /policy:preview", "Preview a policy.", answer=_PREVIEW, body=POLICY)
    async def preview(self, call: Call) -> Reply:
        return await self._previews.reply(await to_thread(self._editor.preview, call.body))

    @operation(
        "GET /history",
        "List revisions, newest first.",
        answer=_HISTORY,
        query=(Query("before", "older than this", WHOLE), Query("limit", "", WHOLE)),
    )
    async def history(self, call: Call) -> Reply:
        limit = max(1, call.number("limit", 50, MOST_REVISIONS))
        before = call.number("before", _LARGEST, _LARGEST)
        found = await to_thread(self._editor.source.history, before=before, most=limit)
        content = {
            "revisions": [change_data(number, change) for number, change in found],
            "next_before": found[-1][0] if len(found) == limit else None,
        }
        return json_reply(content)

    @operation("GET /history/{number}", "Get a revision and its changes.", answer=_REVISION)
    async def revision(self, call: Call) -> Reply:
        number, source = int(call.parts["number"]), self._editor.source
        revision = await to_thread(source.at, number)
        try:
            before = Revision(0) if number == 1 else await to_thread(source.at, number - 1)
        except UnknownRevisionError:
            changes = None
        else:
            changes = differences(before.document, revision.document)
        return json_reply({**_revision_data(revision), "changes": changes})

    @operation(
        "POST /rollback",
        "Make an old revision the newest again, with its switches, blocks and grants.",
        answer=_REVISED,
        body=an_object(("revision",), revision={"type": "integer", "minimum": 1}),
        role="write",
    )
    async def rollback(self, call: Call) -> Reply:
        number = call.body.get("revision")
        if type(number) is not int or not 0 < number <= _LARGEST:
            call.flaws.add("revision", number, "the number of a revision")
        what = f"roll back to revision {number}"
        return _revised(await call.edit(what, self._editor.rollback, number))


def _revision_data(revision: Revision) -> Data:
    return {
        **change_data(revision.number, revision.change),
        "policy": dict(revision.document),
        "versions": dict(revision.versions),
    }


def _revised(edited: Edited) -> Reply:
    number = edited.revision.number
    return edited_reply({"revision": number, "changed": edited.is_changed}, edited, number)


class Previews:
    """Replies to previews, with counters of the store *live* if it can be listed. *show_key*
    formats keys for people."""

    def __init__(self, live: LiveCounters | None, show_key: ShowKey) -> None:
        self._live = live
        self._show_key = show_key

    async def reply(self, preview: Preview) -> Reply:
        """Describe *preview*; 200 also for a policy that is invalid."""
        errors = [one for one in preview.problems if one.severity == "error"]
        warnings = [one for one in preview.problems if one.severity == "warning"]
        content = {
            "revision": preview.number,
            "valid": preview.is_good,
            "errors": problems_data(errors),
            "warnings": problems_data(warnings),
            "changes": preview.differences,
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
            return {"available": False, "reason": f"the store is unavailable ({error.reason})"}
        found = [self._affected(one) for one in judged(look, preview)]
        return {"available": True, "affected": found, "more": look.has_more}

    def _affected(self, one: Affected) -> Data:
        counter = one.counter
        return {
            "rule_id": counter.rule,
            "key": counter.key,
            "shown_key": counter.key if counter.is_digest else self._show_key(counter.key),
            "is_digest": counter.is_digest,
            "limit": counter.place,
            "used": counter.used,
            "refused_now": one.was_denied,
            "refused_after": one.would_be_denied,
        }
