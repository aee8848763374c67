"""What is asked while the store is gone, and what is said to it. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.decisions import combine
from headgate.decisions.failure import RETRY_AFTER_FAILURE_NS
from headgate.fallback.share import scaled
from headgate.stores.operations import Check
from headgate.stores.port import concluded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decisions import Decision, OnFailure
    from headgate.fallback.outage import Mode, Stance
    from headgate.stores.operations import Outcomes

HERE: Final = frozenset({"fail_open", "local"})
"""The sources of decisions that were charged in this process."""

ELSEWHERE: Final = frozenset({*HERE, "fail_closed", "fallback", "override"})
"""The sources of decisions of which the store knows nothing."""


class Asked(NamedTuple):
    """The checks of one limiter or rule, and what that does while the store is gone."""

    checks: tuple[Check, ...]
    on_failure: OnFailure

    @property
    def shared(self) -> tuple[Check, ...]:
        """The checks under the share of their limits that this process has."""
        share = self.on_failure.share
        if share == 1:
            return self.checks
        return tuple([Check(c.group, c.key, scaled(c.limit, share), c.cost) for c in self.checks])


def shared_checks(asked: Sequence[Asked]) -> tuple[Check, ...]:
    if len(asked) == 1:
        return asked[0].shared
    return tuple([check for one in asked for check in one.shared])


def said(asked: Asked, stance: Stance, outcomes: Outcomes) -> Decision:
    """What *outcomes*, those of the checks of *asked* under their share, come to."""
    parts = []
    for check, outcome in zip(asked.checks, outcomes, strict=True):
        if outcome.retry_after_ns is None and check.cost <= check.limit.largest_cost:
            # It does not fit in a share, but will when the store is back.
            outcome = outcome._replace(retry_after_ns=RETRY_AFTER_FAILURE_NS)  # noqa: PLW2901
        source = stance.mode if stance.mode == "local" or outcome.allowed else "fallback"
        parts.append(concluded(check.key, check.limit, outcome, source))
    return combine(parts)


def mode_of(stances: Sequence[Stance], decisions: Sequence[Decision]) -> Mode | None:
    """How a request was decided: by what refused it, else by what admitted it. None: no limit."""
    pairs = list(zip(stances, decisions, strict=True))
    binding = [pair for pair in pairs if not pair[1].allowed] or pairs
    if not binding:
        return None
    if any(stance.is_escalated for stance, _ in binding):
        return "escalated"
    sources = {decision.source for _, decision in binding}
    known: tuple[Mode, ...] = ("fail_closed", "fallback", "fail_open")
    return next((mode for mode in known if mode in sources), "local")
