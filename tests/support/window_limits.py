"""Windowed limits worth trying: a microsecond, odd lengths, a day; tiny and huge limits."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from hypothesis import strategies as st

from tests.support.histories import MICROSECOND, MILLISECOND, MINUTE, SECOND


class Windowed(NamedTuple):
    """So many in a window of so many nanoseconds."""

    quota: int
    window: int

    @property
    def seconds(self) -> Fraction:
        return Fraction(self.window, SECOND)


_LENGTHS = [
    MICROSECOND,
    7 * MICROSECOND,
    250 * MICROSECOND,
    11 * MILLISECOND,
    SECOND,
    MINUTE,
    24 * 60 * MINUTE,
]
LENGTHS = st.sampled_from(_LENGTHS)
WINDOWS = st.builds(Windowed, st.integers(1, 8), LENGTHS)
HUGE_WINDOWS = st.builds(Windowed, st.sampled_from([10**6, 10**15 - 1]), LENGTHS)
