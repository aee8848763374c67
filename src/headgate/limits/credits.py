"""Burst credits: what is not used is saved up, and spent later at a higher rate.

Two limits in a stack. With base rate r, peak rate p, and a burst b of the peak:

    a bucket of C = (p - r) * d + b units that refills at r      what was saved, and when it is gone
    a bucket of b units that refills at p                        how fast it can be spent

Who comes with full buckets is admitted at most `b + p * t` units in the first t seconds by the one,
and at most `C + r * t` by the other. The two meet at t = d exactly: until then the peak decides,
from then on the base rate. After a rest of `C / r` seconds all credits are there again, and less
rest saves less: nothing is lost of what was not used below the ceiling.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.errors import LimitError
from headgate.limits.model import TokenBucket
from headgate.units import SECOND, duration_ns, exact_rate

if TYPE_CHECKING:
    from headgate.units import Rate, Seconds

USUAL_BURST: Final = Fraction(1, 10)
"""The burst of a peak is what it gives in so many seconds, if nothing is said; one at least."""


def burst_credits(
    base: Rate, peak: Rate, duration: Seconds, *, burst: int | None = None
) -> tuple[TokenBucket, TokenBucket]:
    """Limits, to be stacked, of *base* units a second, and *peak* after a rest.

    A full rest allows *duration* seconds at the peak, a shorter one less. *burst* is the most at
    once: what the peak gives in a tenth of a second if not said, at least 1. Raises `LimitError`.
    """
    rates = exact_rate(base, "base"), exact_rate(peak, "peak")
    ceiling, at_once = credit_sizes(*rates, duration, burst)
    return TokenBucket(ceiling, rates[0]), TokenBucket(at_once, rates[1])


def credit_sizes(
    base: Fraction, peak: Fraction, duration: Seconds, burst: int | None
) -> tuple[int, int]:
    """The capacities of both buckets: the ceiling of what is saved, and the burst.

    Raises `LimitError`; its first word names what is wrong.
    """
    if peak <= base:
        raise LimitError(f"peak is {peak} a second; expected more than the base rate of {base}")
    at_once = max(1, int(peak * USUAL_BURST)) if burst is None else burst
    if at_once < 1:
        raise LimitError(f"burst is {burst!r}; expected a whole number of at least 1")
    saved = int((peak - base) * duration_ns(duration, "duration") / SECOND)
    if not saved:
        raise LimitError("duration is too short; expected time for one unit more than at the base")
    return saved + at_once, at_once
