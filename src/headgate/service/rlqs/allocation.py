"""The allocation of one counter: divides a limit among claims. Pure; the same for every store.

Rates are divided by demand over all connected gateways, on whichever replica, but each replica
changes only the assignments of its own gateways. A gateway with too much is cut first; the freed
rate is assigned to others when the cut must have arrived. Unassigned rate is assigned at once.

Every change costs tokens (see `ledger`), so small changes are not made: not within a tenth of the
target, and not while every gateway has what it needs. Changes are paid from the *reserve* of the
limit and from unassigned rate. While the pool has no token, a new gateway denies all, and the
others keep their assignments. If the limit was lowered, or one gateway has too much while
another has nothing, that gateway denies all too: it costs nothing, and the pool refills to a token
for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.service.rlqs.ledger import NEVER, Claim, Ledger
from headgate.service.rlqs.rates import MILLION, Allowance, TokenBucket, divide, nearest_bucket
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headgate.service.rlqs.options import RlqsOptions

_GROWTH: Final = 4
"""Room for growing demand until the next report: a quarter of it."""
_A_LITTLE: Final = MILLION // 5
"""Minimum demand of every gateway: one request between two reports."""
_TOLERANCE: Final = 10
"""Assignments within one share in this many of the target are left unchanged."""
_SHORTEST_PAUSE_NS: Final = SECOND // 10
"""Minimum time between two allocations that wait for a rate."""
_WORTHWHILE: Final = 2
"""Factor by which a new burst must exceed the old one to be worth a change."""


@dataclass(frozen=True, slots=True)
class GatewayState:
    """A gateway of this replica: demand and usage per second, both in millionths (*demand* is None
    until it is known), and the time of its assignment."""

    demand: int | None
    usage: int = 0
    made_ns: int = NEVER


@dataclass(frozen=True, slots=True)
class Allocation:
    """The result: the new *ledger*, and the assignments to send (a token bucket, or None to deny
    all). Gateways that are not among *assignments* need no message. *due_ns*: time of the next
    allocation; *expires_ns*: time from which the ledger may be forgotten."""

    ledger: Ledger
    assignments: Mapping[str, TokenBucket | None]
    due_ns: int
    expires_ns: int


def allocate(
    ledger: Ledger | None,
    now_ns: int,
    *,
    allowance: Allowance,
    states: Mapping[str, GatewayState],
    options: RlqsOptions,
    left: Fraction = Fraction(1),
    gone: Collection[str] = (),
    abandoned: Collection[str] = (),
    opens_ns: int = NEVER,
) -> Allocation:
    """Divide *allowance* among the claims on *ledger* (None if there is none yet).

    Only the fraction *left* of the rate is assigned; it may change each time, and rates follow.
    The assignments in force never exceed the whole.

    *states* are the claims of this replica, *gone* those whose stream has ended, *abandoned*
    those that gateways were made to forget. *opens_ns* is as in `Ledger`.
    """
    if ledger is None:
        share = _shared(allowance, is_recovering=now_ns < opens_ns, options=options)
        ledger = Ledger(share.burst * MILLION, now_ns, opens_ns)
    elif opens_ns > ledger.opens_ns:
        ledger = replace(ledger, opens_ns=opens_ns)
    is_recovering = now_ns < ledger.opens_ns
    share = _shared(allowance, is_recovering=is_recovering, options=options)
    for_gateways = share if left == 1 else Allowance(share.rate * left, share.burst)
    ledger = ledger.aged(now_ns, for_gateways)
    now_ns = ledger.at_ns
    claims = dict(ledger.claims)
    for name in gone:
        if name in claims:
            claims[name] = replace(claims[name], seen_ns=NEVER)
    for name in abandoned:
        if name in claims:
            given_up = claims[name].released(now_ns + options.delivery_ns)
            claims[name] = replace(given_up, seen_ns=NEVER)
    for name, state in states.items():
        claims[name] = _observed(claims.get(name, Claim()), state, now_ns, options)
    ledger = replace(ledger, claims=claims).without_idle(states, options.silence_ns)
    return _Allocator(ledger, share, left, states, options).run()


def _shared(allowance: Allowance, *, is_recovering: bool, options: RlqsOptions) -> Allowance:
    """The share of *allowance* that may be assigned now."""
    if not is_recovering:
        return allowance
    share = Fraction(round(options.restart_share * MILLION), MILLION)
    return Allowance(allowance.rate * share, max(int(allowance.burst * share), 1))


def _observed(claim: Claim, state: GatewayState, now_ns: int, options: RlqsOptions) -> Claim:
    is_late = claim.token_bucket and now_ns - claim.made_ns > options.ttl_ns - options.delivery_ns
    if claim.made_ns != state.made_ns or is_late:
        claim = claim.released()  # it was never sent, or ends before it arrives
    demand = claim.demand if state.demand is None else state.demand
    return replace(claim, demand=demand, usage=state.usage, seen_ns=now_ns)


class _Allocator:
    """The computation of one allocation."""

    def __init__(
        self,
        ledger: Ledger,
        allowance: Allowance,
        left: Fraction,
        states: Mapping[str, GatewayState],
        options: RlqsOptions,
    ) -> None:
        self._ledger = ledger
        self._now_ns = ledger.at_ns
        self._allowance = allowance
        self._standings = states
        self._options = options
        self._claims = dict(ledger.claims)
        self._pool = ledger.pool
        self._limit = allowance.millionths
        self._total = int(self._limit * left) * round((1 - options.reserve) * MILLION) // MILLION
        self._assignments: dict[str, TokenBucket | None] = {}
        self._in_force = ledger.rate
        self._shares, self._needs = self._divided()
        self._is_unmet = any(
            self._is_short(name, min(share, self._needs[name]))
            for name, share in self._shares.items()
        )
        given = sum(one.given for one in self._claims.values())
        self._is_over = _exceeds(given, self._total)
        self._is_beyond = given > self._limit
        self._has_starving = any(not self._claims[name].given for name in self._shares)

    def run(self) -> Allocation:
        claims = self._claims  # without a rate first, then those with a small burst
        for name in sorted(
            self._standings, key=lambda one: (claims[one].given > 0, claims[one].burst)
        ):
            self._settle(name)
        ledger = replace(self._ledger, pool=self._pool, claims=self._claims)
        return Allocation(
            ledger, self._assignments, self._due_ns(), ledger.expires_ns(self._allowance)
        )

    def _divided(self) -> tuple[dict[str, int], dict[str, int]]:
        """The target and the need of each connected gateway."""
        here = sorted(
            name
            for name, one in self._claims.items()
            if one.seen_ns != NEVER and self._now_ns - one.seen_ns <= self._options.silence_ns
        )
        known = set(here)
        away = sum(one.rate for name, one in self._claims.items() if name not in known)
        total = max(self._total - away, 0)
        needs = {name: self._need(name, len(here)) for name in here}
        shares = divide(total, [needs[name] for name in here])
        return dict(zip(here, shares, strict=True)), needs

    def _need(self, name: str, gateways: int) -> int:
        demand = self._claims[name].demand
        if demand is None:
            return self._total // gateways
        return demand + demand // _GROWTH + _A_LITTLE

    def _is_short(self, name: str, of: int) -> bool:
        return self._claims[name].given < of - of // _TOLERANCE

    def _settle(self, name: str) -> None:
        """Change, renew or keep the assignment of *name*."""
        claim, share = self._claims[name], self._shares[name]
        is_unrest = self._is_unmet or self._is_over
        if is_unrest and _exceeds(claim.given, share):
            if not self._give(name, share) and (self._is_beyond or self._has_starving):
                self._deny(name)
                self._has_starving = False  # one at a time
            self._renew(name)
            return
        # A gateway without an assignment may start on the reserve until the others have been
        # cut.
        most = self._total if claim.given else self._limit
        room = max(most - self._in_force, 0) + claim.rate
        if self._is_short(name, share) and (
            self._is_unmet or room - claim.rate > self._total // _TOLERANCE
        ):
            rate = min(share, room)
            if _exceeds(rate, claim.given) and self._give(name, rate):
                return
        self._renew(name)

    def _give(self, name: str, rate: int) -> bool:
        """Assign about *rate* to *name*; false if it cannot be paid for."""
        claim = self._claims[name]
        # A gateway that has to wait for its rate gets the burst of its share already.
        burst = self._burst(max(rate, self._shares[name]))
        token_bucket = nearest_bucket(Fraction(rate, MILLION), burst)
        if token_bucket is None:
            return False
        token_bucket = token_bucket.distinct(claim.token_bucket)
        ends_ns = self._now_ns + self._options.ttl_ns + self._options.delivery_ns
        self._put(
            name,
            replace(
                claim.released(self._now_ns + self._options.delivery_ns),
                token_bucket=token_bucket,
                made_ns=self._now_ns,
                ends_ns=ends_ns,
            ),
        )
        self._pool -= token_bucket.burst * MILLION
        self._assignments[name] = token_bucket
        return True

    def _burst(self, rate: int) -> int:
        """The burst for a bucket of *rate*: the same fraction of the capacity, at most half of the
        pool."""
        tokens = self._pool // MILLION
        fair = self._allowance.burst * rate // max(self._limit, 1)
        return min(tokens, max(1, min(tokens // 2, fair)))

    def _deny(self, name: str) -> None:
        gone = self._claims[name].released(self._now_ns + self._options.delivery_ns)
        self._put(name, replace(gone, made_ns=self._now_ns))
        self._assignments[name] = None

    def _renew(self, name: str) -> None:
        """Renew the assignment of *name* after half of its ttl."""
        claim = self._claims[name]
        if name in self._assignments:
            return
        if claim.made_ns == NEVER:
            self._deny(name)
        elif self._now_ns - claim.made_ns >= self._options.ttl_ns // 2:
            if (
                claim.token_bucket
                and self._burst(claim.given) >= _WORTHWHILE * claim.token_bucket.burst
            ):
                self._give(name, claim.given)
                return
            ends_ns = self._now_ns + self._options.ttl_ns + self._options.delivery_ns
            ends_ns = NEVER if claim.token_bucket is None else ends_ns
            self._claims[name] = replace(claim, made_ns=self._now_ns, ends_ns=ends_ns)
            self._assignments[name] = claim.token_bucket

    def _put(self, name: str, claim: Claim) -> None:
        self._in_force += claim.rate - self._claims[name].rate
        self._claims[name] = claim

    def _due_ns(self) -> int:
        soon = self._now_ns + SECOND
        if self._is_unmet or self._is_over or len(self._shares) > len(self._standings):
            # The rate that a gateway gives up is free when the new assignment must have arrived.
            ends = [one.held_until_ns for one in self._claims.values()]
            freed = min([end for end in ends if end > self._now_ns], default=soon)
            return min(max(freed, self._now_ns + _SHORTEST_PAUSE_NS), soon)
        half = self._options.ttl_ns // 2
        dues = [self._claims[name].made_ns + half for name in self._standings]
        if self._ledger.opens_ns > self._now_ns:
            dues.append(self._ledger.opens_ns)
        return max(min(dues, default=self._now_ns + half), soon)


def _exceeds(rate: int, other: int) -> bool:
    """True if *rate* exceeds *other* by enough to be worth a change."""
    return rate > other + other // _TOLERANCE
