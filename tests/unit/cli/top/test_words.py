"""Figures are short, names are harmless, and both keep to their columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.top.text import (
    amount,
    columns,
    cut,
    harmless,
    left,
    moment,
    rate,
    right,
    share,
    span,
)


@pytest.mark.parametrize(
    ("per_second", "told"),
    [
        (0, "0"),
        (0.01, "<0.1"),
        (0.25, "0.2"),
        (9.94, "9.9"),
        (9.97, "10"),
        (312.4, "312"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (1540, "1.5k"),
        (99_960, "100k"),
        (2_000_000, "2.0M"),
        (5e12, "5000G"),
    ],
)
def test_rates(per_second: float, told: str) -> None:
    assert rate(per_second) == told


@given(st.floats(0, 1e13))
def test_no_rate_is_longer_than_its_column(per_second: float) -> None:
    assert len(rate(per_second)) <= 6
    assert len(amount(per_second)) <= 6


@pytest.mark.parametrize(
    ("part", "told"),
    [(None, "-"), (0, "0%"), (0.0001, "<0.1%"), (0.042, "4.2%"), (0.5, "50%"), (1, "100%")],
)
def test_shares(part: float | None, told: str) -> None:
    assert share(part) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(None, "-"), (12e-6, "12µs"), (0.0014, "1.4ms"), (2, "2.0s")]
)
def test_times(seconds: float | None, told: str) -> None:
    assert span(seconds) == told


def test_a_time_is_told_in_ascii_where_there_is_nothing_else() -> None:
    assert span(12e-6, is_ascii=True) == "12us"


def test_a_moment_of_another_day_has_its_date() -> None:
    assert moment(1_763_300_000, 1_763_320_000) == "13:33"
    assert moment(1_763_200_000, 1_763_320_000) == "2025-11-15 09:46"
    assert moment(1e18, 0)


@pytest.mark.parametrize("text", ["a\x1b[31mb", "a\x00", "a\u202eb", "e\u0301", "\u200d", "a\nb"])
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    shown = harmless(text)
    assert shown.isprintable()
    assert "\\" in shown


@given(st.text())
def test_harmless_text_is_seen_as_it_is(text: str) -> None:
    assert harmless(text).isprintable()
    assert harmless(text, is_ascii=True).isascii()
    assert harmless(harmless(text)) == harmless(text)


def test_wide_characters_take_two_columns() -> None:
    assert columns("日本") == 4
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert left("日本", 6) == "日本  "
    assert right("日本", 6) == "  日本"


@given(st.text(st.characters(exclude_categories=["C", "M"])), st.integers(0, 20))
def test_what_is_cut_fits(text: str, width: int) -> None:
    for ellipsis in ("…", "...", ""):
        assert columns(cut(text, width, ellipsis=ellipsis)) <= width
