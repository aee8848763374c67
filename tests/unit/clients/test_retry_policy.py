"""Retry policies: bounds, backoff and spread."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clients import Backoff, RetryPolicy
from headgate.errors import OptionError
from headgate.units import MILLISECOND, SECOND


def test_the_defaults_are_polite() -> None:
    policy = RetryPolicy()
    assert policy.max_attempts == 3
    assert policy.max_wait_ns == 60 * 10**9
    assert policy == RetryPolicy(backoff=Backoff(0.5, 30.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 2.0),
        ("max_attempts", True),
        ("max_wait", -1),
        ("max_wait", float("nan")),
        ("max_wait", float("inf")),
        ("max_wait", None),
        ("retry_share", 1.5),
        ("retry_share", True),
        ("retries_per_second", -1),
        ("max_server_wait", 0),
        ("max_hosts", 0),
        ("look_ahead", 1),
        ("scope", "url"),
        ("backoff", 0.5),
    ],
)
def test_an_option_that_makes_no_sense_is_named_with_what_is_right(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=rf"{name} is .*; expected "):
        RetryPolicy(**{name: value})


RANDOM = st.floats(0, 1)


def test_the_ceiling_doubles_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=3)
    ceilings = [backoff.ceiling_ns(n) / SECOND for n in (0, 1, 2, 3, 4, 5, 10_000)]
    assert ceilings == [0.5, 0.5, 1, 2, 3, 3, 3]


@given(denials=st.integers(0, 10**6), random=RANDOM)
def test_a_pause_is_any_part_of_the_ceiling(denials: int, random: float) -> None:
    backoff = Backoff()
    assert 0 <= backoff.pause_ns(denials, random) <= backoff.ceiling_ns(denials)
    assert backoff.pause_ns(denials, 0) == 0
    assert backoff.pause_ns(denials, 1) == backoff.ceiling_ns(denials)


@given(denials=st.integers(0, 10**6), wait_ns=st.integers(0, 10**15), random=RANDOM)
def test_a_spread_is_never_negative_and_bounded(denials: int, wait_ns: int, random: float) -> None:
    backoff = Backoff()
    spread = backoff.spread_ns(denials, wait_ns, random)
    assert 0 <= spread <= max(backoff.ceiling_ns(denials), wait_ns // 10)


def test_a_wait_is_spread_over_a_tenth_of_it_and_more_after_denials_in_a_row() -> None:
    spreads = [Backoff().spread_ns(denials, SECOND, 1) for denials in (0, 1, 2, 3, 4, 5, 9)]
    assert [spread // MILLISECOND for spread in spreads] == [100, 100, 200, 400, 800, 1600, 25_600]


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
def test_a_backoff_that_makes_no_sense_is_rejected(options: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="of the backoff is"):
        Backoff(**options)
