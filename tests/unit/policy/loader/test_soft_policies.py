"""`priority` and `pressure`: what is read, and what of a policy has no effect without the rest."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from headgate.policy.loader import (
    examine_policies,
    examine_policy,
    examine_policy_data,
    read_policy,
)
from headgate.policy.model import Match, Pressure, PriorityClass
from headgate.policy.rule_cache import RuleCache
from headgate.units import MILLISECOND, SECOND

LIMITED = "{id: a, key_by: ip, limit: 5/s}"
FLOORED = "{id: a, key_by: ip, limit: 5/s, adaptive: {floor: 20%}}"
RESERVING = "{id: a, key_by: ip, concurrency: {limit: 5, reserve: {critical: 20%}}}"
TURNING = "{id: a, key_by: ip, fair: {slots: 5, reserve: {critical: 20%}}}"
PLAIN_TURNS = "{id: a, key_by: ip, fair: {slots: 5}}"
BY_CLASS = "{id: a, key_by: ip, concurrency: {limit: 5, share_by: priority, shares: {critical: 1}}}"
CRITICAL = "priority: [{class: critical, match: {endpoint: /pay}}]"


def problems(text: str) -> list[tuple[str, str, str]]:
    found = examine_policy(f"version: 1\n{text}\n").problems
    return [(one.severity, one.field or "", one.message) for one in found]


def test_classes_are_read_in_their_order() -> None:
    policy = read_policy(
        f"""
