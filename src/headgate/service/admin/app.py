"""The admin API as an ASGI app: who may, which path leads where, what went wrong, what is noted."""

from __future__ import annotations

import json
import logging
import re
import secrets
from asyncio import to_thread
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.control.audit import AuditError, AuditEvent
from headgate.control.editor import EmptySourceError, StaleVersionError, UnknownModeError
from headgate.control.edits import UnknownOverrideError, UnknownRuleError
from headgate.control.file_source import InvalidFileError
from headgate.control.revision import (
    ConflictError,
    ControlError,
    ReadOnlyError,
    SourceError,
    UnknownRevisionError,
)
from headgate.errors import HeadgateError, StoreError
from headgate.limiter import RateLimiter
from headgate.policy.problems import PolicyError
from headgate.service.admin.auth import Door, check_role
from headgate.service.admin.call import Call, problems_data
from headgate.service.admin.keys import KeyCalls
from headgate.service.admin.reports import DebugCalls, ExplainCalls, LiveCalls, ReportCalls
from headgate.service.admin.rules import PolicyCalls, Previews, RuleCalls
from headgate.service.http.body import DisconnectedError
from headgate.service.http.replies import HttpOptions, RefusedError, Reply, problem, respond
from headgate.service.live import Live

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.control.audit import Audit, Outcome
    from headgate.control.editor import PolicyEditor
    from headgate.control.live_counters import LiveCounters
    from headgate.control.watcher import PolicyWatcher
    from headgate.service.admin.auth import Certificate, Credential, Role
    from headgate.service.admin.call import Handler
    from headgate.service.core import Core
    from headgate.service.http.replies import Receive, Scope, Send


# What is noted of a call, before it changes anything and when it has ended.


LOG: Final = logging.getLogger("headgate.audit")
_LONGEST_PATH: Final = 300
_AT_THE_DOOR: Final = "10/s burst 100"
"""How many calls of strangers are noted: they must not fill the disk."""


