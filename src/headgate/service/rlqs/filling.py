"""A rate as a token bucket that Envoy can enforce. No I/O.

Envoy counts the interval of a bucket in whole seconds and takes a shorter one for no limit at all,
so a rate is so many tokens every so many seconds. Tokens come back evenly within the interval, and
a bucket that is new, or that differs from the last one, starts full.

It compares the tokens of a bucket with those of the last one, but not the seconds: one that differs
in its seconds alone would be taken for the same. `distinct` makes it differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from headgate.errors import LimitError

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
