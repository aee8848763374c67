"""The admin API as an ASGI app: authentication, routes (Starlette), errors, the audit log."""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.routing import Route, Router

from headgate.config.values import AdminToken
from headgate.control.audit import AuditError, AuditEvent, AuditFile, AuditLog
from headgate.control.editor import (
    EmptySourceError,
    PolicyEditor,
    StaleVersionError,
    UnknownModeError,
)
from headgate.control.edits import UnknownOverrideError, UnknownRuleError
from headgate.control.file_source import InvalidFileError
from headgate.control.live_counters import MemoryCounters, RedisCounters
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
from headgate.service.admin import callers, keys, reports, rules
from headgate.service.admin.auth import authenticated
from headgate.service.admin.call import NOTE, AdminContext, Call, problems_data, to_thread
from headgate.service.admin.operations import PREFIX, Operation
from headgate.service.http.body import DisconnectedError
from headgate.service.http.replies import (
    RETRY_SOON,
    RejectedError,
    Reply,
    header_of,
    problem,
    respond,
)
from headgate.service.http.schemas import TEXT, WHOLE
from headgate.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.clock import Clock
    from headgate.config.service import Settings
    from headgate.config.values import AdminCertificate
    from headgate.control.audit import Audit, Outcome
    from headgate.control.live_counters import LiveCounters
    from headgate.control.source import PolicySource
    from headgate.control.watcher import PolicyWatcher
    from headgate.service.admin.auth import Caller
    from headgate.service.core import Core
    from headgate.service.http.replies import Receive, Scope, Send
    from headgate.service.live import Live

