"""The limit that a load test is about: in the text notation, or that of a rule of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.limits import (
    Concurrency,
    FixedWindow,
    LeakyQueue,
    PacedLimit,
    SlidingWindowCounter,
    parse_limits,
    with_extra,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit
    from headgate.policy.model import Policy, Rule


_ALIGNED: Final = (FixedWindow, SlidingWindowCounter)
"""Limits with windows that are aligned to the epoch."""


@dataclass(frozen=True)
class LimitUnderTest:
    """*limits*, all of which must allow, on requests that cost *cost* units each.

    *rule_id* is the id of their rule, if known. *extra* has for each of them the units that a fleet
    may exceed it by, as the accuracy of the rule allows; empty: none. *remark* is a note on the
    rule. Raises `OptionError` for limits that cannot be tested.
    """

    limits: tuple[Limit, ...]
    rule_id: str | None = None
    cost: int = 1
    extra: tuple[int, ...] = ()
    remark: str = ""

    def __post_init__(self) -> None:
        if not self.limits:
            raise OptionError("there is no limit to test")
        for limit in self.limits:
            _check(limit, self.cost)
        if self.extra and len(self.extra) != len(self.limits):
            raise OptionError("expected the overshoot of each limit, or of none")

    @cached_property
    def ceilings(self) -> tuple[Limit, ...]:
        """The limits that must never be exceeded, with the permitted overshoot."""
        pairs = zip(self.limits, self.extra or [0] * len(self.limits), strict=True)
        return tuple(with_extra(limit, extra) if extra else limit for limit, extra in pairs)

    @property
    def is_aligned(self) -> bool:
        """True if windows are aligned, so that the time of day matters."""
        return any(isinstance(limit, _ALIGNED) for limit in self.limits)

    @property
    def text(self) -> str:
        """The limits in the notation."""
        return "; ".join(map(str, self.limits))

    @property
    def per_second(self) -> Fraction:
        """Requests a second that one caller is allowed in the long run."""
        return min(map(_per_second, self.limits)) / self.cost

    @property
    def burst(self) -> int | None:
        """Requests beyond that after idle time; None for windows."""
        if len(self.limits) > 1 or not isinstance(self.limits[0], PacedLimit):
            return None
        return self.limits[0].quota // self.cost

    @property
    def slowest(self) -> Limit:
        """The limit with the longest time from used up to unused."""
        return max(self.limits, key=lambda limit: limit.period_ns)

    def due_in(self, duration_ns: int) -> Fraction:
        """Return about how many requests one caller is allowed in that time, after idle time."""
        amounts = [limit.quota + _per_second(limit) * duration_ns / SECOND for limit in self.limits]
        return min(amounts) / self.cost


def _per_second(limit: Limit) -> Fraction:
    if isinstance(limit, PacedLimit):
        return limit.per_second
    return Fraction(limit.quota * SECOND, limit.period_ns)


def _check(limit: Limit, cost: int) -> None:
    if isinstance(limit, Concurrency):
        raise OptionError(
            f"{limit} limits concurrency, which a load test does not measure; expected a rate such "
            "as 100/s"
        )
    if isinstance(limit, LeakyQueue):
        raise OptionError(
            f"{limit} delays requests instead of denying them, which a load test does not measure; "
            "expected a limit that denies, such as 100/s"
        )
    if not 1 <= cost <= limit.quota:
        raise OptionError(
            f"a cost of {cost} is never allowed under {limit}; expected 1 to {limit.quota}"
        )


_MOST_NAMED: Final = 10
_REMARKS: Final = {
    "quota": "gateways decide this rule by assigned shares: they may allow less, and for a moment "
    "more (decide: quota)",
    "local": "each gateway decides this rule alone, with the whole limit (decide: local)",
}


def limit_in_notation(
    text: str, *, cost: int | None = None, overshoot: int | None = None
) -> LimitUnderTest:
    """Return the limits of *text*. Raises `NotationError` or `OptionError`."""
    limits = parse_limits(text)
    return LimitUnderTest(
        limits, cost=cost or 1, extra=(overshoot,) * len(limits) if overshoot else ()
    )


def limit_of_rule(
    policy: Policy,
    rule_id: str,
    *,
    tier: str | None = None,
    cost: int | None = None,
    overshoot: int | None = None,
) -> LimitUnderTest:
    """Return the limits of the rule *rule_id* of *policy* for callers of *tier*.

    *cost* and *overshoot* override those of the rule. Raises `OptionError` if there is nothing to
    test, or an option is missing that the rule does not define.
    """
    rule = next((one for one in policy.rules if one.id == rule_id), None)
    if rule is None:
        known = [one.id for one in policy.rules]
        more = ", ..." if len(known) > _MOST_NAMED else ""
        listed = ", ".join(known[:_MOST_NAMED]) + more
        raise OptionError(f"there is no rule {rule_id!r}; expected one of {listed or 'none'}")
    _check_rule(rule)
    limits = _limits(rule, tier)
    extra = [overshoot or 0] * len(limits)
    if overshoot is None:
        extra = [_overshoot(rule, limit) for limit in limits]
    cost = _cost(rule) if cost is None else cost
    return LimitUnderTest(limits, rule.id, cost, tuple(extra), _REMARKS.get(rule.decide or "", ""))


def _check_rule(rule: Rule) -> None:
    if rule.mode != "enforce":
        state = "is a shadow rule" if rule.mode == "shadow" else "is off"
        raise OptionError(f"the rule {rule.id} {state}; expected one with mode: enforce")
    if rule.fair is not None:
        raise OptionError(
            f"the rule {rule.id} is a fair queue, which a load test does not measure; expected one "
            "with a limit"
        )


def _limits(rule: Rule, tier: str | None) -> tuple[Limit, ...]:
    limits = rule.limits_for(tier)
    if limits:
        return limits
    tiers = ", ".join(name for name in rule.limits if name is not None)
    if tier is None:
        raise OptionError(f"the rule {rule.id} has limits by tier; expected --tier: {tiers}")
    raise OptionError(
        f"the rule {rule.id} does not limit the tier {tier!r}; expected one of {tiers}"
    )


def _cost(rule: Rule) -> int:
    cost = rule.cost
    if cost.header is not None or cost.endpoints or cost.after is not None:
        raise OptionError(
            f"the cost under the rule {rule.id} depends on the request; expected --cost N, that of "
            "a request of this test"
        )
    return cost.default


def _overshoot(rule: Rule, limit: Limit) -> int:
    accuracy: Accuracy = rule.accuracy
    if accuracy.is_exact:
        return 0
    cap = accuracy.cap(limit.quota)
    if cap is None:
        raise OptionError(
            f"the overshoot of the rule {rule.id} depends on the number of nodes; expected "
            "--overshoot N, in units"
        )
    return cap
