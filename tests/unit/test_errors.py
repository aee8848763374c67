"""`NotationError`: what it carries and how it reads."""

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, LimitError, NotationError, pointed_at


def test_a_notation_error_is_caught_as_a_limit_error_and_as_a_value_error() -> None:
    error = NotationError("10/x", 3, "'x' does not belong here", ["a unit"])
    assert isinstance(error, LimitError)
    assert isinstance(error, ValueError)
    assert isinstance(error, HeadgateError)


def test_a_notation_error_carries_text_position_problem_and_expected() -> None:
    error = NotationError("10/x", 3, "'x' does not belong here", ["a number", "a unit"])
    assert (error.text, error.position) == ("10/x", 3)
    assert error.problem == "'x' does not belong here"
    assert error.expected == ("a number", "a unit")


def test_its_message_points_at_the_place_and_says_what_was_expected() -> None:
    error = NotationError("10/x", 3, "'x' does not belong here", ["a number", "a unit"])
    assert str(error).splitlines() == [
        "not a limit: 'x' does not belong here",
        "  10/x",
        "     ^",
        "  expected a number or a unit",
    ]


def test_its_message_has_no_expected_line_when_nothing_could_stand_there() -> None:
    error = NotationError("10/x", 3, "'x' does not belong here", [])
    assert str(error).splitlines() == [
        "not a limit: 'x' does not belong here",
        "  10/x",
        "     ^",
    ]


def test_the_caret_can_stand_just_after_the_text() -> None:
    lines = str(NotationError("10/", 3, "the limit ends too early", ["a unit"])).splitlines()
    assert lines[1:3] == ["  10/", "     ^"]


@pytest.mark.parametrize("character", ["\n", "\t", "\r", "\x00", "\x1b", "\u2028", "\u200b"])
def test_characters_that_cannot_be_shown_take_one_column_and_break_no_line(character: str) -> None:
    error = NotationError(f"10{character}/x", 4, "'x' does not belong here", ["a unit"])
    assert str(error).splitlines()[1:3] == ["  10\N{REPLACEMENT CHARACTER}/x", "      ^"]
    assert error.text == f"10{character}/x"


def test_a_notation_error_survives_pickling() -> None:
    error = NotationError("10/x", 3, "'x' does not belong here", ["a unit"])
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is NotationError
    assert str(copy) == str(error)
    assert (copy.text, copy.position, copy.problem, copy.expected) == error.args


@given(st.text(min_size=1, max_size=300), st.integers(0, 300), st.integers(4, 120))
@example("0000", 2, 4)
def test_a_caret_stays_below_its_character_however_narrow_the_terminal_is(
    text: str, position: int, width: int
) -> None:
    position = min(position, len(text))
    line, caret = pointed_at(text, position, width)
    assert max(len(line), len(caret)) <= width
    shown = line[len(caret) - 1 :][:1]
    assert shown == (text[position : position + 1] if text.isprintable() else shown)
