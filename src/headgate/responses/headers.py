"""The headers of a response, from the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.responses import ratelimit_draft11, x_ratelimit
from headgate.responses.answer import WITHOUT_FIGURES, open_parts, tightest
from headgate.responses.options import DEFAULT
from headgate.responses.verdict import verdict_of

if TYPE_CHECKING:
    from headgate.responses.answer import Answer, Part
    from headgate.responses.options import ResponseOptions
    from headgate.responses.verdict import Verdict

Lines = list[tuple[str, str]]

RETRY_AFTER: Final = "Retry-After"


def headers_for(answer: Answer, *, now_ns: int, options: ResponseOptions = DEFAULT) -> Lines:
    """What the response to a request says of its limits; with `Retry-After` if it was refused.

    *now_ns* is the time since the epoch. Each name comes once.
    """
    if answer.allowed:
        return _rate_lines(answer, now_ns, options, None)
    return refusal_headers(answer, verdict_of(answer, options), now_ns, options)


def refusal_headers(
    answer: Answer, verdict: Verdict, now_ns: int, options: ResponseOptions
) -> Lines:
    """The same for a refusal whose verdict is known."""
    if verdict.speaker is None:
        return []
    wait = verdict.retry_after
    lines = _rate_lines(answer, now_ns, options, wait)
    return lines if wait is None else [*lines, (RETRY_AFTER, str(wait))]


def expose_headers(options: ResponseOptions = DEFAULT) -> list[str]:
    """The names for `Access-Control-Expose-Headers`, without which browsers hide them."""
    families = (
        (options.x_ratelimit, x_ratelimit.NAMES),
        (options.draft03, x_ratelimit.DRAFT_03_NAMES),
        (options.bucket, (x_ratelimit.BUCKET,)),
        (options.ratelimit, (ratelimit_draft11.POLICY, ratelimit_draft11.LIMIT)),
    )
    chosen = [name for is_sent, names in families if is_sent for name in names]
    return [*chosen, RETRY_AFTER]


def _rate_lines(
    answer: Answer, now_ns: int, options: ResponseOptions, retry_after: int | None
) -> Lines:
    parts = open_parts(answer)
    known = [part for part in parts if part.decision.source not in WITHOUT_FIGURES]
    lines: Lines = []
    binding = known[0] if len(known) == 1 else tightest(known)
    if binding is not None and binding.decision.allowed == answer.allowed:
        lines += _tightest_lines(binding, now_ns, options)
    if options.ratelimit and parts:
        lines.append((ratelimit_draft11.POLICY, ratelimit_draft11.policy_field(parts)))
    if options.ratelimit and known:
        lines.append((ratelimit_draft11.LIMIT, ratelimit_draft11.limit_field(known, retry_after)))
    return lines


def _tightest_lines(part: Part, now_ns: int, options: ResponseOptions) -> Lines:
    lines: Lines = []
    if options.x_ratelimit:
        lines += x_ratelimit.x_lines(part.decision, now_ns)
    if options.draft03:
        lines += x_ratelimit.draft03_lines(part.decision)
    if options.bucket:
        lines.append(x_ratelimit.bucket_line(part, options.bucket_secret))
    return lines
