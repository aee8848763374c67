"""Overrides: what is read, what is refused and how it is told, and as data again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.policy.fields import instant_ns, instant_text
from headgate.policy.loader import (
    examine_policies,
    examine_policy_data,
    policy_to_data,
    read_policy,
    read_policy_data,
)
from headgate.policy.model import Override
from headgate.policy.problems import PolicyError
from headgate.policy.tables import to_data
from headgate.units import SECOND

LARGE = "100/s; 999999999999999/d fixed_window"
RULES = [
    {"id": "login", "key_by": "ip", "limit": "5/minute"},
    {"id": "export", "key_by": "user_id", "limits": {"paid": "9/s", "default": LARGE}},
]
UNTIL = "2026-11-16T12:00:00Z"
UNTIL_NS = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()) * SECOND


def policy(*overrides: Any) -> dict[str, Any]:
    return {"version": 1, "rules": RULES, "overrides": list(overrides)}


def override(**fields: Any) -> dict[str, Any]:
    """A good block, but for *fields*; those that are None are left out."""
    whole = {"rule": "login", "key": "ip=1.2.3.4", "block": True, "until": UNTIL} | fields
    return {name: value for name, value in whole.items() if value is not None}


def read(*overrides: Any) -> tuple[Override, ...]:
    return read_policy_data(policy(*overrides)).overrides


def refused(*overrides: Any) -> str:
    with pytest.raises(PolicyError) as told:
        read(*overrides)
    return str(told.value)


def test_both_kinds_are_read_in_their_order() -> None:
    text = """
version: 1
rules:
  - {id: login, key_by: ip, limit: 5/minute}
overrides:
  - {rule: login, key: ip=1.2.3.4, block: true, until: 2026-11-16T12:00:00Z}
  - {rule: login, key: "ip=4.3.2.1", extra: 500, until: "2026-11-16T13:00:00.5+01:00"}
