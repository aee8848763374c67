"""An edit of a policy file keeps comments, order and style of all that it does not change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.control import documents, yaml_text
from headgate.control.documents import is_text_of, parse_document
from headgate.control.yaml_text import edited_text, text_of
from headgate.policy.document import Node, Scalar, Table, parse_text
from headgate.policy.fields import number_in
from headgate.policy.problems import Diagnostics

BLOCK = """\
# The shop's limits.
version: 1   # the format

identity:
  api_key: {header: x-api-key}

rules:
  # Everybody.
  - id: per-caller
    key_by: ip        # the client's address
    limit: 5/minute

  # Ask Ada before you change this.
  - id: login
    match:
      endpoint:
        - "/login"
        - '/signin'   # the old name
    key_by: [ip, user_id]
    limit: 5/minute
  - {id: search, key_by: ip, limit: 10/s}   # short
# The end.
"""
FLUSH = """\
version: 1
rules:
- id: a
  key_by: ip
  limits:
    free: 1/s   # for nothing
    paid: 2/s
- id: b   # second
  key_by: ip
  limit: 3/s
"""
FLOW = "{version: 1, rules: [{id: a, key_by: ip, limit: 1/s}]}   # all in one\n"
ALIASES = """\
version: 1
rules:
  - {id: a, key_by: &who ip, limit: 1/s}   # the base
  - {id: b, key_by: *who, limit: 2/s}
"""


def data_of(text: bytes) -> Any:
    """The data of *text*, whether it is a policy or not: with numbers as JSON would write them."""
    root = parse_text(text, Diagnostics("<policy>"))
    pending: list[Node] = [root]
    for node in pending:
        if isinstance(node, Scalar):
            number = number_in(node.text) if node.is_plain else None
            node.number = number if str(number) == node.text else None
        else:
            pending += node.entries.values() if isinstance(node, Table) else node.items
    return documents.data_of(root)


def edited(text: str, change: Any) -> str:
    """*text* after *change* of its document, read back."""
    before = data_of(text.encode())
    after = copy.deepcopy(before)
    change(after)
    result = edited_text(text.encode(), before, after)
    assert is_text_of(after, result)
    return result.decode()


def rule(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["rules"] if one["id"] == name)
    return found


def differing(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines that are gone, and those that are new."""
    gone, come = old.splitlines(), new.splitlines()
    return [one for one in gone if one not in come], [one for one in come if one not in gone]


def test_a_changed_field_changes_its_line_alone() -> None:
    new = edited(BLOCK, lambda doc: rule(doc, "login").update(limit="6/minute"))
    assert new == BLOCK.replace(
        "    limit: 5/minute\n  - {id: search", "    limit: 6/minute\n  - {id: search"
    )


def test_a_rule_in_flow_style_stays_in_flow_style() -> None:
    new = edited(BLOCK, lambda doc: rule(doc, "search").update(limit="20/s", mode="shadow"))
    assert "  - {id: search, key_by: ip, limit: 20/s, mode: shadow} # short\n" in new
    assert new.endswith("# The end.\n")


def test_a_nested_value_keeps_what_stands_beside_it() -> None:
    def change(doc: dict[str, Any]) -> None:
        rule(doc, "login")["match"]["endpoint"][1] = "/sign-in"

    gone, come = differing(BLOCK, edited(BLOCK, change))
    assert gone == ["        - '/signin'   # the old name"]
    assert [one.split("#")[0].strip() for one in come] == ["- '/sign-in'"]


def test_a_new_rule_comes_where_it_belongs_in_the_indentation_of_the_others() -> None:
    def change(doc: dict[str, Any]) -> None:
        doc["rules"].insert(1, {"id": "new", "match": {"endpoint": ["/n"]}, "limit": "1/s"})

    new = edited(BLOCK, change)
    assert differing(BLOCK, new)[0] == []
    assert new.index("id: per-caller") < new.index("  - id: new\n    match:\n      endpoint:\n")
    assert new.index("id: new") < new.index("# Ask Ada")
    flush = edited(FLUSH, lambda doc: doc["rules"].append({"id": "c", "limit": "1/s"}))
    assert flush == FLUSH + "- id: c\n  limit: 1/s\n"


