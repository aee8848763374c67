"""Entries as attributes: each has a name of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.policy.envoy_config.attributes import DESCRIPTOR, DOMAIN, attribute_names


def test_a_key_that_comes_again_has_a_number() -> None:
    assert attribute_names(["a", "b", "a", "a#2", "a"]) == ["a", "b", "a#2", "a#2#2", "a#3"]


@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "a#2#2", "b", DOMAIN, DESCRIPTOR])))
def test_no_two_names_are_the_same(keys: list[str]) -> None:
    names = attribute_names(keys)
    assert len({DOMAIN, DESCRIPTOR, *names}) == len(keys) + 2
    assert all(name.startswith(key) for key, name in zip(keys, names, strict=True))


def test_a_key_that_comes_very_often_takes_no_longer_for_each() -> None:
    """It would take minutes if all names before were tried for each."""
    assert attribute_names(["a"] * 30_000)[-1] == "a#30000"
