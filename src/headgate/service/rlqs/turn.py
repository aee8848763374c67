"""One turn over a ledger: who gets what now. Pure; the same for every board.

Rates are divided by demand over all gateways that are there, on whichever replica of the service,
but each replica changes only what its own gateways have. Who has too much is cut first; what that
frees can be given to others when the cut must have arrived. What nobody has is given at once.

Every change costs tokens (see `ledger`), so nothing is changed for little: not within a tenth of
what it should be, and not while everybody has what it needs. What a change costs is paid from the
part of the limit that is kept in *reserve* and from what is not given out. While there is not a
token in the pool, who is new is told to deny all, and the others keep what they have. But if the
limit was lowered, or if one has too much while another has nothing, then it is told to deny all
too: that costs nothing, and the pool fills until there is a token for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.service.rlqs.ledger import NEVER, Claim, Ledger
from headgate.service.rlqs.rates import MILLION, Allowance, Filling, divide, fitted
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headgate.service.rlqs.options import RlqsOptions

_GROWTH: Final = 4
"""Room for demand that grows before the next report: a quarter of it."""
_A_LITTLE: Final = MILLION // 5
"""What everybody wants at least: one request between two reports."""
_TOLERANCE: Final = 10
"""What is within one part in so many of what it should be is left as it is."""
_WORTHWHILE: Final = 2
"""How many times the burst that it has a gateway must be due for it to be worth a change."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a gateway of this replica stands: what it asks for a second and what it uses, both in
    millionths (*demand* is None until it is known), and when what it has was made."""

    demand: int | None
    usage: int = 0
    made_ns: int = NEVER


@dataclass(frozen=True, slots=True)
class Turned:
    """What came of a turn: the *ledger* after it, and what to tell each gateway (a filling, or None
    to deny all). Who is not among *told* need not hear anything. *due_ns*: when to turn again;
    *as_new_ns*: when the ledger may be forgotten."""

    ledger: Ledger
    told: Mapping[str, Filling | None]
    due_ns: int
    as_new_ns: int


def turn(
    ledger: Ledger | None,
    now_ns: int,
    *,
    allowance: Allowance,
    standings: Mapping[str, Standing],
    options: RlqsOptions,
    left: Fraction = Fraction(1),
    gone: Collection[str] = (),
    abandoned: Collection[str] = (),
    opens_ns: int = NEVER,
) -> Turned:
    """Divide *allowance* among the claims on *ledger*; None if there is none yet.

    Only the part *left* of its rate is given out; that may change from turn to turn, and rates
    follow as they can. What is in force never exceeds the whole.

    *standings* are the claims of this replica, *gone* those whose stream has ended and *abandoned*
    those that the gateways were told to forget. *opens_ns* is for a new ledger.
    """
    if ledger is None:
        share = _shared(allowance, is_recovering=now_ns < opens_ns, options=options)
        ledger = Ledger(share.burst * MILLION, now_ns, opens_ns)
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
            given_up = claims[name].let_go(now_ns + options.delivery_ns)
            claims[name] = replace(given_up, seen_ns=NEVER)
    for name, standing in standings.items():
        claims[name] = _heard(claims.get(name, Claim()), standing, now_ns, options)
    ledger = replace(ledger, claims=claims).without_idle(standings, options.silence_ns)
    return _Turn(ledger, share, left, standings, options).taken()


def _shared(allowance: Allowance, *, is_recovering: bool, options: RlqsOptions) -> Allowance:
    """What may be given out now of *allowance*."""
    if not is_recovering:
        return allowance
    part = Fraction(round(options.restart_share * MILLION), MILLION)
    return Allowance(allowance.rate * part, max(int(allowance.burst * part), 1))


def _heard(claim: Claim, standing: Standing, now_ns: int, options: RlqsOptions) -> Claim:
    is_late = claim.filling and now_ns - claim.made_ns > options.ttl_ns - options.delivery_ns
    if claim.made_ns != standing.made_ns or is_late:
        claim = claim.let_go()  # it was never told, or has forgotten by the time it is told
    demand = claim.demand if standing.demand is None else standing.demand
    return replace(claim, demand=demand, usage=standing.usage, seen_ns=now_ns)


class _Turn:
    """The working of one turn."""

    def __init__(
        self,
        ledger: Ledger,
        allowance: Allowance,
        left: Fraction,
        standings: Mapping[str, Standing],
        options: RlqsOptions,
    ) -> None:
        self._ledger = ledger
        self._now_ns = ledger.at_ns
        self._allowance = allowance
        self._standings = standings
        self._options = options
        self._claims = dict(ledger.claims)
        self._pool = ledger.pool
        self._limit = allowance.millionths
        self._total = int(self._limit * left) * round((1 - options.reserve) * MILLION) // MILLION
        self._told: dict[str, Filling | None] = {}
        self._in_force = ledger.rate
        self._parts, self._needs = self._divided()
        self._is_unmet = any(
            self._is_short(name, min(part, self._needs[name])) for name, part in self._parts.items()
        )
        given = sum(one.given for one in self._claims.values())
        self._is_over = _exceeds(given, self._total)
        self._is_beyond = given > self._limit
        self._has_starving = any(not self._claims[name].given for name in self._parts)

    def taken(self) -> Turned:
        own = sorted(self._standings, key=lambda name: (self._claims[name].given > 0, name))
        for name in own:
            self._settle(name)
        ledger = replace(self._ledger, pool=self._pool, claims=self._claims)
        return Turned(ledger, self._told, self._due_ns(), ledger.as_new_ns(self._allowance))

    def _divided(self) -> tuple[dict[str, int], dict[str, int]]:
        """What each gateway that is there should have, and what it needs."""
        here = sorted(
            name
            for name, one in self._claims.items()
            if one.seen_ns != NEVER and self._now_ns - one.seen_ns <= self._options.silence_ns
        )
        known = set(here)
        away = sum(one.rate for name, one in self._claims.items() if name not in known)
        total = max(self._total - away, 0)
        needs = {name: self._need(name, len(here)) for name in here}
        if len(here) == 1:
            return {here[0]: total}, needs
        parts = divide(total, [needs[name] for name in here], spread=True)
        return {name: int(part) for name, part in zip(here, parts, strict=True)}, needs

    def _need(self, name: str, gateways: int) -> int:
        demand = self._claims[name].demand
        if demand is None:
            return self._total // gateways
        return demand + demand // _GROWTH + _A_LITTLE

    def _is_short(self, name: str, of: int) -> bool:
        return self._claims[name].given < of - of // _TOLERANCE

    def _settle(self, name: str) -> None:
        """Change what *name* has, renew it, or leave it."""
        claim, part = self._claims[name], self._parts[name]
        is_unrest = self._is_unmet or self._is_over
        if is_unrest and _exceeds(claim.given, part):
            if not self._give(name, part) and (self._is_beyond or self._has_starving):
                self._deny(name)
                self._has_starving = False  # one at a time
            self._renew(name)
            return
        # Who has nothing may start on the reserve, until the others have been cut.
        most = self._total if claim.given else self._limit
        room = max(most - self._in_force, 0) + claim.rate
        if self._is_short(name, part) and (
            self._is_unmet or room - claim.rate > self._total // _TOLERANCE
        ):
            wanted = min(part, room)
            if _exceeds(wanted, claim.given) and self._give(name, wanted):
                return
        self._renew(name)

    def _give(self, name: str, rate: int) -> bool:
        """Give *name* about *rate*, if that can be paid for; whether it could."""
        claim = self._claims[name]
        filling = fitted(Fraction(rate, MILLION), self._burst(rate))
        if filling is None:
            return False
        filling = filling.distinct(claim.filling)
        ends_ns = self._now_ns + self._options.ttl_ns + self._options.delivery_ns
        self._put(
            name,
            replace(
                claim.let_go(self._now_ns + self._options.delivery_ns),
                filling=filling,
                made_ns=self._now_ns,
                ends_ns=ends_ns,
            ),
        )
        self._pool -= filling.burst * MILLION
        self._told[name] = filling
        return True

    def _burst(self, rate: int) -> int:
        """The tokens for a bucket of *rate*: as much of the capacity as it has of the rate, and
        half of what there is at most."""
        tokens = self._pool // MILLION
        fair = self._allowance.burst * rate // max(self._limit, 1)
        return min(tokens, max(1, min(tokens // 2, fair)))

    def _deny(self, name: str) -> None:
        gone = self._claims[name].let_go(self._now_ns + self._options.delivery_ns)
        self._put(name, replace(gone, made_ns=self._now_ns))
        self._told[name] = None

    def _renew(self, name: str) -> None:
        """Tell *name* again what it has, when half its time is over."""
        claim = self._claims[name]
        if name in self._told:
            return
        if claim.made_ns == NEVER:
            self._deny(name)
        elif self._now_ns - claim.made_ns >= self._options.ttl_ns // 2:
            if claim.filling and self._burst(claim.given) >= _WORTHWHILE * claim.filling.burst:
                self._give(name, claim.given)
                return
            ends_ns = self._now_ns + self._options.ttl_ns + self._options.delivery_ns
            ends_ns = NEVER if claim.filling is None else ends_ns
            self._claims[name] = replace(claim, made_ns=self._now_ns, ends_ns=ends_ns)
            self._told[name] = claim.filling

    def _put(self, name: str, claim: Claim) -> None:
        self._in_force += claim.rate - self._claims[name].rate
        self._claims[name] = claim

    def _due_ns(self) -> int:
        soon = self._now_ns + SECOND
        if self._is_unmet or self._is_over or len(self._parts) > len(self._standings):
            return soon
        half = self._options.ttl_ns // 2
        dues = [self._claims[name].made_ns + half for name in self._standings]
        if self._ledger.opens_ns > self._now_ns:
            dues.append(self._ledger.opens_ns)
        return max(min(dues, default=self._now_ns + half), soon)


def _exceeds(rate: int, other: int) -> bool:
    """Whether *rate* is above *other* by more than it is worth a change."""
    return rate > other + other // _TOLERANCE
