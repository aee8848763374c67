"""The schema and the reader: what the one refuses the other refuses."""

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from headgate.policy.limit_forms import FORMS, LONG_FIELDS
from headgate.policy.loader import examine_policy_data, policy_to_data, read_policy_data
from headgate.policy.model import (
    AccuracyFields,
    AddressSource,
    After,
    Cost,
    FailureFields,
    Idempotency,
    Match,
    Override,
    Source,
)
from headgate.policy.policy_document import PolicyDocument, RuleDocument, policy_schema
from headgate.policy.tables import known_fields
from tests.examples import example_count
from tests.golden.command_line import CORPUS

SOURCE_FIELDS = known_fields(Source).names
ADDRESS_FIELDS = known_fields(AddressSource).names
COST_FIELDS = known_fields(Cost).names
AFTER_FIELDS = known_fields(After).names
MATCH_FIELDS = known_fields(Match).names
OVERRIDE_FIELDS = known_fields(Override).names
RULE_FIELDS = known_fields(RuleDocument).names


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(policy_schema())


def rule(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "key_by": "ip", "limit": "100/s"} | fields


def limited(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "key_by": "ip"} | fields


def each(
    field: str, *values: Any, of: Callable[..., dict[str, Any]] = rule
) -> list[dict[str, Any]]:
    """Rules that differ in *field*, or in a field of it after a dot."""
    outer, _, inner = field.partition(".")
    return [of(**{outer: {inner: value} if inner else value}) for value in values]


GOOD_RULES: list[dict[str, Any]] = [
    rule(),
    rule(id=404),
    rule(key_by=["tenant", "header:x"]),
    rule(description="x\ny"),
    *each("mode", "enforce", "shadow", "off", False),
    *each("headers", "on", "brief", "off", "redacted", True, False),
    *each("on_store_failure", "fail_open", "fail_closed", "local"),
    rule(accuracy={"max_overshoot": "0.5 %"}),
    rule(accuracy={"batch": 10.0}),
    rule(accuracy={"max_overshoot": "1%", "batch": 1, "split": 4}),
    rule(accuracy={"split": 4}),
    *each("accuracy.sync", 1, "100ms"),
    *each("accuracy.denials", 1, "500ms", "off", False),
    *each("on_store_failure", {}, {"mode": "local", "share": "25%"}),
    rule(on_store_failure={"max_fail_open": "5m", "then": "local"}),
    *each("across_regions", True, False),
    *each("idempotency", True, False, {}, {"ttl": "1h"}, {"header": "x"}, {"retries": 1}),
    *each("idempotency", {"fingerprint": "x"}, {"fingerprint": ["x", "y"]}),
    *each("cost", 0, 5, {}, {"default": 5}, {"header": "x", "max": 5}),
    rule(cost={"endpoints": {"POST /x": 3, "/y/**": 0}}),
    *each("cost.after", {"header": "X-Tokens"}, {"bytes": True}),
    rule(cost={"default": 2, "endpoints": {"/x": 3}, "after": {"header": "x", "per": 5, "max": 9}}),
    *each("decide", "exact", "quota", "local"),
    rule(match={"endpoint": "/a", "method": "get", "host": "a.b", "tier": 5}),
    rule(match={"endpoint": ["/a", "/b"], "method": ["GET"], "host": ["*"], "tier": ["x", 1]}),
    rule(match={"headers": {"a": True, "b": 5, "c": ["x", 1.5]}, "cookies": {"a": "b"}}),
    rule(match={"attributes": {"any name": "x"}}),
    rule(match={}),
    limited(limit=" 100 per 5 minutes burst 200; 1_000/h gcra"),
    limited(limits="5/s"),
    limited(limits=["5/s", {"algorithm": "concurrency", "limit": 5, "ttl": 1.5}]),
    limited(limits={"free": "5/s", "default": ["6/s", "7/m"]}),
    limited(limits={"free": {"algorithm": "gcra", "burst": 5, "rate_per_sec": 0.1}}),
    limited(limits={"algorithm": "gcra", "burst": 5, "rate_per_sec": 0.1}),
    limited(algorithm="token_bucket", capacity=5, refill_rate_per_sec=1.67),
    limited(algorithm="gcra", burst=5, rate_per_sec=1),
    limited(algorithm="leaky_bucket", capacity=5, leak_rate_per_sec=1),
    limited(algorithm="fixed_window", limit=5, window="1 minute"),
    limited(algorithm="sliding_window_log", limit=5, window=60),
    limited(algorithm="sliding_window_counter", limit=5, window="m", subwindows=3),
    limited(algorithm="concurrency", limit=5, ttl="30s"),
    limited(algorithm="sliding_window_log", limit="10/minute"),
    limited(limits=[{"algorithm": "gcra", "limit": "10/minute burst 5"}]),
]
GOOD_IDENTITIES: list[Any] = [
    {},
    {"team": {"header": "x-team", "default": 5, "secret": True}},
    {"team": {"cookie": "t"}, "other": {"attribute": "some thing"}},
    {"tier": {"lookup": "api_key", "values": {"k": "paid", "2": 3}, "default": "free"}},
    {"ip": {"trusted_proxies": "10.0.0.0/8", "ipv4_prefix": 24, "ipv6_prefix": 48, "header": "x"}},
    {"ip": {"trusted_proxies": ["::1"]}, "fallback": "skip"},
]
UNTIL = "2027-01-31T12:00:00Z"


