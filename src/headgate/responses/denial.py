"""The whole response to a refused request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.responses.accept import wants_problem
from headgate.responses.bodies import refusal_body
from headgate.responses.headers import refusal_headers
from headgate.responses.options import DEFAULT
from headgate.responses.verdict import verdict_of

if TYPE_CHECKING:
    from headgate.responses.answer import Answer
    from headgate.responses.options import ResponseOptions


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response. *headers* has all but `Content-Length`, which is for whoever sends it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def refusal(
    answer: Answer,
    *,
    now_ns: int,
    options: ResponseOptions = DEFAULT,
    accept: str | None = None,
) -> Refusal:
    """What to send to a caller who was refused; `UsageError` if the request was allowed.

    *accept* is the `Accept` header of the request, by which a client may ask for problem details.
    """
    verdict = verdict_of(answer, options)
    problem = options.problem or wants_problem(accept)
    media_type, body = refusal_body(answer, verdict, problem=problem)
    lines = refusal_headers(answer, verdict, now_ns, options)
    lines += [("Content-Type", media_type), ("Cache-Control", "no-store")]
    return Refusal(verdict.status, tuple(lines), body)
