"""What has been assigned to gateways of one counter, and what may yet be. Values; no I/O.

A gateway with a token bucket of `burst` and `rate` admits at most `burst + rate * t` in any time t
for as long as it holds the bucket: so that is what is written down, until it must have ended or
been replaced. One that gets another bucket starts with it full. So each one handed out is paid for,
in tokens, from a *pool*, and

    the rates in force sum to no more than R              (at any time)
    the pool grows by R less the rates in force           (per second)
    the pool and the bursts in force sum to no more than C

In an interval of length t gateways can use the bursts in force at its start, those paid for within
it, and the rates in between. The pool cannot pay for more than it had at the start and what it grew
by: together at most C + R * t, however often shares move, whoever comes and goes. (C is at least
the number of gateways: each needs a token to admit anything at all.)

A change counts from when it is made; what it replaces counts until it must have arrived.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.service.rlqs.rates import MILLION, Filling
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.service.rlqs.rates import Allowance


NEVER: Final = 0
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """One gateway's part in one bucket. Rates are in millionths of a request a second; no *demand*
    is known before the first report that is for some time.

    *filling* was given at *made_ns* and ends at *ends_ns*; None: it was told to deny all, or
    nothing yet if *made_ns* is 0. *held_rate* and *held_burst* are of what it had before, which may
    be in force until *held_until_ns*. *seen_ns* is when it was last known to be there.
    """

    demand: int | None = None
    usage: int = 0
    seen_ns: int = NEVER
    filling: Filling | None = None
    made_ns: int = NEVER
    ends_ns: int = NEVER
    held_rate: int = 0
    held_burst: int = 0
    held_until_ns: int = NEVER

    @property
    def given(self) -> int:
        """The rate that it has been given last."""
        return 0 if self.filling is None else self.filling.millionths

    @property
    def rate(self) -> int:
        """The most that it may admit a second."""
        return max(self.given, self.held_rate)

    @property
    def burst(self) -> int:
        """The most that it may admit at once."""
        return self.held_burst + (0 if self.filling is None else self.filling.burst)

    @property
    def free_at_ns(self) -> int:
        """When nothing of it is in force any more."""
        return max(self.ends_ns if self.filling is not None else NEVER, self.held_until_ns)

    def aged(self, now_ns: int) -> Claim:
        """The same without what has ended."""
        claim = self
        if claim.held_until_ns <= now_ns and (claim.held_rate or claim.held_burst):
            claim = replace(claim, held_rate=0, held_burst=0, held_until_ns=NEVER)
        if claim.filling is not None and claim.ends_ns <= now_ns:
            claim = replace(claim, filling=None, made_ns=NEVER, ends_ns=NEVER)
        return claim

    def earlier(self, by_ns: int) -> Claim:
        """The same with all times earlier, those that mean never excepted."""
        return replace(
            self,
            seen_ns=max(self.seen_ns - by_ns, NEVER),
            made_ns=max(self.made_ns - by_ns, NEVER),
            ends_ns=max(self.ends_ns - by_ns, NEVER),
            held_until_ns=max(self.held_until_ns - by_ns, NEVER),
        )

    def let_go(self, until_ns: int | None = None) -> Claim:
        """What it has is no longer given, but may be in force until then, or until its end."""
        if self.filling is None:
            return self if self.made_ns == NEVER else replace(self, made_ns=NEVER)
        until = self.ends_ns if until_ns is None else min(until_ns, self.ends_ns)
        return replace(
            self,
            filling=None,
            made_ns=NEVER,
            ends_ns=NEVER,
            held_rate=self.rate,
            held_burst=self.burst,
            held_until_ns=max(self.held_until_ns, until),
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims on one counter at *at_ns*, by name, and the *pool* in millionths of a token.

    Until *opens_ns* there may be others in force that nobody remembers.
    """

    pool: int
    at_ns: int
    opens_ns: int = NEVER
    claims: Mapping[str, Claim] = field(default_factory=dict)

    @property
    def rate(self) -> int:
        """All rates in force, in millionths."""
        return sum(one.rate for one in self.claims.values())

    @property
    def burst(self) -> int:
        """All bursts in force."""
        return sum(one.burst for one in self.claims.values())

    def capacity(self, allowance: Allowance) -> int:
        """The tokens that there may be in all."""
        return max(allowance.burst, len(self.claims))

    def aged(self, now_ns: int, allowance: Allowance) -> Ledger:
        """The ledger at *now_ns*: what has ended is gone, the pool has grown meanwhile."""
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
        """The same if it is *now_ns*, earlier than it was: the clock was set back meanwhile.

        No time counts as passed, so all that is in force stays so for as long as it would have.
        """
        by_ns = self.at_ns - now_ns
        claims = {name: one.earlier(by_ns) for name, one in self.claims.items()}
        opens_ns = max(self.opens_ns - by_ns, NEVER)
        return replace(self, at_ns=now_ns, opens_ns=opens_ns, claims=claims)

    def without_idle(self, is_known: Iterable[str], silence_ns: int) -> Ledger:
        """The same without claims that nobody makes and that have nothing in force."""
        known = set(is_known)
        claims = {
            name: one
            for name, one in self.claims.items()
            if name in known
            or one.free_at_ns > self.at_ns
            or self.at_ns - one.seen_ns <= silence_ns
        }
        return self if len(claims) == len(self.claims) else replace(self, claims=claims)

    def as_new_ns(self, allowance: Allowance) -> int:
        """When nothing of it matters any more: from then on a new ledger says the same."""
        free = max((one.free_at_ns for one in self.claims.values()), default=NEVER)
        missing = max(self.capacity(allowance) * MILLION - self.pool, 0)
        refill = missing * SECOND // max(allowance.millionths, 1)
        return max(free, self.at_ns, self.opens_ns) + refill

    def packed(self) -> str:
        """The ledger as text."""
        claims = {name: _packed(one) for name, one in self.claims.items()}
        whole = [_FORMAT, self.pool, self.at_ns, self.opens_ns, claims]
        return json.dumps(whole, separators=(",", ":"))

    @classmethod
    def unpacked(cls, text: str | bytes) -> Ledger | None:
        """The ledger that *text* tells; None if it is not one of ours."""
        try:
            number, pool, at_ns, opens_ns, written = json.loads(text)
            claims = {name: _unpacked(one) for name, one in written.items()}
        except (ValueError, TypeError, AttributeError):
            return None
        return cls(pool, at_ns, opens_ns, claims) if number == _FORMAT else None


