"""What is put to the test: limits, what a request costs, and whose refusals count."""

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
    with_extra,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.limits import Limit

_ALIGNED: Final = (FixedWindow, SlidingWindowCounter)
"""Whose windows begin at the same moment for everybody, so that it matters what time it is."""


@dataclass(frozen=True)
class Aim:
    """*limits*, all of which must allow, on requests that cost *cost* units each.

    *rule_id* is the rule they are of, if that is known. *extra* has for each of them how many units
    a fleet may go beyond it, as the accuracy of the rule allows; nothing: none. *remark* is what
    else is to be known of the rule. Raises `OptionError` for what cannot be tested.
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
            raise OptionError("expected what may be overshot of each limit, or of none")

    @cached_property
    def ceilings(self) -> tuple[Limit, ...]:
        """The limits that must never be exceeded: with what may be overshot."""
        pairs = zip(self.limits, self.extra or [0] * len(self.limits), strict=True)
        return tuple(with_extra(limit, extra) if extra else limit for limit, extra in pairs)

    @property
    def is_aligned(self) -> bool:
        """Whether it matters what time it is, not only how much time has passed."""
        return any(isinstance(limit, _ALIGNED) for limit in self.limits)

    @property
    def text(self) -> str:
        """The limits in the notation."""
        return "; ".join(map(str, self.limits))

    @property
    def per_second(self) -> Fraction:
        """How many requests a second one caller is admitted in the long run."""
        return min(map(_per_second, self.limits)) / self.cost

    @property
    def burst(self) -> int | None:
        """How many requests come on top of that after a rest; None where windows are counted."""
        if len(self.limits) > 1 or not isinstance(self.limits[0], PacedLimit):
            return None
        return self.limits[0].quota // self.cost

    @property
    def slowest(self) -> Limit:
        """The limit that takes longest to come round, from all in use to nothing in use."""
        return max(self.limits, key=lambda limit: limit.period_ns)

    def due_in(self, duration_ns: int) -> Fraction:
        """About how many requests one caller is admitted in that time, after a rest."""
        amounts = [limit.quota + _per_second(limit) * duration_ns / SECOND for limit in self.limits]
        return min(amounts) / self.cost


def _per_second(limit: Limit) -> Fraction:
    if isinstance(limit, PacedLimit):
        return limit.per_second
    return Fraction(limit.quota * SECOND, limit.period_ns)


def _check(limit: Limit, cost: int) -> None:
    if isinstance(limit, Concurrency):
        raise OptionError(
            f"the limit is {limit}: how many at the same time, not how many in which time. A load "
            "test cannot tell whether it holds; expected a rate, such as 100/s"
        )
    if isinstance(limit, LeakyQueue):
        raise OptionError(
            f"the limit is {limit}: it delays requests rather than refusing them, which a load "
            "test does not measure; expected a limit that refuses, such as 100/s"
        )
    if not 1 <= cost <= limit.quota:
        raise OptionError(
            f"a cost of {cost} can never be admitted under {limit}; expected 1 to {limit.quota}"
        )
