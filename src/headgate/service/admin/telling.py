"""What is answered about revisions, rules and problems, as data for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.rules.reading.instants import instant_text
from headgate.service.http.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.control.editing import Edited
    from headgate.control.revision import Change
    from headgate.rules.problems import Problem
    from headgate.service.http.replies import Reply

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
