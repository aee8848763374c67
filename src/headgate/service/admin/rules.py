"""Operations on rules and on the policy as a whole: read, edit, preview, history, rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.control import edits
from headgate.control.documents import differences, find_rules, mode_of
from headgate.control.live_counters import affected_by
from headgate.control.revision import Revision, UnknownRevisionError
from headgate.control.rule_text import rule_text
from headgate.errors import StoreError
from headgate.policy.model import MODES
from headgate.service.admin.call import (
    MOST_LISTED,
    change_data,
    edited_reply,
    not_modified,
    problems_data,
    rule_data,
    rule_reply,
    tagged_reply,
    to_thread,
)
from headgate.service.admin.operations import (
    ANY,
    MOMENT,
    NOTHING,
    POLICY,
    PROBLEM,
    RULE,
    Operation,
    Query,
    whole,
)
from headgate.service.http.check_request import invalid
from headgate.service.http.replies import Reply, json_reply
from headgate.service.http.schemas import FLAG, TEXT, WHOLE, a_list, a_map, an_object, of

if TYPE_CHECKING:
    from headgate.control.editor import Edited
    from headgate.control.edits import Edit
    from headgate.control.live_counters import Affected
    from headgate.control.preview import Preview
    from headgate.service.admin.call import Call


Data = dict[str, Any]
MOST_REVISIONS: Final = 500
_LARGEST: Final = 10**15

_FIELDS: Final[Data] = {
    "rule_id": TEXT,
    "version": WHOLE,
    "rule": RULE,
    "text": of("string", "The rule as YAML."),
    "mode": TEXT,
    "candidate_of": TEXT,
    "total": WHOLE,
    "next_offset": of(["integer", "null"]),
    "next_before": of(["integer", "null"]),
    "revision": WHOLE,
    "author": TEXT,
    "time": MOMENT,
    "what": TEXT,
    "note": TEXT,
    "policy": POLICY,
    "versions": a_map(WHOLE),
    "changes": of(["object", "null"]),
    "changed": FLAG,
    "valid": FLAG,
    "errors": a_list(PROBLEM),
    "warnings": a_list(PROBLEM),
    "consequences": a_list(
        an_object("rule_id", "effect", "message", rule_id=TEXT, effect=TEXT, message=TEXT)
    ),
    "counters": ANY,
}


def _answer(required: str, optional: str = "", **more: Data) -> Data:
    """The schema of an answer with these fields; *more* have their own schemas."""
    known = {name: _FIELDS[name] for name in (*required.split(), *optional.split())}
    return an_object(*optional.split(), **known, **more)


_ONE_RULE: Final = _answer("rule_id version rule", "text")
_EDITED_RULE: Final = _answer("rule_id version", "mode candidate_of warnings")
_DELETED: Final = _answer("rule_id revision", "warnings")
_RULES: Final = _answer("revision total", "next_offset", rules=a_list(_ONE_RULE))
_PREVIEW: Final = _answer("revision valid", "errors warnings consequences counters", changes=ANY)
_REVISION: Final = _answer("revision policy", "author time what note versions changes")
_REVISED: Final = _answer("revision", "changed warnings")
_CHANGE: Final = _answer("revision author time what", "note")
_HISTORY: Final = _answer("", "next_before", revisions=a_list(_CHANGE))
_SOME_RULES: Final = an_object(rules=a_map(of(["object", "null"])))
_FILTERS: Final = (
    Query("mode", "the mode", {"enum": list(MODES)}),
    Query("key_by", "a part of the key"),
    Query("endpoint", "a pattern, or a path that the rule is for"),
    Query("tier", "one that the rule is for, or has limits for"),
    Query("q", "a text anywhere in the rule"),
    Query("limit", "how many at most", whole(MOST_LISTED)),
    Query("offset", "how many to leave out first", whole(10**9)),
)


# ---- rules ---------------------------------------------------------------------------------


@Operation("GET /rules", answer=_RULES, query=_FILTERS)
async def list_rules(call: Call) -> Reply:
    """List rules."""
    query = call.query
    names = ("mode", "key_by", "endpoint", "tier")
    conditions = {name: query.get(name) for name in names}
    limit, offset = query.get("limit", 100), query.get("offset", 0)
    newest = await to_thread(call.api.editor.head)
    found = await to_thread(find_rules, newest.document, text=query.get("q"), **conditions)
    page = found[offset : offset + limit]
    after = offset + len(page)
    content = {
        "revision": newest.number,
        "total": len(found),
        "rules": [rule_data(rule, newest.version_of(rule["id"])) for rule in page],
        "next_offset": after if after < len(found) and page else None,
    }
    return tagged_reply(content, newest.number)


@Operation("GET /rules/{rule_id}", answer=_ONE_RULE)
async def get_rule(call: Call) -> Reply:
    """Get a rule."""
    newest = await to_thread(call.api.editor.head)
    rule, version = edits.rule_in(newest.document, call.rule_id), newest.version_of(call.rule_id)
    if call.has(version):
        return not_modified(version)
    found = rule_data(rule, version)
    found["text"] = await to_thread(rule_text, found["rule"])
    return tagged_reply(found, version)


@Operation("PUT /rules/{rule_id}", answer=_EDITED_RULE, body=RULE, role="write")
async def put(call: Call) -> Reply:
    """Create or change a rule."""
    return rule_reply(await call.apply(edits.put_rule(call.rule_id, call.body)), call.rule_id)


@Operation("DELETE /rules/{rule_id}", answer=_DELETED, role="write")
async def delete(call: Call) -> Reply:
    """Delete a rule and its candidate."""
    edited = await call.apply(edits.delete_rule(call.rule_id))
    content = {"rule_id": call.rule_id, "revision": edited.revision.number}
    return edited_reply(content, edited, rule_id=call.rule_id)


@Operation("POST /rules/{rule_id}:disable", answer=_EDITED_RULE, body=NOTHING, role="write")
async def disable(call: Call) -> Reply:
    """Take a rule out of force."""
    edited = await call.apply(edits.switch_rule(call.rule_id, "off"))
    return rule_reply(edited, call.rule_id, mode="off")


@Operation(
    "POST /rules/{rule_id}:enable",
    answer=_EDITED_RULE,
    body=an_object("mode", mode={"enum": ["enforce", "shadow"]}),
    role="write",
)
async def enable(call: Call) -> Reply:
    """Put a rule in force again, by default in the mode that it had."""
    call.check()
    mode = call.body.get("mode")
    if mode is None:
        mode = await to_thread(call.api.editor.mode_before, call.rule_id)
    edited = await call.apply(edits.switch_rule(call.rule_id, str(mode)))
    now = mode_of(edits.rule_in(edited.revision.document, call.rule_id))
    return rule_reply(edited, call.rule_id, mode=now)


@Operation("POST /rules/{rule_id}/candidate", answer=_EDITED_RULE, body=RULE, role="write")
async def try_candidate(call: Call) -> Reply:
    """Try a rule in shadow beside this one."""
    edited = await call.apply(edits.put_candidate(call.rule_id, call.body))
    name = edits.candidate_in(edited.revision.document, call.rule_id) or ""
    return rule_reply(edited, name, mode="shadow", candidate_of=call.rule_id)


@Operation("POST /rules/{rule_id}/adopt", answer=_EDITED_RULE, body=NOTHING, role="write")
async def adopt(call: Call) -> Reply:
    """Replace a rule by its candidate."""
    return rule_reply(await call.apply(edits.adopt_candidate(call.rule_id)), call.rule_id)


@Operation("POST /rules/{rule_id}:preview", answer=_PREVIEW, body=RULE)
async def preview_rule(call: Call) -> Reply:
    """Preview a rule."""
    return await _preview_reply(call, edits.put_rule(call.rule_id, call.body))


@Operation("POST /rules/{rule_id}/candidate:preview", answer=_PREVIEW, body=RULE)
async def preview_candidate(call: Call) -> Reply:
    """Preview a candidate."""
    return await _preview_reply(call, edits.put_candidate(call.rule_id, call.body))


@Operation("POST /rules/{rule_id}/adopt:preview", answer=_PREVIEW, body=NOTHING)
async def preview_adoption(call: Call) -> Reply:
    """Preview the adoption of a candidate."""
    return await _preview_reply(call, edits.adopt_candidate(call.rule_id))


@Operation("POST /rules:preview", answer=_PREVIEW, body=_SOME_RULES)
async def preview_rules(call: Call) -> Reply:
    """Preview changed rules; null deletes one."""
    call.check()
    rules = call.body["rules"]
    if not rules or not all(one is None or isinstance(one, dict) for one in rules.values()):
        call.flaws.add("rules", rules, "an object of rules by their ids, null to delete one")
        raise invalid(call.flaws)
    return await _preview_reply(call, edits.change_rules(rules))


# ---- the policy as a whole -----------------------------------------------------------------


@Operation("GET /policy", answer=_REVISION)
async def get_policy(call: Call) -> Reply:
    """Get the whole policy."""
    newest = await to_thread(call.api.editor.head)
    if call.has(newest.number):
        return not_modified(newest.number)
    return tagged_reply(_revision_data(newest), newest.number)


@Operation("PUT /policy", answer=_REVISED, body=POLICY, role="write")
async def put_policy(call: Call) -> Reply:
    """Replace the whole policy."""
    return _revised(await call.apply(edits.replace_policy(call.body)))


@Operation("POST /policy:preview", answer=_PREVIEW, body=POLICY)
async def preview_policy(call: Call) -> Reply:
    """Preview a policy."""
    return await _preview_reply(call, edits.replace_policy(call.body))


@Operation(
    "GET /history",
    answer=_HISTORY,
    query=(
        Query("before", "older than this", whole(_LARGEST)),
        Query("limit", "", whole(MOST_REVISIONS)),
        Query("rule", "only revisions that changed the rule with this id"),
    ),
)
async def history(call: Call) -> Reply:
    """List revisions, newest first."""
    limit, before = max(1, call.query.get("limit", 50)), call.query.get("before", _LARGEST)
    editor, rule_id = call.api.editor, call.query.get("rule")
    if rule_id is None:
        found = await to_thread(editor.source.history, before=before, most=limit)
    else:
        found = await to_thread(editor.changes_of, rule_id, before=before, most=limit)
    content = {
        "revisions": [change_data(number, change) for number, change in found],
        "next_before": found[-1][0] if len(found) == limit else None,
    }
    return json_reply(content)


@Operation("GET /history/{number}", answer=_REVISION)
async def revision(call: Call) -> Reply:
    """Get a revision and its changes."""
    number, source = int(call.scope["path_params"]["number"]), call.api.editor.source
    found = await to_thread(source.at, number)
    try:
        before = Revision(0) if number == 1 else await to_thread(source.at, number - 1)
    except UnknownRevisionError:
        changes = None
    else:
        changes = differences(before.document, found.document)
    return json_reply({**_revision_data(found), "changes": changes})


@Operation(
    "POST /rollback",
    answer=_REVISED,
    body=an_object(revision=whole(_LARGEST, 1)),
    role="write",
)
async def rollback(call: Call) -> Reply:
    """Make an old revision the newest again, with its switches, blocks and grants."""
    call.check()
    return _revised(await call.apply(call.api.editor.rollback(call.body["revision"])))


# ---- replies -------------------------------------------------------------------------------


def _revision_data(revision: Revision) -> Data:
    return {
        **change_data(revision.number, revision.change),
        "policy": dict(revision.document),
        "versions": dict(revision.versions),
    }


def _revised(edited: Edited) -> Reply:
    number = edited.revision.number
    return edited_reply({"revision": number, "changed": edited.is_changed}, edited, number)


async def _preview_reply(call: Call, edit: Edit) -> Reply:
    """Describe a preview of *edit*; 200 also for a policy that is invalid."""
    call.check()
    preview = await to_thread(call.api.editor.preview, edit)
    content: Data = {"revision": preview.number, "valid": preview.policy is not None}
    for severity in ("error", "warning"):
        found = [one for one in preview.problems if one.severity == severity]
        content[f"{severity}s"] = problems_data(found, call)
    content["changes"] = preview.differences
    content["consequences"] = [
        {"rule_id": one.rule, "effect": one.effect, "message": one.message}
        for one in preview.consequences
    ]
    content["counters"] = await _counters(call, preview)
    return json_reply(content)


async def _counters(call: Call, preview: Preview) -> Data:
    """The counters of the store that *preview* would affect, if they can be listed."""
    counters = call.api.counters
    if counters is None:
        return {"available": False, "reason": "the counters of this store cannot be listed"}
    try:
        found, has_more = await affected_by(preview, counters)
    except StoreError as error:
        return {"available": False, "reason": f"the store is unavailable ({error.reason})"}
    affected = [_affected(call, one) for one in found]
    return {"available": True, "affected": affected, "more": has_more}


def _affected(call: Call, one: Affected) -> Data:
    counter = one.counter
    return {
        "rule_id": counter.rule,
        "key": counter.key,
        "shown_key": counter.key if counter.is_digest else call.api.core.show_key(counter.key),
        "is_digest": counter.is_digest,
        "limit": counter.place,
        "used": counter.used,
        "refused_now": one.was_denied,
        "refused_after": one.would_be_denied,
    }