def overridden(**fields: Any) -> dict[str, Any]:
    """A policy with one override, as good as its *fields*; those that are None are left out."""
    whole = {"rule": "a", "key": "ip=1.2.3.4", "block": True, "until": UNTIL} | fields
    one = {name: value for name, value in whole.items() if value is not None}
    return {"version": 1, "rules": [rule()], "overrides": [one]}


def tried(**fields: Any) -> dict[str, Any]:
    """A policy with a rule and a candidate of it, as good as its *fields*."""
    trial = rule(id="b", limit="50/s", mode="shadow", candidate_of=404) | fields
    return {"version": 1, "rules": [rule(id=404), trial]}


GOOD: list[Any] = [
    {"version": 1},
    *(tried(mode=mode) for mode in ("shadow", "off", False)),
    tried(candidate_of="404"),
    {"version": 1.0, "rules": []},
    *({"version": 1, "rules": [one]} for one in GOOD_RULES),
    *({"version": 1, "identity": one, "rules": []} for one in GOOD_IDENTITIES),
    {"version": 1, "rules": [], "overrides": []},
    overridden(),
    overridden(block=None, extra=500, until="2027-01-31t12:00:00.5-01:00"),
    overridden(key=5),
]

BAD_RULES: list[Any] = [
    None,
    "login",
    {},
    {"id": "a", "limit": "1/s"},
    {"key_by": "ip", "limit": "1/s"},
    limited(),
    rule(limt="5/s"),
    *each("id", "", "a b", None, True, "x" * 101, []),
    *each("key_by", "", [], None, True, {}, [[]]),
    *each("limit", 5, "", "5", "x/s", None, [], {}, "5/s" + " " * 1000, of=limited),
    *each("limits", 5, [], {}, None, "x", {"a": 5}, [[]], ["5/s"] * 17, of=limited),
    limited(limits={"": "5/s"}),
    rule(limits=["5/s"]),
    rule(algorithm="gcra", burst=5, rate_per_sec=1),
    limited(limits=["5/s"], algorithm="gcra", burst=5, rate_per_sec=1),
    limited(limits=[{"algorithm": "gcra", "burst": 5}]),
    limited(limits=[{"algorithm": "gcra", "burst": 5, "rate_per_sec": 1, "x": 1}]),
    limited(algorithm="gcr", burst=5, rate_per_sec=1),
    limited(algorithm="gcra", burst=5, rate_per_sec=0),
    limited(algorithm="gcra", burst="5", rate_per_sec=1),
    limited(algorithm="gcra", burst=5, rate_per_sec=1, window=3),
    limited(algorithm="token_bucket", capacity=5),
    limited(capacity=5, refill_rate_per_sec=1),
    limited(algorithm="fixed_window", limit=5, window="1:30"),
    limited(algorithm="fixed_window", limit="5/s", window=5),
    limited(algorithm="sliding_window_counter", limit=5, window=5, subwindows=0),
    limited(algorithm="concurrency", limit="5/s"),
    limited(algorithm="gcra", limit="5"),
    *each("mode", "of", True, None, 0, []),
    *each("headers", "yes", None, 1, {}),
    *each("on_store_failure", "open", None, False, {"mode": "open"}, {"share": 1}, {"then": "x"}),
    *each("accuracy", 1, {}, {"max_overshoot": 0.1}, {"batch": 0}, "exact"),
    *each("accuracy", {"batch": 1, "split": 65}, {"sync": []}, {"denials": True}),
    *each("accuracy", {"max_overshoot": "101%"}, {"max_overshoot": "0.0%"}, {"split": 0}),
    rule(on_store_failure={"mode": "fail_closed", "share": "50%"}),
    rule(on_store_failure={"mode": "local", "max_fail_open": "1m"}),
    rule(on_store_failure={"then": "local"}),
    *each("across_regions", "yes", None),
    *each("idempotency", None, "yes", {"ttl": -1}, {"x": 1}, {"ttl": "?"}, {"retries": 0}),
    *each(
        "idempotency", {"retries": 1001}, {"fingerprint": []}, {"fingerprint": list("abcdefghi")}
    ),
    *each("cost", -1, 1.5, "5", None, {"header": "x"}, {"max": 5}, {"x": 1}),
    *each("cost.endpoints", {}, {"/x": -1}, [], {"/x": "1"}),
    *each("cost.after", None, 5, {}, {"bytes": False}, {"bytes": 1}, {"header": "a b"}),
    *each("cost.after", {"header": "x", "bytes": True}, {"header": "x", "pre": 5}),
    *each("cost.after", *({"bytes": True, name: n} for name in ("per", "max") for n in (0, 1.5))),
    rule(cost={"default": 0, "after": {"bytes": True}}),
    rule(cost={"endpoints": {"/x": 0}, "after": {"bytes": True}}),
    rule(cost={"header": "x", "max": 5, "after": {"bytes": True}}),
    rule(cost={"max": 5, "after": {"bytes": True}}),
    *each("decide", "exactly", None, True, []),
    *each("match", None, [], {"path": "/a"}, {"endpoint": "a"}),
    *each("match.endpoint", [], None, 5, ["a"], {}),
    *each("match.headers", {}, {"a": None}, {"a": False}, {"a": []}),
    *each("match.headers", {"a b": "c"}, {"a": [True]}, {"a": {}}),
    rule(match={"method": "GET POST"}),
    rule(description=None),
]
BAD_IDENTITIES: list[Any] = [
    None,
    [],
    {"global": {"header": "x"}},
    {"a:b": {"header": "x"}},
    {"team": "x"},
    {"team": {}},
    {"team": {"header": "x", "cookie": "y"}},
    {"team": {"lookup": "api_key"}},
    {"team": {"header": "x", "values": {"a": "b"}}},
    {"team": {"header": "x", "secret": "yes"}},
    {"team": {"header": "a b"}},
    {"team": {"header": "x", "default": None}},
    {"ip": {"ipv4_prefix": 33}},
    {"ip": {"trusted_proxies": []}},
    {"ip": {"trusted_proxies": [5]}},
    {"fallback": "none"},
]
BAD: list[Any] = [
    None,
    [],
    {},
    {"version": 2},
    {"version": "1"},
    {"version": True},
    {"version": 1, "rules": {}},
    {"version": 1, "rules": None},
    {"version": 1, "rule": []},
    *({"version": 1, "rules": [one]} for one in BAD_RULES),
    *({"version": 1, "identity": one} for one in BAD_IDENTITIES),
    {"version": 1, "overrides": {}},
    {"version": 1, "overrides": ["a"]},
    *(overridden(rule=value) for value in (None, "", "a b", True)),
    *(overridden(key=value) for value in (None, "", "a b", "x" * 4097, True)),
    *(overridden(until=value) for value in (None, "", UNTIL[:-1], "soon", 1_800_000_000, True)),
    *(overridden(block=value) for value in (None, False, "true", 1)),
    *(overridden(block=None, extra=value) for value in (0, -1, 1.5, "5", True, 10**15)),
    overridden(extra=5),
    overridden(note="x"),
    *(tried(candidate_of=value) for value in ("", "a b", None, True)),
    tried(mode="enforce"),
    {"version": 1, "rules": [rule(id="b"), rule(candidate_of="b")]},
]
ONLY_THE_READER: list[Any] = [
    {"version": 1, "rules": [one]}
    for one in (
        rule(key_by="nobody"),
        rule(cost=101),
        limited(limit="5/fortnight"),
        limited(limits={"free": "5/s"}, match={"tier": "paid"}),
        rule(match={"endpoint": "/a**"}),
        rule(match={"host": "a:80"}),
        rule(accuracy={"sync": 0.0001}),
        limited(algorithm="concurrency", limit=5, ttl=9, cost={"after": {"bytes": True}}),
    )
]
ONLY_THE_READER += [
    tried(candidate_of="c"),
    tried(candidate_of="b"),
    overridden(rule="b"),
    overridden(until="2027-02-30T12:00:00Z"),
    overridden(block=None, extra=10**15 - 1),
    {**overridden(), "overrides": overridden()["overrides"] * 2},
]


