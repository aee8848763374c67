"""The generic cell rate algorithm: one number per counter.

A counter is the *theoretical arrival time* (TAT): the instant at which the whole burst is
available again if nothing more arrives. A unit of quota is worth a fixed stretch of time, so

    in use now   =  max(TAT, now) - now               (as a stretch of time)
    after cost c =  max(TAT, now) + c * unit
    allow when      after - now  <=  burst * unit     (the span)

The allowed burst is exactly `burst`. The common mistake, a tolerance of `burst * unit` against the
old TAT instead of the new one, allows one more. Times are in ticks (see `limits.model`), so
nothing is rounded: the state after a million checks is the one that a ledger of fractions shows.

Two other algorithms are views of the same number.

The **token bucket** keeps, in textbooks, a number of tokens and the time of the count, and computes
`tokens = min(capacity, tokens + elapsed * rate)`. Both follow from the instant `full_at` at which
the bucket is full again:

    tokens(now)  =  capacity - max(0, full_at - now) * rate
    take c       :  full_at = max(full_at, now) + c / rate     if tokens(now) >= c

With `full_at` for TAT and `1 / rate` for the unit this is GCRA, line by line. So
`TokenBucket(50, 10)` and `GCRA(rate=10, burst=50)` allow the same sequences: in any interval of
length t at most `capacity + rate * t`.

The **leaky bucket as a meter** is water poured in that leaks out at a steady rate. Its level is
what is missing from a token bucket of the same size; TAT is the instant at which it has run dry.
(The leaky bucket that *delays* is a queue: see `leaky_queue`.)

Clock: a TAT is written at most one span ahead of the clock. One that lies further ahead shows that
the clock has stepped back, and becomes `now + span`: everything is in use, and the next unit is
available after one unit's time. Debt lies further ahead by itself. Its state is the pair of TAT and
the time of the charge; if the clock is before that time, both move back with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.algorithms.base import Algorithm, Taken

if TYPE_CHECKING:
    from headgate.limits import PacedLimit

Arrival = int | tuple[int, int]
"""The TAT in ticks; of a counter in debt, with the time of the last charge in nanoseconds."""


class GCRAAlgorithm(Algorithm[Arrival]):
    """The arithmetic of `TokenBucket`, `GCRA` and `LeakyBucket`.

    Ticks are counted from *origin*, in nanoseconds, for stores that keep them in few bytes.
    """

    __slots__ = ("_per_ns", "_span", "_unit", "origin", "pace")

    def __init__(self, limit: PacedLimit, origin: int = 0) -> None:
        super().__init__(limit)
        self.pace = limit.pace
        self.origin = origin
        self._per_ns = self.pace.ticks_per_ns
        self._unit = self.pace.ticks_per_unit
        self._span = self.pace.span

    def rebase(self, state: Arrival, now: int) -> Arrival:
        if isinstance(state, int):
            latest = (now - self.origin) * self._per_ns + self._span
            return state if state <= latest else latest
        tat, since = state
        return state if now >= since else (tat - (since - now) * self._per_ns, now)

    def quick_take(self, state: Arrival | None, cost: int, now: int) -> Taken[Arrival]:
        per_ns, unit, span = self._per_ns, self._unit, self._span
        begin = now
        if self.origin:  # (integers of 64 bits: to subtract or multiply takes 20 ns)
            begin -= self.origin
        if per_ns != 1:
            begin *= per_ns
        if type(state) is not int:
            if state is not None or not 0 < cost <= self.quota:
                return super().quick_take(state, cost, now)
            state = begin
        ticks = cost * unit
        tat = (state if state > begin else begin) + ticks
        after = tat - begin
        if after <= span and cost:
            reset = after if per_ns == 1 else -(-after // per_ns)
            return tat, 0, (span - after) // unit, reset
        in_use = after - ticks
        if in_use > span:  # the clock has stepped back
            in_use, state = span, begin + span
        reset = in_use if per_ns == 1 else -(-in_use // per_ns)
        wait: int | None = 0
        if cost > self.quota:
            wait = None
        elif cost:
            wait = -((span - in_use - ticks) // per_ns)
        return state, wait, (span - in_use) // unit, reset

    def wait(self, state: Arrival | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        after = self._in_use(state, now) + cost * self._unit
        return self.pace.to_ns(after - self._span)

    def charge(self, state: Arrival | None, amount: int, now: int) -> Arrival:
        return self._state(self._in_use(state, now) + amount * self._unit, now)

    def refund(self, state: Arrival, amount: int, now: int) -> Arrival:
        return self._state(max(0, self._in_use(state, now) - amount * self._unit), now)

    def give_back(self, state: Arrival, amount: int, since: int, now: int) -> Arrival:
        refilled = -(-max(0, now - since) * self._per_ns // self._unit)
        return self.refund(state, max(0, amount - refilled), now)

    def remaining(self, state: Arrival | None, now: int) -> int:
        in_use = self._in_use(state, now)
        return (self._span - in_use) // self._unit if in_use < self._span else 0

    def fresh_in(self, state: Arrival | None, now: int) -> int:
        return self.pace.to_ns(self._in_use(state, now))

    def used(self, state: Arrival | None, now: int) -> int:
        return -(-self._in_use(state, now) // self._unit)

    def adopt(self, state: Arrival, old: Algorithm[Arrival], now: int) -> Arrival | None:
        if not isinstance(old, GCRAAlgorithm):
            return None
        in_use = old._in_use(state, now) * self._unit
        return self._state(-(-in_use // old._unit), now)

    def _state(self, in_use: int, now: int) -> Arrival:
        tat = (now - self.origin) * self._per_ns + in_use
        return tat if in_use <= self._span else (tat, now)

    def _in_use(self, state: Arrival | None, now: int) -> int:
        """Return what is in use, in ticks."""
        if state is None:
            return 0
        state = self.rebase(state, now)
        tat = state if isinstance(state, int) else state[0]
        return max(0, tat - (now - self.origin) * self._per_ns)
