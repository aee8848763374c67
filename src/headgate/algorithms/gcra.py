"""The generic cell rate algorithm: one number per counter.

A counter is the *theoretical arrival time* (TAT): the instant at which, were nothing more to come,
the whole burst would be available again. A unit of quota is worth a fixed stretch of time, so

    in use now   =  max(TAT, now) - now               (as a stretch of time)
    after cost c =  max(TAT, now) + c * unit
    admit when      after - now  <=  burst * unit     (the span)

The admitted burst is `burst` exactly. The common mistake, a tolerance of `burst * unit` against
the old TAT instead of the new one, admits one more.

Times are in ticks (see `limits.model`), so nothing is ever rounded: the state after a million
checks is the one that a ledger of fractions would show. If the clock steps back, TAT lies further
ahead of it, and the answer is stricter for as long as the clock is behind.

Token bucket and leaky bucket are the same arithmetic under other names; their modules say why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.algorithms.base import Algorithm, Outcome

if TYPE_CHECKING:
    from headgate.limits import PacedLimit


class Paced(Algorithm[int]):
    """GCRA over whole ticks. The state is the TAT, counted from *origin* (in nanoseconds)."""

    __slots__ = ("origin", "pace")

    def __init__(self, limit: PacedLimit, origin: int = 0) -> None:
        super().__init__(limit)
        self.pace = limit.pace
        self.origin = origin

    def wait(self, state: int | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        after = self._in_use(state, now) + cost * self.pace.ticks_per_unit
        return self.pace.to_ns(after - self.pace.span)

    def charge(self, state: int | None, amount: int, now: int) -> int:
        return self._ticks(now) + self._in_use(state, now) + amount * self.pace.ticks_per_unit

    def refund(self, state: int, amount: int, now: int) -> int:
        return max(state - amount * self.pace.ticks_per_unit, self._ticks(now))

    def remaining(self, state: int | None, now: int) -> int:
        return self.outcome(state, 0, now).remaining

    def fresh_in(self, state: int | None, now: int) -> int:
        return self.pace.to_ns(self._in_use(state, now))

    def used(self, state: int | None, now: int) -> int:
        return -(-self._in_use(state, now) // self.pace.ticks_per_unit)

    def outcome(self, state: int | None, wait: int | None, now: int) -> Outcome:
        pace, in_use = self.pace, self._in_use(state, now)
        remaining = (pace.span - in_use) // pace.ticks_per_unit if in_use < pace.span else 0
        return Outcome(wait == 0, remaining, wait, pace.to_ns(in_use))

    def adopt(self, state: int, old: Algorithm[int], now: int) -> int | None:
        if not isinstance(old, Paced):
            return None
        in_use = old._in_use(state, now) * self.pace.ticks_per_unit
        return self._ticks(now) - (-in_use // old.pace.ticks_per_unit)

    def _ticks(self, now: int) -> int:
        return (now - self.origin) * self.pace.ticks_per_ns

    def _in_use(self, state: int | None, now: int) -> int:
        """What is in use, in ticks."""
        if state is None:
            return 0
        in_use = state - (now - self.origin) * self.pace.ticks_per_ns
        return in_use if in_use > 0 else 0


class GCRAAlgorithm(Paced):
    """The arithmetic of `GCRA(rate, burst)`."""

    __slots__ = ()


# The token bucket: a store of tokens that fills at a steady rate.
#
# The textbook keeps two numbers, how many tokens there were and when that was counted, and each
# check computes `tokens = min(capacity, tokens + elapsed * rate)`. Both follow from one: the
# instant at which the bucket will be full. A bucket that is `d` seconds short of full misses `d *
# rate` tokens, and
#
#     tokens(now)  =  capacity - max(0, full_at - now) * rate
#     take c       :  full_at = max(full_at, now) + c / rate     if tokens(now) >= c
#
# With `full_at` for TAT and `1 / rate` for the unit this is GCRA, line by line: hence the promise
# that `TokenBucket(50, 10)` and `GCRA(rate=10, burst=50)` admit the same sequences, and one number
# per key instead of two. In any interval of length t at most `capacity + rate * t` is admitted.


class TokenBucketAlgorithm(Paced):
    """The arithmetic of `TokenBucket(capacity, refill_rate)`. The state is `full_at`."""

    __slots__ = ()


# The leaky bucket as a meter: water poured in, leaking out at a steady rate.
#
# Each unit of cost is a unit of water; it fits when it does not make the bucket run over.
#
#     level(now)  =  max(0, empty_at - now) * leak_rate
#     pour c      :  empty_at = max(empty_at, now) + c / leak_rate   if level(now) + c <= capacity
#
# The level of the water is what is missing from a token bucket of the same size, so the meter is
# GCRA again, its state the instant at which the bucket will have run dry. (The leaky bucket that
# *delays* what does not fit is another thing, a queue; it lives in `headgate.overload`.)


class LeakyBucketAlgorithm(Paced):
    """The arithmetic of `LeakyBucket(capacity, leak_rate)`. The state is `empty_at`."""

    __slots__ = ()