def agree(data: Any) -> None:
    """What the reader accepts the schema accepts, and so the other way round for refusals."""
    if examine_policy_data(data).policy is not None:
        assert [error.message for error in validator().iter_errors(data)] == []


@pytest.mark.parametrize("data", GOOD, ids=str)
def test_both_accept_what_is_good(data: Any) -> None:
    assert [error.message for error in validator().iter_errors(data)] == []
    assert examine_policy_data(data).policy is not None, examine_policy_data(data).problems


@pytest.mark.parametrize("data", BAD, ids=lambda data: str(data)[:100])
def test_both_refuse_what_is_bad(data: Any) -> None:
    assert not validator().is_valid(data)
    assert examine_policy_data(data).policy is None


@pytest.mark.parametrize("data", ONLY_THE_READER, ids=str)
def test_the_reader_knows_more(data: Any) -> None:
    assert validator().is_valid(data)
    assert examine_policy_data(data).policy is None


@pytest.mark.parametrize("data", GOOD, ids=str)
def test_what_a_policy_is_written_as_fits_the_schema(data: Any) -> None:
    written = policy_to_data(read_policy_data(data))
    assert [error.message for error in validator().iter_errors(written)] == []


def test_both_judge_the_recorded_documents_alike_except_where_the_reader_knows_more() -> None:
    documents = json.loads((CORPUS / "policy_data.json").read_text("utf-8"))
    verdicts = Counter(
        (examine_policy_data(data).policy is not None, validator().is_valid(data))
        for data in documents
    )
    assert verdicts == {(True, True): 123, (False, False): 273, (False, True): 27}


