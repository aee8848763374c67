"""Shape: what is refused before anybody asks what it means, and where.

That a refusal is quick is held by the time limit on every test.
"""

from typing import Any

import pytest

from headgate.policy import document
from headgate.policy.document import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    Node,
    Scalar,
    Table,
    parse_data,
    parse_text,
)
from headgate.policy.loader import examine_policy, examine_policy_data, read_policy
from headgate.policy.problems import Diagnostics, PolicyError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)
)
DEEP = f"nested too deeply; at most {MAX_DEPTH} levels are read"
LARGE = f"too large; at most {MAX_NODES} values are read, aliases counted in full"
HUGE = f"too large; at most {MAX_BYTES} bytes (1 MiB) are read"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        pytest.param("[" * 10_000, "1:33", DEEP, id="deep-list"),
        pytest.param("{a: " * 10_000, "1:129", DEEP, id="deep-mapping"),
        pytest.param('{"a":' * 10_000, "1:161", DEEP, id="deep-json"),
        pytest.param("- " * 500_000, "1:65", DEEP, id="deep-block"),
        pytest.param("? " * 500_000, "1:65", DEEP, id="deep-keys"),
        pytest.param(BOMB, "6:10", LARGE, id="aliases"),
        pytest.param("[" + "a," * 200_000 + "]", "1:200002", LARGE, id="many"),
        pytest.param("[" + "1," * 200_000 + "1]", "1:200002", LARGE, id="many-json"),
        pytest.param("a" * 10_000_000, "", HUGE, id="ten-megabytes"),
        pytest.param(b"a" * 10_000_000, "", HUGE, id="ten-megabytes-raw"),
        pytest.param("é" * 600_000, "", HUGE, id="more-bytes-than-letters"),
        pytest.param("version: 1\0", "1:11", "the character U+0000 may not be in it", id="nul"),
        pytest.param("a: \ud800", "1:4", "the character U+D800 may not be in it", id="surrogate"),
        pytest.param(
            b"version: 1\nx: \xff", "2:4", "not UTF-8: the byte 0xFF does not belong", id="bytes"
        ),
        pytest.param("version: 1\n\trules: []", "2:1", "not YAML: while scanning", id="tab"),
        pytest.param("\tversion: 1", "1:1", "not YAML: a character that nothing", id="first-tab"),
        pytest.param("a: 1\n---\na: 1", "2:1", "a second document begins here", id="documents"),
        pytest.param("[a]: 1", "1:1", "a list cannot be a key", id="list-key"),
        pytest.param("{a: 1}: 1", "1:1", "a mapping cannot be a key", id="mapping-key"),
        pytest.param("null: 1", "1:1", "nothing cannot be a key", id="null-key"),
        pytest.param("? \n: 1", "1:2", "nothing cannot be a key", id="no-key"),
        pytest.param("true: 1", "1:1", "true cannot be a key", id="boolean-key"),
        pytest.param(
            "version: 1\nversion: 1", "2:1", "'version' is given twice; the first is in line 1"
        ),
        pytest.param('{"a": 1,\n"a": 1}', "2:1", "'a' is given twice; the first is in line 1"),
        pytest.param("a: &a [*a]", "1:8", "the alias 'a' stands for nothing before it", id="loop"),
        pytest.param("a: {<<: 1}", "1:5", "merge keys ('<<') are not read", id="merge"),
        pytest.param(
            "a: !!python/object/apply:os.system [x]",
            "1:4",
            "the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not read",
            id="tag",
        ),
        pytest.param("a: !!str 5", "1:4", "the tag 'tag:yaml.org,2002:str' is not read"),
        pytest.param("", "", "there is nothing in it", id="empty"),
        pytest.param("# only this\n", "", "there is nothing in it", id="comment"),
        pytest.param("null", "", "there is nothing in it", id="null"),
        pytest.param("a: 'x", "1:6", "not YAML: while scanning a quoted scalar", id="quote"),
        pytest.param("a: b: c", "1:5", "not YAML: mapping values are not allowed", id="colons"),
        pytest.param("%YAML 9.9\n---\na: 1", "1:1", "not YAML: found incompatible", id="yaml-9"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    text: str | bytes, place: str, message: str
) -> None:
    examined = examine_policy(text, where="f")
    assert examined.policy is None
    first = next(problem for problem in examined.problems if problem.message.startswith(message))
    assert first.severity == "error"
    assert first.place == (f"f:{place}" if place else "f")


@pytest.mark.parametrize("text", ["hello", "5", '"x"', "[]", "- a", "true"])
def test_what_is_no_mapping_is_no_policy(text: str) -> None:
    (problem,) = examine_policy(text).problems
    assert "expected a policy: a mapping with version, identity, rules" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffversion: 1\nrules: []",
        "version: 1\r\nrules: []\r\n",
        "---\nversion: 1\nrules: []\n...\n",
        "{version: 1, rules: [],}",
        '{"version": 1, "rules": [],}',
        ' \n {"version": 1, "rules": []} \n',
        '{"version"\t:\t1}',
    ],
)
def test_ordinary_spellings_of_a_document_are_read(text: str) -> None:
    assert read_policy(text).rules == ()
    assert read_policy(text.encode()).rules == ()


