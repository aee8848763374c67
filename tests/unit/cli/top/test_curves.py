"""Series become rows of bars."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.top.text import bars, chart, gathered, whole_width

SERIES = st.lists(st.floats(0, 1e6), max_size=130)


def test_the_highest_is_full_nothing_is_blank_and_little_is_seen() -> None:
    assert bars([0, 0.001, 4, 8], 8, is_ascii=False) == " ▁▄█"
    assert bars([0, 0.001, 4, 8], 8, is_ascii=True) == " .=@"


def test_without_traffic_there_is_a_blank_row() -> None:
    assert bars([0, 0], 0, is_ascii=False) == "  "


def test_steps_have_the_highest_of_what_they_stand_for_and_end_at_the_right() -> None:
    assert gathered([1, 2, 3, 4, 5, 9, 7, 8], 4) == [2, 4, 9, 8]
    assert gathered([1, 2, 3], 5) == [0, 0, 1, 2, 3]
    assert gathered([], 2) == [0, 0]
    assert gathered([1], 0) == []


def test_a_chart_grows_from_the_bottom() -> None:
    assert chart([1, 2, 4], 4, 2, is_ascii=False) == ["  █", "▄██"]


def test_a_minute_fills_what_room_there_is() -> None:
    assert [whole_width(60, room) for room in (70, 60, 59, 20, 19, 1, 0)] == [
        *(60, 60, 30, 20, 15, 1),
        0,
    ]


@given(SERIES, st.integers(1, 100), st.integers(1, 5))
def test_there_is_a_character_for_every_column_and_row(
    series: list[float], width: int, height: int
) -> None:
    steps = gathered(series, width)
    rows = chart(steps, max(series, default=0), height, is_ascii=True)
    assert [len(row) for row in rows] == [width] * height
    assert all(row.isascii() for row in rows)
