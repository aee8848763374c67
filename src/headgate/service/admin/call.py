"""One call of the admin API: its parameters, its caller, and its outcome."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

from headgate.control.editor import EditRequest
from headgate.control.rule_text import RuleText
from headgate.policy.fields import instant_text
from headgate.service.admin.operations import RULE, YAML, check_fields
from headgate.service.http.body import any_body_of, body_of, document_of, json_body_of
from headgate.service.http.check_request import Flaws, invalid
from headgate.service.http.replies import (
    Flaw,
    HttpOptions,
    RejectedError,
    Reply,
    json_reply,
    problem,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from headgate.control.audit import Audit, AuditEvent, Outcome
    from headgate.control.editor import AnyVersion, Edited, PolicyEditor
    from headgate.control.edits import Edit
    from headgate.control.live_counters import LiveCounters
    from headgate.control.revision import Change, Revision
    from headgate.control.watcher import PolicyWatcher
    from headgate.policy.problems import Problem
    from headgate.service.admin.auth import Caller
    from headgate.service.admin.operations import Operation, Query
    from headgate.service.core import Core
    from headgate.service.http.replies import Receive, Scope
    from headgate.service.http.schemas import Schema
    from headgate.service.live import Live

T = TypeVar("T")
Data = dict[str, Any]
OPTIONS: Final = HttpOptions(largest_body=2 * 1024 * 1024)
"""A policy of the largest size, generously spaced."""
_THREADS: Final = ThreadPoolExecutor(4, "headgate-admin")
"""Threads of their own: a call that waits for etcd must not delay name lookups of the store."""
MOST_LISTED: Final = 1_000
"""The most rules, counters or events in one reply."""
LONGEST_NOTE: Final = 500
NOTE: Final = "x-change-note"
"""The header with the reason of a change, kept in the history."""

_TAG: Final = re.compile(r'"([^"]*)"|([0-9]+)|(W/"[^"]*")')
_VERSION: Final = re.compile(r"[0-9]{1,18}")


async def to_thread(function: Callable[..., T], *given: Any, **more: Any) -> T:
    """Call a function that blocks."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS, partial(function, *given, **more))


@dataclass(frozen=True, slots=True)
class AdminContext:
    """The parts of a worker that admin operations use.

    *editor* changes the rules, *watcher* puts them in force here; *audit* records every change
    before it is made. *counters* lists counters of the store, if that is possible; *live* has the
    figures of this node.
    """

    core: Core
    editor: PolicyEditor
    watcher: PolicyWatcher
    audit: Audit
    counters: LiveCounters | None
    live: Live


@dataclass(slots=True)
class Call:
    """A call of an authenticated *caller*. *api* is what operations work on.

    `read` fills *query*, *body*, *flaws* (unknown fields of the body) and *request*.
    """

    api: AdminContext
    scope: Scope
    receive: Receive
    caller: Caller
    attempt: Callable[[AuditEvent], Awaitable[None]]
    event: AuditEvent
    is_begun: bool = False

    text: RuleText | None = None
    """The body, if it is a rule in YAML."""
    query: dict[str, Any] = field(default_factory=dict)
    body: Data = field(default_factory=dict)
    flaws: Flaws = field(default_factory=Flaws)
    request: EditRequest = field(default_factory=lambda: EditRequest(author=""))
    outcome: Outcome = "unchanged"
    revision: Revision | None = None
    """The policy after the call."""

    @property
    def rule_id(self) -> str:
        return str(self.scope["path_params"]["rule_id"])

    async def read(self, operation: Operation) -> None:
        """Read what *operation* declares. Raises `RejectedError`."""
        self.query = self._query(operation.query)
        if operation.body is RULE and (self._header("content-type") or "").startswith(YAML):
            content = await any_body_of(self.scope, self.receive, OPTIONS)
            self.text = await to_thread(RuleText.read, content)
            self.body = self.text.data
        elif operation.body is not None:
            read = json_body_of if operation.needs_body else body_of
            content = await read(self.scope, self.receive, OPTIONS)
            if content or operation.needs_body:
                # In a thread: to parse 9,000 rules takes 35 ms.
                self.body = await to_thread(document_of, content)
            self.check_body(operation.body)
        if operation.is_edit:
            self.request = self._edit_request()

    def check_body(self, schema: Schema) -> None:
        """Add what is wrong with the body by *schema* to the flaws. An optional field that is null
        is as good as missing."""
        if "properties" in schema:
            needed = schema.get("required", ())
            given = self.body.items()
            self.body = {name: one for name, one in given if one is not None or name in needed}
            check_fields(self.body, schema, self.flaws)

    def check(self) -> None:
        """Raise `RejectedError` with all that is wrong with the body."""
        if self.flaws:
            raise invalid(self.flaws)

    async def begin(self, what: str) -> None:
        """Record *what* is changed, before it is. Raises `AuditError`: do not change it then."""
        self.event = replace(self.event, what=what)
        await self.attempt(self.event)
        self.is_begun = True

    async def apply(self, edit: Edit) -> Edited:
        """Record *edit*, make it, and keep the outcome."""
        self.check()
        await self.begin(edit.what)
        edited = await to_thread(self.api.editor.apply, edit, self.request)
        self.revision = edited.revision
        self.outcome = "changed" if edited.is_changed else "unchanged"
        return edited

    def has(self, version: int) -> bool:
        """True if the caller has *version* already (`If-None-Match`)."""
        text = (self._header("if-none-match") or "").replace("W/", "")
        tags = [part.strip().strip('"') for part in text.split(",")]
        return text.strip() == "*" or str(version) in tags

    def _query(self, parameters: Iterable[Query]) -> dict[str, Any]:
        text = self.scope.get("query_string", b"").decode("latin-1")
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=50, errors="strict")
        except ValueError as error:
            raise RejectedError(problem(400, f"the query cannot be read: {error}")) from None
        found: dict[str, Any] = dict(pairs)
        known = {one.name: one for one in parameters}
        flaws = Flaws()
        for name, text_of_one in found.items():
            if name in known:
                found[name] = known[name].read(text_of_one, flaws)
            else:
                flaws.add_unknown(name, sorted(known), "parameter")
        if len(found) != len(pairs):
            flaws.append(Flaw("query", "a parameter is given twice"))
        if flaws:
            raise wrong_query(*flaws)
        return found

    def _header(self, name: str) -> str | None:
        """The value of a header; of several lines all, with commas."""
        lines = [value for line, value in self.scope["headers"] if line == name.encode()]
        return b", ".join(lines).decode("latin-1") if lines else None

    def _edit_request(self) -> EditRequest:
        note = self._header(NOTE) or ""
        if len(note) > LONGEST_NOTE or not note.isprintable():
            message = f"{NOTE} may have up to {LONGEST_NOTE} printable characters"
            raise RejectedError(problem(400, message))
        none = self._header("if-none-match")
        if none is not None and none.strip() != "*":
            raise RejectedError(problem(400, "If-None-Match: expected * (nothing is there yet)"))
        is_new, versions = none is not None, self._versions()
        return EditRequest(author=self.caller.name, note=note, versions=versions, is_new=is_new)

    def _versions(self) -> Collection[int] | AnyVersion | None:
        text = self._header("if-match")
        if text is None:
            return None
        if text.strip() == "*":
            return "any"
        found = [_TAG.fullmatch(part.strip()) for part in text.split(",")]
        if not all(found):
            message = f'If-Match: found {text[:60]!r}, expected a version such as "7", or *'
            raise RejectedError(problem(400, message))
        named = [match[1] or match[2] or "" for match in found if match]
        return frozenset(int(one) for one in named if _VERSION.fullmatch(one))


