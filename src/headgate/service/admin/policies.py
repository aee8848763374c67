"""Calls about the whole policy: as it is, in its place another, its history, going back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.control.differences import differences, to_data
from headgate.control.revision import Revision, UnknownRevisionError
from headgate.service.admin.call import Call, etag
from headgate.service.admin.telling import change_data, edited_reply
from headgate.service.http.asked import Flaws, invalid
from headgate.service.http.replies import Flaw, Reply, json_reply

if TYPE_CHECKING:
    from headgate.control.editing import Edited, PolicyEditor
    from headgate.service.admin.previews import Previews

MOST_LISTED: Final = 500
_USUAL: Final = 50
_LARGEST: Final = 10**15


class PolicyCalls:
    """What can be done with the policy as a whole."""

    def __init__(self, editor: PolicyEditor, previews: Previews) -> None:
        self._editor = editor
        self._previews = previews

    async def got(self, call: Call) -> Reply:
        """GET /policy."""
        call.query()
        newest = await self._editor.head()
        if call.has(newest.number):
            return Reply(304, [etag(newest.number)], b"")
        reply = json_reply(_portrait(newest))
        return reply._replace(headers=[*reply.headers, etag(newest.number)])

    async def put(self, call: Call) -> Reply:
        """PUT /policy: all at once, or nothing."""
        call.query()
        document, wish = await call.document(), call.wish()
        await call.begin("replace the policy")
        return _revised(call.edited(await self._editor.replace(document, wish)))

    async def previewed(self, call: Call) -> Reply:
        """POST /policy:preview."""
        call.query()
        return await self._previews.reply(await self._editor.preview(await call.document()))

    async def history(self, call: Call) -> Reply:
        """GET /history: the newest first."""
        query = call.query("before", "limit")
        limit = max(1, call.number(query, "limit", _USUAL, MOST_LISTED))
        before = call.number(query, "before", _LARGEST, _LARGEST)
        found = await self._editor.storage.history(before=before, most=limit)
        content = {
            "revisions": [change_data(number, change) for number, change in found],
            "next_before": found[-1][0] if len(found) == limit else None,
        }
        return json_reply(content)

    async def revision(self, call: Call) -> Reply:
        """GET /history/{number}: with what it changed, if the one before is still there."""
        call.query()
        number = int(call.parts["number"])
        storage = self._editor.storage
        revision = await storage.at(number)
        try:
            before = Revision(0) if number == 1 else await storage.at(number - 1)
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
        wish = call.wish()
        await call.begin(f"roll back to revision {number}")
        return _revised(call.edited(await self._editor.rollback(number, wish)))


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
