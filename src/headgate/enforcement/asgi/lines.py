"""The headers of a request that was admitted under one limit, made quickly, as bytes.

Most requests are such. What is the same for all of them is made beforehand; what is said is what
`responses.headers_for` would say, and a property test holds the two together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.algorithms import Outcome
from headgate.decisions import paced_decisions
from headgate.limits import PacedLimit
from headgate.responses.answer import WITHOUT_FIGURES, Part
from headgate.responses.pressure import decimal
from headgate.responses.ratelimit_draft11 import policy_field, quoted
from headgate.responses.rounding import bounded
from headgate.stores.port import concluded
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.enforcement.passage import Passage
    from headgate.shaping.gates.gatehouse import Standing

Headers = list[tuple[bytes, bytes]]

LESS_THAN_A_SECOND: Final = SECOND - 1
_NOTHING_YET: Final = Outcome(allowed=True, remaining=0, retry_after_ns=0, reset_after_ns=0)


def quick_lines(passage: Passage) -> Headers | None:
    """What the response to a request says of its one limit; None if there is more to say."""
    if len(passage.told) != 1 or passage.refusal is not None or not passage.gate.tells_plainly:
        return None
    if passage.is_debugged:
        return None
    told = passage.told[0]
    decision = told.decision
    limit = decision.limit
    if told.headers != "on" or not isinstance(limit, PacedLimit) or not decision.reset_after_ns:
        return None
    if len(decision.limits) != 1 or decision.source in WITHOUT_FIGURES:
        return None
    lines = header_lines(told.name, limit, passage.gate.now_ns)(decision)
    return lines + _queue_lines(passage) if passage.queues else lines


@lru_cache(maxsize=4096)
def header_lines(name: str, limit: PacedLimit, now_ns: Clock) -> Callable[[Decision], Headers]:
    """What makes the headers of an admitted request, as `responses.headers_for` would.

    It reads from a decision what that would compute its figures of.
    """
    quota, period, pace = limit.quota, limit.period_ns, limit.pace
    per_ns, unit, span = pace.ticks_per_ns, pace.ticks_per_unit, pace.span
    admitted, _ = paced_decisions(limit, pace)
    total = b"x-ratelimit-limit", b"%d" % bounded(quota)
    stated = policy_field([Part(name, concluded("", limit, _NOTHING_YET))])
    policy = b"ratelimit-policy", stated.encode()
    left = quoted(name).replace("%", "%%").encode() + b";r=%d;t=%d"
    second, reset = 0, (b"", b"")

    def lines(decision: Decision) -> Headers:
        nonlocal second, reset
        if isinstance(decision, admitted):
            in_use = decision._in_use
            remaining = (span - in_use) // unit
            back_ns = reset_ns = -(-in_use // per_ns)
        else:
            remaining = decision.remaining
            back_ns = reset_ns = decision.reset_after_ns
        others = quota - remaining - 1
        if others > 0:
            back_ns -= others * period // quota
        reset_at = (now_ns() + reset_ns + LESS_THAN_A_SECOND) // SECOND
        if reset_at != second:
            second, reset = reset_at, (b"x-ratelimit-reset", b"%d" % reset_at)
        return [
            total,
            (b"x-ratelimit-remaining", b"%d" % remaining),
            reset,
            policy,
            (b"ratelimit", left % (remaining, (back_ns + LESS_THAN_A_SECOND) // SECOND or 1)),
        ]

    return lines


def _queue_lines(passage: Passage) -> Headers:
    """How the gates stand at which a request took its turns, as `responses.pressure_lines`."""
    found = tuple(passage.gate.turns.standings(passage.queues))
    lines = [_queue_line(found)] if found else []
    delayed_ns = 0
    for turn in passage.turns:
        delayed_ns += turn.waited_ns
    if delayed_ns > 0:
        lines.append((b"headgate-delay", decimal(delayed_ns).encode()))
    return lines


@lru_cache(maxsize=1024)
def _queue_line(found: tuple[tuple[str, Standing], ...]) -> tuple[bytes, bytes]:
    """Where nobody waits it is one of a few: as many as there are slots."""
    items = []
    for rule, (waiting, wait_ns, in_flight, slots) in found:
        wait = "" if wait_ns is None else f";wait={decimal(wait_ns)}"
        item = f"{quoted(rule)};waiting={waiting}{wait};in-flight={in_flight}"
        items.append(item if slots is None else f"{item};slots={slots}")
    return b"headgate-queue", ", ".join(items).encode()