def _packed(claim: Claim) -> list[Any]:
    filling = claim.filling
    return [
        claim.demand,
        claim.usage,
        claim.seen_ns,
        None if filling is None else [filling.tokens, filling.seconds, filling.burst],
        claim.made_ns,
        claim.ends_ns,
        claim.held_rate,
        claim.held_burst,
        claim.held_until_ns,
    ]


def _unpacked(parts: list[Any]) -> Claim:
    demand, usage, seen_ns, filling, *times = parts
    return Claim(demand, usage, seen_ns, None if filling is None else Filling(*filling), *times)


# What a gateway is told to do with a bucket.


BucketId = tuple[tuple[str, str], ...]
"""A bucket as gateways name it: keys and values, sorted by key."""

_BYTES_OF_ENTRY: Final = 10
_BYTES_OF_REPORT: Final = 48


def reported_bytes(bucket: BucketId) -> int:
    """How long a report on *bucket* is at most."""
    texts = sum(len(text.encode()) for entry in bucket for text in entry)
    return texts + _BYTES_OF_ENTRY * len(bucket) + _BYTES_OF_REPORT


@dataclass(frozen=True, slots=True)
class Action:
    """For *ttl_seconds* let *bucket* through as *filling* says; without one, all if *is_open*, or
    nothing. *is_abandoned*: forget the bucket instead.

    *is_anew*: whatever the gateway has, the filling takes its place. Else one that looks the same
    (see `filling`) goes on as it is."""

    bucket: BucketId
    ttl_seconds: int = 0
    filling: Filling | None = None
    is_open: bool = False
    is_anew: bool = False
    is_abandoned: bool = False
