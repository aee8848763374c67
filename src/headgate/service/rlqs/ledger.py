"""The ledger of one counter: assignments in force and tokens to assign. Values; no I/O.

A gateway with a token bucket of `burst` and `rate` allows at most `burst + rate * t` in any time t
while it holds the bucket, so an entry stays in the ledger until it must have ended or been
replaced. A new bucket starts full, so each assignment is paid for, in tokens, from a *pool*, and

    the rates in force sum to no more than R              (at any time)
    the pool grows by R less the rates in force           (per second)
    the pool and the bursts in force sum to no more than C

In an interval of length t gateways can use the bursts in force at its start, those paid for within
it, and the rates in between. The pool cannot pay for more than it had at the start and its growth:
together at most C + R * t, however often shares move and gateways come and go. (C is at least the
number of gateways: each needs one token to allow anything.)

A change counts from the moment it is made; what it replaces counts until it must have arrived.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headgate.service.rlqs.rates import MILLION, TokenBucket
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.service.rlqs.rates import Allowance


NEVER: Final = 0
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one gateway on one bucket. Rates are in millionths of a request per second;
    *demand* is None before the first report that covers some time.

    *token_bucket* was assigned at *made_ns* and ends at *ends_ns*; None: the gateway denies all, or
    has no assignment yet if *made_ns* is 0. *held_rate* and *held_burst* belong to the assignment
    before, which may be in force until *held_until_ns*. *seen_ns* is the last sign of the gateway.
    """

    demand: int | None = None
    usage: int = 0
    seen_ns: int = NEVER
    token_bucket: TokenBucket | None = None
    made_ns: int = NEVER
    ends_ns: int = NEVER
    held_rate: int = 0
    held_burst: int = 0
    held_until_ns: int = NEVER

    @property
    def given(self) -> int:
        """The rate assigned last."""
        return 0 if self.token_bucket is None else self.token_bucket.millionths

    @property
    def charged(self) -> int:
        """The most that is charged for it: its usage, or its demand as far as it was assigned."""
        return max(self.usage, min(self.demand or 0, self.given))

    @property
    def rate(self) -> int:
        """The highest rate that the gateway may allow."""
        return max(self.given, self.held_rate)

    @property
    def burst(self) -> int:
        """The largest burst that the gateway may allow."""
        return self.held_burst + (0 if self.token_bucket is None else self.token_bucket.burst)

    @property
    def free_at_ns(self) -> int:
        """The time at which nothing of the claim is in force any more."""
        return max(self.ends_ns if self.token_bucket is not None else NEVER, self.held_until_ns)

    def aged(self, now_ns: int) -> Claim:
        """The claim without assignments that have ended."""
        claim = self
        if claim.held_until_ns <= now_ns and (claim.held_rate or claim.held_burst):
            claim = replace(claim, held_rate=0, held_burst=0, held_until_ns=NEVER)
        if claim.token_bucket is not None and claim.ends_ns <= now_ns:
            claim = replace(claim, token_bucket=None, made_ns=NEVER, ends_ns=NEVER)
        return claim

    def earlier(self, by_ns: int) -> Claim:
        """The claim with all times moved back, except those that mean never."""
        times = ("seen_ns", "made_ns", "ends_ns", "held_until_ns")
        return replace(self, **{one: max(getattr(self, one) - by_ns, NEVER) for one in times})

    def released(self, until_ns: int | None = None) -> Claim:
        """End the assignment; it may be in force until *until_ns*, or else until its end."""
        if self.token_bucket is None:
            return self if self.made_ns == NEVER else replace(self, made_ns=NEVER)
        until = self.ends_ns if until_ns is None else min(until_ns, self.ends_ns)
        return replace(
            self,
            token_bucket=None,
            made_ns=NEVER,
            ends_ns=NEVER,
            held_rate=self.rate,
            held_burst=self.burst,
            held_until_ns=max(self.held_until_ns, until),
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims on one counter at *at_ns*, by name, and the *pool* in millionths of a token.

    Until *opens_ns*, assignments that were lost in a restart may be in force too.
    """

    pool: int
    at_ns: int
    opens_ns: int = NEVER
    claims: Mapping[str, Claim] = field(default_factory=dict)

    @property
    def rate(self) -> int:
        """The sum of rates in force, in millionths."""
        return sum(one.rate for one in self.claims.values())

    @property
    def burst(self) -> int:
        """The sum of bursts in force."""
        return sum(one.burst for one in self.claims.values())

    def capacity(self, allowance: Allowance) -> int:
        """The maximum of tokens in the pool and in force."""
        return max(allowance.burst, len(self.claims))

    def aged(self, now_ns: int, allowance: Allowance) -> Ledger:
        """The ledger at *now_ns*: without ended assignments, with a refilled pool."""
        if not self.claims and self.pool == allowance.burst * MILLION:
            return replace(self, at_ns=max(now_ns, self.at_ns))
        ending: dict[int, list[str]] = {}
        for name, one in self.claims.items():
            for end in (one.ends_ns, one.held_until_ns):
                if self.at_ns < end < now_ns:
                    ending.setdefault(end, []).append(name)
        claims = dict(self.claims)
        pool, at_ns, rate, burst = self.pool, self.at_ns, self.rate, self.burst
        for moment in (*sorted(ending), now_ns):
            spare = max(allowance.millionths - rate, 0)
            room = max(self.capacity(allowance) - burst, 0) * MILLION
            pool = min(pool + spare * max(moment - at_ns, 0) // SECOND, room)
            at_ns = max(moment, at_ns)
            for name in ending.get(moment, ()):
                before, claims[name] = claims[name], claims[name].aged(moment)
                rate += claims[name].rate - before.rate
                burst += claims[name].burst - before.burst
        claims = {name: one.aged(now_ns) for name, one in claims.items()}
        return replace(self, pool=pool, at_ns=at_ns, claims=claims)

    def set_back(self, now_ns: int) -> Ledger:
        """The ledger after the clock stepped back to *now_ns*.

        No time counts as passed, so everything in force stays so for as long as before.
        """
        by_ns = self.at_ns - now_ns
        claims = {name: one.earlier(by_ns) for name, one in self.claims.items()}
        opens_ns = max(self.opens_ns - by_ns, NEVER)
        return replace(self, at_ns=now_ns, opens_ns=opens_ns, claims=claims)

    def without_idle(self, is_known: Iterable[str], silence_ns: int) -> Ledger:
        """The ledger without claims that are unknown and have nothing in force."""
        known = set(is_known)
        claims = {
            name: one
            for name, one in self.claims.items()
            if name in known
            or one.free_at_ns > self.at_ns
            or self.at_ns - one.seen_ns <= silence_ns
        }
        return self if len(claims) == len(self.claims) else replace(self, claims=claims)

    def expires_ns(self, allowance: Allowance) -> int:
        """The time from which a new ledger is equivalent to this one."""
        free = max((one.free_at_ns for one in self.claims.values()), default=NEVER)
        missing = max(self.capacity(allowance) * MILLION - self.pool, 0)
        refill = missing * SECOND // max(allowance.millionths, 1)
        return max(free, self.at_ns, self.opens_ns) + refill

    def packed(self) -> str:
        """Encode the ledger as text: the fields of each claim in their order."""
        claims = {name: astuple(one) for name, one in self.claims.items()}
        whole = [_FORMAT, self.pool, self.at_ns, self.opens_ns, claims]
        return json.dumps(whole, separators=(",", ":"))

    @classmethod
    def unpacked(cls, text: str | bytes) -> Ledger | None:
        """Decode *text*; None if it is not one of our ledgers."""
        try:
            number, pool, at_ns, opens_ns, written = json.loads(text)
            claims = {name: _unpacked(*one) for name, one in written.items()}
        except (ValueError, TypeError, AttributeError):
            return None
        return cls(pool, at_ns, opens_ns, claims) if number == _FORMAT else None


def _unpacked(
    demand: int | None, usage: int, seen_ns: int, token_bucket: list[int] | None, *times: int
) -> Claim:
    return Claim(
        demand, usage, seen_ns, None if token_bucket is None else TokenBucket(*token_bucket), *times
    )
