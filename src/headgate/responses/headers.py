"""The headers of a response, from the answer."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.responses import pressure, ratelimit_draft11
from headgate.responses.answer import DEFAULT, WITHOUT_FIGURES, open_limits, verdict_of
from headgate.responses.bodies import refusal_body, wants_problem
from headgate.responses.pressure import load_of_queue, orca_line, pressure_lines
from headgate.responses.ratelimit_draft11 import phrases_of
from headgate.units import bounded, seconds_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.decision import Figures
    from headgate.responses.answer import Answer, ResponseOptions, Verdict
    from headgate.responses.ratelimit_draft11 import Phrases


# Our headers among those of a response that has some already.


LISTS: Final = tuple(
    name.lower() for name in (ratelimit_draft11.POLICY, ratelimit_draft11.LIMIT, pressure.QUEUE)
)
"""The fields that several servers on the way may add to."""


def merged(
    existing: Iterable[tuple[str, str]], ours: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The lines of *existing* with *ours* after them, and nothing said twice.

    A header of ours replaces one of the same name, in whatever case. `RateLimit`,
    `RateLimit-Policy` and `Headgate-Queue` are lists: what a server behind us says of policies of
    its own stays, as the draft asks of intermediaries, and what it says of policies of the same
    name does not. The load that an app reports itself stays, too: it knows better.
    """
    new, old = list(ours), list(existing)
    if any(name.lower().startswith(pressure.ORCA) for name, _ in old):  # or `...-bin`
        new = [line for line in new if line[0] != pressure.ORCA]
    replaced = {name.lower() for name, _ in new}
    if not any(name.lower() in replaced for name, _ in old):
        return old + new
    known = {
        name.lower(): ratelimit_draft11.names_in(value)
        for name, value in new
        if name.lower() in LISTS
    }
    kept = []
    for name, value in old:
        field = name.lower()
        if field in known:
            left = ratelimit_draft11.without_policies(value, known[field])
            kept += [(name, left)] if left else []
        elif field not in replaced:
            kept.append((name, value))
    return kept + new


# `X-RateLimit-Limit`, `-Remaining`, `-Reset` and `-Bucket`: the tightest limit, for everybody.
#
# All are integers but the bucket. The reset is an epoch second, as with GitHub; draft-03 of the
# IETF had the same names without `X-` and a reset in seconds from now.


NAMES: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
DRAFT_03_NAMES: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
BUCKET: Final = "X-RateLimit-Bucket"

Lines = list[tuple[str, str]]


def x_lines(quota: str, remaining: int, reset_after_ns: int, now_ns: int) -> Lines:
    """The headers of a decision with these figures; the reset is never before *now_ns*."""
    return _named(NAMES, quota, remaining, seconds_up(now_ns + reset_after_ns))


def draft03_lines(quota: str, remaining: int, reset_after_ns: int) -> Lines:
    """The same with names of draft-03."""
    return _named(DRAFT_03_NAMES, quota, remaining, seconds_up(reset_after_ns))


def bucket_line(policy: str, key: str, secret: bytes) -> tuple[str, str]:
    """Which counter it was, in a way that tells nothing else: the same id, the same counter."""
    counter = f"{policy}\0{key}".encode("utf-8", "surrogatepass")
    return BUCKET, blake2b(counter, digest_size=12, key=secret).hexdigest()


def _named(names: tuple[str, str, str], quota: str, remaining: int, reset: int) -> Lines:
    limit, left, back = names
    return [(limit, quota), (left, str(bounded(remaining))), (back, str(reset))]


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
        (options.x_ratelimit, NAMES),
        (options.draft03, DRAFT_03_NAMES),
        (options.bucket, (BUCKET,)),
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
    """As `headgate.decision.binds_more`, with figures that were read already."""
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
        lines = x_lines(phrases.total, left, reset_ns, now_ns)
    if options.draft03:
        lines += draft03_lines(phrases.total, left, reset_ns)
    if options.bucket:
        lines.append(bucket_line(name, key, options.bucket_secret))
    return lines


# The whole response to a refused request.


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
