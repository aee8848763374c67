"""From text to a policy: the example of the design, several files, data, one rule."""

import json
from fractions import Fraction
from ipaddress import ip_network
from typing import Any

import pytest

from headgate.decision import OnFailure
from headgate.limits import Accuracy, SlidingWindowLog, TokenBucket
from headgate.policy.loader import (
    examine_policies,
    examine_policy,
    examine_policy_data,
    read_policy,
    read_policy_data,
)
from headgate.policy.model import (
    AddressSource,
    Cost,
    EndpointCost,
    Identity,
    Match,
    Policy,
    Rule,
    Source,
)
from headgate.policy.problems import PolicyError

DESIGN = """\
version: 1
identity:                       # how to tell who is asking
  api_key: {header: x-api-key}
  user_id: {header: x-user-id}
  tenant:  {header: x-tenant-id}
  tier:    {header: x-tier, default: free}
  ip:      {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
rules:
  - id: login-brute-force
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute sliding_window_log
    on_store_failure: fail_closed
  - id: free-tier-default       # the long form means the same as `limit: ...`
    match: {endpoint: /api/v1/*, tier: free}
    algorithm: token_bucket
    capacity: 100
    refill_rate_per_sec: 1.67
    key_by: api_key
    on_store_failure: fail_open
  - id: per-tier
    match: {endpoint: /api/**}
    key_by: [tenant, endpoint]
    limits: {free: 10/s, paid: "100/s burst 200", enterprise: 1000/s}   # by tier
    cost: {default: 1, endpoints: {"POST /export/pdf": 10}}
    mode: shadow                # enforce | shadow | off
    accuracy: {max_overshoot: 1%}
"""

MEANT = Policy(
    rules=(
        Rule(
            id="login-brute-force",
            match=Match(endpoints=("/login",), methods=("POST",)),
            key_by=("ip",),
            limits={None: (SlidingWindowLog(5, 60),)},
            on_failure=OnFailure("fail_closed"),
        ),
        Rule(
            id="free-tier-default",
            match=Match(endpoints=("/api/v1/*",), tiers=("free",)),
            key_by=("api_key",),
            limits={None: (TokenBucket(100, 1.67),)},
        ),
        Rule(
            id="per-tier",
            match=Match(endpoints=("/api/**",)),
            key_by=("tenant", "endpoint"),
            limits={
                "free": (TokenBucket(10, 10),),
                "paid": (TokenBucket(200, 100),),
                "enterprise": (TokenBucket(1000, 1000),),
            },
            cost=Cost(1, (EndpointCost("/export/pdf", 10, "POST"),)),
            mode="shadow",
            accuracy=Accuracy(max_overshoot=Fraction(1, 100)),
        ),
    ),
    identity=Identity(
        sources={
            "api_key": Source(header="x-api-key", secret=True),
            "user_id": Source(header="x-user-id"),
            "tenant": Source(header="x-tenant-id"),
            "tier": Source(header="x-tier", default="free"),
        },
        address=AddressSource(trusted_proxies=(ip_network("10.0.0.0/8"),)),
    ),
)


UNKNOWN = "unknown field; did you mean"
UNHEARD_OF = "'api_kye' is not a part of a key; did you mean"
NO_LIMIT = (
    "not a limit, at character 6: 'burts' does not belong here; did you mean 'burst'?; "
    "expected 'burst N' or 'subwindows N' or 'peak N/unit for T' or an algorithm"
)


def rule(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "key_by": "ip", "limit": "5/s"} | fields


def test_the_example_of_the_design_is_the_policy_it_means() -> None:
    (open_end,) = examine_policy(DESIGN).problems  # of a tier that the caller makes up
    assert (open_end.severity, open_end.rule, open_end.field) == ("warning", "per-tier", "limits")
    assert read_policy(DESIGN) == MEANT
    assert read_policy(DESIGN.encode()) == MEANT


def test_all_errors_come_at_once_with_their_places_and_the_nearest_words() -> None:
    text = DESIGN.replace("    limit: 5", "    limt: 5").replace("shadow  ", "shadwo  ")
    text = text.replace("key_by: api_key", "key_by: api_kye").replace("10/s,", "10/s burts 5,")
    with pytest.raises(PolicyError) as caught:
        read_policy(text, where="rules.yaml")
    lines = str(caught.value).splitlines()
    assert [line.partition(" (")[0].removeprefix("rules.yaml:") for line in lines] == [
        f"12:5: error: rule 'login-brute-force', field 'limt': {UNKNOWN} 'limit'?",
        f"19:13: error: rule 'free-tier-default', field 'key_by': {UNHEARD_OF} 'api_key'?",
        f"24:25: error: rule 'per-tier', field 'limits.free': {NO_LIMIT}",
        "26:11: error: rule 'per-tier', field 'mode': found 'shadwo'; did you mean 'shadow'?",
    ]