def wrong_query(*flaws: Flaw) -> RejectedError:
    errors = [flaw.to_data() for flaw in flaws]
    return RejectedError(problem(400, "the query is invalid", errors=errors))


# ---- replies -------------------------------------------------------------------------------


def tagged_reply(content: Data, version: int) -> Reply:
    """*content* with its version in the header `ETag`."""
    reply = json_reply(content)
    return reply._replace(headers=[*reply.headers, _etag(version)])


def not_modified(version: int) -> Reply:
    return Reply(304, [_etag(version)], b"")


def rule_data(rule: Mapping[str, Any], version: int) -> Data:
    """A rule with its version; the rule itself as it would be put."""
    bare = {name: value for name, value in rule.items() if name != "id"}
    return {"rule_id": rule["id"], "version": version, "rule": bare}


def change_data(number: int, change: Change) -> Data:
    """The author, the time and the summary of a revision."""
    data = {
        "revision": number,
        "author": change.author,
        "time": instant_text(change.time_ns),
        "what": change.what,
    }
    return {**data, "note": change.note} if change.note else data


def problems_data(problems: Iterable[Problem], call: Call | None = None) -> list[Data]:
    """Problems of a policy, each with its place; in the text of *call*, if that is a rule."""
    names = {"rule": "rule_id"}
    order = ("severity", "rule", "field", "message", "hint", "line", "column")
    if call is not None and call.text is not None:
        text, own = call.text, (None, call.scope["path_params"].get("rule_id"))
        problems = [text.located(one) if one.rule in own else one for one in problems]
    return [
        {names.get(name, name): value for name in order if (value := getattr(one, name))}
        for one in problems
    ]


def rule_reply(edited: Edited, rule_id: str, **more: Any) -> Reply:
    """The reply to an edit of one rule: its version, and the warnings about it."""
    version = edited.revision.version_of(rule_id)
    content = {"rule_id": rule_id, "version": version, **more}
    return edited_reply(content, edited, version, rule_id=rule_id)


def edited_reply(
    content: Data, edited: Edited, version: int | None = None, *, rule_id: str | None = None
) -> Reply:
    """*content*, with the revision and the *version* in headers, and with the warnings about the
    policy, or about the rule *rule_id* alone."""
    warnings = [one for one in edited.warnings if rule_id in (None, one.rule)]
    if warnings:
        content = {**content, "warnings": problems_data(warnings)}
    reply = json_reply(content)
    headers = [*reply.headers, (b"x-headgate-revision", b"%d" % edited.revision.number)]
    return reply._replace(headers=headers if version is None else [*headers, _etag(version)])


def _etag(version: int) -> tuple[bytes, bytes]:
    return (b"etag", b'"%d"' % version)
