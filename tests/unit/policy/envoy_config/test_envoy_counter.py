"""The names of counters: unambiguous, bounded, printable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.policy.envoy_config.config import LONGEST_NAME, counter_name

TEXT = st.text(st.sampled_from("ab|%=_/ \n\x00é{}"), max_size=4) | st.text(max_size=80)
DESCRIPTOR = st.tuples(TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3))


def test_a_name_can_be_read() -> None:
    entries = [("path", "/a b"), ("user", "ada@example.com")]
    assert counter_name("edge", entries) == "edge|path|/a b|user|ada@example.com"


@given(DESCRIPTOR, DESCRIPTOR)
def test_different_descriptors_have_different_names(
    one: tuple[str, list[tuple[str, str]]], other: tuple[str, list[tuple[str, str]]]
) -> None:
    assert (counter_name(*one) == counter_name(*other)) == (one == other)


@given(DESCRIPTOR)
def test_a_name_is_printable_and_bounded(one: tuple[str, list[tuple[str, str]]]) -> None:
    name = counter_name(*one)
    assert len(name) <= LONGEST_NAME
    assert name.isprintable()


@pytest.mark.parametrize("value", ["x" * 100_000, "|" * 5_000, "\ud800", "\x00\r\n", "é" * 300])
def test_odd_values_are_no_trouble(value: str) -> None:
    name = counter_name("edge", [("user", value)])
    assert name.startswith("edge|")
    assert len(name) <= LONGEST_NAME
    assert name.isprintable()
    assert name != counter_name("edge", [("user", value + "x")])


def test_parts_do_not_run_into_each_other() -> None:
    assert counter_name("d", [("a_b", "c")]) != counter_name("d", [("a", "b_c")])
    assert counter_name("d", [("a", "b|c|d")]) != counter_name("d", [("a", "b"), ("c", "d")])