class Notes:
    """Writes events into *audit*, those of strangers only as far as they are not too many."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._strangers = RateLimiter(_AT_THE_DOOR, clock=clock)
        self._left_out = 0

    def of(self, scope: Scope) -> Note:
        """What is to be noted of one call."""
        return Note(self, scope)

    async def write(self, event: AuditEvent) -> None:
        """Note *event*. Raises `AuditError`."""
        await self._audit.write(event)

    def takes_stranger(self) -> bool:
        """Whether one more may be noted."""
        if self._strangers.hit("door"):
            return True
        self._left_out += 1
        return False

    def left_out(self) -> int:
        """How many were not noted since this was last asked."""
        count, self._left_out = self._left_out, 0
        return count

    def now_ns(self) -> int:
        return self._clock()


@dataclass(slots=True)
class Note:
    """What is noted of one call. *author* is known once the caller was let in."""

    notes: Notes
    scope: Scope
    author: str | None = None
    what: str = ""
    is_attempt: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    async def begin(self, what: str) -> None:
        """Note what is about to be done. Raises `AuditError`: then it must not be."""
        self.what = what
        await self.notes.write(self._event("attempt"))
        self.is_attempt = True

    async def end(self, outcome: Outcome, status: int, revision: int | None) -> None:
        """Note what came of it; a failure to is told to the log, for it is too late for more."""
        if self.author is None and not self.notes.takes_stranger():
            return
        try:
            await self.notes.write(self._event(outcome, status, revision))
        except AuditError as error:
            LOG.error("%s; %s %s", error, outcome, self.what or self.scope["path"])  # noqa: TRY400

    def _event(
        self, outcome: Outcome, status: int | None = None, revision: int | None = None
    ) -> AuditEvent:
        client = self.scope.get("client") or ("",)
        note = [value for name, value in self.scope["headers"] if name == b"x-change-note"]
        return AuditEvent(
            time_ns=self.notes.now_ns(),
            id=self.id,
            author=self.author,
            peer=str(client[0]),
            method=self.scope["method"][:20],
            path=self.scope["path"][:_LONGEST_PATH],
            outcome=outcome,
            status=status,
            revision=revision,
            what=self.what,
            note=note[0].decode("latin-1")[:_LONGEST_PATH] if note and self.author else "",
            left_out=self.notes.left_out(),
        )


# Which path and method of the admin API leads where, and who may go there.


PREFIX: Final = "/admin/v1"
_PARTS: Final = {"{rule_id}": r"(?P<rule_id>[^/:]{1,200})", "{number}": r"(?P<number>[0-9]{1,15})"}


class Route(NamedTuple):
    """What one method of one path does, and whom it is for."""

    role: Role
    handler: Handler


class Found(NamedTuple):
    """The routes of a path by method, and what the path says."""

    methods: Mapping[str, Route]
    parts: Mapping[str, str]


class Routes:
    """All of them."""

    def __init__(
        self,
        rules: RuleCalls,
        policies: PolicyCalls,
        keys: KeyCalls,
        reports: ReportCalls,
        explaining: ExplainCalls,
        debugging: DebugCalls,
        live: LiveCalls,
    ) -> None:
        table = {
            "/rules": {"GET": Route("read", rules.listed)},
            "/rules/{rule_id}": {
                "GET": Route("read", rules.got),
                "PUT": Route("write", rules.put),
                "DELETE": Route("write", rules.deleted),
            },
            "/rules/{rule_id}:disable": {"POST": Route("write", rules.switched_off)},
            "/rules/{rule_id}:enable": {"POST": Route("write", rules.switched_on)},
            "/rules/{rule_id}/candidate": {"POST": Route("write", rules.tried)},
            "/rules/{rule_id}/candidate:preview": {"POST": Route("read", rules.trial_previewed)},
            "/rules/{rule_id}/adopt": {"POST": Route("write", rules.adopted)},
            "/rules/{rule_id}/adopt:preview": {"POST": Route("read", rules.adoption_previewed)},
            "/rules:preview": {"POST": Route("read", rules.previewed)},
            "/policy": {"GET": Route("read", policies.got), "PUT": Route("write", policies.put)},
            "/policy:preview": {"POST": Route("read", policies.previewed)},
            "/history": {"GET": Route("read", policies.history)},
            "/history/{number}": {"GET": Route("read", policies.revision)},
            "/rollback": {"POST": Route("write", policies.rolled_back)},
            "/keys": {"GET": Route("read", keys.listed)},
            "/keys:lookup": {"POST": Route("read", keys.looked_up)},
            "/keys:reset": {"POST": Route("write", keys.reset)},
            "/keys:grant": {"POST": Route("write", keys.granted)},
            "/keys:block": {"POST": Route("write", keys.blocked)},
            "/keys:unblock": {"POST": Route("write", keys.unblocked)},
            "/overrides": {
                "GET": Route("read", keys.overrides),
                "DELETE": Route("write", keys.override_ended),
            },
            "/live": {"GET": Route("read", live.told)},
            "/status": {"GET": Route("read", reports.status)},
            "/pressure": {"GET": Route("read", reports.pressure)},
            "/audit": {"GET": Route("read", reports.audit)},
            "/explain": {"POST": Route("read", explaining.explained)},
            "/debug-tokens": {"POST": Route("write", debugging.made)},
        }
        self.table: Final[Mapping[str, Mapping[str, Route]]] = table
        self._patterns = [(_compiled(path), methods) for path, methods in table.items()]

    def find(self, path: str) -> Found | None:
        """The routes of *path*; None if there are none."""
        if not path.startswith(PREFIX):
            return None
        rest = path.removeprefix(PREFIX)
        for pattern, methods in self._patterns:
            found = pattern.fullmatch(rest)
            if found is not None:
                return Found(methods, found.groupdict())
        return None


def _compiled(path: str) -> re.Pattern[str]:
    pattern = re.escape(path)
    for name, part in _PARTS.items():
        pattern = pattern.replace(re.escape(name), part)
    return re.compile(pattern)


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
    (EmptySourceError, 409),
    (ReadOnlyError, 409),
    (SourceError, 503),
    (AuditError, 503),
    (StoreError, 503),
    (ControlError, 500),
)


class AdminApp:
    """The admin API below `/admin/v1`, for the holders of *tokens*; closed if there are none.

    *editor* changes the rules, *watcher* puts them in force here; *audit* records every change
    before it is made. *live* is the store to be looked through, if it can be, *picture* what this
    node is doing. *certificates* are callers who are known by those. It opens and closes nothing.
    """

    def __init__(
        self,
        core: Core,
        editor: PolicyEditor,
        watcher: PolicyWatcher,
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
            ReportCalls(core, watcher, audit),
            ExplainCalls(core),
            DebugCalls(core),
            LiveCalls(picture or Live(core, watcher)),
        )
        self._door = Door(tokens, certificates)
        self._notes = Notes(audit, core.clock)
        self._watcher = watcher
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
                await to_thread(self._watcher.learn, call.revision)
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
    if isinstance(error, InvalidFileError) and is_change:
        status = 409
        told = f"the file is no policy now, and nothing was changed; mend it first\n{told}"
    elif isinstance(error, SourceError) and is_change:
        told = f"{told}\nwhether anything was changed is not known; look before you try again"
    headers = (_SOON,) if status == 503 or isinstance(error, ConflictError) else ()
    return problem(status, told, headers=headers)
