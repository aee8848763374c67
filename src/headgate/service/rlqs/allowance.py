"""What a rule lets through, as a rate and a burst of requests. No I/O.

Gateways are given token buckets, so every limit is put as one: at most `burst + rate * t` requests
in any time t. For a limit with a window W of N that must not be more than N in W, so a tenth of the
quota is its burst and the rest its rate. (With a quota of 1 there is nothing to divide: it is one
request, and the next a window later.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.limits import Concurrency, LeakyQueue
from headgate.limits.model import PacedLimit
from headgate.service.rlqs.filling import MILLION
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.engine.plan import Plan
    from headgate.rules.model import Rule
    from headgate.stores.operations import Check

_WINDOW_BURST: Final = 10


@dataclass(frozen=True, slots=True)
class Allowance:
    """At most `burst + rate * t` requests in any time t (seconds)."""

    rate: Fraction
    burst: int

    @property
    def millionths(self) -> int:
        """Millionths of a request a second, rounded down."""
        return self.rate.numerator * MILLION // self.rate.denominator


@dataclass(frozen=True, slots=True)
class Binding:
    """A counter that limits a bucket: the rule, its check for one request, what it allows."""

    rule: Rule
    check: Check
    allowance: Allowance


def bindings(plan: Plan) -> tuple[Binding, ...]:
    """All that limits the requests of *plan*, the tightest first.

    Rules in shadow do not bind, nor do those under which a request costs nothing, nor limits on
    what goes on at the same time, nor queues: a gateway's token bucket cannot tell, and delays
    nothing.
    """
    found = [
        Binding(one.rule, check, _allowed(check))
        for one in plan.deciding
        for check in one.checks
        if check.cost and not isinstance(check.limit, Concurrency | LeakyQueue)
    ]
    return tuple(
        sorted(found, key=lambda one: (one.allowance.rate, one.allowance.burst, one.check.group))
    )


def _allowed(check: Check) -> Allowance:
    """What *check* allows of requests of its cost."""
    limit, cost = check.limit, check.cost
    quota = limit.quota // cost
    if isinstance(limit, PacedLimit):
        return Allowance(limit.per_second / cost if quota else Fraction(0), quota)
    burst = min(quota, max(1, quota // _WINDOW_BURST))
    rate = Fraction(max(quota - burst, min(quota, 1)) * SECOND, limit.period_ns)
    return Allowance(rate, burst)
