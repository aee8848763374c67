"""Dividing by demand: nothing above the capacity, nothing wasted, nobody unfairly short."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import UsageError
from headgate.service.rlqs.rates import divide

CAPACITIES = st.integers(0, 10**12)
AMOUNTS = st.one_of(st.integers(0, 20), st.integers(0, 10**12))
CLAIMS = st.lists(st.tuples(AMOUNTS, st.integers(1, 9)), max_size=8)


@given(CAPACITIES, CLAIMS, st.booleans())
def test_the_parts_never_sum_above_the_capacity(
    capacity: int, claims: list[tuple[int, int]], spread: bool
) -> None:
    wanted, weights = [one for one, _ in claims], [one for _, one in claims]
    parts = divide(capacity, wanted, weights, spread=spread)
    assert sum(parts) <= capacity
    assert all(part >= 0 for part in parts)


@given(CAPACITIES, CLAIMS)
def test_nothing_is_kept_back_while_somebody_wants_more(
    capacity: int, claims: list[tuple[int, int]]
) -> None:
    wanted, weights = [one for one, _ in claims], [one for _, one in claims]
    parts = divide(capacity, wanted, weights)
    assert all(part <= want for part, want in zip(parts, wanted, strict=True))
    assert sum(parts) == min(capacity, sum(wanted))


@given(CAPACITIES, CLAIMS)
def test_who_is_short_has_no_less_by_weight_than_anybody(
    capacity: int, claims: list[tuple[int, int]]
) -> None:
    wanted, weights = [one for one, _ in claims], [one for _, one in claims]
    levels = [
        part / weight
        for part, weight in zip(divide(capacity, wanted, weights), weights, strict=True)
    ]
    for n, want in enumerate(wanted):
        if levels[n] * weights[n] < want:
            assert levels[n] == max(levels)


@given(CAPACITIES, st.lists(AMOUNTS, min_size=1, max_size=8), st.randoms(), st.booleans())
def test_the_order_does_not_matter(
    capacity: int, wanted: list[int], random: object, spread: bool
) -> None:
    order = list(range(len(wanted)))
    random.shuffle(order)  # type: ignore[attr-defined]  # hypothesis hands out a Random
    parts = divide(capacity, wanted, spread=spread)
    shuffled = divide(capacity, [wanted[n] for n in order], spread=spread)
    assert [shuffled[order.index(n)] for n in range(len(wanted))] == list(parts)


@given(CAPACITIES, st.lists(AMOUNTS, min_size=1, max_size=8))
def test_what_is_spread_is_all_there_is_and_the_same_for_everybody(
    capacity: int, wanted: list[int]
) -> None:
    plain, spread = divide(capacity, wanted), divide(capacity, wanted, spread=True)
    assert sum(spread) == capacity
    assert len({more - part for more, part in zip(spread, plain, strict=True)}) == 1


def test_twice_the_weight_is_twice_the_part() -> None:
    assert list(divide(90, [100, 100], [1, 2])) == [30, 60]
    assert list(divide(100, [10, 100, 100])) == [10, 45, 45]
    assert divide(Fraction(1, 3), [1, 1]) == (Fraction(1, 6), Fraction(1, 6))


def test_a_weight_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        divide(10, [1, 2], [1, 0])
