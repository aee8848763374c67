"""The headers of responses: limits, the debug header, and the names that scripts may read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.engine.tracing import traced_lines, traced_turn
from headgate.policy.identity.parts import hashed_key
from headgate.responses import ResponseOptions, expose_headers, headers_for, merged, response_for
from headgate.responses.debug import DEBUG, DECISION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.request_limiter import RequestLimiter
    from headgate.responses import Answer, DenialResponse

Lines = list[tuple[str, str]]

ALLOW_ORIGIN: Final = "access-control-allow-origin"
EXPOSE: Final = "Access-Control-Expose-Headers"
MERGED: Final = frozenset(
    name.lower()
    for name in (*expose_headers(ResponseOptions(draft03=True, bucket=True)), ALLOW_ORIGIN)
)
"""The headers of a response that ours are merged with; after others ours simply follow."""

TOKEN: Final = DEBUG.lower()
"""The header of a request with a debug token."""


def limit_lines(context: RequestContext, status: int) -> Lines:
    """The headers about the limits of a request, for a response with *status*."""
    answer = context.answer(status)
    debug = debug_lines(context.limiter, context)
    if not answer.rules and not answer.loads and not answer.is_replay:
        return debug
    now_ns = _count(context.limiter, answer)
    return headers_for(answer, now_ns=now_ns, options=context.limiter.responses) + debug


def with_limits(lines: Sequence[tuple[str, str]], context: RequestContext, status: int) -> Lines:
    """The header *lines* of a response with *status*, with those about limits."""
    ours = limit_lines(context, status)
    if not ours:
        return list(lines)
    everything = merged(lines, ours)
    is_shared = context.is_cross_origin or any(name.lower() == ALLOW_ORIGIN for name, _ in lines)
    return with_exposed(everything, context.limiter.responses) if is_shared else everything


def denial_response(limiter: RequestLimiter, context: RequestContext) -> DenialResponse:
    """The response to a request that *limiter* denied."""
    answer, accept = context.answer(), context.header("accept")
    now_ns = _count(limiter, answer)
    response = response_for(answer, now_ns=now_ns, options=limiter.responses, accept=accept)
    lines = list(response.headers)
    if context.is_debugged:
        lines = merged(lines, debug_lines(limiter, context))
    if context.is_cross_origin:
        lines = with_exposed(lines, limiter.responses)
    return replace(response, headers=tuple(lines))


def debug_lines(limiter: RequestLimiter, context: RequestContext) -> Lines:
    """The debug header; none without a valid token."""
    if not context.is_debugged:
        return []
    verdicts = [result.verdict for result in context.results]
    if context.denial is not None:
        verdicts.append(context.denial)
    show_key = partial(hashed_key, salt=limiter.debug_salt)
    places = [
        traced_turn(queueing, result.verdict.revision, show_key)
        for result in context.results
        if result.places
        for queueing in result.planned.plan.queues
    ]
    return traced_lines(verdicts, show_key, places)


def with_exposed(lines: Lines, options: ResponseOptions) -> Lines:
    """*lines* with ours in `Access-Control-Expose-Headers`, beside the names that are there.

    Added for every request with an `Origin`: another layer, further out perhaps, decides if other
    origins may read the response at all.
    """
    exposing = [value for name, value in lines if name.lower() == EXPOSE.lower()]
    named = [word.strip() for value in exposing for word in value.split(",") if word.strip()]
    known = {word.lower() for word in named}
    sent = {name.lower() for name, _ in lines}
    ours = [name for name in (*expose_headers(options), DECISION) if name.lower() in sent]
    added = [name for name in ours if name.lower() not in known]
    if not added:
        return lines
    rest = [(name, value) for name, value in lines if name.lower() != EXPOSE.lower()]
    return [*rest, (EXPOSE, ", ".join(named + added))]


def _count(limiter: RequestLimiter, answer: Answer) -> int:
    """Count an allowed request in the load for balancers; the time.

    Denials are not counted: a process that denies quickly would be sent more.
    """
    now_ns = limiter.now_ns()
    if answer.loads and limiter.responses.orca:
        if answer.allowed:
            limiter.throughput.add(now_ns)
        answer.requests_per_second = limiter.throughput.per_second(now_ns)
    return now_ns
