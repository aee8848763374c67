"""What rules say of a bucket, as a rate and a burst of requests."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from headgate.engine.request import Request
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.loader import read_policy
from headgate.policy.model import Cost
from headgate.service.rlqs.rates import Allowance, BucketLimits, limits_of

RULE = '{{id: {id}, match: {{attributes: {{user: true}}}}, key_by: "attribute:user", {rest}}}'


def _terms(*rules: str, bucket: tuple[tuple[str, str], ...] = (("user", "ada"),)) -> BucketLimits:
    lines = [RULE.format(id=f"r{n}", rest=rest) for n, rest in enumerate(rules)]
    text = "version: 1\nrules:\n" + "".join(f"  - {line}\n" for line in lines)
    return limits_of(CompiledPolicy(read_policy(text)), "edge", bucket)


@pytest.mark.parametrize(
    ("limit", "rate", "burst"),
    [
        ("100/s", 100, 100),
        ("100/m burst 20", Fraction(100, 60), 20),
        ("10/s gcra burst 50", 10, 50),
        # In no minute more than 60: a tenth at once, the rest as a rate.
        ("60/m fixed_window", Fraction(54, 60), 6),
        ("60/m sliding_window_log", Fraction(54, 60), 6),
        ("2/m sliding_window_counter", Fraction(1, 60), 1),
        ("1/m fixed_window", Fraction(1, 60), 1),
    ],
)
def test_every_limit_is_a_rate_and_a_burst(limit: str, rate: Fraction, burst: int) -> None:
    (binding,) = _terms(f"limit: {limit}").bindings
    assert binding.allowance == Allowance(Fraction(rate), burst)


def test_queues_slots_and_turns_are_no_quotas() -> None:
    terms = _terms("shape: {rate: 2/s, queue: 9}", "concurrency: 5", "fair: {slots: 5}")
    assert terms == BucketLimits()
    (binding,) = _terms("shape: {rate: 2/s, queue: 9}", "limit: 100/s").bindings
    assert binding.rule.id == "r1"


def test_what_a_request_costs_divides_both() -> None:
    (binding,) = _terms("limit: 100/s burst 50, cost: 8").bindings
    assert binding.allowance == Allowance(Fraction(100, 8), 6)


def test_a_cost_above_the_limit_closes_the_bucket() -> None:
    line = RULE.format(id="r0", rest="limit: 5/s")
    policy = read_policy(f"version: 1\nrules:\n  - {line}\n")
    dear = replace(policy, rules=(replace(policy.rules[0], cost=Cost(6)),))
    assert limits_of(CompiledPolicy(dear), "edge", (("user", "ada"),)).is_closed


def test_the_tightest_rule_comes_first_and_names_the_ledger() -> None:
    terms = _terms("limit: 100/s", "limit: 10/s", "limit: 50/s")
    assert [one.rule.id for one in terms.bindings] == ["r1", "r2", "r0"]
    assert terms.is_shared
    assert "r1" in terms.ledger


def test_buckets_of_one_counter_have_one_ledger() -> None:
    one = _terms("limit: 10/s")
    other = _terms("limit: 10/s", bucket=(("path", "/x"), ("user", "ada")))
    assert one.ledger == other.ledger
    assert one.ledger != _terms("limit: 10/s", bucket=(("user", "bob"),)).ledger


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_rules_that_do_not_decide_do_not_bind(mode: str) -> None:
    assert _terms(f"limit: 10/s, mode: {mode}") == BucketLimits()


def test_a_request_that_costs_nothing_is_not_limited() -> None:
    assert _terms("limit: 10/s, cost: 0") == BucketLimits()


def test_no_rule_no_limit() -> None:
    assert _terms("limit: 10/s", bucket=(("tenant", "acme"),)) == BucketLimits()


@pytest.mark.parametrize("accuracy", ["", ", accuracy: {batch: 5}"])
def test_the_counters_of_rules_are_charged_however_exactly_they_are_kept(accuracy: str) -> None:
    terms = _terms(f"limit: 10/s{accuracy}")
    assert len(terms.charged) == 1


GATEWAY = """
version: 1
identity: {tier: {header: x-tier, default: free}}
rules:
  - {id: by-key, key_by: api_key, limits: {free: 10/s, paid: 50/s}}
  - {id: by-ip, match: {endpoint: /only/here, method: POST}, key_by: [ip, method, host], limit: 5/s}
  - {id: trial, key_by: ip, limit: 1/s, mode: shadow}
  - {id: asleep, key_by: ip, limit: 1/s, mode: "off"}
"""


def _of_gateway(rule: str, domain: str = "headgate", **entries: str) -> BucketLimits:
    bucket = tuple(sorted({"headgate.rule": rule, **entries}.items()))
    return limits_of(CompiledPolicy(read_policy(GATEWAY)), domain, bucket)


def test_a_bucket_that_names_its_rule_is_on_the_terms_of_that_rule_alone() -> None:
    terms = _of_gateway("by-ip", remote_address="10.0.0.1", method="POST", host="h")
    (binding,) = terms.bindings
    assert binding.rule.id == "by-ip", "though nothing tells that it matches"
    engine = CompiledPolicy(read_policy(GATEWAY))
    asked = Request("POST", "/only/here", "h", peer="10.0.0.1")
    assert binding.check == engine.plan_of("by-ip", asked).rules[0].checks[0]


def test_it_is_read_as_a_descriptor_is() -> None:
    free = _of_gateway("by-key", **{"x-api-key": "k", "remote_address": "10.0.0.1"})
    paid = _of_gateway("by-key", **{"x-api-key": "k", "x-tier": "paid"})
    other = _of_gateway("by-key", **{"x-api-key": "other"})
    assert [one.bindings[0].allowance.burst for one in (free, paid, other)] == [10, 50, 10]
    assert free.ledger == paid.ledger != other.ledger


@pytest.mark.parametrize("rule", ["trial", "asleep", "gone", ""])
def test_a_rule_that_decides_nothing_leaves_its_buckets_open(rule: str) -> None:
    assert _of_gateway(rule, remote_address="10.0.0.1") == BucketLimits()


def test_in_other_domains_the_key_is_an_ordinary_one() -> None:
    terms = _of_gateway("by-ip", "edge", remote_address="10.0.0.1")
    assert [one.rule.id for one in terms.bindings] == ["by-key"]