def test_it_is_a_schema_and_plain_json() -> None:
    schema = policy_schema()
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


def test_it_names_exactly_the_fields_that_the_reader_knows() -> None:
    schema = policy_schema()
    parts = schema["$defs"]
    models = (
        RuleDocument,
        Match,
        Source,
        AddressSource,
        Override,
        Cost,
        After,
        AccuracyFields,
        FailureFields,
        Idempotency,
    )
    for model in models:
        assert tuple(parts[model.__name__]["properties"]) == known_fields(model).names
    assert tuple(schema["properties"]) == known_fields(PolicyDocument).names
    assert set(parts["LongLimit"]["properties"]) == set(LONG_FIELDS)
    titles = [form["title"] for form in parts["LongLimit"]["oneOf"]]
    assert titles == [*FORMS, "a text with its algorithm"]


def _examples(schema: Any) -> list[tuple[Any, Any]]:
    """Every example in *schema*, with the part of the schema that has it."""
    if isinstance(schema, list):
        return [found for item in schema for found in _examples(item)]
    if not isinstance(schema, dict):
        return []
    own = [(schema, example) for example in schema.get("examples", ())]
    inner = [value for name, value in schema.items() if name not in ("examples", "const", "enum")]
    return own + _examples(inner)


def test_every_example_in_it_fits() -> None:
    schema = policy_schema()
    found = _examples(schema)
    assert len(found) > 20
    for part, example in found:
        whole = {"$defs": schema["$defs"], **part}
        assert Draft202012Validator(whole).is_valid(example), (part, example)


