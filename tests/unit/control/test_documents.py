"""Texts that become documents, and documents that become texts."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.control.documents import parse_document, summary_of, versions_after
from headgate.control.revision import Revision
from headgate.control.yaml_text import text_of
from headgate.policy.loader import examine_policies, examine_policy_data
from headgate.policy.problems import PolicyError

AWKWARD = """\
version: 1
identity:
  tier: {header: x-tier, default: 1.50}    # a name, although it looks like a number
rules:
  - id: first
    key_by: [ip, 'header:x-no']
    algorithm: token_bucket
    capacity: 1_000
    refill_rate_per_sec: 1.50
    mode: off
    headers: off
    match: {tier: [010, "007", yes], headers: {x-any: true}}
  - id: second
    key_by: global
    limits: {free: 10/s, paid: ["100/s burst 200", 1000/h]}
    cost: {default: 1, endpoints: {"POST /a": 2}, after: {bytes: true, per: 1_024, max: 9}}
    decide: quota
"""


def document(*rules: str) -> dict[str, Any]:
    return {"version": 1, "rules": [{"id": one, "key_by": "ip", "limit": "5/s"} for one in rules]}


def test_a_text_and_its_document_are_the_same_policy() -> None:
    read = parse_document([("x", AWKWARD.encode())])[0]
    assert examine_policy_data(read).policy == examine_policies([("x", AWKWARD)]).policy


def test_a_document_keeps_the_shape_that_was_written() -> None:
    text = b"version: 1\nrules:\n- id: a\n  key_by: ip\n  limit: 5/minute # five\n  cost: 2\n"
    assert parse_document([("x", text)])[0] == {
        "version": 1,
        "rules": [{"id": "a", "key_by": "ip", "limit": "5/minute", "cost": 2}],
    }


@pytest.mark.parametrize("is_yaml", [True, False])
def test_costs_afterwards_and_how_to_decide_survive_being_written(is_yaml: bool) -> None:
    cost = {"default": 2, "after": {"header": "x-tokens", "per": 10, "max": 50}}
    rule = {"id": "a", "key_by": "ip", "limit": "100/s", "cost": cost, "decide": "local"}
    one = {"version": 1, "rules": [rule]}
    assert parse_document([("x", text_of(one, is_yaml=is_yaml))])[0] == one


def test_several_texts_are_one_document() -> None:
    parts = [
        ("1", text_of(document("a"), is_yaml=True)),
        ("2", text_of(document("b"), is_yaml=False)),
    ]
    assert parse_document(parts)[0] == document("a", "b")


def test_what_is_no_policy_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(PolicyError) as caught:
        parse_document([("x", b"version: 1\nrules: [{id: a}, {id: b}]\n")])[0]
    assert {problem.rule for problem in caught.value.errors} == {"a", "b"}


@pytest.mark.parametrize("is_yaml", [True, False])
@pytest.mark.parametrize("word", ["off", "1e3", "010", "1.50", "null", "yes", "a: b", "é", "# x"])
def test_a_document_survives_being_written(word: str, is_yaml: bool) -> None:
    odd = document("a")
    odd["rules"][0] |= {"match": {"headers": {"x": [word]}}, "description": f"{word}\n{word}"}
    written = text_of(odd, is_yaml=is_yaml)
    assert examine_policies([("x", written)]).policy == examine_policy_data(odd).policy


def test_yaml_is_written_for_people() -> None:
    assert text_of(document("a"), is_yaml=True).decode() == (
        "version: 1\nrules:\n  - id: a\n    key_by: ip\n    limit: 5/s\n"
    )


def test_a_rule_has_the_number_of_the_revision_that_changed_it_last() -> None:
    before = Revision(3, document("a", "b", "c"), {"a": 1, "b": 2, "c": 3})
    after = document("b", "a", "d")
    after["rules"][1]["limit"] = "6/s"
    assert versions_after(before, after, 4) == {"b": 2, "a": 4, "d": 4}


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (document("a", "b"), "no effective change"),
        (document("b", "a"), "the order of the rules"),
        (document("a", "c"), "added c; removed b"),
        ({**document("a", "b"), "identity": {}}, "identity"),
        (document("a", "b", *"cdefghi"), "added c, d, e, f, g and 2 more"),
    ],
)
def test_a_change_is_told_in_a_few_words(after: dict[str, Any], told: str) -> None:
    assert summary_of(document("a", "b"), after) == told
