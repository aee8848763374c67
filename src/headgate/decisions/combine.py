"""Several decisions as one: all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.decisions.decision import Concluded, Decision

if TYPE_CHECKING:
    from collections.abc import Sequence


def combine(parts: Sequence[Decision]) -> Decision:
    """The decision that *parts* make together; allowed only if all are.

    Of several, the tightest speaks: among refusals the one with the longest wait, else the one
    with the least remaining. `remaining` is the least of all, `reset_after` the longest. Where
    several queues let it wait, its turn is the latest; each part keeps its own.
    """
    if len(parts) == 1:
        return parts[0]
    tightest = latest = parts[0]
    for part in parts:
        if binds_more(part, tightest):
            tightest = part
        if part.delay_ns > latest.delay_ns:
            latest = part
    if not tightest.allowed:
        latest = tightest
    return Concluded(
        tightest.key,
        tightest.limit,
        allowed=tightest.allowed,
        remaining=min([part.remaining for part in parts]),
        retry_after_ns=tightest.retry_after_ns,
        reset_after_ns=max([part.reset_after_ns for part in parts]),
        source=tightest.source,
        parts=tuple(parts),
        delay_ns=latest.delay_ns,
        turn_ns=latest.turn_ns,
    )


def binds_more(part: Decision, other: Decision) -> bool:
    """Whether *part* is tighter than *other*: refusals by their wait, those without end most; the
    others by what is left."""
    if part.allowed:
        return other.allowed and part.remaining < other.remaining
    if other.allowed or part.retry_after_ns is None:
        return other.allowed or other.retry_after_ns is not None
    return other.retry_after_ns is not None and part.retry_after_ns > other.retry_after_ns
