"""The share of a limit that one process enforces while the store is gone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.decision import RETRY_AFTER_FAILURE_NS, combine, decide_without_store
from headgate.errors import LimitError
from headgate.limits import (
    GCRA,
    Concurrency,
    ConstantLimit,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    PacedLimit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores.base import concluded
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.decision import Decision, OnFailure
    from headgate.limits import Limit
    from headgate.runtime.outage import ActivePolicy, Mode
    from headgate.stores.operations import Outcomes


_DIGITS: Final = (9, 6, 3, 0)
"""The digits to which a rate is cut that is too fine a fraction."""


def scaled(limit: Limit, share: Fraction) -> Limit:
    """*limit* with *share*, above 0 and up to 1, of its quota: rounded down, never below 1.

    Rates are scaled exactly, windows and times stay as they are. So of a token bucket no more than
    `share * capacity + share * refill_rate * t` is allowed in any time t, or 1 in place of the
    first if that is less. (A rate that no limit can have is cut to the next lower that one can.)
    Guaranteed slots are scaled as all are. A queue is worked off at a share of its rate and is
    shorter by as much: no caller waits longer.
    """
    return limit if share == 1 else _scaled(limit, share)


@lru_cache(maxsize=4096)
def _scaled(limit: Limit, share: Fraction) -> Limit:
    quota = max(1, floor(limit.quota * share))
    match limit:
        case TokenBucket() | GCRA() | LeakyBucket():
            return _paced(limit, quota, share)
        case LeakyQueue():
            return _paced(limit, floor(limit.queue * share), share)
        case FixedWindow() | SlidingWindowLog() | SlidingWindowCounter():
            return replace(limit, limit=quota)
        case Concurrency():
            return _slots(limit, quota, share)
        case ConstantLimit():
            return limit
    raise AssertionError(f"{limit!r} is of no type there is")


def _slots(limit: Concurrency, quota: int, share: Fraction) -> Concurrency:
    """*quota* slots, and of each guarantee its share, rounded down. A caller whose
    guarantee is 0 then has none."""
    sizes = {name: floor(slots * share) for name, slots in limit.shares}
    shares = tuple((name, slots) for name, slots in sizes.items() if slots)
    if not shares:
        return Concurrency(quota, limit.ttl)
    part = limit.partition if sizes.get(limit.partition or "") else None
    return Concurrency(quota, limit.ttl, shares, part, limit.lends)


def _paced(
    limit: TokenBucket | GCRA | LeakyBucket | LeakyQueue, quota: int, share: Fraction
) -> Limit:
    for rate in _rates(limit, share):
        try:
            match limit:
                case TokenBucket():
                    return TokenBucket(quota, rate)
                case GCRA():
                    return GCRA(rate, quota)
                case LeakyBucket():
                    return LeakyBucket(quota, rate)
                case LeakyQueue():
                    return LeakyQueue(rate, quota, limit.max_wait)
        except LimitError:
            continue
    return limit  # as slow as a limit can be


def _rates(limit: PacedLimit | LeakyQueue, share: Fraction) -> Iterator[Fraction]:
    """The rate of *limit* scaled, then ever more rounded down."""
    rate = limit.per_second * share
    yield rate
    for digits in _DIGITS:
        cut = Fraction(floor(rate * 10**digits), 10**digits)
        if cut:
            yield cut


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
        return tuple([Check(c.group, c.key, scaled(c.limit, share), c.cost) for c in self.checks])

    @property
    def closed(self) -> Decision:
        """The denial of a rule that fails closed."""
        pairs = [(check.key, check.limit) for check in self.checks]
        return decide_without_store("fail_closed", pairs)


def shared_checks(rules: Sequence[RuleChecks]) -> tuple[Check, ...]:
    if len(rules) == 1:
        return rules[0].shared
    return tuple([check for one in rules for check in one.shared])


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
