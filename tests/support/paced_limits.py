"""Paced limits worth trying: odd rates, tiny and huge quotas."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import NamedTuple

from hypothesis import strategies as st

from tests.support.histories import SECOND


class Pace(NamedTuple):
    """A quota, and how much of it comes back in a second."""

    quota: int
    rate: Fraction


_RATES = st.sampled_from(
    [
        Fraction(3),
        Fraction(7_000, 11),  # 7 per 11 ms
        Fraction(167, 100),
        Fraction(1, 3),
        Fraction(100, 60),
        Fraction(1_000),
        Fraction(1_000_003),
        Fraction(2_000_000_000),  # two in a nanosecond
        Fraction(1, 86_400),
    ]
)
_HUGE = [
    Pace(10**15 - 1, Fraction(10**15 - 1)),
    Pace(10**15 - 1, Fraction(1_000_003)),
    Pace(10**15 - 1, Fraction(10**15 - 1, 86_400)),
    Pace(1, Fraction(10**15 - 1)),
    Pace(1, Fraction(1, 3_000_000_000)),
]
PACES = st.builds(Pace, st.integers(1, 10), _RATES) | st.sampled_from(_HUGE)


def period_ns(pace: Pace) -> int:
    """In how many nanoseconds the whole quota comes back."""
    return ceil(pace.quota * SECOND / pace.rate)
