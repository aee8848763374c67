"""Limits in dollars: counted in millionths."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate.errors import NotationError
from headgate.limits import FixedWindow, SlidingWindowLog, TokenBucket, parse_limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("50 usd/day", TokenBucket(50_000_000, Fraction(50_000_000, 86_400))),
        ("2.50 USD per hour", TokenBucket(2_500_000, Fraction(2_500_000, 3_600))),
        ("1usd/s burst 3.5 usd", TokenBucket(3_500_000, 1_000_000)),
        ("0.000001 usd/m strict", SlidingWindowLog(1, 60)),
        ("1_000 usd/d fixed_window", FixedWindow(1_000_000_000, 86_400)),
    ],
)
def test_a_dollar_is_a_million_units(text: str, limit: object) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize(
    ("text", "problem", "position"),
    [
        ("0.0000001 usd/d", "0.0000001 usd has parts of a millionth", 0),
        ("-1 usd/d", "-1 is negative", 0),
        ("1 eur/d", "'eur' does not belong here", 2),
        ("2.5/d", "2.5 is a fraction", 0),
        ("5/d subwindows 2 usd", "'usd' does not belong here", 17),
        ("5 usd/d burst 0 usd", "0 usd is less than a millionth", 14),
    ],
)
def test_mistakes_are_shown_with_their_place(text: str, problem: str, position: int) -> None:
    with pytest.raises(NotationError) as caught:
        parse_limit(text)
    assert problem in str(caught.value)
    assert caught.value.position == position
