"""Dividing by need: nothing above the capacity, nothing wasted, no unfair share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.service.rlqs.rates import divide

CAPACITIES = st.integers(0, 10**12)
NEEDS = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 10**12)), min_size=1, max_size=8)


@given(CAPACITIES, NEEDS)
def test_the_shares_never_sum_above_the_capacity_and_leave_less_than_one_each(
    capacity: int, needs: list[int]
) -> None:
    shares = divide(capacity, needs)
    assert all(share >= 0 for share in shares)
    assert capacity - len(needs) < sum(shares) <= capacity


@given(CAPACITIES, NEEDS)
def test_a_need_is_met_if_it_is_no_larger_than_an_even_share(
    capacity: int, needs: list[int]
) -> None:
    for need, share in zip(needs, divide(capacity, needs), strict=True):
        assert share >= min(need, capacity // len(needs))


@given(CAPACITIES, NEEDS)
def test_a_claimant_that_is_short_has_no_less_than_any_other(
    capacity: int, needs: list[int]
) -> None:
    shares = divide(capacity, needs)
    for need, share in zip(needs, shares, strict=True):
        if share < need:
            assert share >= max(shares) - 1


@given(CAPACITIES, NEEDS, st.randoms())
def test_the_order_does_not_matter(capacity: int, needs: list[int], random: object) -> None:
    shuffled = list(needs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis hands out a Random
    assert sorted(divide(capacity, shuffled)) == sorted(divide(capacity, needs))


def test_what_no_one_needs_is_spread_evenly() -> None:
    assert divide(90, [10, 20]) == [40, 50]
    assert divide(100, [10, 100, 100]) == [10, 45, 45]
    assert divide(100, [0]) == [100]
    assert divide(5, []) == []
