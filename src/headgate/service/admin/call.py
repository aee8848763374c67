"""One call of the admin API: what it asks, who asks, and what is to be noted of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from headgate.control.editor import EditRequest
from headgate.policy.loader.diagnostics import choosing, closest, meaning
from headgate.policy.loader.scalars import instant_text
from headgate.service.http.body import body_of, document_of, json_body_of
from headgate.service.http.replies import Flaw, RefusedError, json_reply, problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headgate.control.audit import Outcome
    from headgate.control.editor import AnyVersion, Edited
    from headgate.control.revision import Change, Revision
    from headgate.policy.problems import Problem
    from headgate.service.admin.auth import Caller
    from headgate.service.http.body import Document
    from headgate.service.http.replies import HttpOptions, Receive, Reply, Scope


LONGEST_NOTE: Final = 500
NOTE: Final = "x-change-note"
"""The header with words on why something is changed; they are kept in the history."""

_TAG: Final = re.compile(r'"([^"]*)"|([0-9]+)|(W/"[^"]*")')
_VERSION: Final = re.compile(r"[0-9]{1,18}")


@dataclass(slots=True)
class Call:
    """A call that was let in. *parts* are what its path says (`rule_id`, `number`)."""

    scope: Scope
    receive: Receive
    options: HttpOptions
    caller: Caller
    parts: Mapping[str, str]
    begin: Callable[[str], Awaitable[None]]
    """To be awaited with a few words before anything is changed: they are noted, or it raises."""

    outcome: Outcome = "unchanged"
    revision: Revision | None = None
    """What the policy is after it."""

    async def document(self) -> Document:
        """The JSON object that was sent. Raises `RefusedError`."""
        return document_of(await json_body_of(self.scope, self.receive, self.options))

    async def document_if_any(self) -> Document:
        """The same; nothing at all is an empty object."""
        body = await body_of(self.scope, self.receive, self.options)
        return document_of(body) if body else {}

    def query(self, *known: str) -> dict[str, str]:
        """What stands behind the `?`, by name. Raises `RefusedError` for other names, and twice."""
        text = self.scope.get("query_string", b"").decode("latin-1")
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=50, errors="strict")
        except ValueError as error:
            raise RefusedError(problem(400, f"the query cannot be read: {error}")) from None
        found = dict(pairs)
        flaws = [_unknown(name, known) for name in found if name not in known]
        if len(found) != len(pairs):
            flaws.append(Flaw("query", "a parameter is given twice"))
        if flaws:
            raise RefusedError(problem(400, "the query is wrong", flaws=tuple(flaws)))
        return found

    def number(self, query: Mapping[str, str], name: str, usual: int, most: int) -> int:
        """A whole number from the query. Raises `RefusedError`."""
        text = query.get(name)
        if text is None:
            return usual
        if not _VERSION.fullmatch(text) or int(text) > most:
            flaw = Flaw(name, f"found {text[:40]!r}", f"expected a whole number up to {most}")
            raise RefusedError(problem(400, "the query is wrong", flaws=(flaw,)))
        return int(text)

    def header(self, name: str) -> str | None:
        """The value of a header; of several lines all, with commas."""
        wanted = name.encode()
        lines = [value for line, value in self.scope["headers"] if line == wanted]
        return b", ".join(lines).decode("latin-1") if lines else None

    def edit_request(self) -> EditRequest:
        """Who wants it, why, and of which version. Raises `RefusedError`."""
        note = self.header(NOTE) or ""
        if len(note) > LONGEST_NOTE or not note.isprintable():
            told = f"{NOTE} may have up to {LONGEST_NOTE} printable characters"
            raise RefusedError(problem(400, told))
        none = self.header("if-none-match")
        if none is not None and none.strip() != "*":
            raise RefusedError(problem(400, "If-None-Match: expected * (nothing is there yet)"))
        versions = self._versions()
        return EditRequest(
            author=self.caller.name, note=note, versions=versions, is_new=none is not None
        )

    def edited(self, edited: Edited) -> Edited:
        """Note what came of it."""
        self.revision = edited.revision
        self.outcome = "changed" if edited.is_changed else "unchanged"
        return edited

    def has(self, version: int) -> bool:
        """Whether the caller says that it has *version* already (`If-None-Match`)."""
        text = (self.header("if-none-match") or "").replace("W/", "")
        return text.strip() == "*" or str(version) in [
            part.strip().strip('"') for part in text.split(",")
        ]

    def _versions(self) -> Collection[int] | AnyVersion | None:
        text = self.header("if-match")
        if text is None:
            return None
        if text.strip() == "*":
            return "any"
        tags = [part.strip() for part in text.split(",")]
        found = [_TAG.fullmatch(tag) for tag in tags]
        if not all(found):
            told = f'If-Match: found {text[:60]!r}, expected a version such as "7", or *'
            raise RefusedError(problem(400, told))
        named = [match[1] or match[2] or "" for match in found if match]
        return frozenset(int(one) for one in named if _VERSION.fullmatch(one))


def etag(version: int) -> tuple[bytes, bytes]:
    """The header that tells a version."""
    return (b"etag", b'"%d"' % version)


def _unknown(name: str, known: Collection[str]) -> Flaw:
    near = closest(name, sorted(known))
    hint = "none is expected" if not known else choosing(sorted(known))
    return Flaw(name[:40], "no such parameter", hint if near is None else meaning(near))


Handler = Callable[[Call], Awaitable[Any]]


# What is answered about revisions, rules and problems, as data for JSON.


Data = dict[str, Any]


def rule_data(rule: Mapping[str, Any], version: int) -> Data:
    """A rule with its version; the rule itself as it would be put."""
    bare = {name: value for name, value in rule.items() if name != "id"}
    return {"rule_id": rule["id"], "version": version, "rule": bare}


def change_data(number: int, change: Change) -> Data:
    """Who made a revision, when, and what it was."""
    data = {
        "revision": number,
        "author": change.author,
        "time": instant_text(change.time_ns),
        "what": change.what,
    }
    return {**data, "note": change.note} if change.note else data


def problem_data(problem: Problem) -> Data:
    """One thing that is wrong, and where."""
    fields = {
        "severity": problem.severity,
        "rule_id": problem.rule,
        "field": problem.field or None,
        "message": problem.message,
        "hint": problem.hint or None,
        "line": problem.line,
    }
    return {name: value for name, value in fields.items() if value is not None}


def problems_data(problems: Iterable[Problem]) -> list[Data]:
    """The same of several."""
    return [problem_data(problem) for problem in problems]


def edited_reply(
    content: Data, edited: Edited, *headers: tuple[bytes, bytes], rule_id: str | None = None
) -> Reply:
    """*content*, and the revision in a header; with the warnings about the policy, if there are
    any, or about the rule *rule_id* alone."""
    told = [one for one in edited.warnings if rule_id in (None, one.rule)]
    if told:
        content = {**content, "warnings": problems_data(told)}
    reply = json_reply(content)
    revision = (b"x-headgate-revision", b"%d" % edited.revision.number)
    return reply._replace(headers=[*reply.headers, revision, *headers])