def test_plain_aliases_are_read() -> None:
    policy = read_policy(
        "version: 1\nrules:\n"
        "  - {id: a, key_by: &who [tenant, ip], limit: &much 5/s, match: &m {method: GET}}\n"
        "  - {id: b, key_by: *who, limits: [*much, 9/m], match: *m}\n"
    )
    first, second = policy.rules
    assert (first.key_by, first.match) == (second.key_by, second.match)


def _grown(text: str) -> Node:
    return parse_text(text, Diagnostics("f"))


def test_json_and_yaml_grow_the_same_tree() -> None:
    text = '{"a": [1, -2.5e3, "x", true, null, {}], "b": {"c": []}, "d": "\\n"}'
    assert _shape(_grown(text)) == _shape(_grown("---\n" + text))


def _shape(node: Node) -> Any:
    if isinstance(node, Scalar):
        return (node.text, node.is_plain)
    if isinstance(node, Table):
        return {name: _shape(value) for name, value in node.entries.items()}
    return [_shape(item) for item in node.items]


def test_json_knows_what_yaml_does_not() -> None:
    root = _grown('{"a": "\\ud83d\\ude00\\/"}')
    assert isinstance(root, Table)
    assert root.entries["a"].text == "\N{GRINNING FACE}/"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('{"version": 1,}', "1:15", "expecting property name enclosed in double quotes"),
        ('{"version": 01}', "1:14", "expecting ',' delimiter"),
        ('{"version" 1}', "1:12", "expecting ':' delimiter"),
        ('{"a": "\\x"}', "1:8", "invalid \\escape"),
        ('{"a":\n nope}', "2:2", "expecting value"),
        ('{"a": 1', "1:8", "expecting ',' delimiter"),
        ('{"a": 1} x', "1:10", "extra data"),
        ('{"a": NaN}', "", "it has no NaN"),
    ],
)
def test_without_pyyaml_a_flaw_in_json_is_pointed_at(
    text: str, place: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "yaml", None)
    (problem,) = examine_policy(text, where="f").problems
    assert problem.place == (f"f:{place}" if place else "f")
    assert problem.message.startswith(f"not JSON: {message}")
    assert problem.hint == "to read YAML: pip install 'headgate[rules]'"


def test_without_pyyaml_json_is_read_and_yaml_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document, "yaml", None)
    assert read_policy('{"version": 1, "rules": []}').rules == ()
    with pytest.raises(PolicyError, match=r"pip install 'headgate\[rules\]'"):
        read_policy("version: 1\n")


def test_a_broken_json_file_is_not_called_yaml() -> None:
    (problem,) = examine_policy('{"version": 1 "rules": []}', where="rules.json").problems
    assert str(problem) == "rules.json:1:15: error: not JSON: expecting ',' delimiter"
    assert read_policy('{"version": 1,}', where="rules.json").rules == ()


def test_without_the_c_parser_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("yaml.CSafeLoader")
    assert read_policy("version: 1\nrules: []\n").rules == ()
    (problem,) = examine_policy("[" * 1_000).problems
    assert problem.message == DEEP


def _circle() -> list[object]:
    circle: list[object] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_circle(), DEEP),
        ([1] * (MAX_NODES + 1), LARGE),
        ({1: 2}, "a key of type int; expected text"),
        ({None: 2}, "a key of type NoneType; expected text"),
        ({"version": 10**400}, "found a number too large to be read"),
        ({"version": object()}, "found object; expected text, a number"),
        ({"version": {1, 2}}, "found set; expected text"),
        ({"version": float("nan")}, "found 'nan', expected a whole number"),
        ({"version": float("inf")}, "found 'inf', expected a whole number"),
    ],
)
def test_data_that_no_json_parser_makes_is_refused(data: object, message: str) -> None:
    examined = examine_policy_data(data)
    assert examined.policy is None
    assert any(problem.message.startswith(message) for problem in examined.problems)


def test_tuples_and_other_mappings_are_data_too() -> None:
    root = parse_data({"a": (1, 2.5, "x")}, Diagnostics("f"))
    assert _shape(root) == {"a": [("1", True), ("2.5", True), ("x", False)]}


@pytest.mark.parametrize(("limit", "column"), [("5/minut", 66), (r"5\/minut", 63)])
def test_a_place_within_a_json_text_is_exact_unless_it_has_escapes(limit: str, column: int) -> None:
    text = f'{{"version": 1, "rules": [{{"id": "a", "key_by": "ip", "limit": "{limit}"}}]}}'
    (problem,) = examine_policy(text, where="rules.json").problems
    assert (problem.line, problem.column) == (1, column)


def test_the_size_of_a_text_is_that_of_its_bytes() -> None:
    (problem,) = examine_policy("# " + "é" * (MAX_BYTES // 2)).problems
    assert problem.message.startswith("too large; at most 1048576 bytes")
