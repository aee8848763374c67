"""How long to wait, and how to come back apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clients import Backoff
from headgate.errors import OptionError
from headgate.units import MILLISECOND, SECOND

CHANCES = st.floats(0, 1)


def test_the_ceiling_doubles_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=3)
    ceilings = [backoff.ceiling_ns(n) / SECOND for n in (0, 1, 2, 3, 4, 5, 10_000)]
    assert ceilings == [0.5, 0.5, 1, 2, 3, 3, 3]


@given(refusals=st.integers(0, 10**6), chance=CHANCES)
def test_a_pause_is_any_part_of_the_ceiling(refusals: int, chance: float) -> None:
    backoff = Backoff()
    assert 0 <= backoff.pause_ns(refusals, chance) <= backoff.ceiling_ns(refusals)
    assert backoff.pause_ns(refusals, 0) == 0
    assert backoff.pause_ns(refusals, 1) == backoff.ceiling_ns(refusals)


@given(refusals=st.integers(0, 10**6), wait_ns=st.integers(0, 10**15), chance=CHANCES)
def test_a_spread_is_never_negative_and_bounded(refusals: int, wait_ns: int, chance: float) -> None:
    backoff = Backoff()
    spread = backoff.spread_ns(refusals, wait_ns, chance)
    assert 0 <= spread <= max(backoff.ceiling_ns(refusals), wait_ns // 10)


def test_a_short_wait_is_spread_little_and_more_if_it_was_in_vain() -> None:
    spreads = [Backoff().spread_ns(refusals, 50 * MILLISECOND, 1) for refusals in (1, 2, 3, 4, 9)]
    assert [spread // MILLISECOND for spread in spreads] == [50, 100, 200, 400, 12_800]


def test_a_long_wait_is_spread_over_a_tenth_of_it() -> None:
    assert Backoff().spread_ns(1, 600 * SECOND, 1) == 60 * SECOND


@pytest.mark.parametrize(
    "options",
    [
        {"first": 0},
        {"first": -1},
        {"first": float("nan")},
        {"longest": float("inf")},
        {"first": True},
        {"first": "1"},
        {"first": 2, "longest": 1},
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="of the backoff is"):
        Backoff(**options)
