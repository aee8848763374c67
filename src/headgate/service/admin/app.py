"""The admin API as an ASGI app: authentication, routes (Starlette), errors, the audit log."""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.routing import Route, Router

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
from headgate.service.admin.auth import Authenticator, check_role
from headgate.service.admin.call import Call, problems_data, to_thread
from headgate.service.admin.keys import KeyCalls
from headgate.service.admin.operations import PREFIX, operations_of, paths_of
from headgate.service.admin.reports import DebugCalls, ExplainCalls, ReportCalls
from headgate.service.admin.rules import PolicyCalls, Previews, RuleCalls
from headgate.service.http.body import DisconnectedError
from headgate.service.http.replies import HttpOptions, RefusedError, Reply, problem, respond
from headgate.service.live import Live

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from headgate.clock import Clock
    from headgate.control.audit import Audit, Outcome
    from headgate.control.editor import PolicyEditor
    from headgate.control.live_counters import LiveCounters
    from headgate.control.watcher import PolicyWatcher
    from headgate.service.admin.auth import Caller, Certificate, Credential
    from headgate.service.admin.operations import Operation
    from headgate.service.core import Core
    from headgate.service.http.replies import Receive, Scope, Send

    Handler = Callable[[Call], Awaitable[Reply]]

LOG: Final = logging.getLogger("headgate.audit")
LARGEST_BODY: Final = 2 * 1024 * 1024
"""Bytes of a call: a policy of the largest size, generously spaced."""
_LONGEST_PATH: Final = 300
_STRANGERS: Final = "10/s burst 100"
"""The rate at which unauthenticated calls are recorded: they must not fill the disk."""
_SOON: Final = (b"retry-after", b"1")
_ENTRY: Final = "headgate.admin.entry"
_CALLER: Final = "headgate.admin.caller"

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