def test_data_has_paths_instead_of_lines() -> None:
    data = {"version": 1, "rules": [rule(), rule(id="b", cost={"header": "x", "max": "9"})]}
    (problem,) = examine_policy_data(data, where="PUT").problems
    assert (problem.line, problem.column, problem.rule) == (None, None, "b")
    assert problem.field == "rules[1].cost.max"
    assert str(problem).startswith("PUT: error: rule 'b', field 'rules[1].cost.max': found '9'")
    assert problem.hint == "write it without quotes"


def test_data_text_in_json_and_text_in_yaml_are_the_same_policy() -> None:
    data = {"version": 1, "rules": [rule(match={"endpoint": ["/a", "/b"], "method": "get"})]}
    policy = read_policy_data(data)
    assert policy.rules[0].match == Match(endpoints=("/a", "/b"), methods=("GET",))
    assert read_policy(json.dumps(data)) == policy
    assert read_policy(json.dumps(data, indent="\t")) == policy
    assert read_policy("# not JSON\n" + json.dumps(data)) == policy


@pytest.mark.parametrize("version", ["2", "'1'", "one", "", "true", "1.5", "0x1", "01"])
def test_only_version_one_is_read(version: str) -> None:
    (problem, *_) = examine_policy(f"version: {version}\nrules: []\n").problems
    assert problem.field == "version"
    assert problem.severity == "error"


def test_a_policy_without_a_version_is_refused() -> None:
    (problem,) = examine_policy("rules: []\n").problems
    assert str(problem) == "<policy>:1:1: error: field 'version': missing; expected version: 1"


@pytest.mark.parametrize("text", ["version: 1\n", "version: 1\nrules: []\n"])
def test_a_policy_without_rules_is_valid_and_warned_of(text: str) -> None:
    examined = examine_policy(text)
    assert examined.policy == Policy()
    assert [problem.severity for problem in examined.problems] == ["warning"]


@pytest.mark.parametrize("rules", ["", "{}", "no", "{id: a}"])
def test_rules_must_be_a_list(rules: str) -> None:
    (problem,) = examine_policy(f"version: 1\nrules: {rules}\n").problems
    assert problem.message.endswith("expected a list of rules ([] for none)")


@pytest.mark.parametrize("item", ["5", "null", "[]", "text"])
def test_a_rule_must_be_a_mapping(item: str) -> None:
    (problem,) = examine_policy(f"version: 1\nrules: [{item}]\n").problems
    assert "expected a rule: a mapping with id" in problem.message


def test_two_rules_with_one_id_are_refused() -> None:
    data = {"version": 1, "rules": [rule(), rule(limit="6/s")]}
    (problem,) = examine_policy(json.dumps(data), where="r.json").problems
    assert problem.message == "the id is taken by the rule at r.json:1"
    assert problem.field == "id"


def test_a_twin_of_another_rule_is_warned_of() -> None:
    data = {"version": 1, "rules": [rule(), rule(id="b")]}
    examined = examine_policy_data(data)
    assert examined.policy is not None
    (problem,) = examined.problems
    assert problem.message == "the same match, key_by and limits as in the rule 'a'"


def test_several_files_are_one_policy_in_their_order() -> None:
    policy = examine_policies(
        [
            ("10.yaml", "version: 1\nidentity: {team: {header: x-team}}\n"),
            ("20.json", json.dumps({"version": 1, "rules": [rule(key_by="team")]})),
            ("30.yaml", "version: 1\nrules: [{id: b, key_by: team, limit: 1/s}]\n"),
        ]
    ).policy
    assert policy is not None
    assert [rule.id for rule in policy.rules] == ["a", "b"]
    assert policy.identity.sources["team"] == Source(header="x-team")


def test_several_files_have_all_their_problems_told() -> None:
    good = "version: 1\nidentity: {}\nrules: [{id: a, key_by: ip, limit: 1/s}]\n"
    examined = examine_policies(
        [("1.yaml", good), ("2.yaml", good), ("3.yaml", "{"), ("4.yaml", "")]
    )
    assert examined.policy is None
    assert [(problem.where, problem.message) for problem in examined.problems] == [
        ("2.yaml", "identity is given in 1.yaml already"),
        ("2.yaml", "the id is taken by the rule at 1.yaml:3"),
        ("3.yaml", "not YAML: while parsing a flow node, did not find expected node content"),
        ("4.yaml", "there is nothing in it; expected a mapping with version and rules"),
    ]


def test_no_files_are_an_empty_policy() -> None:
    assert examine_policies([]).policy == Policy()


def test_reading_ends_after_two_hundred_errors_and_says_so() -> None:
    examined = examine_policy("version: 1\nrules:\n" + "- {}\n" * 1000)
    assert examined.policy is None
    assert len(examined.problems) == 201
    assert examined.problems[-1].message == "stopped after 200 errors; the rest was not checked"


def test_too_many_unknown_fields_end_the_reading_too() -> None:
    examined = examine_policy("".join(f"k{n}: 1\n" for n in range(1000)))
    assert examined.policy is None
    assert len(examined.problems) == 201
