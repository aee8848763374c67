"""Several decisions as one: all or nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headgate.decisions.decision import Concluded, Decision

if TYPE_CHECKING:
    from collections.abc import Sequence


def combine(parts: Sequence[Decision]) -> Decision:
    """The decision that *parts* make together; allowed only if all are.

    Of several, the tightest speaks: among refusals the one with the longest wait, else the one
    with the least remaining. `remaining` is the least of all, `reset_after` the longest.
    """
    if len(parts) == 1:
        return parts[0]
    refused = [part for part in parts if not part.allowed]
    tightest = max(refused, key=_wait) if refused else min(parts, key=lambda part: part.remaining)
    return Concluded(
        tightest.key,
        tightest.limit,
        allowed=not refused,
        remaining=min(part.remaining for part in parts),
        retry_after_ns=tightest.retry_after_ns if refused else 0,
        reset_after_ns=max(part.reset_after_ns for part in parts),
        source=tightest.source,
        parts=tuple(parts),
    )


def _wait(part: Decision) -> float:
    return math.inf if part.retry_after_ns is None else part.retry_after_ns
