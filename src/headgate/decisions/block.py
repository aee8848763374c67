"""What a caller is told whose counter is blocked: nobody counts, everything is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.decisions.combine import combine
from headgate.decisions.decision import Concluded, Decision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.limits import Limit

OVERRIDE: Final = "override"
"""The source of such decisions."""


def decide_blocked(wait_ns: int, asked: Iterable[tuple[str, Limit]]) -> Decision:
    """The refusal of the (key, limit) pairs in *asked*, which are blocked for *wait_ns* more."""
    return combine(
        [
            Concluded(
                key,
                limit,
                allowed=False,
                remaining=0,
                retry_after_ns=wait_ns,
                reset_after_ns=wait_ns,
                source=OVERRIDE,
            )
            for key, limit in asked
        ]
    )
