"""The headers of a response, from the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.responses import pressure, ratelimit_draft11, x_ratelimit
from headgate.responses.answer import WITHOUT_FIGURES, open_limits
from headgate.responses.options import DEFAULT
from headgate.responses.pressure import load_of_queue, orca_line, pressure_lines
from headgate.responses.ratelimit_draft11 import phrases_of
from headgate.responses.verdict import verdict_of

if TYPE_CHECKING:
    from headgate.decisions import Figures
    from headgate.responses.answer import Answer
    from headgate.responses.options import ResponseOptions
    from headgate.responses.ratelimit_draft11 import Phrases
    from headgate.responses.verdict import Verdict

Lines = list[tuple[str, str]]

RETRY_AFTER: Final = "Retry-After"


def headers_for(answer: Answer, *, now_ns: int, options: ResponseOptions = DEFAULT) -> Lines:
    """What the response to a request says of its limits; with `Retry-After` if it was refused.

    *now_ns* is the time since the epoch. Each name comes once.
    """
    if answer.allowed:
        return _with_load(_rate_lines(answer, now_ns, options, None), answer, options)
    return refusal_headers(answer, verdict_of(answer, options), now_ns, options)


def refusal_headers(
    answer: Answer, verdict: Verdict, now_ns: int, options: ResponseOptions
) -> Lines:
    """The same for a refusal whose verdict is known."""
    if verdict.speaker is None:
        return _with_load([], answer, options)
    wait = verdict.retry_after
    lines = _rate_lines(answer, now_ns, options, wait)
    if wait is not None:
        lines.append((RETRY_AFTER, str(wait)))
    return _with_load(lines, answer, options)


def expose_headers(options: ResponseOptions = DEFAULT) -> list[str]:
    """The names for `Access-Control-Expose-Headers`, without which browsers hide them."""
    families = (
        (options.x_ratelimit, x_ratelimit.NAMES),
        (options.draft03, x_ratelimit.DRAFT_03_NAMES),
        (options.bucket, (x_ratelimit.BUCKET,)),
        (options.ratelimit, (ratelimit_draft11.POLICY, ratelimit_draft11.LIMIT)),
        (options.pressure, (pressure.QUEUE, pressure.DELAY)),
    )
    chosen = [name for is_sent, names in families if is_sent for name in names]
    return [*chosen, RETRY_AFTER]


def _rate_lines(
    answer: Answer, now_ns: int, options: ResponseOptions, retry_after: int | None
) -> Lines:
    policies, items, loads = [], [], []
    binding: tuple[str, Figures, Phrases] | None = None
    for name, figures in open_limits(answer):
        phrases = phrases_of(name, figures[2])
        policies.append(phrases.policy)
        if figures[6] in WITHOUT_FIGURES:
            continue
        items.append(phrases.item(figures, retry_after))
        if phrases.queue is not None:
            loads.append(load_of_queue(name, phrases.queue, figures))
        if binding is None or _binds_more(figures, binding[1]):
            binding = name, figures, phrases
    lines: Lines = []
    if binding is not None and binding[1][0] == answer.allowed:
        lines = _tightest_lines(*binding, now_ns, options)
    if options.ratelimit and policies:
        lines.append((ratelimit_draft11.POLICY, ", ".join(policies)))
        if items:
            lines.append((ratelimit_draft11.LIMIT, ", ".join(items)))
    if loads or answer.loads or answer.delayed_ns:
        lines += pressure_lines([*loads, *answer.loads], _delay_ns(answer), options)
    return lines


def _with_load(lines: Lines, answer: Answer, options: ResponseOptions) -> Lines:
    """*lines*, and the load of this process if balancers are to know it."""
    if options.orca and answer.loads:
        lines.append(orca_line(answer.loads, answer.requests_per_second))
    return lines


def _delay_ns(answer: Answer) -> int:
    """How long the request is delayed: in the queues of limits, one of which is the longest, and
    then in this process."""
    if not answer.allowed:
        return answer.delayed_ns
    delays = [told.decision.delay_ns for told in answer.told if told.headers == "on"]
    return answer.delayed_ns + max(delays, default=0)


def _binds_more(one: Figures, other: Figures) -> bool:
    """As `headgate.decisions.binds_more`, with figures that were read already."""
    allowed, _, _, left, wait, _, _, _ = one
    if allowed:
        return other[0] and left < other[3]
    if other[0] or wait is None:
        return other[0] or other[4] is not None
    return other[4] is not None and wait > other[4]


def _tightest_lines(
    name: str, figures: Figures, phrases: Phrases, now_ns: int, options: ResponseOptions
) -> Lines:
    _, key, _, left, _, reset_ns, _, _ = figures
    lines: Lines = []
    if options.x_ratelimit:
        lines = x_ratelimit.x_lines(phrases.total, left, reset_ns, now_ns)
    if options.draft03:
        lines += x_ratelimit.draft03_lines(phrases.total, left, reset_ns)
    if options.bucket:
        lines.append(x_ratelimit.bucket_line(name, key, options.bucket_secret))
    return lines
