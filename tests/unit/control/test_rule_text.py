"""The text of one rule, and the places of problems in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.control.rule_text import RuleText, rule_text
from headgate.policy.problems import PolicyError, Problem

TEXT = b"""\
# About the rule.
match:
  endpoint: [/a, /b]   # two
key_by: ip
limits:
  free: 5/minute
  paid: {limit: 9/s}
"""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text("ab1:#-'\" \u00e4", max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(st.sampled_from(["match", "key_by", "limit"]), VALUES, min_size=1))
def test_a_rule_is_read_back_as_it_was_written(rule: dict[str, object]) -> None:
    assert RuleText.read(rule_text(rule).encode()).data == rule


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5", 5),
        ("0.5", 0.5),
        ("true", True),
        ("", None),
        ("'5'", "5"),
        ("off", "off"),
        ("007", "007"),
    ],
)
def test_plain_values_are_what_a_file_would_have(written: str, meant: object) -> None:
    assert RuleText.read(f"value: {written}".encode()).data == {"value": meant}


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("rules[4].key_by", (4, 1)),
        ("rules[4].match.endpoint[1]", (3, 18)),
        ("rules[0].limits.paid.limit", (7, 10)),
        ("rules[0].limits['free']", (6, 3)),
        ("rules[0].limits.nobody", (5, 1)),
        ("rules[0].missing", (2, 1)),
        ("", (2, 1)),
    ],
)
def test_a_problem_is_at_the_line_and_column_of_its_field(
    field: str, place: tuple[int, int]
) -> None:
    found = RuleText.read(TEXT).located(Problem("error", "<policy>", "wrong", field=field))
    assert (found.line, found.column) == place


@pytest.mark.parametrize("text", [b"", b"- a", b"word", b"a: [", b"a: 1\na: 2", b"\xff"])
def test_a_text_that_is_no_rule_is_reported(text: bytes) -> None:
    with pytest.raises(PolicyError):
        RuleText.read(text)
