"""Quantiles of a histogram."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.observability import DecisionRecorder
from headgate.observability.decision_recorder import BOUNDS_NS
from headgate.service.live.recorder import Growth, quantile
from headgate.units import SECOND
from tests.examples import example_count

NONE = [0] * (len(BOUNDS_NS) + 1)


def counts(**by_bound: int) -> list[int]:
    found = list(NONE)
    for place, count in by_bound.items():
        found[int(place.removeprefix("b"))] = count
    return found


def test_without_decisions_there_is_no_quantile() -> None:
    assert quantile(NONE, 0.5) is None


def test_within_a_bucket_they_are_taken_to_be_spread_evenly() -> None:
    # All between 2 and 5 microseconds.
    assert quantile(counts(b2=100), 0.5) == pytest.approx(3.5e-6)
    assert quantile(counts(b2=100), 0.99) == pytest.approx(4.97e-6)
    # Half of them in the first microsecond, half between 10 and 25.
    assert quantile(counts(b0=50, b4=50), 0.5) == pytest.approx(1e-6)
    assert quantile(counts(b0=50, b4=50), 0.9) == pytest.approx(22e-6)


def test_beyond_the_largest_bound_it_is_that_bound() -> None:
    found = list(NONE)
    found[-1] = 5
    assert quantile(found, 0.5) == BOUNDS_NS[-1] / SECOND


@settings(max_examples=example_count(30))
@given(st.lists(st.integers(0, 1000), min_size=len(NONE), max_size=len(NONE)))
def test_quantiles_grow_and_stay_within_the_bounds(found: list[int]) -> None:
    told = [quantile(found, share / 100) for share in (0, 25, 50, 90, 99, 100)]
    if sum(found) == 0:
        assert told == [None] * 6
        return
    numbers = [one for one in told if one is not None]
    assert numbers == sorted(numbers)
    assert 0 <= numbers[0] <= numbers[-1] <= BOUNDS_NS[-1] / SECOND


@settings(max_examples=example_count(30))
@given(st.lists(st.integers(0, 900_000_000), min_size=1, max_size=200), st.sampled_from([50, 90]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(took_ns: list[int], percent: int) -> None:
    journal = DecisionRecorder()
    for one in took_ns:
        journal.time(one)
    wanted = -(-percent * len(took_ns) // 100)
    true = sorted(took_ns)[wanted - 1]
    seconds = quantile(journal.latency, percent / 100)
    assert seconds is not None
    found = seconds * SECOND
    place = next(place for place, bound in enumerate(BOUNDS_NS) if true <= bound)
    lower = 0 if place == 0 else BOUNDS_NS[place - 1]
    assert lower * (1 - 1e-9) <= found <= BOUNDS_NS[place] * (1 + 1e-9)


def test_growth_is_that_of_the_last_seconds_and_starts_again_if_the_clock_steps_back() -> None:
    growth = Growth(10)
    assert growth.counts() == growth.rates() == []
    growth.sample(100, [1])
    growth.sample(105, [1, 7])
    assert (growth.counts(), growth.rates()) == ([0, 7], [0.0, 0.7])
    growth.sample(111, [4, 9])
    growth.sample(116, [4, 10])
    assert growth.counts() == [0, 1]
    assert growth.rates() == [3 / 11, 3 / 11]
    growth.sample(50, [5, 10])
    assert growth.counts() == [0, 0]
