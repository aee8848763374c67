"""How much of a limit is left for gateways when others use its counter too. No I/O.

Gateways' use is charged to the counters of exact rules, as that of requests checked one by one is.
Those are refused when nothing is left, gateways are not: they go on with the rates they have. So
their rates follow what the counter says, and room is left for the others.

A paced counter of capacity C that is short of D units is as new in D / R seconds. Gateways get

    R * (C - D) / D       at most R, at least R / 10

which is R when it is half full, and at rest where others use h: R * (C - D) / D = R - h. So with
others that use half of the limit the counter rests at a third of its capacity, and gateways get the
other half. (C is at least what a second brings: what is charged at once must fit.) A fixed window
gives what remains over the time that remains. A sliding window tells what was used in all; what
gateways did not use of that was others', and is taken off.

That is for others that are there. A burst that gateways had themselves leaves the counter short as
well, and if they were cut for that, the limit would go unused. So while nobody else is seen to use
it, they lose a tenth at most: then the counter fills up again all the same, and who comes finds
something, and is seen. (`Others` tells from two looks at the counter, and what was charged between
them for gateways, what somebody else must have used.)

R / 10 is the bound on what gateways can lose to others under the rule that binds them most. Rates
are divided under that one; the other rules that match are kept by this alone, all buckets that they
are for losing the same part, and there the bound is R / 1000.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.limits import FixedWindow
from headgate.limits.model import PacedLimit
from headgate.service.rlqs.filling import MILLION
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.service.rlqs.allowance import Binding

LEAST: Final = Fraction(1, 10)
LEAST_OF_OTHERS: Final = Fraction(1, 1_000)
LEAST_ALONE: Final = Fraction(9, 10)

_LATELY_NS: Final = 20 * SECOND
_A_FEW: Final = 2
_NOTICEABLE: Final = 50
"""What others use is noticed if it is more than a few units, and more than one part of the rate in
so many: clocks differ by a little ..."""
_NOTICEABLE_AMONG_REPLICAS: Final = 10
"""... and what gateways of other replicas use is known only when they report it."""


def part_left(
    binding: Binding, outcome: Outcome, *, charged: int, usage: int, least: Fraction = LEAST
) -> Fraction:
    """The part of the rate of *binding* that is for gateways, from *least* to 1.

    *outcome* is what the counter said, for a cost of 1, right after *charged* units were charged
    for gateways; they use *usage* millionths of a request a second.
    """
    limit = binding.check.limit
    if isinstance(limit, PacedLimit):
        part = _paced(limit, outcome, charged)
    elif isinstance(limit, FixedWindow):
        whole = Fraction(limit.quota, limit.window_ns)
        left_ns = max(outcome.reset_after_ns, SECOND)
        part = Fraction(outcome.remaining, left_ns) / whole if outcome.reset_after_ns else least
        part = Fraction(1) if outcome.remaining == limit.quota else part
    else:
        used = Fraction((limit.quota - outcome.remaining) * SECOND, limit.period_ns)
        others = used - Fraction(usage * binding.check.cost, MILLION)
        part = 1 - others / Fraction(limit.quota * SECOND, limit.period_ns)
    return min(max(part, least), Fraction(1))


def _paced(limit: PacedLimit, outcome: Outcome, charged: int) -> Fraction:
    rate = limit.per_second
    # In the middle between before and after the charge.
    short = rate * outcome.reset_after_ns / SECOND - Fraction(charged, 2)
    capacity = max(Fraction(limit.quota), rate)
    return (capacity - short) / short if short > 0 else Fraction(1)


@dataclass(slots=True)
class Others:
    """Whether anybody but gateways uses a paced counter; it is looked at as time passes.

    *seen_ns* is when somebody was seen last. One look may err, when a charge is under way: two in
    a row count.
    """

    seen_ns: int | None = None
    _looked_ns: int | None = None
    _short: Fraction = Fraction(0)
    _own: int = 0
    _was_used: bool = False

    def charged(self, units: int) -> None:
        """Note that *units* were charged for gateways, or given back if negative."""
        self._own += units

    def look(self, limit: PacedLimit, outcome: Outcome, now_ns: int, *, elsewhere: int) -> None:
        """Look at what the counter says; *elsewhere* is what gateways of other replicas use, in
        millionths of a unit a second."""
        rate = limit.per_second
        short = rate * outcome.reset_after_ns / SECOND
        if self._looked_ns is not None:
            seconds = Fraction(max(now_ns - self._looked_ns, 0), SECOND)
            expected = max(self._short - rate * seconds, Fraction(0)) + self._own
            unknown = short - expected - seconds * elsewhere / MILLION
            noticeable = _NOTICEABLE_AMONG_REPLICAS if elsewhere else _NOTICEABLE
            is_used = unknown > _A_FEW + rate * seconds / noticeable
            if is_used and self._was_used:
                self.seen_ns = now_ns
            self._was_used = is_used
        self._looked_ns, self._short, self._own = now_ns, short, 0

    def are_there(self, now_ns: int) -> bool:
        """Whether somebody was seen lately."""
        return self.seen_ns is not None and now_ns - self.seen_ns <= _LATELY_NS