def test_a_rule_that_is_removed_takes_its_comments_along() -> None:
    new = edited(BLOCK, lambda doc: doc["rules"].remove(rule(doc, "login")))
    assert "Ada" not in new
    assert "# Everybody." in new
    assert "# short" in new
    assert differing(BLOCK, new)[1] == []


def test_a_field_that_is_removed_leaves_the_others() -> None:
    new = edited(FLUSH, lambda doc: rule(doc, "a")["limits"].pop("paid"))
    assert new == FLUSH.replace("    paid: 2/s\n", "")


def test_other_parts_of_a_policy_are_edited_too() -> None:
    override = {"rule": "login", "key": "ip=192.0.2.1", "block": True, "until": "2030-01-01T00:00Z"}

    def change(doc: dict[str, Any]) -> None:
        doc["identity"]["user_id"] = {"header": "x-user"}
        doc["overrides"] = [override]

    new = edited(BLOCK, change)
    assert "  api_key: {header: x-api-key}\n" in new
    assert "# Ask Ada" in new
    again = edited(new, lambda doc: doc.pop("overrides"))
    assert "overrides" not in again


def test_rules_in_another_order_keep_their_lines() -> None:
    new = edited(BLOCK, lambda doc: doc["rules"].reverse())
    assert sorted(new.splitlines()) == sorted(BLOCK.splitlines())


@pytest.mark.parametrize("text", [FLOW, ALIASES])
def test_a_file_that_cannot_be_cut_is_edited_as_a_whole(text: str) -> None:
    new = edited(text, lambda doc: rule(doc, "a").update(limit="9/s"))
    assert "#" in new
    assert "9/s" in new


@pytest.mark.parametrize("text", ["version: 1\nrules: []\n", "# nothing\nversion: 1\nrules:\n"])
def test_the_first_rule_of_a_file(text: str) -> None:
    def change(doc: dict[str, Any]) -> None:
        doc["rules"] = [{"id": "a", "key_by": "ip", "limit": "1/s"}]

    assert "id: a" in edited(text, change)


@pytest.mark.parametrize("value", ["yes", "010", "1e3", "~", "1_000", "a: b", "#x", "", " "])
def test_texts_that_look_like_something_else_are_quoted(value: str) -> None:
    edited(BLOCK, lambda doc: rule(doc, "login").update(description=value))


_VALUES = st.one_of(
    st.text(max_size=8),
    st.integers(-5, 10**6),
    st.booleans(),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.text(max_size=4), max_size=3),
)


@given(
    st.sampled_from([BLOCK, FLUSH, FLOW, ALIASES]),
    st.lists(
        st.tuples(
            st.sampled_from(["set", "drop", "add", "remove"]),
            st.integers(0, 3),
            st.sampled_from(["limit", "mode", "description", "match"]),
            _VALUES,
        ),
        max_size=4,
    ),
)
def test_whatever_is_edited_is_read_back_as_it_was_meant(
    text: str, edits: list[tuple[str, int, str, Any]]
) -> None:
    def change(doc: dict[str, Any]) -> None:
        for number, (what, place, name, value) in enumerate(edits):
            rules = doc["rules"]
            if what == "add":
                rules.insert(place, {"id": f"new-{number}", name: value})
            elif rules:
                one = rules[place % len(rules)]
                if what == "set":
                    one[name] = value
                elif what == "drop":
                    one.pop(name, None)
                else:
                    rules.remove(one)

    edited(text, change)