"""
    assert read_policy(text).overrides == (
        Override("login", "ip=1.2.3.4", UNTIL_NS, block=True),
        Override("login", "ip=4.3.2.1", UNTIL_NS + SECOND // 2, extra=500),
    )


def test_without_any_there_are_none() -> None:
    assert read() == ()
    assert read_policy_data({"version": 1, "rules": RULES}).overrides == ()


def test_an_override_may_be_in_another_file_than_its_rule() -> None:
    rules = "version: 1\nrules:\n- {id: login, key_by: ip, limit: 5/m}\n"
    one = f"version: 1\noverrides:\n- {{rule: login, key: k, block: true, until: {UNTIL}}}\n"
    for texts in ([rules, one], [one, rules]):
        found = examine_policies([(str(n), text) for n, text in enumerate(texts)]).policy
        assert found is not None
        assert [each.rule for each in found.overrides] == ["login"]
    (problem,) = examine_policies([("0", rules), ("1", one), ("2", one)]).problems
    assert problem.place == "2:3:22"
    assert "has an override for this key already" in problem.message


def test_the_same_key_under_two_rules_is_two_counters() -> None:
    assert len(read(override(), override(rule="export"))) == 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (override(rule="logon"), "no rule 'logon'; did you mean 'login'?"),
        (override(rule="x"), "there is no rule 'x'; expected one of login, export"),
        (override(rule=None), "missing; expected the id of a rule"),
        (override(key=None), "missing; expected the key of a counter"),
        (override(key=""), "found an empty text, expected the key of a counter"),
        (
            override(key="a b"),
            "'a b' is not the key of a counter such as ip=203.0.113.7",
        ),
        (override(key="é"), "'é' is not the key of a counter"),
        (override(key="x" * 4097), "a text of 4097 characters; expected at most 4096"),
        (override(key=True), "found true, expected the key of a counter"),
        (override(until=None), "missing; expected a date and time with its offset"),
        (override(until="2026-11-16T12:00:00"), "expected a date and time with its offset"),
        (override(until="tomorrow"), "found 'tomorrow', expected a date and time"),
        (override(until=1_800_000_000), "found 1800000000, expected a date and time"),
        (override(until="2027-02-30T12:00:00Z"), "expected a date and time"),
        (override(until="1969-12-31T23:59:59Z"), "expected a date and time"),
        (override(until=[UNTIL]), "found a list, expected a date and time"),
        (override(block=False), "found false, expected true"),
        (override(block="yes"), "found 'yes', expected true or false"),
        (override(block=None), "found none, expected exactly one of block, extra"),
        (override(extra=5), "found block and extra, expected exactly one of block, extra"),
        (override(block=None, extra=0), "expected a whole number from 1 to"),
        (override(block=None, extra=-5), "expected a whole number from 1 to"),
        (override(block=None, extra=1.5), "expected a whole number from 1 to"),
        (override(block=None, extra=10**15), "expected a whole number from 1 to"),
        (override(rule="export", block=None, extra=5), "cannot be larger by 5: limit is"),
        (override(blok=True, block=None), "unknown field; did you mean 'block'?"),
        ("login", "found 'login', expected an override: a mapping with rule, key"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_with_its_place(wrong: Any, told: str) -> None:
    found = refused(wrong)
    assert told in found
    assert "field 'overrides[0]" in found
    assert len(found.splitlines()) == 1


def test_two_for_one_counter_are_an_error() -> None:
    second = override(block=None, extra=5)
    assert "overrides[1].key': the rule 'login' has an override for this key already" in refused(
        override(), second
    )


def test_something_else_than_a_list_is_an_error() -> None:
    with pytest.raises(PolicyError, match=r"expected a list of overrides"):
        read_policy_data({"version": 1, "overrides": {}})


def test_there_may_be_ten_thousand_and_no_more() -> None:
    many = [override(key=f"ip={n}") for n in range(10_001)]
    assert len(read(*many[:-1])) == 10_000
    assert "10001 entries; expected at most 10000" in refused(*many)


def test_an_override_of_a_rule_with_errors_is_not_blamed_for_them() -> None:
    bad = {"id": "login", "key_by": "ip", "limit": "x"}
    problems = examine_policy_data({"version": 1, "rules": [bad], "overrides": [override()]})
    assert [problem.rule for problem in problems.problems] == ["login"]


def test_they_are_left_out_of_the_data_if_there_are_none() -> None:
    assert "overrides" not in policy_to_data(read_policy_data(policy()))


def test_an_override_as_data_has_what_it_does_and_when_it_ends() -> None:
    assert to_data(read(override())[0]) == override()
    more = override(block=None, extra=5, until="2026-11-16T12:00:00.25Z")
    assert to_data(read(more)[0]) == more


@given(
    st.integers(0, 253_402_300_799 * SECOND),
    st.none() | st.integers(1, 10**6),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=50),
)
def test_every_override_comes_back_from_its_data(until: int, extra: int | None, key: str) -> None:
    one = Override("login", key, until, extra=extra or 0, block=extra is None)
    assert read(to_data(one)) == (one,)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t01:00:00z", 3600),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1969-12-31T23:00:00-02:00", 3600),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
        ("9999-12-31T23:59:59-00:01", None),
        ("1970-01-01T01:00:60Z", None),
        ("1970-01-01T24:00:00Z", None),
        ("1970-01-01T00:00:00+24:00", None),
        ("1970-01-01T00:00:00.Z", None),
        ("1970-01-01T00:00:00.1234567891Z", None),
        ("1970-01-01T00:00:00", None),
        ("1970-01-01T00:00:00Z\n", None),
        ("1970-01-01", None),
        ("\u0661970-01-01T00:00:00Z", None),
    ],
)
def test_moments_are_read_as_the_standard_has_them(text: str, seconds: int | None) -> None:
    assert instant_ns(text) == (None if seconds is None else seconds * SECOND)


def test_fractions_of_a_second_are_exact() -> None:
    assert instant_ns("1970-01-01T00:00:01.000000001Z") == SECOND + 1
    assert instant_text(SECOND + 1) == "1970-01-01T00:00:01.000000001Z"
