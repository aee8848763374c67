"""Limits of a bucket as a rate and a burst of requests, and their division. No I/O.

Gateways enforce token buckets, so every limit is expressed as one: at most `burst + rate * t`
requests in any time t. For N requests per window W that must not exceed N in W, so a tenth of the
quota is the burst and the rest the rate. (A quota of 1 cannot be divided: one request, and the next
a window later.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.engine.request import Request
from headgate.limits import Concurrency, LeakyQueue
from headgate.limits.model import PacedLimit
from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN, RULE, attributes_of, request_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.engine.plan import CompiledRule, Plan
    from headgate.policy.compiled import CompiledPolicy
    from headgate.service.rlqs.messages import BucketId
    from headgate.stores.operations import Check


# A rate as a token bucket that Envoy can enforce. No I/O.
#
# Envoy counts the interval of a bucket in whole seconds and treats a shorter one as unlimited, so a
# rate is a number of tokens per number of seconds. Tokens are refilled evenly within the interval,
# and a bucket that is new, or differs from the last one, starts full.
#
# Envoy compares the tokens of a bucket with those of the last one, but not the seconds: a bucket
# that differs only in its seconds counts as unchanged. `distinct` makes it differ.


MILLION: Final = 1_000_000
MOST_TOKENS: Final = 2**32 - 1
"""The largest number of tokens that the message can carry."""
LONGEST_SECONDS: Final = 10**9
_TRIED_SECONDS: Final = 60
_CLOSE: Final = (99, 100)


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A token bucket that gains *tokens* every *seconds* and holds at most *burst*."""

    tokens: int
    seconds: int
    burst: int

    def __post_init__(self) -> None:
        if min(self.tokens, self.seconds, self.burst) < 1:
            raise ValueError(f"{self} is not a token bucket; its numbers are at least 1")

    @property
    def rate(self) -> Fraction:
        """Tokens per second."""
        return Fraction(self.tokens, self.seconds)

    @property
    def millionths(self) -> int:
        """Millionths of a token per second, rounded up."""
        return -(-self.tokens * MILLION // self.seconds)

    def looks_like(self, other: TokenBucket) -> bool:
        """True if Envoy takes the buckets for equal though they differ."""
        return self != other and (self.tokens, self.burst) == (other.tokens, other.burst)

    def distinct(self, before: TokenBucket | None) -> TokenBucket:
        """The same rate, written so that Envoy sees a difference from *before*."""
        if before is None or not self.looks_like(before):
            return self
        if 2 * self.tokens <= MOST_TOKENS and 2 * self.seconds <= LONGEST_SECONDS:
            return TokenBucket(2 * self.tokens, 2 * self.seconds, self.burst)
        return TokenBucket(self.tokens - 1, self.seconds, self.burst)


def nearest_bucket(rate: Fraction, burst: int) -> TokenBucket | None:
    """The token bucket with the highest rate not above *rate*, or None if there is none.

    The rate is within 1% of *rate*, unless that is below one token per minute or too large for the
    message. Short intervals are preferred.
    """
    if rate <= 0 or burst < 1:
        return None
    most = min(burst, MOST_TOKENS)
    above, below = rate.numerator, rate.denominator
    share, whole = _CLOSE
    best: tuple[Fraction, int, int] | None = None
    for seconds in range(1, _TRIED_SECONDS + 1):
        tokens = min(above * seconds // below, MOST_TOKENS)
        if not tokens:
            continue
        if tokens * below * whole >= above * seconds * share or tokens == MOST_TOKENS:
            return TokenBucket(tokens, seconds, most)
        best = max(best or (Fraction(0), 0, 0), (Fraction(tokens, seconds), -seconds, tokens))
    if best is not None:
        return TokenBucket(best[2], -best[1], most)
    seconds = -(-below // above)
    return TokenBucket(1, seconds, most) if seconds <= LONGEST_SECONDS else None


_WINDOW_BURST: Final = 10


@dataclass(frozen=True, slots=True)
class Allowance:
    """At most `burst + rate * t` requests in any time t (seconds)."""

    rate: Fraction
    burst: int

    @property
    def millionths(self) -> int:
        """Millionths of a request per second, rounded down."""
        return self.rate.numerator * MILLION // self.rate.denominator


@dataclass(frozen=True, slots=True)
class Binding:
    """A counter that limits a bucket: the rule, its check for one request, the allowed rate."""

    rule: CompiledRule
    check: Check
    allowance: Allowance


def bindings(plan: Plan) -> tuple[Binding, ...]:
    """All limits on the requests of *plan*, the tightest first.

    Shadow rules do not limit, nor do rules with a cost of 0, concurrency limits and queues: a token
    bucket in a gateway can neither count concurrent requests nor delay them.
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
    """The rate and burst that *check* allows for requests of its cost."""
    limit, cost = check.limit, check.cost
    quota = limit.quota // cost
    if isinstance(limit, PacedLimit):
        return Allowance(limit.per_second / cost if quota else Fraction(0), quota)
    burst = min(quota, max(1, quota // _WINDOW_BURST))
    rate = Fraction(max(quota - burst, min(quota, 1)) * SECOND, limit.period_ns)
    return Allowance(rate, burst)


# Dividing a capacity by demand: max-min fairness. No I/O.
#
# Each claimant gets what it needs up to a common level, and that level is as high as the capacity
# allows. Small needs are met in full; the others get equal shares. So a share can grow only at the
# expense of a smaller one, and no capacity is kept back while a need is unmet. Capacity that is
# left when all needs are met is spread evenly, so that a quiet claimant can start at once.


def divide(capacity: int, needs: Sequence[int]) -> list[int]:
    """Divide *capacity* in the order of *needs*; the shares never sum above it."""
    shares = [0] * len(needs)
    left = capacity
    for place, n in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        shares[n] = min(needs[n], left // (len(needs) - place))
        left -= shares[n]
    return [share + left // len(needs) for share in shares]


# The limits of a bucket, from the rules in force. No I/O.
#
# The keys and values of a bucket are attributes of its requests, like the entries of a descriptor;
# they are sorted by key, because a bucket has no order. Headgate's own gateway names the rule of a
# bucket (see `policy.envoy_config.attributes`): then only that rule counts, and the rest is read
# like a descriptor.


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """The limits of a bucket, the tightest of *bindings* first. Without any, all requests are
    allowed; if *is_closed*, none."""

    bindings: tuple[Binding, ...] = ()
    is_closed: bool = False

    @property
    def is_shared(self) -> bool:
        """True if gateways get shares of a counter."""
        return bool(self.bindings) and not self.is_closed

    @property
    def charged(self) -> tuple[tuple[str, str, int], ...]:
        """The counters to charge, with the cost of a request."""
        checks = [one.check for one in self.bindings] if self.is_shared else []
        return tuple((one.group, one.key, one.cost) for one in checks)

    @property
    def ledger(self) -> str:
        """The name of the ledger: that of the tightest counter."""
        check = self.bindings[0].check
        return f"{len(check.group)}:{check.group}:{check.key}"


def limits_of(engine: CompiledPolicy, domain: str, bucket: BucketId) -> BucketLimits:
    """The limits of *bucket* in *domain*."""
    plan = _plan(engine, domain, bucket)
    found = bindings(plan)
    never_fits = any(one.allowance.burst < 1 for one in found)
    return BucketLimits(found, is_closed=plan.is_denied or never_fits)


def _plan(engine: CompiledPolicy, domain: str, bucket: BucketId) -> Plan:
    rule = dict(bucket).get(RULE) if domain == GATEWAY_DOMAIN else None
    if rule is None:
        return engine.plan(Request(attributes=attributes_of(domain, bucket)))
    entries = tuple(entry for entry in bucket if entry[0] != RULE)
    return engine.plan_of(rule, request_of(domain, entries))
