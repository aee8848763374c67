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

from headgate.engine.request import Request
from headgate.errors import LimitError, UsageError
from headgate.limits import Concurrency, LeakyQueue
from headgate.limits.model import PacedLimit
from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN, RULE, attributes_of, request_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.engine.plan import Plan
    from headgate.engine.rule import CompiledRule
    from headgate.policy.compiled import CompiledPolicy
    from headgate.service.rlqs.ledger import BucketId
    from headgate.stores.operations import Check


# A rate as a token bucket that Envoy can enforce. No I/O.
#
# Envoy counts the interval of a bucket in whole seconds and takes a shorter one for no limit at
# all, so a rate is so many tokens every so many seconds. Tokens come back evenly within the
# interval, and a bucket that is new, or that differs from the last one, starts full.
#
# It compares the tokens of a bucket with those of the last one, but not the seconds: one that
# differs in its seconds alone would be taken for the same. `distinct` makes it differ.


MILLION: Final = 1_000_000
MOST_TOKENS: Final = 2**32 - 1
"""The largest number of tokens that the message can carry."""
LONGEST_SECONDS: Final = 10**9
_TRIED_SECONDS: Final = 60
_CLOSE: Final = (99, 100)


@dataclass(frozen=True, slots=True)
class Filling:
    """*tokens* come back every *seconds*; at most *burst* are kept."""

    tokens: int
    seconds: int
    burst: int

    def __post_init__(self) -> None:
        for what, value, most in (
            ("tokens", self.tokens, MOST_TOKENS),
            ("seconds", self.seconds, LONGEST_SECONDS),
            ("burst", self.burst, MOST_TOKENS),
        ):
            if not 1 <= value <= most:
                raise LimitError(f"{what} is {value}; it must be from 1 to {most}")

    @property
    def rate(self) -> Fraction:
        """Tokens a second."""
        return Fraction(self.tokens, self.seconds)

    @property
    def millionths(self) -> int:
        """Millionths of a token a second, rounded up."""
        return -(-self.tokens * MILLION // self.seconds)

    def looks_like(self, other: Filling) -> bool:
        """Whether Envoy takes the one for the other, though they differ."""
        return self != other and (self.tokens, self.burst) == (other.tokens, other.burst)

    def distinct(self, before: Filling | None) -> Filling:
        """The same, written so that Envoy sees that it is not *before*."""
        if before is None or not self.looks_like(before):
            return self
        if 2 * self.tokens <= MOST_TOKENS and 2 * self.seconds <= LONGEST_SECONDS:
            return Filling(2 * self.tokens, 2 * self.seconds, self.burst)
        return Filling(self.tokens - 1, self.seconds, self.burst)


def fitted(rate: Fraction, burst: int) -> Filling | None:
    """The token bucket nearest to *rate* that is not above it; None if there is none.

    It is within a hundredth of it, unless the rate is below one token a minute or more than can be
    told. Short intervals go before long ones.
    """
    if rate <= 0 or burst < 1:
        return None
    most = min(burst, MOST_TOKENS)
    above, below = rate.numerator, rate.denominator
    part, whole = _CLOSE
    best: tuple[Fraction, int, int] | None = None
    for seconds in range(1, _TRIED_SECONDS + 1):
        tokens = min(above * seconds // below, MOST_TOKENS)
        if not tokens:
            continue
        if tokens * below * whole >= above * seconds * part or tokens == MOST_TOKENS:
            return Filling(tokens, seconds, most)
        best = max(best or (Fraction(0), 0, 0), (Fraction(tokens, seconds), -seconds, tokens))
    if best is not None:
        return Filling(best[2], -best[1], most)
    seconds = -(-below // above)
    return Filling(1, seconds, most) if seconds <= LONGEST_SECONDS else None


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

    rule: CompiledRule
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


# Dividing a capacity by demand: weighted max-min fairness. No I/O.
#
# Water is poured into vessels as wide as their weights until each is as full as its owner wants, or
# there is no more. Who wants little gets it all; the others get equally much by weight. So nobody
# can get more without taking it from somebody who has less (by weight), and nothing is kept back
# while somebody wants more.
#
# What is left when all have what they want can be *spread* on top by weight: who was quiet can
# start at once then.


def divide(
    capacity: Fraction | int,
    wanted: Sequence[Fraction | int],
    weights: Sequence[int] | None = None,
    *,
    spread: bool = False,
) -> tuple[Fraction, ...]:
    """What each gets of *capacity*, in the order of *wanted*; exact.

    Without *weights* all count alike. The parts never sum above *capacity*, and sum to it exactly
    if more than that is wanted or if the rest is *spread*.
    """
    widths = [1] * len(wanted) if weights is None else list(weights)
    if len(widths) != len(wanted) or any(one < 1 for one in widths):
        raise UsageError(f"the weights are {widths}; expected one of at least 1 for each")
    left, width = max(Fraction(capacity), Fraction(0)), sum(widths)
    wants = [max(Fraction(one), Fraction(0)) for one in wanted]
    parts = [Fraction(0)] * len(wants)
    by_level = sorted(range(len(wants)), key=lambda n: wants[n] / widths[n])
    for n in by_level:
        parts[n] = min(wants[n], left * widths[n] / width)
        left -= parts[n]
        width -= widths[n]
    if spread and left and wants:
        width = sum(widths)
        parts = [part + left * own / width for part, own in zip(parts, widths, strict=True)]
    return tuple(parts)


# On what terms a bucket is: what the rules in force say of requests with its attributes. No I/O.
#
# A bucket's keys and values are attributes of its requests, as the entries of a descriptor are;
# they are sorted by key, for a bucket has no order. Headgate's own gateway names the rule that a
# bucket is of (see `policy.envoy_config.attributes`): that one alone counts, and the rest is read
# as a descriptor is.


@dataclass(frozen=True, slots=True)
class Terms:
    """What limits a bucket: the tightest of *bindings* comes first. Without any all may pass;
    if it *is_closed*, nothing may."""

    bindings: tuple[Binding, ...] = ()
    is_closed: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether gateways get parts of something."""
        return bool(self.bindings) and not self.is_closed

    @property
    def charged(self) -> tuple[tuple[str, str, int], ...]:
        """The counters that are charged, and what a request costs there."""
        bound = self.bindings if self.is_shared else ()
        return tuple((one.check.group, one.check.key, one.check.cost) for one in bound)

    @property
    def places(self) -> tuple[tuple[str, str, int], ...]:
        """All counters, and what a request costs there."""
        checks = [one.check for one in self.bindings]
        return tuple((one.group, one.key, one.cost) for one in checks)

    @property
    def ledger(self) -> str:
        """The name of the ledger: that of the tightest counter."""
        check = self.bindings[0].check
        return f"{len(check.group)}:{check.group}:{check.key}"


def terms_of(engine: CompiledPolicy, domain: str, bucket: BucketId) -> Terms:
    """The terms of *bucket* in *domain*."""
    plan = _plan(engine, domain, bucket)
    found = bindings(plan)
    never_fits = any(one.allowance.burst < 1 for one in found)
    return Terms(found, is_closed=plan.is_refused or never_fits)


def _plan(engine: CompiledPolicy, domain: str, bucket: BucketId) -> Plan:
    rule = dict(bucket).get(RULE) if domain == GATEWAY_DOMAIN else None
    if rule is None:
        return engine.plan(Request(attributes=attributes_of(domain, bucket)))
    entries = tuple(entry for entry in bucket if entry[0] != RULE)
    return engine.plan_of(rule, request_of(domain, entries))
