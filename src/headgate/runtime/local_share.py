"""The share of a limit that one process enforces while the store is gone."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import floor
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.decision import RETRY_AFTER_FAILURE_NS, combine, decide_without_store
from headgate.limits import Concurrency, LeakyQueue, scaled
from headgate.stores.base import concluded
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction

    from headgate.decision import Decision, OnFailure
    from headgate.limits import Limit
    from headgate.runtime.outage import ActivePolicy, Mode
    from headgate.stores.operations import Outcomes


@lru_cache(maxsize=4096)
def share_of(limit: Limit, share: Fraction) -> Limit:
    """*limit* with *share*, above 0 and up to 1, of its quota: rounded down, never below 1.

    So of a token bucket no more than `share * capacity + share * refill_rate * t` is allowed in any
    time t, or 1 in place of the first if that is less. Guaranteed slots are scaled as all are: a
    guarantee may be gone. A queue is worked off at a share of its rate and is shorter by as much:
    no caller waits longer.
    """
    match limit:
        case LeakyQueue():
            limit = replace(limit, queue=floor(limit.queue * share))
        case Concurrency() if limit.shares:
            sizes = {name: floor(slots * share) for name, slots in limit.shares}
            shares = tuple((name, slots) for name, slots in sizes.items() if slots)
            quota = max(1, floor(limit.quota * share))
            if not shares:
                return Concurrency(quota, limit.ttl)
            part = limit.partition if sizes.get(limit.partition or "") else None
            return Concurrency(quota, limit.ttl, shares, part, limit.lends)
    return scaled(limit, share)


HERE: Final = frozenset({"fail_open", "local"})
"""The sources of decisions that were charged in this process."""

ELSEWHERE: Final = frozenset({*HERE, "fail_closed", "fallback", "override"})
"""The sources of decisions that the store does not know."""


class RuleChecks(NamedTuple):
    """The checks of one limiter or rule, and its failure policy."""

    checks: tuple[Check, ...]
    on_failure: OnFailure

    @property
    def shared(self) -> tuple[Check, ...]:
        """The checks under the share of their limits that this process has."""
        share = self.on_failure.share
        if share == 1:
            return self.checks
        return tuple([Check(c.group, c.key, share_of(c.limit, share), c.cost) for c in self.checks])

    @property
    def closed(self) -> Decision:
        """The denial of a rule that fails closed."""
        pairs = [(check.key, check.limit) for check in self.checks]
        return decide_without_store("fail_closed", pairs)


def decision_of(rule: RuleChecks, policy: ActivePolicy, outcomes: Outcomes) -> Decision:
    """The decision of *rule* by the *outcomes* of its checks under their share."""
    parts = []
    for check, outcome in zip(rule.checks, outcomes, strict=True):
        if outcome.retry_after_ns is None and check.cost <= check.limit.largest_cost:
            # It does not fit in a share, but will when the store is back.
            outcome = outcome._replace(retry_after_ns=RETRY_AFTER_FAILURE_NS)  # noqa: PLW2901
        source = policy.mode if policy.mode == "local" or outcome.allowed else "fallback"
        parts.append(concluded(check.key, check.limit, outcome._replace(source=source)))
    return combine(parts)


UNKNOWN: Final = 1 / 16
"""The part of a quota by which counters here may lag behind the store."""


def unknown_usage(
    rule: RuleChecks, decision: Decision, used: Callable[[str, str], int]
) -> Iterator[Check]:
    """The usage that this process does not know by *used*, of the counters on which the store made
    *decision*: so that under the share no more is left than the share of what the store has left.

    Less than `UNKNOWN` of a quota is not worth a charge, unless the store has nothing left.
    """
    parts = decision.limits
    if rule.on_failure.mode == "fail_closed" or len(parts) != len(rule.checks):
        return
    for check, part in zip(rule.shared, parts, strict=True):
        if part.source == "store" and check.limit.is_divisible:
            quota = check.limit.quota
            left = quota * part.remaining // part.limit.quota
            unknown = quota - left - used(check.group, check.key)
            if unknown > (quota * UNKNOWN if left else 0):
                yield check.with_cost(unknown)


def mode_of(policies: Sequence[ActivePolicy], decisions: Sequence[Decision]) -> Mode | None:
    """The way a request was decided: by what denied it, else by what allowed it; None: no limit."""
    pairs = list(zip(policies, decisions, strict=True))
    binding = [pair for pair in pairs if not pair[1].allowed] or pairs
    if not binding:
        return None
    if any(policy.is_escalated for policy, _ in binding):
        return "escalated"
    sources = {decision.source for _, decision in binding}
    known: tuple[Mode, ...] = ("fail_closed", "fallback", "fail_open")
    return next((mode for mode in known if mode in sources), "local")