def test_every_field_says_what_it_is_for() -> None:
    parts = policy_schema()["$defs"]
    for name, value in parts["RuleDocument"]["properties"].items():
        told = value if "$ref" not in value else {**parts[value["$ref"].split("/")[-1]], **value}
        assert told.get("description"), name


ANYTHING: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.sampled_from(["ip", "5/s", "/a", "off", "gcra", "1%", "30s", "a", "x-a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=2) | st.sampled_from(["default", "a"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)


@settings(max_examples=example_count(400))
@given(st.sampled_from(GOOD_RULES), st.sampled_from(RULE_FIELDS), ANYTHING)
def test_they_agree_on_rules_with_anything_in_a_field(
    good: dict[str, Any], field: str, value: Any
) -> None:
    agree({"version": 1, "rules": [good | {field: value}]})


@settings(max_examples=example_count(200))
@given(st.sampled_from(MATCH_FIELDS), ANYTHING)
def test_they_agree_on_a_match_with_anything_in_a_field(field: str, value: Any) -> None:
    agree({"version": 1, "rules": [rule(match={field: value})]})


@settings(max_examples=example_count(200))
@given(
    st.sampled_from((*SOURCE_FIELDS, *ADDRESS_FIELDS)), ANYTHING, st.sampled_from(["ip", "team"])
)
def test_they_agree_on_identity_with_anything_in_a_field(field: str, value: Any, name: str) -> None:
    agree({"version": 1, "identity": {name: {"header": "x", field: value}}})


@settings(max_examples=example_count(200))
@given(st.sampled_from(COST_FIELDS), ANYTHING, st.sampled_from(AFTER_FIELDS), ANYTHING)
def test_they_agree_on_costs_afterwards_with_anything_in_a_field(
    field: str, value: Any, inner: str, amount: Any
) -> None:
    after = {"header": "x", inner: amount}
    agree({"version": 1, "rules": [rule(cost={"after": after, field: value})]})
    agree({"version": 1, "rules": [rule(cost={field: value, "after": {"bytes": True}})]})


@settings(max_examples=example_count(200))
@given(st.sampled_from(OVERRIDE_FIELDS), ANYTHING)
def test_they_agree_on_an_override_with_anything_in_a_field(field: str, value: Any) -> None:
    agree(overridden(**{field: value}))


def test_what_a_method_is_said_to_be_for_includes_heads() -> None:
    definitions = policy_schema()["$defs"]
    for place, field in (("Match", "method"), ("Cost", "endpoints")):
        assert "GET is for HEAD too" in definitions[place]["properties"][field]["description"]