version: 1
priority:
  - {{class: critical, match: {{endpoint: /pay/**, method: post}}}}
  - {{class: sheddable, match: {{tier: [free, trial]}}}}
  - class: default
rules: [{RESERVING}]
"""
    )
    assert policy.priorities == (
        PriorityClass("critical", Match(endpoints=("/pay/**",), methods=("POST",))),
        PriorityClass("sheddable", Match(tiers=("free", "trial"))),
        PriorityClass("default", Match()),
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{}", Pressure()),
        ("{latency: 500ms}", Pressure(500 * MILLISECOND)),
        (
            (
                "{latency: 1, quantile: 99.9%, errors: 5%, queue: 100, interval: 2s, backoff: 50%,"
                " recovery: 1%, least: 20%}"
            ),
            Pressure(
                SECOND,
                Fraction(999, 1000),
                Fraction(1, 20),
                100,
                2 * SECOND,
                Fraction(1, 2),
                Fraction(1, 100),
                Fraction(1, 5),
            ),
        ),
    ],
)
def test_pressure_is_read(written: str, meant: Pressure) -> None:
    rules = f"{FLOORED}, {PLAIN_TURNS.replace('id: a', 'id: b')}"
    examined = examine_policy(f"version: 1\npressure: {written}\nrules: [{rules}]\n")
    assert examined.problems == ()
    assert examined.policy is not None
    assert examined.policy.pressure == meant


def test_without_them_there_are_none() -> None:
    policy = read_policy(f"version: 1\nrules: [{LIMITED}]\n")
    assert (policy.priorities, policy.pressure) == ((), None)


@pytest.mark.parametrize(
    ("written", "field", "message"),
    [
        ("priority: {class: critical}", "priority", "found a mapping, expected a list such as"),
        ("priority: [critical]", "priority[0]", "found 'critical', expected a class of requests"),
        ("priority: [{match: {}}]", "priority[0].class", "missing; expected one of critical, "),
        ("priority: [{class: vital}]", "priority[0].class", "found 'vital'"),
        ("priority: [{class: critical, path: /x}]", "priority[0].path", "unknown field"),
        (
            "priority: [{class: critical, match: {endpoint: pay}}]",
            "priority[0].match.endpoint",
            "'pay' does not begin with",
        ),
        ("pressure: 500ms", "pressure", "found 500ms, expected the signs of pressure"),
        ("pressure: {latency: fast}", "pressure.latency", "'fast' is not a time"),
        ("pressure: {errors: 0.05}", "pressure.errors", "found 0.05, expected a percentage"),
        ("pressure: {errors: 100%}", "pressure.errors", "found 100%, expected a percentage above"),
        ("pressure: {backoff: 100%}", "pressure.backoff", "found 100%, expected a percentage abov"),
        ("pressure: {interval: 1ms}", "pressure.interval", "found 1ms, expected a time from 10ms"),
        ("pressure: {queue: -1}", "pressure.queue", "found '-1', expected a whole number from 0"),
        ("pressure: {letency: 5s}", "pressure.letency", "unknown field"),
    ],
)
def test_what_is_wrong_is_refused_where_it_stands(written: str, field: str, message: str) -> None:
    told = problems(f"{written}\nrules: [{FLOORED}]")
    severity, where, found = next(one for one in told if one[0] == "error")
    assert (severity, where, found[: len(message)]) == ("error", field, message)


@pytest.mark.parametrize(
    ("written", "field", "message"),
    [
        (
            f"pressure: {{}}\nrules: [{LIMITED}]",
            "pressure",
            "it has no effect: no rule has a floor",
        ),
        (f"rules: [{FLOORED}]", "", "its floor has no effect: the policy has no pressure"),
        (f"{CRITICAL}\nrules: [{LIMITED}]", "priority", "no rule uses it: none has a reserve"),
        (f"rules: [{RESERVING}]", "", "it reserves something for critical requests, and priority"),
        (f"rules: [{TURNING}]", "", "it reserves something for critical requests, and priority"),
        (
            f"pressure: {{backoff: 50%}}\nrules: [{FLOORED}]",
            "pressure",
            "it has no sign of pressure: only a signal of the app itself can lower limits",
        ),
        (
            f"pressure: {{quantile: 50%, errors: 5%}}\nrules: [{FLOORED}]",
            "pressure.quantile",
            "it has no effect without latency",
        ),
        (
            f"pressure: {{queue: 5}}\nrules: [{FLOORED}]",
            "pressure.queue",
            "it has no effect: it is about requests in fair queues, and no rule has fair",
        ),
        (
            f"pressure: {{}}\nrules: [{FLOORED.replace('}}', '}, cost: 4}')}]",
            "adaptive.floor",
            "at the floor 1 of 5 are left: a request that costs 4 cannot pass then",
        ),
        (
            f"{CRITICAL}\nrules: [{TURNING.replace('5', '1')}]",
            "fair.reserve",
            "it has no effect: one slot cannot be reserved in part",
        ),
        (
            f"{CRITICAL}\nrules: [{RESERVING.replace('5', '1')}]",
            "concurrency.reserve",
            "it has no effect: one slot cannot be reserved in part",
        ),
        (
            "rules: [{id: a, key_by: ip, fair: {slots: 5}, cost: 0}]",
            "cost",
            "it has no effect: a request costs at least 1 in a fair queue",
        ),
        (
            "rules: [{id: a, key_by: ip, concurrency: 5, cost: 0}]",
            "cost",
            "it has no effect: a request takes one slot, whatever it costs",
        ),
        (
            (
                "priority: [{class: critical}, {class: sheddable, match: {tier: a}}]\n"
                f"rules: [{RESERVING}]"
            ),
            "priority[1]",
            "it is never used: the entry 1 is for every request",
        ),
        (
            (
                "rules: [{id: a, key_by: ip, fair: {slots: 5}}]\noverrides:\n"
                '  - {rule: a, key: ip=1.2.3.4, block: true, until: "2100-01-01T00:00:00Z"}'
            ),
            "overrides[0]",
            "it has no effect: the rule 'a' has a queue and no counters",
        ),
        (
            (
                "rules: [{id: a, key_by: ip, shape: {rate: 1/s, queue: 5, max_wait: 1s}}]\n"
                'overrides: [{rule: a, key: ip=1, extra: 5, until: "2100-01-01T00:00:00Z"}]'
            ),
            "overrides[0].extra",
            "it has no effect on 1/s in a queue of 5 for at most 1 s",
        ),
    ],
)
def test_what_has_no_effect_is_warned_of(written: str, field: str, message: str) -> None:
    ((severity, where, found),) = problems(written)
    assert (severity, where) == ("warning", field or where)
    assert found[: len(message)] == message


def test_a_queue_that_somebody_waits_in_is_pressure_without_a_word() -> None:
    turning = PLAIN_TURNS.replace("id: a", "id: b")
    assert problems(f"pressure: {{queue: 5}}\nrules: [{FLOORED}, {turning}]") == []


@pytest.mark.parametrize("rule", [RESERVING, TURNING, PLAIN_TURNS, BY_CLASS])
def test_what_priority_is_for_goes_without_a_word(rule: str) -> None:
    assert problems(f"{CRITICAL}\nrules: [{rule}]") == []


@pytest.mark.parametrize(
    ("terms", "field", "what"),
    [
        ("fair: {slots: 5, weights: {paid: 2, gold: 3, default: 1}}", "fair.weights", "weight"),
        (
            "concurrency: {limit: 5, share_by: tier, shares: {paid: 2, gold: 2}}",
            "concurrency.share_by",
            "share",
        ),
    ],
)
def test_a_tier_that_nobody_is_looked_up_to_be_is_warned_of(
    terms: str, field: str, what: str
) -> None:
    looked_up = "identity: {tier: {lookup: api_key, values: {k: paid}, default: free}}"
    told = f"no caller is looked up to be 'gold', which has a {what}"
    found = problems(f"{looked_up}\nrules: [{{id: a, key_by: ip, {terms}}}]")
    assert found == [("warning", field, told)]


def test_an_override_may_let_more_wait() -> None:
    queued = "{id: a, key_by: ip, shape: {rate: 1/s, queue: 5, max_wait: 1h}}"
    override = '{rule: a, key: ip=1.2.3.4, extra: 5, until: "2100-01-01T00:00:00Z"}'
    assert problems(f"rules: [{queued}]\noverrides: [{override}]") == []
    error = problems(f"rules: [{queued}]\noverrides: [{override.replace('5,', '1_000_000,')}]")[0]
    assert "queue is 1000005; it must be from 0 to 1000000" in error[2]


@pytest.mark.parametrize("name", ["priority", "pressure"])
def test_each_is_in_one_of_several_files(name: str) -> None:
    given = {"priority": "[{class: critical}]", "pressure": "{latency: 1s}"}[name]
    rules = ("rules.yaml", f"version: 1\nrules: [{FLOORED}, {RESERVING.replace('id: a', 'id: b')}]")
    one = ("one.yaml", f"version: 1\n{name}: {given}")
    policy = examine_policies([rules, one]).policy
    assert policy is not None
    assert (bool(policy.priorities), policy.pressure is not None) == (
        name == "priority",
        name == "pressure",
    )
    told = examine_policies([rules, one, ("two.yaml", one[1])])
    assert told.policy is None
    messages = [problem.message for problem in told.problems if problem.severity == "error"]
    assert messages == [f"{name} is given in one.yaml already"]


def test_a_remembered_rule_is_warned_of_when_what_drives_it_goes() -> None:
    memory = RuleCache()
    rule = {"id": "a", "key_by": "ip", "limit": "5/s", "adaptive": {"floor": "20%"}}
    driven: dict[str, Any] = {"version": 1, "pressure": {}, "rules": [rule]}
    for _ in range(2):
        assert examine_policy_data(driven, cache=memory).problems == ()
    del driven["pressure"]
    for _ in range(2):
        (problem,) = examine_policy_data(driven, cache=memory).problems
        assert (problem.severity, problem.rule) == ("warning", "a")


@pytest.mark.parametrize(
    ("written", "field", "rule"),
    [
        ("pressure: {latency: 1s, backoff: 100%}", "pressure.backoff", FLOORED),
        ("priority: [{class: vip}]", "priority[0].class", RESERVING),
        ("priority: critical", "priority", RESERVING),
    ],
)
def test_what_could_not_be_read_is_not_said_to_be_missing_too(
    written: str, field: str, rule: str
) -> None:
    (problem,) = problems(f"{written}\nrules: [{rule}]")
    assert problem[:2] == ("error", field)
