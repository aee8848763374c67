"""The admin API as an ASGI app: who may, which path leads where, what went wrong, what is noted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.control.audit import AuditError
from headgate.control.editing import StaleVersionError, UnknownModeError
from headgate.control.edits import UnknownOverrideError, UnknownRuleError
from headgate.control.policy_file import UnreadableFileError
from headgate.control.revision import (
    ConflictError,
    ControlError,
    ReadOnlyError,
    StorageError,
    UnknownRevisionError,
)
from headgate.errors import HeadgateError, StoreError
from headgate.rules.problems import PolicyError
from headgate.service.admin.call import Call
from headgate.service.admin.debugging import DebugCalls
from headgate.service.admin.explaining import ExplainCalls
from headgate.service.admin.keys import KeyCalls
from headgate.service.admin.live import LiveCalls
from headgate.service.admin.noting import Notes
from headgate.service.admin.policies import PolicyCalls
from headgate.service.admin.previews import Previews
from headgate.service.admin.reports import ReportCalls
from headgate.service.admin.routes import PREFIX, Routes
from headgate.service.admin.rules import RuleCalls
from headgate.service.admin.telling import problems_data
from headgate.service.admin.tokens import Door, check_role
from headgate.service.http.options import HttpOptions
from headgate.service.http.receiving import DisconnectedError
from headgate.service.http.replies import RefusedError, Reply, problem, respond
from headgate.service.live import Live

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.control.audit import Audit
    from headgate.control.editing import PolicyEditor
    from headgate.control.feed import PolicyFeed
    from headgate.control.live_counters import LiveCounters
    from headgate.service.admin.noting import Note
    from headgate.service.admin.routes import Route
    from headgate.service.admin.tokens import Certificate, Credential
    from headgate.service.core import Core
    from headgate.service.http.replies import Receive, Scope, Send

LARGEST_BODY: Final = 2 * 1024 * 1024
"""Bytes of a call: a policy of the largest size, generously spaced."""
_SOON: Final = (b"retry-after", b"1")

_STATUSES: Final[tuple[tuple[type[HeadgateError], int], ...]] = (
    (StaleVersionError, 412),
    (UnknownRuleError, 404),
    (UnknownRevisionError, 404),
    (UnknownOverrideError, 404),
    (UnknownModeError, 409),
    (ConflictError, 409),
    (ReadOnlyError, 409),
    (StorageError, 503),
    (AuditError, 503),
    (StoreError, 503),
    (ControlError, 500),
)


class AdminApp:
    """The admin API below `/admin/v1`, for the holders of *tokens*; closed if there are none.

    *editor* changes the rules, *feed* puts them in force here; *audit* hears of every change before
    it is made. *live* is the store to be looked through, if it can be, *picture* what this node is
    doing. *certificates* are callers who are known by those. It opens and closes nothing.
    """

    def __init__(
        self,
        core: Core,
        editor: PolicyEditor,
        feed: PolicyFeed,
        tokens: Iterable[Credential],
        audit: Audit,
        *,
        live: LiveCounters | None = None,
        picture: Live | None = None,
        certificates: Sequence[Certificate] = (),
        options: HttpOptions | None = None,
    ) -> None:
        previews = Previews(live, core.show_key)
        self._routes = Routes(
            RuleCalls(editor, previews),
            PolicyCalls(editor, previews),
            KeyCalls(core, editor, live),
            ReportCalls(core, feed, audit),
            ExplainCalls(core),
            DebugCalls(core),
            LiveCalls(picture or Live(core, feed)),
        )
        self._door = Door(tokens, certificates)
        self._notes = Notes(audit, core.clock)
        self._feed = feed
        self._options = options or HttpOptions(largest_body=LARGEST_BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the admin API answers HTTP, not {scope['type']!r}")
        try:
            reply = await self._reply(scope, receive)
        except DisconnectedError:
            return
        await respond(send, reply, is_head=scope["method"] == "HEAD")

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        note = self._notes.of(scope)
        try:
            caller = self._door.caller_of(scope)
            note.author = caller.name
            route, parts = self._route(scope)
            check_role(caller, route.role)
        except RefusedError as refused:
            if refused.reply.status in (401, 403):
                await note.end("refused", refused.reply.status, None)
            return refused.reply
        call = Call(scope, receive, self._options, caller, parts, note.begin)
        if route.role == "read":
            return await _answered(route, call)
        return await self._changed(route, call, note)

    def _route(self, scope: Scope) -> tuple[Route, dict[str, str]]:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        found = self._routes.find(scope["path"])
        if found is None:
            told = f"no such path; all below {PREFIX} are in /openapi.json"
            raise RefusedError(problem(404, told))
        route = found.methods.get(method)
        if route is None:
            allowed = ", ".join(sorted(found.methods))
            told = f"{scope['method'][:20]} is not for this path; expected {allowed}"
            raise RefusedError(problem(405, told, headers=((b"allow", allowed.encode()),)))
        return route, dict(found.parts)

    async def _changed(self, route: Route, call: Call, note: Note) -> Reply:
        """Have something changed, in force here before it is answered, and noted."""
        status: int | None = None
        try:
            reply = await _answered(route, call)
            status = reply.status
            if call.revision is not None and call.outcome == "changed":
                await self._feed.learn(call.revision)
        finally:
            # Whatever went wrong: an attempt that was noted has an end.
            if status is not None or note.is_attempt:
                await _noted(call, note, 500 if status is None else status)
        return reply


async def _noted(call: Call, note: Note, status: int) -> None:
    if status >= 400 and call.outcome != "changed":
        call.outcome = "failed" if status >= 500 else "refused"
    await note.end(call.outcome, status, None if call.revision is None else call.revision.number)


async def _answered(route: Route, call: Call) -> Reply:
    """What *route* says to *call*; what it raises as an answer too."""
    try:
        reply: Reply = await route.handler(call)
    except RefusedError as refused:
        return refused.reply
    except PolicyError as error:
        return _not_a_policy(error)
    except HeadgateError as error:
        return _went_wrong(error, is_change=route.role == "write")
    return reply


def _not_a_policy(error: PolicyError) -> Reply:
    count = len(error.errors)
    reply = problem(422, f"with this the policy has {count} error{'s' if count != 1 else ''}")
    content = {**json.loads(reply.body), "errors": problems_data(error.errors)}
    return reply._replace(body=json.dumps(content).encode("ascii"))


def _went_wrong(error: HeadgateError, *, is_change: bool) -> Reply:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 400)
    told = str(error)
    if isinstance(error, StoreError):
        told = f"the store cannot be asked ({error.reason})"
    if isinstance(error, UnreadableFileError) and is_change:
        status = 409
        told = f"the file is no policy now, and nothing was changed; mend it first\n{told}"
    elif isinstance(error, StorageError) and is_change:
        told = f"{told}\nwhether anything was changed is not known; look before you try again"
    headers = (_SOON,) if status == 503 or isinstance(error, ConflictError) else ()
    return problem(status, told, headers=headers)
