"""Rates in the notation."""

from fractions import Fraction

import pytest

from headgate.errors import NotationError
from headgate.limits import parse_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10/s", 10), ("100 per minute", Fraction(5, 3)), ("1/1.5h", Fraction(1, 5400))],
)
def test_a_rate_is_read_exactly(text: str, rate: Fraction) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "there is no rate here"),
        ("10/s burst 5", 5, "'burst' does not belong to a rate"),
        ("10/s; 5/s", 4, "';' does not belong to a rate"),
        ("0/s", 0, "0 is less than 1"),
        ("10", 2, "the limit ends too early"),
    ],
)
def test_a_rate_has_no_options(text: str, position: int, problem: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_rate(text)
    assert (caught.value.position, caught.value.problem) == (position, problem)
