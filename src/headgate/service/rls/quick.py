"""The answer to a call that passes under one limit, made quickly.

Most calls are such. What is the same for all of them is made beforehand; the answer is the one that
`Answering` would give, and a property test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.algorithms import Outcome
from headgate.limits import PacedLimit
from headgate.responses.answer import Part as Told
from headgate.responses.ratelimit_draft11 import policy_field, quoted
from headgate.service.rls import wire
from headgate.service.rls.answering import limit_field
from headgate.stores.port import concluded
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.responses import ResponseOptions
    from headgate.service.rls.asked import Part

Admitted = Callable[["Decision"], bytes]
"""From the decision that admitted a call to the answer."""

LESS_THAN_A_SECOND: Final = SECOND - 1
_NOTHING_YET: Final = Outcome(allowed=True, remaining=0, retry_after_ns=0, reset_after_ns=0)


def quick_answer(part: Part, clock: Clock, *, with_headers: bool) -> Admitted:
    """What answers a call that has only the one limit of *part* to pass, and did.

    With headers, they are those of the two usual families.
    """
    limit = part.checks[0].limit
    field = limit_field(part.name, limit)
    status, passes = wire.status, wire.overall(passes=True)
    headers = _headers(part.title, limit, clock) if with_headers else None

    def answer(decision: Decision) -> bytes:
        remaining, reset_ns = decision.remaining, decision.reset_after_ns
        seconds = (reset_ns + LESS_THAN_A_SECOND) // SECOND
        written = passes + status(field, remaining, seconds, passes=True)
        return written if headers is None else written + headers(remaining, reset_ns)

    return answer


def is_plain(answers: ResponseOptions) -> bool:
    """Whether the two usual families of headers are to be sent, and no others."""
    return answers.x_ratelimit and answers.ratelimit and not (answers.draft03 or answers.bucket)


def _headers(title: str, limit: Limit, clock: Clock) -> Callable[[int, int], bytes]:
    """What makes the headers of what remains, and of the time until all is back."""
    quota, period = limit.quota, limit.period_ns if isinstance(limit, PacedLimit) else 0
    policy = policy_field([Told(title, concluded("", limit, _NOTHING_YET))])
    stated = wire.header("ratelimit-policy", policy)
    total = wire.header("x-ratelimit-limit", str(quota))
    name = quoted(title)
    second, reset = 0, b""

    def headers(remaining: int, reset_ns: int) -> bytes:
        nonlocal second, reset
        reset_at = (clock() + reset_ns + LESS_THAN_A_SECOND) // SECOND
        if reset_at != second:
            second, reset = reset_at, wire.header("x-ratelimit-reset", str(reset_at))
        back_ns = reset_ns
        if period and (others := quota - remaining - 1) > 0:
            back_ns -= others * period // quota
        back = 0
        if reset_ns:
            back = (back_ns + LESS_THAN_A_SECOND) // SECOND if back_ns > 0 else 1
        return total + _left(remaining) + reset + stated + _item(name, remaining, back)

    return headers


@lru_cache(maxsize=4096)
def _left(remaining: int) -> bytes:
    return wire.header("x-ratelimit-remaining", str(remaining))


@lru_cache(maxsize=4096)
def _item(name: str, remaining: int, back: int) -> bytes:
    item = f"{name};r={remaining};t={back}" if back else f"{name};r={remaining}"
    return wire.header("ratelimit", item)