class AuditTrail:
    """Writes events to *audit*; those of unauthenticated callers at a limited rate."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self.write = audit.write
        self.clock = clock
        self._strangers = RateLimiter(_STRANGERS, clock=clock)
        self._left_out = 0

    def takes_stranger(self) -> bool:
        """True if one more unauthenticated call may be recorded."""
        if self._strangers.hit("unauthenticated"):
            return True
        self._left_out += 1
        return False

    def left_out(self) -> int:
        """Return how many were not recorded since the last call."""
        count, self._left_out = self._left_out, 0
        return count


@dataclass(slots=True)
class AuditEntry:
    """The events of one call. *author* is set once the caller is authenticated."""

    trail: AuditTrail
    scope: Scope
    author: str | None = None
    what: str = ""
    is_attempt: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    async def begin(self, what: str) -> None:
        """Record a change before it is made. Raises `AuditError`: then it must not be made."""
        self.what = what
        await self.trail.write(self._event("attempt"))
        self.is_attempt = True

    async def end(self, outcome: Outcome, status: int, revision: int | None) -> None:
        """Record the outcome; a failure is logged, since the change is made already."""
        if self.author is None and not self.trail.takes_stranger():
            return
        try:
            await self.trail.write(self._event(outcome, status, revision))
        except AuditError as error:
            LOG.error("%s; %s %s", error, outcome, self.what or self.scope["path"])  # noqa: TRY400

    def _event(
        self, outcome: Outcome, status: int | None = None, revision: int | None = None
    ) -> AuditEvent:
        client = self.scope.get("client") or ("",)
        note = [value for name, value in self.scope["headers"] if name == b"x-change-note"]
        return AuditEvent(
            time_ns=self.trail.clock(),
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
            left_out=self.trail.left_out(),
        )


class _RuleId(StringConvertor):
    regex = "[^/:]{1,200}"


class _Number(StringConvertor):
    regex = "[0-9]{1,15}"


register_url_convertor("rule_id", _RuleId())
register_url_convertor("number", _Number())


class AdminApp:
    """The admin API below `/admin/v1`, for the holders of *tokens*; closed if there are none.

    *editor* changes the rules, *watcher* puts them in force here; *audit* records every change
    before it is made. *live* lists counters of the store, if that is possible, *picture* has the
    figures of this node. *certificates* identify callers too. It opens and closes nothing.
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
        self._authenticator = Authenticator(tokens, certificates)
        self._trail = AuditTrail(audit, core.clock)
        self._watcher = watcher
        self._options = options or HttpOptions(largest_body=LARGEST_BODY)
        paths: dict[str, dict[str, tuple[Operation, Handler]]] = {}
        for group in (
            RuleCalls(editor, previews),
            PolicyCalls(editor, previews),
            KeyCalls(core, editor, live),
            ReportCalls(core, watcher, audit, picture or Live(core, watcher)),
            ExplainCalls(core),
            DebugCalls(core),
        ):
            for name, one in operations_of(type(group)):
                paths.setdefault(one.path, {})[one.method] = (one, getattr(group, name))
        self._router = Router(
            [Route(_route(path), _Path(self, methods)) for path, methods in paths.items()],
            redirect_slashes=False,
            default=_unknown_path,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the admin API answers HTTP, not {scope['type']!r}")
        entry = AuditEntry(self._trail, scope)
        try:
            caller = self._authenticator.authenticate(scope)
        except RefusedError as refused:
            await entry.end("refused", refused.reply.status, None)
            await respond(send, refused.reply, is_head=scope["method"] == "HEAD")
            return
        entry.author = caller.name
        await self._router({**scope, _ENTRY: entry, _CALLER: caller}, receive, send)

    async def answer(
        self, operation: Operation, handler: Handler, scope: Scope, receive: Receive
    ) -> Reply:
        """Answer a call of *operation*."""
        entry: AuditEntry = scope[_ENTRY]
        caller: Caller = scope[_CALLER]
        try:
            check_role(caller, operation.role)
        except RefusedError as refused:
            await entry.end("refused", refused.reply.status, None)
            return refused.reply
        parts = scope["path_params"]
        call = Call(scope, receive, self._options, caller, parts, entry.begin)
        if operation.role == "read":
            return await _answered(operation, handler, call)
        return await self._changed(operation, handler, call, entry)

    async def _changed(
        self, operation: Operation, handler: Handler, call: Call, entry: AuditEntry
    ) -> Reply:
        """Make a change, in force here before it is answered, and recorded."""
        status: int | None = None
        try:
            reply = await _answered(operation, handler, call)
            status = reply.status
            if call.revision is not None and call.outcome == "changed":
                await to_thread(self._watcher.learn, call.revision)
        finally:
            # Whatever went wrong: an attempt that was recorded has an end.
            if status is not None or entry.is_attempt:
                await _recorded(call, entry, 500 if status is None else status)
        return reply


class _Path:
    """All methods of one path, as an ASGI app."""

    def __init__(self, app: AdminApp, methods: dict[str, tuple[Operation, Handler]]) -> None:
        self._app = app
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["method"] == "HEAD"
        found = self._methods.get("GET" if is_head else scope["method"])
        if found is None:
            allowed = ", ".join(sorted(self._methods))
            message = f"{scope['method'][:20]} is not for this path; expected {allowed}"
            reply = problem(405, message, headers=((b"allow", allowed.encode()),))
        else:
            try:
                reply = await self._app.answer(*found, scope, receive)
            except DisconnectedError:
                return
        await respond(send, reply, is_head=is_head)


def admin_paths(*, security: str | None = None) -> dict[str, Any]:
    """Return the OpenAPI paths; *security* names the scheme that they need."""
    groups = (RuleCalls, PolicyCalls, KeyCalls, ReportCalls, ExplainCalls, DebugCalls)
    return paths_of(groups, security=security)


def _route(path: str) -> str:
    for name in ("rule_id", "number"):
        path = path.replace(f"{{{name}}}", f"{{{name}:{name}}}")
    return f"{PREFIX}{path}"


async def _unknown_path(scope: Scope, _: Receive, send: Send) -> None:
    message = f"no such path; all below {PREFIX} are in /openapi.json"
    await respond(send, problem(404, message), is_head=scope["method"] == "HEAD")


async def _recorded(call: Call, entry: AuditEntry, status: int) -> None:
    if status >= 400 and call.outcome != "changed":
        call.outcome = "failed" if status >= 500 else "refused"
    await entry.end(call.outcome, status, None if call.revision is None else call.revision.number)


async def _answered(operation: Operation, handler: Handler, call: Call) -> Reply:
    """Return the reply of *handler*, or one that describes the error it raises."""
    try:
        await call.read(operation)
        return await handler(call)
    except RefusedError as refused:
        return refused.reply
    except PolicyError as error:
        return _invalid_policy(error)
    except HeadgateError as error:
        return _failure(error, is_change=operation.role == "write")


def _invalid_policy(error: PolicyError) -> Reply:
    count = len(error.errors)
    reply = problem(422, f"with this the policy has {count} error{'s' if count != 1 else ''}")
    content = {**json.loads(reply.body), "errors": problems_data(error.errors)}
    return reply._replace(body=json.dumps(content).encode("ascii"))


def _failure(error: HeadgateError, *, is_change: bool) -> Reply:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 400)
    message = str(error)
    if isinstance(error, StoreError):
        message = f"the store is unavailable ({error.reason})"
    if isinstance(error, InvalidFileError) and is_change:
        status = 409
        message = f"The policy file is invalid, so nothing was changed. Fix it first.\n{message}"
    elif isinstance(error, SourceError) and is_change:
        message = f"{message}\nIt is not known whether anything was changed: check before a retry."
    headers = (_SOON,) if status == 503 or isinstance(error, ConflictError) else ()
    return problem(status, message, headers=headers)
