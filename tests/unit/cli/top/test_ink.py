"""Lines keep their width, and tell a terminal only what they mean to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.top.text import (
    Span,
    beside,
    fitted,
    flowed,
    inked,
    line,
    plain,
    runs,
    width_of,
    wrapped,
)

LINES = st.lists(st.builds(Span, st.text("ab 日"), st.sampled_from(["", "bad"])), max_size=4).map(
    tuple
)


def test_styles_are_ended_where_they_end() -> None:
    one = line("a ", Span("b", "bad"), Span("", "good"))
    assert inked(one) == "a \033[31mb\033[0m"
    assert plain(one) == "a b"


@given(LINES, st.integers(0, 12))
def test_what_is_fitted_has_no_more_columns(one: tuple[Span, ...], width: int) -> None:
    assert width_of(fitted(one, width, ellipsis="…")) <= width


def test_what_is_cut_keeps_its_style() -> None:
    assert fitted(line("ab", Span("cdef", "bad")), 4, ellipsis="…") == line("ab", Span("c…", "bad"))


def test_lines_are_wrapped_at_blanks() -> None:
    rows = wrapped(line("would have ", Span("denied 312", "warn"), " requests"), 12, indent="  ")
    assert [plain(row) for row in rows] == ["would have", "  denied 312", "  requests"]
    assert rows[1] == (Span("  "), Span("denied 312", "warn"))


@given(LINES, st.integers(6, 20))
def test_wrapping_loses_nothing_but_blanks(one: tuple[Span, ...], width: int) -> None:
    rows = wrapped(one, width, indent="  ")
    assert "".join(map(plain, rows)).replace(" ", "") == plain(one).replace(" ", "")


def test_parts_flow_onto_as_many_lines_as_it_takes() -> None:
    parts = [line("aaaa"), line("bbbb"), line("cc")]
    assert [plain(row) for row in flowed(parts, 10)] == ["aaaa  bbbb", "cc"]
    assert [plain(row) for row in flowed(parts, 4)] == ["aaaa", "bbbb", "cc"]


def test_neighbours_of_one_style_are_one_span() -> None:
    assert runs("abc", ["bad", "bad", "good"]) == (Span("ab", "bad"), Span("c", "good"))


def test_blocks_of_different_height_stand_side_by_side() -> None:
    rows = beside([line("a"), line("b")], [line("c")], 3)
    assert [plain(row) for row in rows] == ["a  c", "b"]