@pytest.mark.parametrize("wrong", ["rules: [", "version: 1\nrules: []\n", ""])
def test_an_edit_that_is_not_read_back_as_meant_is_not_used(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = data_of(BLOCK.encode())
    after = before | {"rules": before["rules"][:1]}
    for broken in ("_edited_parts", "_edited", "written"):
        monkeypatch.setattr(yaml_text, broken, lambda *_: wrong)
        edited = edited_text(BLOCK.encode(), before, after)
        assert data_of(edited) == after


def test_a_document_is_written_in_yaml_or_json() -> None:
    document = {"version": 1, "rules": [{"id": "a", "limit": "1/s"}]}
    for is_yaml in (True, False):
        assert data_of(text_of(document, is_yaml=is_yaml)) == document


@pytest.mark.parametrize("tier", ["1", "1.5", "2030-01-01"])
def test_a_name_that_yaml_reads_as_a_number_can_be_removed(tier: str) -> None:
    text = f"""\
version: 1
identity: {{tier: {{attribute: tier}}}}
rules:
  - id: a
    key_by: ip
    limits:
      {tier}: 1/s
      paid: 2/s
"""
    document = data_of(text.encode())
    changed = copy.deepcopy(document)
    del changed["rules"][0]["limits"][tier]
    assert data_of(edited_text(text.encode(), document, changed)) == changed


NUMBERS = """\
# The limits of the shop.
version: 1
rules:
  # ---- exports ----
  - id: exports  # for customers
    key_by: [user_id]
    limit: 2/hour
    # No burst here.

  # ---- everything else ----
  - id: all
    key_by: ip
    algorithm: token_bucket
    capacity: 1_000  # as agreed
    refill_rate_per_sec: 1.50
# The end.
"""


def test_numbers_that_json_writes_otherwise_do_not_cost_the_comments() -> None:
    text = NUMBERS.encode()
    before, _ = parse_document([("rules.yaml", text)])
    assert rule(before, "all")["capacity"] == 1000
    after = copy.deepcopy(before)
    rule(after, "exports")["limit"] = "3/hour"
    assert edited_text(text, before, after) == text.replace(b"2/hour", b"3/hour")


def test_comments_below_a_rule_stay_when_the_next_one_is_removed() -> None:
    text = NUMBERS.encode()
    before, _ = parse_document([("rules.yaml", text)])
    after = {**before, "rules": before["rules"][:1]}
    left = edited_text(text, before, after).decode()
    assert left == NUMBERS[: NUMBERS.index("\n  # ---- everything")] + "# The end.\n"


def test_comments_at_the_end_of_the_rules_stay_there() -> None:
    text = NUMBERS.encode()
    before, _ = parse_document([("rules.yaml", text)])
    added = {"id": "new", "key_by": "ip", "limit": "1/s"}
    after = {**before, "rules": [*before["rules"], added]}
    more = edited_text(text, before, after)
    lines = more.decode().splitlines()
    assert lines[-4:] == ["  - id: new", "    key_by: ip", "    limit: 1/s", "# The end."]
    assert edited_text(more, after, before) == text


def test_line_ends_of_windows_stay() -> None:
    text = NUMBERS.replace("\n", "\r\n").encode()
    before, _ = parse_document([("rules.yaml", text)])
    after = copy.deepcopy(before)
    rule(after, "exports")["limit"] = "3/hour"
    assert edited_text(text, before, after) == text.replace(b"2/hour", b"3/hour")


def test_a_text_may_be_a_number_in_one_place_and_a_name_in_another() -> None:
    text = NUMBERS.replace("key_by: ip", "key_by: ip\n    match: {headers: {x-any: 1.50}}").encode()
    before, _ = parse_document([("rules.yaml", text)])
    one = rule(before, "all")
    assert (one["match"]["headers"]["x-any"], one["refill_rate_per_sec"]) == ("1.50", 1.5)
    after = copy.deepcopy(before)
    rule(after, "exports")["limit"] = "3/hour"
    assert edited_text(text, before, after) == text.replace(b"2/hour", b"3/hour")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("{a: 1_000}", {"a": 1000}),
        ("{a: 1_000}", {"a": "1_000"}),
        (
            "{a: 'true', b: true, c: ~, d: [1, x]}",
            {"d": [1, "x"], "c": None, "b": True, "a": "true"},
        ),
    ],
)
def test_a_text_says_a_document(text: str, data: dict[str, Any]) -> None:
    assert is_text_of(data, text.encode())


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("{a: '1000'}", {"a": 1000}),
        ("{a: 1}", {"a": True}),
        ("{a: true}", {"a": "true"}),
        ("{a: true}", {"a": 1}),
        ("{a: ~}", {"a": ""}),
        ("{a: 1}", {"a": 1, "b": 2}),
        ("{a: 1, b: 2}", {"a": 1}),
        ("{a: [1]}", {"a": [1, 2]}),
        ("{a: [1]}", {"a": {"1": 1}}),
        ("{a: {b: 1}}", {"a": [1]}),
        ("{a: x}", {"a": None}),
    ],
)
def test_a_text_does_not_say_another_document(text: str, data: dict[str, Any]) -> None:
    assert not is_text_of(data, text.encode())
