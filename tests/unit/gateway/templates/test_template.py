"""Places in a text, and what is put there."""

from __future__ import annotations

import pytest

from headgate.gateway.templates.options import filled_text, quoted


def test_a_place_takes_its_value() -> None:
    assert filled_text("a <<x>> b<<y>>\n", {"x": "1", "y": ""}) == "a 1 b\n"


def test_lines_stand_where_their_place_stood() -> None:
    assert filled_text("a:\n    <<x>>\nb\n", {"x": "one\n  two\n\nthree"}) == (
        "a:\n    one\n      two\n\n    three\nb\n"
    )


def test_a_line_with_nothing_to_put_there_goes() -> None:
    assert filled_text("a\n    <<x>>\nb\n", {"x": ""}) == "a\nb\n"


def test_what_is_put_in_is_not_looked_at_again() -> None:
    assert filled_text("<<x>> <<y>>", {"x": "<<y>>", "y": r"\1"}) == r"<<y>> \1"


def test_a_place_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled_text("<<x>>", {})


def test_a_quoted_text_cannot_end_itself() -> None:
    assert quoted('a"\n\\') == r'"a\"\n\\"'