LOG: Final = logging.getLogger("headgate.audit")
_LONGEST_PATH: Final = 300
_UNAUTHENTICATED: Final = "10/s burst 100"
"""The rate at which unauthenticated calls are recorded: they must not fill the disk."""
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
    """Writes the events of calls to *audit*; of unauthenticated callers at a limited rate."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._unauthenticated = RateLimiter(_UNAUTHENTICATED, clock=clock)
        self._left_out = 0

    async def write(self, event: AuditEvent, outcome: Outcome, **more: Any) -> None:
        """Record *event* with its *outcome*. Raises `AuditError`."""
        left_out, self._left_out = self._left_out, 0
        stamped = replace(event, time_ns=self._clock(), outcome=outcome, left_out=left_out, **more)
        await self._audit.write(stamped)

    async def end(
        self, event: AuditEvent, outcome: Outcome, status: int, revision: int | None = None
    ) -> None:
        """Record the outcome; a failure is logged, since the change is made already."""
        if event.author is None and not self._unauthenticated.hit("unauthenticated"):
            self._left_out += 1
            return
        try:
            await self.write(event, outcome, status=status, revision=revision)
        except AuditError as error:
            LOG.error("%s; %s %s", error, outcome, event.what or event.path)  # noqa: TRY400


def _event(scope: Scope, author: str | None = None) -> AuditEvent:
    """Describe a call for the audit log. *author* is None if the caller is not authenticated."""
    note = header_of(scope, NOTE.encode()) if author else None
    return AuditEvent(
        id=secrets.token_hex(8),
        author=author,
        peer=str((scope.get("client") or ("",))[0]),
        method=scope["method"][:20],
        path=scope["path"][:_LONGEST_PATH],
        note=(note or "")[:_LONGEST_PATH],
    )


_PARTS: Final = {"rule_id": ("[^/:]{1,200}", TEXT), "number": ("[0-9]{1,15}", WHOLE)}
"""The variable parts of paths: the pattern of each, and its schema."""


for _name, (_regex, _) in _PARTS.items():
    register_url_convertor(_name, type(_name, (StringConvertor,), {"regex": _regex})())

OPERATIONS: Final = tuple(
    one
    for module in (rules, keys, callers, reports)
    for one in vars(module).values()
    if isinstance(one, Operation)
)


class AdminApp:
    """The admin API below `/admin/v1`, for the holders of *tokens* and *certificates*; closed if
    there are none. It opens and closes nothing."""

    def __init__(
        self,
        context: AdminContext,
        tokens: Sequence[AdminToken],
        certificates: Sequence[AdminCertificate] = (),
    ) -> None:
        self._context = context
        self._authenticate = partial(authenticated, tokens=tokens, certificates=certificates)
        self._trail = AuditTrail(context.audit, context.core.clock)
        paths: dict[str, dict[str, Operation]] = {}
        for one in OPERATIONS:
            paths.setdefault(one.path, {})[one.method] = one
        self._router = Router(
            [Route(_route(path), _Path(self, methods)) for path, methods in paths.items()],
            redirect_slashes=False,
            default=_unknown_path,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the admin API answers HTTP, not {scope['type']!r}")
        try:
            caller = self._authenticate(scope)
        except RejectedError as refused:
            await self._trail.end(_event(scope), "refused", refused.reply.status)
            await respond(send, refused.reply, is_head=scope["method"] == "HEAD")
            return
        await self._router({**scope, _CALLER: caller}, receive, send)

    async def answer(self, operation: Operation, scope: Scope, receive: Receive) -> Reply:
        """Answer a call of *operation*: a change is in force here before, and recorded."""
        caller: Caller = scope[_CALLER]
        attempt = partial(self._trail.write, outcome="attempt")
        call = Call(self._context, scope, receive, caller, attempt, _event(scope, caller.name))
        if operation.role == "read":
            return await _answered(operation, call)
        status = None
        try:
            reply = await _answered(operation, call)
            status = reply.status
            if call.revision is not None and call.outcome == "changed":
                await to_thread(self._context.watcher.learn, call.revision)
        finally:
            # Whatever went wrong: an attempt that was recorded has an end.
            if status is not None or call.is_begun:
                status = status or 500
                if status >= 400 and call.outcome != "changed":
                    call.outcome = "failed" if status >= 500 else "refused"
                number = None if call.revision is None else call.revision.number
                await self._trail.end(call.event, call.outcome, status, number)
        return reply


class _Path:
    """All methods of one path, as an ASGI app."""

    def __init__(self, app: AdminApp, methods: dict[str, Operation]) -> None:
        self._app = app
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["method"] == "HEAD"
        found = self._methods.get("GET" if is_head else scope["method"])
        if found is None:
            allowed = ", ".join(sorted(self._methods))
            message = f"{scope['method'][:20]} is not allowed for this path; expected {allowed}"
            reply = problem(405, message, headers=((b"allow", allowed.encode()),))
        else:
            try:
                reply = await self._app.answer(found, scope, receive)
            except DisconnectedError:
                return
        await respond(send, reply, is_head=is_head)


def admin_paths() -> dict[str, Any]:
    """Return the OpenAPI paths."""
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        item = paths.setdefault(f"{PREFIX}{one.path}", {})
        item[one.method.lower()] = one.to_openapi()
        for name, (_, schema) in _PARTS.items():
            if f"{{{name}}}" in one.path:
                part = {"name": name, "in": "path", "required": True, "schema": schema}
                item["parameters"] = [part]
    return paths


def _route(path: str) -> str:
    for name in _PARTS:
        path = path.replace(f"{{{name}}}", f"{{{name}:{name}}}")
    return f"{PREFIX}{path}"


async def _unknown_path(scope: Scope, _: Receive, send: Send) -> None:
    message = f"no such path; /openapi.json lists all paths below {PREFIX}"
    await respond(send, problem(404, message), is_head=scope["method"] == "HEAD")


async def _answered(operation: Operation, call: Call) -> Reply:
    """Return the reply of the operation, or one that describes the error it raises."""
    try:
        call.caller.check_role(operation.role)
        await call.read(operation)
        if operation.handler is None:
            raise RuntimeError(f"{operation.line} has no handler")
        return await operation.handler(call)
    except RejectedError as refused:
        return refused.reply
    except PolicyError as error:
        return _invalid_policy(error, call)
    except HeadgateError as error:
        return _failure(error, is_change=operation.role == "write")


def _invalid_policy(error: PolicyError, call: Call) -> Reply:
    count = len(error.errors)
    detail = f"the policy would have {count} error{'s' if count != 1 else ''}"
    return problem(422, detail, errors=problems_data(error.errors, call))


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
    headers = (RETRY_SOON,) if status == 503 or isinstance(error, ConflictError) else ()
    return problem(status, message, headers=headers)


# ---- the admin API of a service ------------------------------------------------------------

_FIRST_AUTHOR: Final = "admin"
"""The name of the token without one, in the audit log."""


def make_admin(
    core: Core, settings: Settings, source: PolicySource, watcher: PolicyWatcher, live: Live
) -> AdminApp:
    """Make the admin API for the rules in *source*; closed without tokens and certificates."""
    path, tokens = settings.audit_file, settings.admin_tokens
    if settings.admin_token:
        tokens = (AdminToken.of(_FIRST_AUTHOR, "write", settings.admin_token), *tokens)
    context = AdminContext(
        core,
        PolicyEditor(source, memory=watcher.memory, enforced=lambda: watcher.state.revision),
        watcher,
        AuditLog() if path is None else AuditFile(Path(path)),
        _counters(core, settings),
        live,
    )
    return AdminApp(context, tokens, settings.admin_certificates)


def _counters(core: Core, settings: Settings) -> LiveCounters | None:
    """The counters that can be listed: those of Redis, or of this worker's memory. Shared memory
    cannot be listed, because it keeps no names."""
    store = core.rules.engine.store
    if settings.is_in_shared_memory:
        return None
    if isinstance(store, MemoryStore):
        return MemoryCounters(store, namespace=settings.namespace)
    return RedisCounters(settings.store, namespace=settings.namespace)
