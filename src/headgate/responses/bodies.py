"""The body of a refusal: JSON of our own, or problem details (RFC 9457) for those who ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.responses.answer import Reason, parts_of, reason_of
from headgate.responses.options import DEFAULT
from headgate.responses.verdict import verdict_of
from headgate.responses.words import limit_in_words, wait_in_words

if TYPE_CHECKING:
    from headgate.responses.answer import Answer
    from headgate.responses.options import ResponseOptions
    from headgate.responses.verdict import Verdict

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"

_TYPES: Final = "https://iana.org/assignments/http-problem-types"
EXCEEDED: Final = ("rate_limit_exceeded", f"{_TYPES}#quota-exceeded", "Too many requests")
OUTAGE: Final = (
    "temporarily_unavailable",
    f"{_TYPES}#temporary-reduced-capacity",
    "Temporarily unavailable",
)
BUSY: Final = (
    "temporarily_overloaded",
    f"{_TYPES}#temporary-reduced-capacity",
    "The service is busy",
)
BLOCKED: Final = ("blocked", f"{_TYPES}#abnormal-usage-detected", "Blocked for the time being")


_WORDINGS: Final = {Reason.OUTAGE: OUTAGE, Reason.SHED: BUSY, Reason.EXCEEDED: EXCEEDED}


def body_for(
    answer: Answer, *, problem: bool, options: ResponseOptions = DEFAULT
) -> tuple[str, bytes]:
    """The media type and the content of a refusal; `UsageError` if the request was allowed."""
    return refusal_body(answer, verdict_of(answer, options), problem=problem)


def refusal_body(answer: Answer, verdict: Verdict, *, problem: bool) -> tuple[str, bytes]:
    """The same for a refusal whose verdict is known."""
    content = _problem(answer, verdict) if problem else _plain(verdict)
    return PROBLEM if problem else JSON, json.dumps(content).encode("ascii")


def message_for(verdict: Verdict) -> str:
    """What happened, for people."""
    title = _wording(verdict)[2]
    if verdict.speaker is None:
        return f"{title}. Try again later."
    if verdict.is_block and verdict.retry_after is not None:
        return f"{title}. Try again in {wait_in_words(verdict.retry_after)}."
    limit = limit_in_words(verdict.speaker.decision.limit)
    if verdict.retry_after is None:
        return f"This request is more than its limit of {limit} allows. Waiting does not help."
    what = f"{title}: {limit}" if verdict.reason is Reason.EXCEEDED else title
    return f"{what}. Try again in {wait_in_words(verdict.retry_after)}."


def _plain(verdict: Verdict) -> dict[str, object]:
    return {
        "error": _wording(verdict)[0],
        "message": message_for(verdict),
        **_particulars(verdict),
    }


def _problem(answer: Answer, verdict: Verdict) -> dict[str, object]:
    _, kind, title = _wording(verdict)
    content: dict[str, object] = {
        "type": kind,
        "title": title,
        "status": verdict.status,
        "detail": message_for(verdict),
    }
    if verdict.speaker is not None:
        content["violated-policies"] = _violated(answer, verdict.reason)
    return content | _particulars(verdict)


def _wording(verdict: Verdict) -> tuple[str, str, str]:
    if verdict.is_block:
        return BLOCKED
    return _WORDINGS[verdict.reason]


def _particulars(verdict: Verdict) -> dict[str, object]:
    """What is added where something may be told, and where waiting helps."""
    if verdict.speaker is None:
        return {}
    rule: dict[str, object] = {"limit": verdict.speaker.name}
    if verdict.wait_ns is None:
        return rule
    return rule | {"retry_after_ms": verdict.retry_after_ms, "retry_after": verdict.retry_after}


def _violated(answer: Answer, reason: Reason) -> list[str]:
    """The policies that refused, by the names they have in `RateLimit-Policy`."""
    found: list[str] = []
    for told in answer.told:
        decision = told.decision
        if decision.allowed or told.headers == "redacted":
            continue
        if reason_of(told) is reason:
            refusing = [part.policy for part in parts_of(told) if not part.decision.allowed]
            found += refusing or [told.name]
    return found
