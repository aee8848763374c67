"""The body of a denial: JSON of our own, or problem details (RFC 9457) for those who ask; and its
gRPC status (gRFC A6)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.limits import Concurrency, LeakyQueue, PacedLimit, Unlimited
from headgate.limits.notation import USD
from headgate.llm.protocol import denial_body as provider_body
from headgate.responses.answer import DEFAULT, Reason, denial_of, reason_of
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, WEEK

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.limits import Limit
    from headgate.responses.answer import Answer, Denial, ResponseOptions, RuleAnswer


# Limits and waits in plain English, for the people who read the message.


_UNITS: Final = (
    (WEEK, "week"),
    (DAY, "day"),
    (HOUR, "hour"),
    (MINUTE, "minute"),
    (SECOND, "second"),
)


@lru_cache(maxsize=1024)  # many denials are of few limits, and have to be cheap
def limit_in_words(limit: Limit) -> str:
    """*limit* in words: "100 per minute", "10 per second, up to 50 at once", "20 at the same time",
    "10 per second, one after the other, with up to 100 waiting"."""
    if isinstance(limit, Concurrency):
        return f"{limit.quota} at the same time"
    if isinstance(limit, LeakyQueue):
        waiting = f", with up to {limit.quota - 1} waiting" if limit.quota > 1 else ""
        return f"{_rate_in_words(limit.per_second)}, one after the other{waiting}"
    if isinstance(limit, PacedLimit):
        return _pace_in_words(limit)
    if isinstance(limit, Unlimited):
        return str(limit)
    return f"{limit.quota} per {_period(limit.period_ns)}"


def wait_in_words(seconds: int) -> str:
    """*seconds* in words, rounded up: "1 second", "23 seconds", "15 minutes"."""
    for size, name in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= 2 * (size // SECOND):
            return _counted(-(-seconds * SECOND // size), name)
    return _counted(seconds, "second")


def _pace_in_words(limit: PacedLimit) -> str:
    """The rate in words: by the second, minute, hour or day if it is a whole number of them, unless
    the time of the whole quota is simpler."""
    quota, period = limit.quota, limit.period_ns
    if any(period == size for size, _ in _UNITS):
        return f"{quota} per {_period(period)}"
    for size, name in reversed(_UNITS[1:]):
        count = limit.per_second * size / SECOND
        is_simple = size == SECOND or count <= quota or period % MILLISECOND
        if count.denominator == 1 and is_simple:
            at_once = "" if count == quota else f", up to {quota} at once"
            return f"{count} per {name}{at_once}"
    return f"{quota} per {_period(period)}"


def _rate_in_words(per_second: Fraction) -> str:
    for size, name in reversed(_UNITS[1:]):
        count = per_second * size / SECOND
        if count.denominator == 1:
            return f"{count} per {name}"
    return f"{per_second.numerator} per {_period(per_second.denominator * SECOND)}"


def _period(nanoseconds: int) -> str:
    """A period after "per": "minute", "15 minutes", "1.5 seconds"."""
    for size, name in _UNITS:
        count, rest = divmod(nanoseconds, size)
        if not rest:
            return name if count == 1 else _counted(count, name)
    if nanoseconds > SECOND:
        return f"{round(nanoseconds / SECOND, 2):g} seconds"
    if nanoseconds == MILLISECOND:
        return "millisecond"
    return f"{nanoseconds / MILLISECOND:.3g} milliseconds"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


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


TOO_LONG: Final = ("path_too_long", "about:blank", "The path of this request is too long")

_WORDINGS: Final = {
    Reason.OUTAGE: OUTAGE,
    Reason.SHED: BUSY,
    Reason.EXCEEDED: EXCEEDED,
    Reason.TOO_LONG: TOO_LONG,
}


def denial_body(answer: Answer, denial: Denial, *, problem: bool) -> tuple[str, bytes]:
    """Return the media type and the content of a *denial*."""
    error, kind, title = _wording(denial)
    message = message_for(denial)
    if answer.protocol is not None:
        counted = "requests" if denial.speaker is None else denial.speaker.counts
        return JSON, provider_body(answer.protocol, counted, message)
    content: dict[str, object] = {"error": error, "message": message}
    if problem:
        content = {"type": kind, "title": title, "status": denial.status, "detail": message}
    if denial.speaker is not None:
        if problem:
            content["violated-policies"] = _violated(answer, denial.reason)
        content["limit"] = denial.speaker.name
        if denial.wait_ns is not None:
            content["retry_after_ms"] = denial.retry_after_ms
            content["retry_after"] = denial.retry_after
    return PROBLEM if problem else JSON, json.dumps(content).encode("ascii")


def message_for(denial: Denial) -> str:
    """Return what happened, for people."""
    title, wait = _wording(denial)[2], denial.retry_after
    if denial.reason is Reason.TOO_LONG:
        return f"{title}. Send a shorter one."
    if denial.speaker is None:
        return f"{title}. Try again later."
    has_numbers = denial.speaker.headers == "on"
    limit = _counted_in_words(denial.speaker)
    if wait is None:
        of = f" of {limit}" if has_numbers else ""
        return f"This request is more than its limit{of} allows. Waiting does not help."
    if denial.reason is Reason.EXCEEDED and not denial.is_block and has_numbers:
        title = f"{title}: {limit}"
    return f"{title}. Try again in {wait_in_words(wait)}."


def _counted_in_words(one: RuleAnswer) -> str:
    """The limit that denied, with what it counts if that is not requests."""
    text = limit_in_words(one.decision.limit)
    if one.counts == "requests":
        return text
    if one.counts == "spend":
        return _NUMBERS.sub(lambda units: f"{Decimal(units[0]) / USD:f} usd", text)
    return _NUMBERS.sub(lambda units: f"{units[0]} {one.counts.replace('_', ' ')}", text)


_NUMBERS: Final = re.compile(r"^[0-9]+|(?<=up to )[0-9]+")


def _wording(denial: Denial) -> tuple[str, str, str]:
    return BLOCKED if denial.is_block else _WORDINGS[denial.reason]


def _violated(answer: Answer, reason: Reason) -> list[str]:
    """Return the policies that denied, by the names they have in `RateLimit-Policy`."""
    found: list[str] = []
    for one in answer.rules:
        if one.decision.allowed or not one.is_named or reason_of(one) is not reason:
            continue
        denying = [name for name, decision in one.limits if not decision.allowed]
        found += denying or [one.name]
    return found


OK: Final = 0
INVALID_ARGUMENT: Final = 3
RESOURCE_EXHAUSTED: Final = 8
UNAVAILABLE: Final = 14
_CODES: Final = {Reason.EXCEEDED: RESOURCE_EXHAUSTED, Reason.TOO_LONG: INVALID_ARGUMENT}

PUSHBACK: Final = "grpc-retry-pushback-ms"
LONGEST_PUSHBACK: Final = 2**31 - 1
"""Clients read it as 32 bits."""
NO_RETRY: Final = -1


@dataclass(frozen=True, slots=True)
class GrpcStatus:
    """A status code with its message, and the milliseconds to wait before a retry.

    A *pushback_ms* of -1 forbids a retry; None says nothing.
    """

    code: int
    message: str = ""
    pushback_ms: int | None = None

    @property
    def trailers(self) -> list[tuple[str, str]]:
        """The trailing metadata that says so."""
        return [] if self.pushback_ms is None else [(PUSHBACK, str(self.pushback_ms))]


def grpc_status(answer: Answer, *, options: ResponseOptions = DEFAULT) -> GrpcStatus:
    """Return OK; RESOURCE_EXHAUSTED if a limit was exceeded; UNAVAILABLE if none was checked, or if
    capacity is short; INVALID_ARGUMENT if the path is too long."""
    if answer.allowed:
        return GrpcStatus(OK)
    denial = denial_of(answer, options)
    code = _CODES.get(denial.reason, UNAVAILABLE)
    if denial.is_silent:
        return GrpcStatus(code, message_for(denial))
    wait = denial.retry_after_ms
    helps = wait is not None and wait <= LONGEST_PUSHBACK
    return GrpcStatus(code, message_for(denial), wait if helps else NO_RETRY)


# Which of two bodies a client would rather read: the `Accept` header (RFC 9110, 12.5.1).


_RANGE: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_PARAMETER: Final = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*"?)+')
_WEIGHT: Final = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)", re.ASCII)


def prefers_problem(accept: str | None) -> bool:
    """True if a client that sent *accept* prefers `application/problem+json`.

    It names that type and does not weigh `application/json` higher, or weighs it higher by a
    wildcard. Invalid ranges are ignored.
    """
    if accept is None or "application" not in accept.lower():
        return False
    weights = _weights(accept)
    problem, plain = _weight(weights, PROBLEM), _weight(weights, JSON)
    if PROBLEM in weights:
        return 0 < problem >= plain
    return problem > plain


def _weights(accept: str) -> dict[str, float]:
    """The weight of each media range; of one that is there twice the higher."""
    found: dict[str, float] = {}
    for item in _RANGE.findall(accept):
        name, _, parameters = item.lower().partition(";")
        weight = _weight_among(_PARAMETER.findall(parameters))
        if weight is not None:
            name = name.strip()
            found[name] = max(weight, found.get(name, 0.0))
    return found


def _weight_among(parameters: list[str]) -> float | None:
    """The weight in *parameters*; 1 if there is none, None if it is invalid."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            text = value.strip()
            return float(text) if _WEIGHT.fullmatch(text) else None
    return 1.0


def _weight(weights: dict[str, float], media_type: str) -> float:
    """The weight of *media_type*: that of the most particular range it is in."""
    for candidate in (media_type, "application/*", "*/*"):
        if candidate in weights:
            return weights[candidate]
    return 0.0
